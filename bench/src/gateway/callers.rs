//! Who calls: a client over HTTP, or one that has started the server and talks to its pipes.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::client::{Calling, Endpoint, INITIALIZE, INITIALIZED, ToolCall, open_session};
use crate::load::{Caller, Calls};

/// A caller that can open further sessions, which it keeps and does not use.
pub(super) trait Opens: Calls + Sized {
    /// Connects again if the other side has hung up meanwhile; the session stays.
    fn refresh(&mut self) -> impl Future<Output = Result<()>> + Send;
    fn open(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// Over HTTP, with a connection of its own, and a session if calls have one.
#[derive(Debug)]
pub(super) struct HttpCaller {
    caller: Caller,
    endpoint: Endpoint,
}

impl HttpCaller {
    pub(super) async fn connect(endpoint: &Endpoint, calling: Calling) -> Result<HttpCaller> {
        let caller = Caller::connect(endpoint, calling).await?;
        Ok(HttpCaller { caller, endpoint: endpoint.clone() })
    }
}

impl Calls for HttpCaller {
    async fn call(&mut self) -> Result<()> {
        self.caller.call().await
    }
}

impl Opens for HttpCaller {
    async fn refresh(&mut self) -> Result<()> {
        self.caller.refresh(&self.endpoint).await
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
    program: CalledProgram,
    others: Vec<Server>,
}

/// What a client starts.
#[derive(Debug, Clone)]
pub(super) struct CalledProgram {
    pub(super) path: PathBuf,
    pub(super) args: &'static [&'static str],
}

#[derive(Debug)]
struct Server {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    _child: Child,
}

impl PipeCaller {
    pub(super) async fn connect(program: &CalledProgram, calling: Calling) -> Result<PipeCaller> {
        let mut server = Server::start(program)?;
        if calling.has_session() {
            server.shake_hands().await?;
        }
        let call = ToolCall::line(calling);
        Ok(PipeCaller { server, call, program: program.clone(), others: Vec::new() })
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
        let mut other = Server::start(&self.program)?;
        other.shake_hands().await?;
        self.others.push(other);
        Ok(())
    }
}

impl Server {
    fn start(program: &CalledProgram) -> Result<Server> {
        let mut child = Command::new(&program.path)
            .args(program.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start `{}`", program.path.display()))?;
        let input = child.stdin.take().context("take the server's input")?;
        let output = BufReader::new(child.stdout.take().context("take the server's output")?);
        Ok(Server { input, output, line: Vec::new(), _child: child })
    }

    async fn shake_hands(&mut self) -> Result<()> {
        self.exchange(format!("{INITIALIZE}\n").as_bytes()).await.context("shake hands")?;
        self.input.write_all(format!("{INITIALIZED}\n").as_bytes()).await.context("shake hands")
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<()> {
        self.input.write_all(request).await.context("write to the server")?;
        self.line.clear();
        let count = self.output.read_until(b'\n', &mut self.line).await.context("read from the server")?;
        ensure!(count > 0, "the server has ended");
        Ok(())
    }
}
