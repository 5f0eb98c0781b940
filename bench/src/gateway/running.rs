//! A row at work: the gateway and the server behind it, started and ended.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::client::Endpoint;
use crate::gateway::family::{Family, Members, runs};
use crate::gateway::rows::{Behind, FOLDER, PORT, Row, UPSTREAM};
use crate::process::Process;
use crate::scratch::Scratch;

/// Interpreters take their time, the more so on a busy machine.
const START: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(20);
/// How often it is looked whether they have ended.
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

impl Running {
    /// Starts a row's gateway, with its store in a fresh folder under `dir`, and the server behind it.
    pub(super) async fn start(row: &Row, dir: Option<&Path>) -> Result<Running> {
        let (mut processes, mut url) = (Vec::new(), None);
        if row.behind == Behind::Http {
            let mut server = Process::start(Command::new(&row.program.path).args(row.program.args))?;
            url = Some(server.endpoint(START).await.context("start the server upstream")?);
            processes.push(server);
        }
        let mut family = Family { gateway: None, upstream: None, server: row.program.path.clone() };
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
            true => gateway.endpoint(START).await?,
            false => {
                gateway.listens_on(port, START).await?;
                format!("http://127.0.0.1:{port}/mcp")
            }
        };
        processes.insert(0, gateway);
        let endpoint = Some(Endpoint::parse(&endpoint)?);
        Ok(Running { family, endpoint, processes, _folder: Some(folder) })
    }

    /// The last lines of the gateway's log, to go behind an error.
    pub(super) fn log(&self) -> String {
        self.processes.first().map(Process::log).unwrap_or_default()
    }

    /// Kills it and waits until all it started is gone, so that the next row has the machine for itself.
    pub(super) async fn stop(mut self) -> Result<()> {
        let Members { server, .. } = self.family.members()?;
        for process in &mut self.processes {
            process.kill().await?;
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

/// A port that is free now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr().context("read the port")?.port())
}
