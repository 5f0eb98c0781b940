//! Writes the jar on a blocking thread, because its lock and its disk may block.

use tokio::task::JoinHandle;

use super::holder::JarEntry;
use crate::{
    clock,
    error::Error,
    jar::{Jar, JarServer},
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

    /// Starts a write. Must not be called while a write is running.
    pub(super) fn start(&mut self, server: JarServer, entries: Vec<JarEntry>) {
        debug_assert!(self.running.is_none(), "one after the other, or they overtake each other");
        if self.jar.is_in_memory() {
            return write(&self.jar, &server, &entries);
        }
        let jar = self.jar.clone();
        self.running = Some(tokio::task::spawn_blocking(move || write(&jar, &server, &entries)));
    }

    /// Writes at once on this thread, for a transport that is being dropped.
    pub(super) fn write_now(&self, server: &JarServer, entries: &[JarEntry]) {
        write(&self.jar, server, entries);
    }

    /// Waits for the end of the running write. Safe to cancel: the next call waits for the same write.
    pub(super) async fn done(&mut self) {
        if let Some(running) = &mut self.running {
            if let Err(error) = running.await {
                tracing::error!(%error, "the task that writes the jar failed");
            }
            self.running = None;
        }
    }
}

/// A failed write does not stop the session; only the next process will not know it.
fn write(jar: &Jar, server: &JarServer, entries: &[JarEntry]) {
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
