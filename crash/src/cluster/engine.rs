//! The engine: three NATS servers that replicate, over links that can be cut.
//!
//! Each server is told of the others by addresses of proxies, one for each pair, and does not tell them its own address. So every
//! byte between two servers passes a proxy that knows both ends.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use serde_json::Value;
use tenure_testkit::wire::{Ask, HttpConnection};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::links::{LinkEnd, Links};
use super::proxy::{Caller, Proxy};
use crate::server::free_port;

/// How many servers there are: one may be lost.
pub(super) const SERVERS: usize = 3;

/// How long a server may take to start, or to catch up.
const READY_DEADLINE: Duration = Duration::from_secs(60);

/// An address at which nothing listens. Servers tell each other this one instead of their own.
const NOWHERE: &str = "127.0.0.1:1";

/// The servers of the engine. Dropping them kills them.
#[derive(Debug)]
pub(super) struct Engine {
    program: PathBuf,
    folder: PathBuf,
    servers: Vec<EngineServer>,
    links: Arc<Links>,
    /// The links between servers.
    routes: Vec<Proxy>,
}

#[derive(Debug)]
struct EngineServer {
    /// Where nodes connect.
    clients: SocketAddr,
    /// Where other servers connect.
    route: SocketAddr,
    /// Where it tells how it is.
    monitor: SocketAddr,
    process: Option<Child>,
}

impl Engine {
    /// Starts the servers and waits until they serve.
    pub(super) async fn start(
        program: &Path,
        folder: &Path,
        links: &Arc<Links>,
        rng: &mut Rng,
    ) -> Result<Engine> {
        let server = |rng: &mut Rng| {
            let (clients, route, monitor) = (free_port(rng)?, free_port(rng)?, free_port(rng)?);
            anyhow::Ok(EngineServer { clients, route, monitor, process: None })
        };
        let servers = (0..SERVERS).map(|_| server(rng)).collect::<Result<Vec<_>>>()?;
        let mut engine = Engine {
            program: program.to_owned(),
            folder: folder.to_owned(),
            servers,
            links: Arc::clone(links),
            routes: Vec::new(),
        };
        for server in 0..SERVERS {
            engine.configure(server, rng).await?;
        }
        for server in 0..SERVERS {
            engine.restart(server)?;
        }
        engine.ready().await?;
        Ok(engine)
    }

    /// Writes the configuration of a server, and opens the proxies through which it reaches the others.
    async fn configure(&mut self, server: usize, rng: &mut Rng) -> Result<()> {
        let mut routes = Vec::new();
        for other in (0..SERVERS).filter(|other| *other != server) {
            let (caller, target) = (Caller::Is(LinkEnd::Engine(server)), self.servers[other].route);
            let proxy =
                Proxy::open(free_port(rng)?, target, caller, LinkEnd::Engine(other), &self.links).await?;
            routes.push(format!("nats://{}", proxy.address));
            self.routes.push(proxy);
        }
        let EngineServer { clients, route, monitor, .. } = &self.servers[server];
        let data = self.folder.join(format!("engine-{server}"));
        let text = format!(
            "server_name: engine-{server}\n\
             listen: {clients}\n\
             http: {monitor}\n\
             max_payload: 8MB\n\
             jetstream {{ store_dir: \"{}\" }}\n\
             cluster {{ name: crash, listen: {route}, advertise: \"{NOWHERE}\", no_advertise: true, routes: [{}] }}\n",
            data.display(),
            routes.join(", ")
        );
        let file = self.file(server, "conf");
        std::fs::write(&file, text).with_context(|| format!("write `{}`", file.display()))
    }

    fn file(&self, server: usize, kind: &str) -> PathBuf {
        self.folder.join(format!("engine-{server}.{kind}"))
    }

    /// The address at which nodes reach a server.
    pub(super) fn address(&self, server: usize) -> SocketAddr {
        self.servers[server].clients
    }

    /// Starts a server, with the data that it had.
    pub(super) fn restart(&mut self, server: usize) -> Result<()> {
        let log: File = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.file(server, "log"))
            .context("open the log of the engine")?;
        let process = Command::new(&self.program)
            .arg("--config")
            .arg(self.file(server, "conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start `{}`", self.program.display()))?;
        self.servers[server].process = Some(process);
        Ok(())
    }

    /// Kills a server (SIGKILL).
    pub(super) async fn kill(&mut self, server: usize) -> Result<()> {
        match self.servers[server].process.take() {
            Some(mut process) => process.kill().await.context("kill a server of the engine"),
            None => Ok(()),
        }
    }

    /// Waits until all servers serve, and have what they missed.
    pub(super) async fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_DEADLINE;
        for server in 0..SERVERS {
            while !self.is_healthy(server).await {
                let ended = self.servers[server]
                    .process
                    .as_mut()
                    .and_then(|process| process.try_wait().ok().flatten());
                if let Some(status) = ended {
                    bail!(
                        "server {server} of the engine ended with {status}: see `{}`",
                        self.file(server, "log").display()
                    );
                }
                if Instant::now() >= deadline {
                    bail!(
                        "server {server} of the engine does not serve: see `{}`",
                        self.file(server, "log").display()
                    );
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    async fn is_healthy(&self, server: usize) -> bool {
        self.ask(server, "/healthz").await.is_some_and(|health| health["status"] == "ok")
    }

    /// The server that leads the stream of the nodes' leases, or any other stream if no stream has that name.
    pub(super) async fn leader(&self) -> Option<usize> {
        for server in 0..SERVERS {
            let Some(told) = self.ask(server, "/jsz?accounts=true&streams=true").await else { continue };
            let accounts = told["account_details"].as_array().cloned().unwrap_or_default();
            let streams = accounts.iter().filter_map(|account| account["stream_detail"].as_array()).flatten();
            let leader = |stream: &Value| {
                let name = stream["cluster"]["leader"].as_str()?;
                name.strip_prefix("engine-")?.parse::<usize>().ok().filter(|server| *server < SERVERS)
            };
            let leases = |stream: &&Value| {
                stream["name"].as_str().is_some_and(|name| name.to_ascii_lowercase().contains("node"))
            };
            let streams: Vec<&Value> = streams.collect();
            let found = streams.iter().copied().find(leases).or_else(|| streams.first().copied());
            if let Some(leader) = found.and_then(leader) {
                return Some(leader);
            }
        }
        None
    }

    /// Asks a server how it is.
    async fn ask(&self, server: usize, path: &str) -> Option<Value> {
        let asking = async {
            let mut connection = HttpConnection::open(self.servers[server].monitor, 8 << 10).await?;
            connection.send(&Ask::new("GET", path).bytes()).await?;
            connection.head().await?;
            connection.body().await.map(<[u8]>::to_vec)
        };
        let body = timeout(Duration::from_secs(2), asking).await.ok()?.ok()?;
        serde_json::from_slice(&body).ok()
    }
}

/// The program of the servers: the given one, or the one that `tests/nats/install` installs.
pub(super) fn program(named: Option<&Path>) -> Result<PathBuf> {
    let program = match (named, std::env::var_os("TENURE_NATS_SERVER")) {
        (Some(program), _) => program.to_owned(),
        (None, Some(program)) => program.into(),
        (None, None) => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.dev/nats/newest"),
    };
    if !program.is_file() {
        bail!(
            "there is no NATS server at `{}`\n\nhint: run `tests/nats/install .dev/nats`, or name one with `--nats-server`",
            program.display()
        );
    }
    Ok(program)
}
