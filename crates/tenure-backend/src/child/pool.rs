//! Children that were started ahead: a session takes one, and another is started in its place.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot::error::TryRecvError;

use super::command::ChildCommand;
use super::process::Process;
use super::warden::Warden;

pub(super) struct Pool {
    command: ChildCommand,
    warden: Option<Arc<Warden>>,
    ready: Mutex<Ready>,
}

#[derive(Default)]
struct Ready {
    processes: VecDeque<Process>,
    /// Those that are being started. Without counting them, sessions that begin together would each start one too many.
    starting: usize,
}

impl Pool {
    pub(super) fn new(command: ChildCommand, warden: Option<Arc<Warden>>) -> Self {
        Self { command, warden, ready: Mutex::default() }
    }

    pub(super) fn command(&self) -> &ChildCommand {
        &self.command
    }

    /// A child that has just been started, or was before.
    pub(super) fn take(&self) -> std::io::Result<Process> {
        loop {
            let ready = self.ready.lock().processes.pop_front();
            match ready {
                // It may have died while it waited.
                Some(mut process) => {
                    let ended = process.handle.ended_by_itself.as_mut();
                    if ended.is_some_and(|ended| {
                        ended.try_recv().is_err_and(|error| error == TryRecvError::Empty)
                    }) {
                        self.fill();
                        return Ok(process);
                    }
                }
                None => {
                    let process = Process::start(&self.command, self.warden.clone())?;
                    self.fill();
                    return Ok(process);
                }
            }
        }
    }

    /// Starts as many as are to be ready.
    pub(super) fn fill(&self) {
        while self.wants_another() {
            let started = Process::start(&self.command, self.warden.clone());
            let mut ready = self.ready.lock();
            ready.starting -= 1;
            match started {
                Ok(process) => ready.processes.push_back(process),
                Err(error) => {
                    drop(ready);
                    tracing::warn!(program = %self.command.program.display(), %error, "could not start a server ahead");
                    return;
                }
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
