//! Children that were started ahead: a session takes one, and another is started in its place.
//!
//! A spare may die while it waits, or be about to, and says nothing about the command then: its session asks for
//! a fresh one.
//!
//! There are never more than a limit, those that are leaving included. One that is to be started ahead is not started
//! at the limit; one that is wanted waits a little for another to leave, and is refused then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::command::ChildCommand;
use super::process::Process;
use super::warden::Warden;

pub(super) struct Pool {
    command: ChildCommand,
    warden: Option<Arc<Warden>>,
    /// One for each process that may be; a process has one until it is gone.
    places: Arc<Semaphore>,
    ready: Mutex<Ready>,
}

#[derive(Default)]
struct Ready {
    processes: VecDeque<Process>,
    /// Those that are being started. Without counting them, sessions that begin together would each start one too many.
    starting: usize,
}

/// Which child is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// One that was started ahead, if there is one.
    Any,
    /// One that is started now.
    Fresh,
}

/// A child, and whether it was started ahead.
pub(super) struct Taken {
    pub(super) process: Process,
    pub(super) is_spare: bool,
}

/// Why there is no child.
pub(super) enum NoChild {
    /// There are as many as there may be.
    Full,
    Failed(std::io::Error),
}

impl Pool {
    pub(super) fn new(command: ChildCommand, warden: Option<Arc<Warden>>) -> Self {
        let places = Arc::new(Semaphore::new(command.limits.max.min(Semaphore::MAX_PERMITS)));
        Self { command, warden, places, ready: Mutex::default() }
    }

    /// A child as it is wanted; waits this long for a place. At the limit, a session that wants a fresh one gets a spare after
    /// all. None is started ahead.
    pub(super) async fn take(&self, wanted: Wanted, patience: Duration) -> Result<Taken, NoChild> {
        if let Wanted::Any = wanted
            && let Some(spare) = self.take_ready()
        {
            return Ok(spare);
        }
        let place = tokio::time::timeout(patience, Arc::clone(&self.places).acquire_owned()).await;
        match place {
            Ok(Ok(place)) => match self.start(place) {
                Ok(process) => Ok(Taken { process, is_spare: false }),
                Err(error) => Err(NoChild::Failed(error)),
            },
            Ok(Err(_)) | Err(_) => self.take_ready().ok_or(NoChild::Full),
        }
    }

    fn take_ready(&self) -> Option<Taken> {
        loop {
            let process = self.ready.lock().processes.pop_front()?;
            // It may have died while it waited.
            if !process.handle.has_ended() {
                return Some(Taken { process, is_spare: true });
            }
        }
    }

    fn start(&self, place: OwnedSemaphorePermit) -> std::io::Result<Process> {
        Process::start(&self.command, self.warden.clone(), place)
    }

    /// Starts as many as are to be ready, or as there may be.
    pub(super) fn fill(&self) {
        while self.wants_another() {
            let started = Arc::clone(&self.places).try_acquire_owned().map(|place| self.start(place));
            let mut ready = self.ready.lock();
            ready.starting -= 1;
            match started {
                Ok(Ok(process)) => ready.processes.push_back(process),
                Ok(Err(error)) => {
                    drop(ready);
                    tracing::warn!(program = %self.command.program.display(), %error, "could not start a server ahead");
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
