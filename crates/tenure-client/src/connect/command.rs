//! A server that runs as a child process and is reached over its standard streams.
//!
//! rmcp has a transport for this too, but gives no access to the child's output, which the tap must read.

use std::{collections::BTreeMap, ffi::OsString, io, path::PathBuf, process::Stdio, time::Duration};

use rmcp::{
    RoleClient, Service,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use tokio::process::{self, ChildStdin, ChildStdout};

use super::ConnectedClient;
use crate::{
    error::{ClientErrorKind, Error},
    jar::JarServer,
    layer::{SessionOptions, SessionTransport, Tap, TapReader},
};

/// How long a child may run after its input was closed, before it is killed.
const EXIT_WITHIN: Duration = Duration::from_secs(3);

/// How a server is started.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ServerCommand {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that are added to its environment.
    pub env: BTreeMap<OsString, OsString>,
    /// Its working directory; else our own.
    pub cwd: Option<PathBuf>,
    /// The user for whom it runs, if the jar must keep users apart.
    pub principal: Option<String>,
}

impl ServerCommand {
    /// A program with these arguments.
    pub fn new(program: impl Into<String>, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The server under which the jar keeps its cookies.
    pub fn server(&self) -> JarServer {
        let server = JarServer::command(&self.program, &self.args, self.cwd.as_deref());
        match &self.principal {
            Some(principal) => server.with_principal(principal),
            None => server,
        }
    }
}

impl std::fmt::Debug for ServerCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments and environment may hold tokens.
        f.debug_struct("ServerCommand")
            .field("program", &self.program)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// Starts a server and connects to it.
///
/// # Errors
///
/// `ClientErrorKind::Closed` if it cannot be started or the handshake fails.
///
/// # Cancel safety
///
/// The child is killed.
pub async fn connect_command(
    command: &ServerCommand,
    options: SessionOptions,
) -> Result<ConnectedClient, Error> {
    connect_command_with((), command, options).await
}

/// As `connect_command`, with a handler for the server's requests to its client.
///
/// # Errors
///
/// As `connect_command`.
pub async fn connect_command_with<H: Service<RoleClient>>(
    handler: H,
    command: &ServerCommand,
    options: SessionOptions,
) -> Result<ConnectedClient<H>, Error> {
    let start = |options| {
        let tap = Tap::default();
        let child = ServerProcess::start(command, tap.clone());
        let child = child.map_err(|error| {
            Error::with_source(ClientErrorKind::Closed, format!("start `{}`", command.program), error)
        })?;
        Ok(SessionTransport::new(child, tap, command.server(), options))
    };
    ConnectedClient::start_with(handler, options, start, |_| true).await
}

/// A child process as a transport. It inherits our standard error.
pub struct ServerProcess {
    process: process::Child,
    lines: AsyncRwTransport<RoleClient, TapReader<ChildStdout>, ChildStdin>,
}

impl ServerProcess {
    /// Starts the process. The tap reads its output.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    pub fn start(command: &ServerCommand, tap: Tap) -> io::Result<Self> {
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

impl std::fmt::Debug for ServerProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerProcess").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Transport<RoleClient> for ServerProcess {
    type Error = io::Error;

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.lines.send(item)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.lines.receive().await
    }

    async fn close(&mut self) -> io::Result<()> {
        // A closed input tells a server on standard streams to stop.
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
