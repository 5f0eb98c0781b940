//! Runs the binary, reads what it says, sends it signals.

use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio_util::task::AbortOnDropHandle;

use crate::support::node::patient_flags;
use crate::support::wait::within;

/// The command with nothing of this process's environment that could steer it.
pub(crate) fn tenure(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TENURE_") {
            command.env_remove(name);
        }
    }
    // Servers of other tests keep their sessions in memory too, and operators would find them.
    command.env("XDG_RUNTIME_DIR", "/dev/null/none");
    // Help is wrapped to the terminal's width; without one, to the most that is allowed.
    command.env_remove("COLUMNS").args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// What a finished command said.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command to its end.
pub(crate) async fn run(arguments: &[&str]) -> Said {
    finish(tenure(arguments)).await
}

pub(crate) async fn finish(mut command: Command) -> Said {
    let output = within("the command ends", command.output()).await.expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A server in a process of its own.
pub(crate) struct Server {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: AbortOnDropHandle<String>,
    pub(crate) url: String,
}

impl Server {
    /// Starts `tenure serve` on a free port with these arguments, and reads its address.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let mut command = tenure(&["serve", "--listen", "127.0.0.1:0"]);
        // Not in the user's own folder, unless the arguments say where.
        command.env("TENURE_STORE", "memory:").env("TENURE_STREAMS_RETRY_JITTER", "0%");
        // Settings of the test come later, and win.
        command.args(patient_flags()).args(arguments);
        Self::of(command).await
    }

    /// Starts a server and reads its address.
    pub(crate) async fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut err = child.stderr.take().expect("piped");
        let err = tokio::spawn(async move {
            let mut text = String::new();
            err.read_to_string(&mut text).await.expect("UTF-8");
            text
        });
        let url = within("the address", out.next_line()).await.expect("a line").expect("an address");
        Self { child, out, err: AbortOnDropHandle::new(err), url }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let address = self.url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp"));
        address
            .and_then(|address| address.parse().ok())
            .unwrap_or_else(|| panic!("an endpoint: {}", self.url))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Sends a signal to this process and no other.
    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().await.expect("kill");
        assert!(sent.success());
    }

    /// Waits for the end; returns how it ended, and what it said after the address and as logs.
    pub(crate) async fn ended(mut self) -> (ExitStatus, String, String) {
        let status = within("the process ends", self.child.wait()).await.expect("a status");
        let mut out = String::new();
        while let Some(line) = within("output", self.out.next_line()).await.expect("UTF-8") {
            out.push_str(&line);
        }
        (status, out, within("logs", self.err).await.expect("logs"))
    }
}
