//! A pool of children that were started ahead: a session takes one, and the pool starts another.
//!
//! A spare may die while it waits. That says nothing about the command, so its session asks for a fresh child.
//!
//! The number of children is limited, including those that are ending. At the limit no child is started ahead, and a
//! session waits a little for a permit before it is refused.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::command::ChildCommand;
use super::process::Process;
use super::warden::Warden;

pub(super) struct Pool {
    command: ChildCommand,
    warden: Option<Arc<Warden>>,
    /// One permit per process; a process holds its permit until it has ended.
    permits: Arc<Semaphore>,
    ready: Mutex<Ready>,
    /// Cancelled when the children that were started so far have to end. Then there is another one, for the next children.
    restart: Mutex<CancellationToken>,
}

#[derive(Default)]
struct Ready {
    processes: VecDeque<Process>,
    /// Children that are being started. If they were not counted, sessions that begin together would start too many.
    starting: usize,
}

/// Which child is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WantedChild {
    /// A child that was started ahead, if there is one.
    Any,
    /// A child that is started now.
    Fresh,
}

/// A child, and whether it was started ahead.
pub(super) struct TakenChild {
    pub(super) process: Process,
    pub(super) is_spare: bool,
}

/// Why there is no child.
pub(super) enum NoChild {
    /// The limit is reached.
    Full,
    Failed(std::io::Error),
}

impl Pool {
    pub(super) fn new(command: ChildCommand, warden: Option<Arc<Warden>>) -> Self {
        let permits = Arc::new(Semaphore::new(command.limits.max.min(Semaphore::MAX_PERMITS)));
        Self { command, warden, permits, ready: Mutex::default(), restart: Mutex::default() }
    }

    /// Takes a child; waits up to `patience` for a permit. At the limit, a session that wants a fresh child gets a
    /// spare after all. Starts no child ahead.
    pub(super) async fn take(
        &self,
        wanted: WantedChild,
        variables: &[(&'static str, String)],
        patience: Duration,
    ) -> Result<TakenChild, NoChild> {
        if let WantedChild::Any = wanted
            && let Some(spare) = self.take_ready()
        {
            return Ok(spare);
        }
        let permit = tokio::time::timeout(patience, Arc::clone(&self.permits).acquire_owned()).await;
        match permit {
            Ok(Ok(permit)) => match self.start(variables, permit) {
                Ok(process) => Ok(TakenChild { process, is_spare: false }),
                Err(error) => Err(NoChild::Failed(error)),
            },
            Ok(Err(_)) | Err(_) => self.take_ready().ok_or(NoChild::Full),
        }
    }

    fn take_ready(&self) -> Option<TakenChild> {
        loop {
            let process = self.ready.lock().processes.pop_front()?;
            // The spare may have died while it waited.
            if !process.handle.has_ended() {
                return Some(TakenChild { process, is_spare: true });
            }
        }
    }

    fn start(
        &self,
        variables: &[(&'static str, String)],
        permit: OwnedSemaphorePermit,
    ) -> std::io::Result<Process> {
        let restart = self.restart.lock().clone();
        Process::start(&self.command, variables, self.warden.clone(), (permit, restart))
    }

    /// Ends every child, as if each had ended by itself: its session gets another one.
    pub(super) fn restart(&self) {
        // First, so that a child that starts meanwhile is either among those that end or a new one.
        let before = std::mem::take(&mut *self.restart.lock());
        before.cancel();
        // A spare serves no session, so no session asks for another one in its place.
        let spares = std::mem::take(&mut self.ready.lock().processes);
        drop(spares);
        self.fill();
    }

    /// Starts children ahead up to `warm`, or until the limit is reached.
    pub(super) fn fill(&self) {
        while self.wants_another() {
            let started = Arc::clone(&self.permits).try_acquire_owned().map(|permit| self.start(&[], permit));
            let mut ready = self.ready.lock();
            ready.starting -= 1;
            match started {
                Ok(Ok(process)) => ready.processes.push_back(process),
                Ok(Err(error)) => {
                    drop(ready);
                    tracing::warn!(
                        program = %self.command.program.display(), %error,
                        "could not start a server ahead"
                    );
                    return;
                }
                Err(_) => return,
            }
        }
    }

    fn wants_another(&self) -> bool {
        let mut ready = self.ready.lock();
        let wants = ready.processes.len() + ready.starting < self.command.limits.warm;
        ready.starting += usize::from(wants);
        wants
    }
}
