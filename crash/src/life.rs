//! What has happened to the nodes so far: which of them run, what was done to them, when their journals were cut.
//!
//! Clients compare a [`Moment`] with a later one to find out whether there is a good reason for what they see.

use std::time::Duration;

use tokio::time::Instant;

use crate::check::Circumstances;

/// The most nodes of a run.
pub(crate) const MAX_NODES: usize = 8;

/// How far back a torn journal can lose writes: the operating system writes them within a second.
const TORN_BACK: Duration = Duration::from_secs(1);

/// The same if the store noticed a larger loss and was repaired.
const REPAIRED_BACK: Duration = Duration::from_secs(10);

/// How much later than the server sent it a busy client may receive an event.
const LATE_RECEIPT: Duration = Duration::from_millis(500);

/// How long after its end a trouble may still show in a cluster: leases run out, the engine elects, sessions move.
const AFTERMATH: Duration = Duration::from_secs(10);

/// The nodes' life so far.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) kills: u64,
    nodes: Vec<NodeLife>,
    /// When a node was last ready.
    ready: Instant,
    /// When any client last received an event. A server that stalls does not sync either.
    heard: Instant,
    tears: Vec<Tear>,
    troubles: Vec<Trouble>,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeLife {
    /// How often its connections had a reason to break.
    breaks: u32,
    up: bool,
}

/// Something that the harness did to the nodes, the engine or the links between them.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    began: Instant,
    /// When it was undone.
    ended: Option<Instant>,
    /// A node was ended in good order, of which no client should feel anything.
    is_orderly: bool,
}

/// A cut of the journal.
#[derive(Clone, Copy, Debug)]
struct Tear {
    at: Instant,
    /// Writes acknowledged before this are on the disk, so the cut cannot have removed them unnoticed.
    safe_before: Instant,
    /// Events received after this come from the next process; before it, an event of the old one may arrive late.
    over: Option<Instant>,
}

/// A moment in the nodes' life, to compare with a later one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(crate) troubles: u64,
    nodes: [NodeLife; MAX_NODES],
}

impl Life {
    pub(crate) fn new(nodes: usize) -> Life {
        let now = Instant::now();
        Life {
            kills: 0,
            nodes: vec![NodeLife::default(); nodes.min(MAX_NODES)],
            ready: now,
            heard: now,
            tears: Vec::new(),
            troubles: Vec::new(),
        }
    }

    fn is_cluster(&self) -> bool {
        self.nodes.len() > 1
    }

    /// A trouble begins; returns its number.
    pub(crate) fn trouble(&mut self) -> usize {
        self.troubles.push(Trouble { began: Instant::now(), ended: None, is_orderly: false });
        self.troubles.len() - 1
    }

    /// A node is ended in good order; returns the number of the trouble.
    pub(crate) fn orderly_trouble(&mut self) -> usize {
        self.troubles.push(Trouble { began: Instant::now(), ended: None, is_orderly: true });
        self.troubles.len() - 1
    }

    /// Whether nothing can show but nodes that were ended in good order.
    pub(crate) fn is_orderly(&self) -> bool {
        let now = Instant::now();
        let shows = |trouble: &&Trouble| trouble.ended.is_none_or(|ended| ended + AFTERMATH >= now);
        self.troubles.iter().rev().take(16).filter(shows).all(|trouble| trouble.is_orderly)
    }

    /// A trouble was undone.
    pub(crate) fn relieve(&mut self, trouble: usize) {
        self.troubles[trouble].ended = Some(Instant::now());
    }

    /// Connections to a node have a reason to break.
    pub(crate) fn breaks(&mut self, node: usize) {
        self.nodes[node].breaks += 1;
    }

    /// A node does not serve any more.
    pub(crate) fn down(&mut self, node: usize) {
        self.nodes[node].up = false;
    }

    /// A node that stood still goes on. What was sent to it meanwhile took longer.
    pub(crate) fn goes_on(&mut self, node: usize) {
        self.nodes[node].breaks += 1;
        self.nodes[node].up = true;
    }

    /// A client has received an event.
    pub(crate) fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// A node has said that it is ready.
    pub(crate) fn ready(&mut self, node: usize) {
        self.nodes[node].up = true;
        self.ready = Instant::now();
        let over = self.ready + LATE_RECEIPT;
        for tear in self.tears.iter_mut().rev().take_while(|tear| tear.over.is_none()) {
            tear.over = Some(over);
        }
    }

    /// The end of the journal was cut off.
    pub(crate) fn torn(&mut self) {
        let at = Instant::now();
        let mut safe_before = back(self.heard.min(at), TORN_BACK);
        // A server that was killed soon after its start may have synced nothing, not even older writes it found.
        if self.ready > safe_before
            && let Some(last) = self.tears.last()
        {
            safe_before = safe_before.min(last.safe_before);
        }
        self.tears.push(Tear { at, safe_before, over: None });
    }

    /// The store was repaired after the last cut.
    pub(crate) fn repaired(&mut self) {
        if let Some(last) = self.tears.last_mut() {
            last.safe_before = last.safe_before.min(back(last.at, REPAIRED_BACK));
        }
    }

    pub(crate) fn was_torn(&self) -> bool {
        !self.tears.is_empty()
    }

    /// How many troubles there were.
    pub(crate) fn troubles(&self) -> u64 {
        self.troubles.len() as u64
    }

    pub(crate) fn moment(&self) -> Moment {
        let mut nodes = [NodeLife::default(); MAX_NODES];
        nodes[..self.nodes.len()].copy_from_slice(&self.nodes);
        Moment { at: Instant::now(), troubles: self.troubles(), nodes }
    }

    /// Whether a node ran all the time since then.
    pub(crate) fn lived_since(&self, then: Moment, node: usize) -> bool {
        let (before, now) = (then.nodes[node], self.nodes[node]);
        before.up && now.breaks == before.breaks
    }

    /// How many troubles may show in what was begun then. A single node has none but kills, and those show at once.
    pub(crate) fn troubles_since(&self, then: Instant) -> usize {
        let aftermath = self.is_cluster().then_some(AFTERMATH);
        let shows = |trouble: &&Trouble| {
            trouble.began >= then
                || aftermath
                    .is_some_and(|aftermath| trouble.ended.is_none_or(|ended| ended + aftermath >= then))
        };
        self.troubles.iter().rev().take(16).filter(shows).count()
    }

    /// What has happened since a stream began.
    pub(crate) fn circumstances(&self, then: Moment) -> Circumstances {
        let torn = self.tears.iter().any(|tear| tear.at >= then.at);
        let crashed = self.troubles_since(then.at) > 0;
        Circumstances { crashed, torn, moved: crashed && self.is_cluster() }
    }

    /// Whether a write acknowledged at that time may be lost, because the journal was cut after it.
    pub(crate) fn could_lose(&self, acknowledged: Instant) -> bool {
        self.tears
            .iter()
            .any(|tear| tear.safe_before <= acknowledged && tear.over.is_none_or(|over| acknowledged <= over))
    }

    /// Whether a node runs, and since when all of them did.
    pub(crate) fn serving(&self) -> (bool, Instant) {
        (self.nodes.iter().any(|node| node.up), self.ready)
    }
}

fn back(from: Instant, by: Duration) -> Instant {
    from.checked_sub(by).unwrap_or(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_ended_in_order_excuses_nothing_unless_something_else_can_show() {
        let mut life = Life::new(3);
        assert!(life.is_orderly());
        life.orderly_trouble();
        assert!(life.is_orderly());
        let killed = life.trouble();
        assert!(!life.is_orderly());
        life.relieve(killed);
        assert!(!life.is_orderly());
        life.troubles[killed].ended = Some(back(Instant::now(), AFTERMATH * 2));
        assert!(life.is_orderly());
    }
}
