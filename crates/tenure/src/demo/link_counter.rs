//! A counter in the memory of one link: it shows what a server forgets when its session sleeps or moves to another node.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

/// Counts the calls that one link has carried.
#[derive(Debug)]
pub(super) struct LinkCounter {
    /// Differs from link to link. It is no secret.
    link: u64,
    count: AtomicU64,
}

impl LinkCounter {
    pub(super) fn new() -> Self {
        Self { link: RandomState::new().build_hasher().finish(), count: AtomicU64::new(0) }
    }

    /// Adds one, and tells the link with the count.
    pub(super) fn add_one(&self) -> Value {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        json!({ "link": format!("{:016x}", self.link), "counter": count })
    }
}
