//! The nodes: each a process with an address for clients and one for peers, at the engine through proxies of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use futures_util::future::try_join_all;
use rustix::process::Signal;
use tokio::time::timeout;

use super::engine::{Engine, SERVERS};
use super::links::{LinkEnd, Links};
use super::proxy::{Caller, Proxy};
use crate::check::{CheckFault, FaultKind};
use crate::server::{Launch, ServerStore, ServerUnderTest, free_port};
use crate::world::World;

/// How long a node may take to end once it was told to: the grace, and some time to write.
const END_DEADLINE: Duration = Duration::from_secs(25);

/// The nodes. Dropping them kills them.
#[derive(Debug)]
pub(super) struct Nodes {
    launches: Vec<Launch>,
    running: Vec<Option<ServerUnderTest>>,
    links: Arc<Links>,
    _proxies: Vec<Proxy>,
}

impl Nodes {
    /// Gives each node its addresses and proxies. Nothing is started yet.
    pub(super) async fn plan(
        mut launches: Vec<Launch>,
        engine: &Engine,
        links: &Arc<Links>,
        rng: &mut Rng,
    ) -> Result<Nodes> {
        let mut proxies = Vec::new();
        for (node, launch) in launches.iter_mut().enumerate() {
            let mut servers = Vec::new();
            for server in 0..SERVERS {
                let (caller, called) = (Caller::Is(LinkEnd::Node(node)), LinkEnd::Engine(server));
                let proxy =
                    Proxy::open(free_port(rng)?, engine.address(server), caller, called, links).await?;
                servers.push(proxy.address.to_string());
                proxies.push(proxy);
            }
            launch.store = ServerStore::Engine(format!("nats://{}", servers.join(",")));
            let listen = free_port(rng)?;
            let proxy =
                Proxy::open(free_port(rng)?, listen, Caller::SomeNode, LinkEnd::Node(node), links).await?;
            launch.settings.push(format!("cluster.listen={listen}"));
            launch.settings.push(format!("cluster.advertise={}", proxy.address));
            proxies.push(proxy);
        }
        let running = launches.iter().map(|_| None).collect();
        Ok(Nodes { launches, running, links: Arc::clone(links), _proxies: proxies })
    }

    pub(super) fn number(&self) -> usize {
        self.launches.len()
    }

    /// Starts nodes and waits until they serve.
    pub(super) async fn start(&mut self, world: &World, nodes: &[usize]) -> Result<()> {
        let starting = nodes.iter().map(|node| {
            let launch = &self.launches[*node];
            let links = &self.links;
            async move {
                let mut server = launch.start()?;
                links.runs_as(*node, server.process());
                if let Err(failure) = server.ready().await? {
                    let detail = format!("it does not start: {failure}");
                    world
                        .violation(&format!("node {node}"), CheckFault::new(FaultKind::ServerFailed, detail));
                    bail!("node {node} does not start");
                }
                world.ready(*node);
                world.tally.readies.add(server.age());
                Ok((*node, server))
            }
        });
        for (node, server) in try_join_all(starting).await? {
            self.running[node] = Some(server);
        }
        Ok(())
    }

    /// Kills a node (SIGKILL) that the world knows to be killed.
    pub(super) async fn kill(&mut self, node: usize) -> Result<()> {
        let Some(server) = self.running[node].take() else { return Ok(()) };
        server.kill().await?;
        self.links.runs_as(node, None);
        Ok(())
    }

    /// Tells a node to end (SIGTERM) and waits until it has.
    pub(super) async fn end(&mut self, world: &World, node: usize) -> Result<()> {
        let mut server = self.running[node].take().context("find the node to end")?;
        server.signal(Signal::TERM)?;
        match timeout(END_DEADLINE, server.ended()).await {
            Ok(status) => {
                let status = status?;
                if !status.success() {
                    let detail = format!("it was told to end, and ended with {status}");
                    world
                        .violation(&format!("node {node}"), CheckFault::new(FaultKind::ServerFailed, detail));
                }
            }
            Err(_) => {
                let detail = format!("it was told to end, and still runs after {END_DEADLINE:?}");
                world.violation(&format!("node {node}"), CheckFault::new(FaultKind::Hangs, detail));
                server.kill().await?;
            }
        }
        self.links.runs_as(node, None);
        Ok(())
    }

    /// Sends a signal to a node.
    pub(super) fn signal(&self, node: usize, signal: Signal) -> Result<()> {
        self.running[node].as_ref().context("find the node")?.signal(signal)
    }

    /// Fails if a node has ended by itself.
    pub(super) fn must_run(&mut self, world: &World) -> Result<()> {
        for (node, running) in self.running.iter_mut().enumerate() {
            if let Some(server) = running
                && let Some(status) = server.has_ended()?
            {
                let detail = format!("it ended by itself: {status}");
                world.violation(&format!("node {node}"), CheckFault::new(FaultKind::ServerFailed, detail));
                bail!("node {node} ended by itself");
            }
        }
        Ok(())
    }
}
