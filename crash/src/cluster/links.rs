//! The links between nodes and servers of the engine, each direction for itself: what is sent passes, is held, or is slow.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum LinkEnd {
    Node(usize),
    Engine(usize),
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkEnd::Node(node) => write!(f, "node {node}"),
            LinkEnd::Engine(server) => write!(f, "engine {server}"),
        }
    }
}

/// What happens to bytes in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Flow {
    #[default]
    Open,
    /// They are held, as in a network that drops packets: no connection ends by it.
    Held,
    /// They arrive later.
    Slow(Duration),
}

/// All links. Those that nothing was done to are open.
#[derive(Debug)]
pub(crate) struct Links {
    flows: watch::Sender<HashMap<(LinkEnd, LinkEnd), Flow>>,
    /// The process of each node, to find out which of them a connection comes from.
    processes: Mutex<Vec<Option<u32>>>,
}

impl Links {
    pub(crate) fn new(nodes: usize) -> Links {
        Links { flows: watch::Sender::new(HashMap::new()), processes: Mutex::new(vec![None; nodes]) }
    }

    /// Sets what happens to bytes from one end to another.
    pub(crate) fn set(&self, from: LinkEnd, to: LinkEnd, flow: Flow) {
        self.flows.send_modify(|flows| {
            flows.insert((from, to), flow);
        });
    }

    /// Opens all links.
    pub(crate) fn heal(&self) {
        self.flows.send_modify(HashMap::clear);
    }

    /// Follows one direction.
    pub(super) fn follow(&self, from: LinkEnd, to: LinkEnd) -> LinkFlow {
        LinkFlow { flows: self.flows.subscribe(), direction: (from, to) }
    }

    /// A node runs as this process now, or does not run.
    pub(crate) fn runs_as(&self, node: usize, process: Option<u32>) {
        self.processes.lock()[node] = process;
    }

    pub(super) fn processes(&self) -> Vec<Option<u32>> {
        self.processes.lock().clone()
    }
}

/// What happens to bytes in one direction, as it changes.
#[derive(Debug)]
pub(super) struct LinkFlow {
    flows: watch::Receiver<HashMap<(LinkEnd, LinkEnd), Flow>>,
    direction: (LinkEnd, LinkEnd),
}

impl LinkFlow {
    /// Waits until bytes may go on.
    pub(super) async fn pass(&mut self) {
        let direction = self.direction;
        let of = |flows: &HashMap<_, _>| flows.get(&direction).copied().unwrap_or_default();
        let flow = match self.flows.wait_for(|flows| of(flows) != Flow::Held).await {
            Ok(flows) => of(&flows),
            Err(_) => return,
        };
        if let Flow::Slow(delay) = flow {
            tokio::time::sleep(delay).await;
        }
    }
}
