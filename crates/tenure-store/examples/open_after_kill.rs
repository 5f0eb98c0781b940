//! Measures how long a store takes to open after a kill, and how much memory: opening reads its journals again.
//!
//! ```text
//! cargo run --example open_after_kill -- fill FOLDER 512    # writes this many MiB of repeated text, and dies
//! cargo run --example open_after_kill -- open FOLDER        # opens the store that this left
//! ```

#![expect(clippy::print_stdout, reason = "the figures are what it is for")]
#![expect(clippy::disallowed_methods, reason = "it takes the time itself")]

use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use tenure_session::id::{NodeId, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, NewEvent, Store};
use tenure_store::disk::{Disk, Sync};

/// Events in one write.
const TOGETHER: usize = 16;

const EVENT_BYTES: usize = 16 << 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["fill", folder, mib] => fill(Path::new(folder), mib.parse()?).await,
        ["open", folder] => open(Path::new(folder)),
        _ => Err("use: fill FOLDER MIB, or: open FOLDER".into()),
    }
}

async fn fill(folder: &Path, mib: usize) -> Result<(), Box<dyn std::error::Error>> {
    let store = Disk::open(folder, Sync::Os)?;
    let session = SessionKey::from_bytes([1; 16]);
    let epoch = store.claim(session, NodeId::random(), None).await?;
    let body = Bytes::from("the same thing again. ".repeat(EVENT_BYTES / 22));
    let event = NewEvent { stream: StreamId::new(0), body, place: EntryPlace::Middle, at: Time(1_000) };
    let (start, writes) = (Instant::now(), (mib << 20) / (TOGETHER * EVENT_BYTES));
    for _ in 0..writes {
        store.append(session, epoch, vec![event.clone(); TOGETHER]).await?;
    }
    let rate = writes as f64 / start.elapsed().as_secs_f64();
    println!("{mib} MiB: {rate:.0} writes per second; at most {} of memory", most_memory()?);
    // Like a kill: nothing is closed.
    std::process::abort()
}

fn open(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let store = Disk::open(folder, Sync::Os)?;
    println!("opened in {:?}, with at most {} of memory", start.elapsed(), most_memory()?);
    drop(store);
    Ok(())
}

/// The peak memory of this process, as the kernel reports it.
fn most_memory() -> std::io::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(line.unwrap_or("an unknown amount").trim().to_owned())
}
