//! A row at work: the gateway and the server behind it, started and ended.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::client::Endpoint;
use crate::gateway::family::{Family, Members, runs};
use crate::gateway::rows::{Behind, FOLDER, PORT, Row, UPSTREAM};
use crate::process::tail;
use crate::scratch::Scratch;

/// Interpreters take their time, the more so on a busy machine.
const START: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Running {
    pub(super) family: Family,
    /// Where clients go; nowhere if they start the server themselves.
    pub(super) endpoint: Option<Endpoint>,
    /// The gateway first, then the server behind it. Killed when dropped, in this order.
    processes: Vec<Process>,
    _folder: Option<Scratch>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    id: u32,
    log: File,
    /// Held open: a server that prints a second line must not die of a closed pipe.
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts a row's gateway, with its store in a fresh folder under `dir`, and the server behind it.
    pub(super) async fn start(row: &Row, dir: Option<&Path>) -> Result<Running> {
        let (mut processes, mut url) = (Vec::new(), None);
        if row.behind == Behind::Http {
            let mut server = Process::start(Command::new(&row.server.path).args(row.server.args))?;
            url = Some(server.endpoint().await.context("start the server upstream")?);
            processes.push(server);
        }
        let mut family = Family { gateway: None, upstream: None, server: row.server.path.clone() };
        family.upstream = processes.first().map(|server| server.id);
        let Some(command) = &row.command else {
            let endpoint = url.as_deref().map(Endpoint::parse).transpose()?;
            return Ok(Running { family, endpoint, processes, _folder: None });
        };
        let folder = Scratch::new(dir)?;
        let port = free_port()?;
        let fill = |arg: &String| {
            let arg = arg.replace(FOLDER, &folder.path().display().to_string());
            arg.replace(PORT, &port.to_string()).replace(UPSTREAM, url.as_deref().unwrap_or_default())
        };
        let mut gateway = Process::start(Command::new(&command.program).args(command.args.iter().map(fill)))?;
        family.gateway = Some(gateway.id);
        let endpoint = match command.prints_endpoint {
            true => gateway.endpoint().await?,
            false => gateway.listens_on(port).await?,
        };
        processes.insert(0, gateway);
        let endpoint = Some(Endpoint::parse(&endpoint)?);
        Ok(Running { family, endpoint, processes, _folder: Some(folder) })
    }

    /// The last lines of the gateway's log, to go behind an error.
    pub(super) fn log(&self) -> String {
        let log = self.processes.first().and_then(|gateway| gateway.log.try_clone().ok());
        log.map(tail).unwrap_or_default()
    }

    /// Kills it and waits until all it started is gone, so that the next row has the machine for itself.
    pub(super) async fn stop(mut self) -> Result<()> {
        let Members { server, .. } = self.family.members()?;
        for process in &mut self.processes {
            ensure!(process.child.try_wait()?.is_none(), "it ended by itself");
            process.child.kill().await.context("kill it")?;
        }
        let gone = async {
            // Their input is closed, and so they leave.
            while server.iter().any(|pid| runs(*pid, &self.family.server)) {
                sleep(LOOK).await;
            }
        };
        timeout(END, gone).await.context("wait for the servers that it started to leave")
    }
}

impl Process {
    fn start(command: &mut Command) -> Result<Process> {
        let log = tempfile::tempfile().context("create a file for a log")?;
        let name = command.as_std().get_program().to_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().context("share the file for a log")?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start `{}`", name.display()))?;
        let id = child.id().context("read a process id")?;
        let stdout = child.stdout.take().context("read a process's output")?;
        Ok(Process { child, id, log, stdout: BufReader::new(stdout).lines() })
    }

    /// The first line that it prints.
    async fn endpoint(&mut self) -> Result<String> {
        let line = timeout(START, self.stdout.next_line()).await;
        match line.context("wait for the endpoint")?.context("read the endpoint")? {
            Some(line) => Ok(line.trim().to_owned()),
            None => bail!("it ended without an endpoint{}", tail(self.log.try_clone()?)),
        }
    }

    /// Waits until somebody listens.
    async fn listens_on(&mut self, port: u16) -> Result<String> {
        let listening = async {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
                if let Some(status) = self.child.try_wait()? {
                    bail!("it ended ({status}) before it listened{}", tail(self.log.try_clone()?));
                }
                sleep(LOOK).await;
            }
            Ok(())
        };
        timeout(START, listening).await.context("wait until it listens")??;
        Ok(format!("http://127.0.0.1:{port}/mcp"))
    }
}

/// A port that nobody uses just now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr().context("read the port")?.port())
}
