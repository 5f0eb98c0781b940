//! Children that were started ahead: a session takes one, and another is started in its place.
//!
//! There are never more than a limit, those that are leaving included. One that is to be started ahead is not started
//! at the limit; one that is wanted waits a little for another to leave, and is refused then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot::error::TryRecvError;
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

    /// A child that has just been started, or was before; waits this long for a place. None is started ahead.
    pub(super) async fn take(&self, patience: Duration) -> Result<Process, NoChild> {
        if let Some(process) = self.take_ready() {
            return Ok(process);
        }
        let place = tokio::time::timeout(patience, Arc::clone(&self.places).acquire_owned()).await;
        match place {
            Ok(Ok(place)) => self.start(place).map_err(NoChild::Failed),
            Ok(Err(_)) | Err(_) => self.take_ready().ok_or(NoChild::Full),
        }
    }

    fn take_ready(&self) -> Option<Process> {
        loop {
            let mut process = self.ready.lock().processes.pop_front()?;
            // It may have died while it waited.
            let ended = process.handle.ended_by_itself.as_mut();
            if ended.is_some_and(|ended| ended.try_recv().is_err_and(|error| error == TryRecvError::Empty)) {
                return Some(process);
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
