//! Runs `tenure stdio` and holds its pipes.

use std::ops::{Deref, DerefMut};
use std::process::{ExitStatus, Stdio};

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio_util::task::AbortOnDropHandle;

use super::talk::Talk;
use crate::cli::process::tenure;
use crate::support::wait::within;

/// A process and the client's end of its pipes.
pub(crate) struct Process {
    talk: Talk,
    child: Child,
    logs: AbortOnDropHandle<String>,
}

/// How a process ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The messages that were not read.
    pub(crate) rest: Vec<Value>,
    pub(crate) logs: String,
}

impl Process {
    /// Starts it with these arguments. Its store is its memory, unless they say otherwise.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = tenure(&["stdio"]);
        command.env("TENURE_STORE", "memory:").args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let talk = Talk::new(child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut err = child.stderr.take().expect("piped");
        let logs = tokio::spawn(async move {
            let mut text = String::new();
            err.read_to_string(&mut text).await.expect("UTF-8");
            text
        });
        Self { talk, child, logs: AbortOnDropHandle::new(logs) }
    }

    /// Starts it and opens a session.
    pub(crate) async fn open(arguments: &[&str]) -> Self {
        let mut process = Self::start(arguments);
        process.shake_hands().await;
        process
    }

    /// Sends a signal to this process and no other.
    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().await.expect("kill");
        assert!(sent.success());
    }

    /// Closes nothing, and waits until it has gone.
    pub(crate) async fn exited(&mut self) -> ExitStatus {
        within("the process ends", self.child.wait()).await.expect("a status")
    }

    /// Everything that was logged, once it has gone.
    pub(crate) async fn logs(self) -> String {
        within("logs", self.logs).await.expect("logs")
    }

    /// From here on the log is not read.
    pub(crate) fn close_logs(&self) {
        self.logs.abort();
    }

    /// Reads until it has gone.
    pub(crate) async fn ended(mut self) -> Ended {
        let rest = self.talk.rest().await;
        let status = self.exited().await;
        Ended { status, rest, logs: within("logs", self.logs).await.expect("logs") }
    }

    /// Closes the input and expects a good end; returns the messages that came until then.
    pub(crate) async fn close(mut self) -> Vec<Value> {
        self.close_input();
        let ended = self.ended().await;
        assert_eq!(ended.status.code(), Some(0), "{}", ended.logs);
        assert!(!ended.logs.contains("panicked"), "{}", ended.logs);
        ended.rest
    }
}

impl Deref for Process {
    type Target = Talk;

    fn deref(&self) -> &Talk {
        &self.talk
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Talk {
        &mut self.talk
    }
}
