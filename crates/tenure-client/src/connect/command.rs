//! A server that is started as a child process and spoken to over its standard streams.
//!
//! rmcp has a transport for this too, but it keeps the child's output to itself, and the tap has to see it.

use std::{collections::BTreeMap, ffi::OsString, io, path::PathBuf, process::Stdio, time::Duration};

use rmcp::{
    RoleClient, Service,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use tokio::process::{self, ChildStdin, ChildStdout};

use super::Client;
use crate::{
    error::{Error, Kind},
    jar::Server,
    layer::{Options, SessionTransport, Tap, TapReader},
};

/// How long a child may take to end after its input was closed, before it is killed.
const EXIT_WITHIN: Duration = Duration::from_secs(3);

/// How a server is started.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Command {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// What is added to its environment.
    pub env: BTreeMap<OsString, OsString>,
    /// Where it runs; else where we do.
    pub cwd: Option<PathBuf>,
    /// On whose behalf, if the jar has to tell.
    pub principal: Option<String>,
}

impl Command {
    /// A program with these arguments.
    pub fn new(program: impl Into<String>, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// How the jar knows the server.
    pub fn server(&self) -> Server {
        let server = Server::command(&self.program, &self.args, self.cwd.as_deref());
        match &self.principal {
            Some(principal) => server.with_principal(principal),
            None => server,
        }
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments and environment may hold tokens.
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// Starts a server and connects to it.
///
/// # Errors
///
/// `Kind::Closed` if it cannot be started or the handshake fails.
///
/// # Cancel safety
///
/// The child is killed.
pub async fn connect_command(command: &Command, options: Options) -> Result<Client, Error> {
    connect_command_with((), command, options).await
}

/// As `connect_command`, with a handler for what the server asks of its client.
///
/// # Errors
///
/// As `connect_command`.
pub async fn connect_command_with<H: Service<RoleClient>>(
    handler: H,
    command: &Command,
    options: Options,
) -> Result<Client<H>, Error> {
    let start = |options| {
        let tap = Tap::default();
        let child = Child::start(command, tap.clone());
        let child = child.map_err(|error| {
            Error::with_source(Kind::Closed, format!("start `{}`", command.program), error)
        })?;
        Ok(SessionTransport::new(child, tap, command.server(), options))
    };
    Client::start_with(handler, options, start, |_| true).await
}

/// A child process as a transport. Its standard error is ours.
pub struct Child {
    process: process::Child,
    lines: AsyncRwTransport<RoleClient, TapReader<ChildStdout>, ChildStdin>,
}

impl Child {
    /// Starts the process and shows what it writes to the tap.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn start(command: &Command, tap: Tap) -> io::Result<Self> {
        let mut starting = process::Command::new(&command.program);
        starting.args(&command.args).envs(&command.env).kill_on_drop(true);
        starting.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        if let Some(cwd) = &command.cwd {
            starting.current_dir(cwd);
        }
        let mut process = starting.spawn()?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("the child has no pipes"));
        };
        Ok(Self { process, lines: AsyncRwTransport::new_client(TapReader::new(stdout, tap), stdin) })
    }

    /// The id of the process, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Child").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Transport<RoleClient> for Child {
    type Error = io::Error;

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.lines.send(item)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.lines.receive().await
    }

    async fn close(&mut self) -> io::Result<()> {
        // The end of its input is how a server over standard streams is told to stop.
        self.lines.close().await?;
        match tokio::time::timeout(EXIT_WITHIN, self.process.wait()).await {
            Ok(status) => {
                tracing::debug!(status = %status?, "the server's process ended");
                Ok(())
            }
            Err(_elapsed) => {
                tracing::warn!("the server's process did not end, killing it");
                self.process.kill().await
            }
        }
    }
}
