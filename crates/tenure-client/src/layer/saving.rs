//! Writes the jar away from the tasks that carry messages: its lock and its disk may keep a thread waiting.

use tokio::task::JoinHandle;

use super::holder::Entry;
use crate::{
    clock,
    error::Error,
    jar::{Jar, Server},
};

pub(super) struct Saving {
    jar: Jar,
    running: Option<JoinHandle<()>>,
}

impl Saving {
    pub(super) fn new(jar: Jar) -> Self {
        Self { jar, running: None }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Starts to write. Only when nothing is being written.
    pub(super) fn start(&mut self, server: Server, entries: Vec<Entry>) {
        debug_assert!(self.running.is_none(), "one after the other, or they overtake each other");
        if self.jar.is_in_memory() {
            return write(&self.jar, &server, &entries);
        }
        let jar = self.jar.clone();
        self.running = Some(tokio::task::spawn_blocking(move || write(&jar, &server, &entries)));
    }

    /// Writes here and now, for when there is no later.
    pub(super) fn write_now(&self, server: &Server, entries: &[Entry]) {
        write(&self.jar, server, entries);
    }

    /// Waits until what was started is written. Safe to cancel: the next call waits on.
    pub(super) async fn done(&mut self) {
        if let Some(running) = &mut self.running {
            if let Err(error) = running.await {
                tracing::error!(%error, "the task that writes the jar failed");
            }
            self.running = None;
        }
    }
}

/// A jar that cannot be written is no reason to stop: the session goes on, only the next process will not
/// know of it.
fn write(jar: &Jar, server: &Server, entries: &[Entry]) {
    let now = clock::now();
    let written: Result<(), Error> = jar.update(|book| {
        for entry in entries {
            entry.write(book, server, now);
        }
    });
    if let Err(error) = written {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        tracing::warn!(%error, cause, "cannot write the jar");
    }
}
