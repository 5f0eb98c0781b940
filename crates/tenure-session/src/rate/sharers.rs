//! How many nodes a rate is divided among. It changes while they come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of nodes that divide rates among them. A clone is the same number.
#[derive(Clone, Debug)]
pub struct Sharers(Arc<AtomicU32>);

impl Default for Sharers {
    /// One node alone.
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(1)))
    }
}

impl Sharers {
    /// So many nodes from now on.
    pub fn set(&self, nodes: u32) {
        self.0.store(nodes.max(1), Ordering::Relaxed);
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}
