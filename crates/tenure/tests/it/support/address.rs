//! Addresses that a killed server leaves free for the next one.
//!
//! The port of a server that is gone can be taken at once by any connection that a process opens from 127.0.0.1. Connections
//! to other addresses of the loopback network leave from there too, so a server at an address of its own finds its port free.

use std::sync::atomic::{AtomicU8, Ordering};

/// A loopback address that no other test uses now, with any free port. Each test is a process of its own.
pub(crate) fn own_address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let number = NEXT.fetch_add(1, Ordering::Relaxed) % 60;
    // From 127.64.0.1 on: 22 bits of a process id, and a few servers of each.
    format!("127.{}.{middle}.{low}:0", 64 + (high % 3) * 60 + number)
}
