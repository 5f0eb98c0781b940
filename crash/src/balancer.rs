//! Says which node a request goes to, as a load balancer that knows nothing of sessions, or one that does.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cli::Via;
use crate::http::SessionName;

/// The nodes, and which of them the next request goes to.
#[derive(Debug)]
pub(crate) struct Balancer {
    pub(crate) nodes: Vec<SocketAddr>,
    via: Via,
    next: AtomicUsize,
}

impl Balancer {
    pub(crate) fn new(nodes: Vec<SocketAddr>, via: Via) -> Balancer {
        Balancer { nodes, via, next: AtomicUsize::new(0) }
    }

    /// All nodes, in the order in which they are tried.
    pub(crate) fn order(&self, session: Option<&SessionName>) -> impl Iterator<Item = usize> + use<> {
        let number = self.nodes.len();
        let first = match (self.via, session) {
            (Via::Random, _) => fastrand::usize(..number),
            (Via::Sticky, Some(session)) => {
                let mut hash = DefaultHasher::new();
                session.id.hash(&mut hash);
                usize::try_from(hash.finish() % number as u64).unwrap_or_default()
            }
            (Via::RoundRobin, _) | (Via::Sticky, None) => self.next.fetch_add(1, Ordering::Relaxed),
        };
        (0..number).map(move |step| (first + step) % number)
    }
}
