//! Who calls: a client over HTTP, or one that has started the server and talks to its pipes.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::client::{Connection, Endpoint, INITIALIZE, INITIALIZED, ToolCall, open_session};
use crate::load::{Caller, Calls};

const BUFFER_BYTES: usize = 8 * 1024;

/// A caller that can open further sessions, which it keeps and does not use.
pub(super) trait Opens: Calls + Sized {
    /// Connects again if the other side has hung up meanwhile; the session stays.
    fn refresh(&mut self) -> impl Future<Output = Result<()>> + Send;
    fn open(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// Over HTTP, with a connection and a session of its own.
#[derive(Debug)]
pub(super) struct HttpCaller {
    caller: Caller,
    endpoint: Endpoint,
}

impl HttpCaller {
    pub(super) async fn connect(endpoint: &Endpoint) -> Result<HttpCaller> {
        let mut connection = Connection::open(endpoint, BUFFER_BYTES).await?;
        let session = open_session(&mut connection, endpoint).await?;
        let call = ToolCall::echo(endpoint, session.as_deref());
        Ok(HttpCaller { caller: Caller { connection, call }, endpoint: endpoint.clone() })
    }
}

impl Calls for HttpCaller {
    async fn call(&mut self) -> Result<()> {
        self.caller.call().await
    }
}

impl Opens for HttpCaller {
    async fn refresh(&mut self) -> Result<()> {
        // The runtime has to hear of it first.
        tokio::task::yield_now().await;
        if self.caller.connection.is_closed() {
            self.caller.connection = Connection::open(&self.endpoint, BUFFER_BYTES).await?;
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<()> {
        let session = open_session(&mut self.caller.connection, &self.endpoint).await?;
        ensure!(session.is_some(), "the gateway gave no session id");
        Ok(())
    }
}

/// Over the pipes of a process of its own.
#[derive(Debug)]
pub(super) struct PipeCaller {
    server: Server,
    call: ToolCall,
    program: PathBuf,
    others: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    _child: Child,
}

impl PipeCaller {
    pub(super) async fn connect(program: &Path) -> Result<PipeCaller> {
        let server = Server::start(program).await?;
        Ok(PipeCaller { server, call: ToolCall::line(), program: program.to_owned(), others: Vec::new() })
    }
}

impl Calls for PipeCaller {
    async fn call(&mut self) -> Result<()> {
        self.server.exchange(self.call.next_request()).await?;
        self.call.check(200, &self.server.line)
    }
}

impl Opens for PipeCaller {
    async fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    async fn open(&mut self) -> Result<()> {
        self.others.push(Server::start(&self.program).await?);
        Ok(())
    }
}

impl Server {
    async fn start(program: &Path) -> Result<Server> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start `{}`", program.display()))?;
        let input = child.stdin.take().context("take the server's input")?;
        let output = BufReader::new(child.stdout.take().context("take the server's output")?);
        let mut server = Server { input, output, line: Vec::new(), _child: child };
        server.exchange(format!("{INITIALIZE}\n").as_bytes()).await.context("shake hands")?;
        server.input.write_all(format!("{INITIALIZED}\n").as_bytes()).await.context("shake hands")?;
        Ok(server)
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<()> {
        self.input.write_all(request).await.context("write to the server")?;
        self.line.clear();
        let count = self.output.read_until(b'\n', &mut self.line).await.context("read from the server")?;
        ensure!(count > 0, "the server has ended");
        Ok(())
    }
}
