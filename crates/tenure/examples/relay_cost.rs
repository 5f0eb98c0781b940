//! What does a request cost that reaches another node than the one that has its session, beside one that reaches that node?
//!
//! Two nodes share a store in memory; each has a thread of its own, as has the client. It prints the times of calls one after the
//! other (median and tail), processor time per call with 32 at once, and memory per idle stream of both nodes and the client
//! together. Run it with `cargo run --release -p tenure --example relay_cost`.

#![expect(clippy::print_stdout, reason = "it prints what it measures")]
#![expect(clippy::disallowed_methods, reason = "it measures time, and its tasks end with it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;
use tenure::Node;
use tenure::config::{Config, Sources};
use tenure_store::memory::Memory;
use tenure_testkit::memory_members::MemoryMembers;
use tenure_testkit::wire::{Ask, HttpConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

const WARM_UP: usize = 500;
const CALLS: usize = 5000;
const AT_ONCE: usize = 32;
const STREAMS: usize = 1000;

fn main() -> anyhow::Result<()> {
    let (store, members) = (Arc::new(Memory::new()), Arc::new(MemoryMembers::new()));
    let threads: Vec<Runtime> = (0..2).map(|_| one_thread()).collect::<Result<_, _>>()?;
    let mut nodes = Vec::new();
    for thread in &threads {
        let (store, members) = (Arc::clone(&store), Arc::clone(&members));
        nodes.push(thread.block_on(thread.spawn(async move {
            let flags = [
                ("listen", "127.0.0.1:0"),
                ("store", "memory:"),
                ("streams.json_wait", "10s"),
                ("log.access", "false"),
            ];
            let flags = flags.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
            let (config, _) = Config::load(&Sources { flags, ..Sources::default() })?;
            anyhow::Ok(Node::builder(&config).with_store(store).with_members(members).start().await?)
        }))??);
    }
    let (owner, other) = (nodes[0].address(), nodes[1].address());
    let client = one_thread()?;
    client.block_on(async move {
        let session = begin(owner).await?;
        for round in 1..=3 {
            for (name, node) in [("local", owner), ("relayed", other)] {
                let times = times(&session, node).await?;
                let (wall, cpu) = at_once(&session, node).await?;
                println!(
                    "round {round} {name:>8}: p50 {:>7.1?}  p99 {:>7.1?}  {:.0} calls/s  {:.1?} of processor time per call",
                    times[times.len() / 2],
                    times[times.len() * 99 / 100],
                    1.0 / wall.as_secs_f64(),
                    cpu,
                );
            }
        }
        for (name, node) in [("local", owner), ("relayed", other)] {
            println!("{name:>8}: {:.1} KiB per idle stream", idle(owner, node).await?);
        }
        anyhow::Ok(())
    })?;
    for (thread, node) in threads.iter().zip(nodes) {
        thread.block_on(node.stop());
    }
    Ok(())
}

fn one_thread() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

async fn begin(node: SocketAddr) -> anyhow::Result<String> {
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "cost", "version": "1" },
    } });
    let response = Ask::post(initialize.to_string()).send(node).await;
    let session = response.header("mcp-session-id").context("a session")?.to_owned();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let ready = Ask::post(ready.to_string()).header("Mcp-Session-Id", &session).send(node).await;
    ensure!(ready.status() == 202, "{ready:?}");
    Ok(session)
}

fn call(session: &str, id: usize) -> Vec<u8> {
    let params = json!({ "name": "public_echo", "arguments": { "text": "hello" } });
    let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    Ask::post(call.to_string()).header("Mcp-Session-Id", session).bytes()
}

async fn times(session: &str, node: SocketAddr) -> anyhow::Result<Vec<Duration>> {
    let mut connection = HttpConnection::<TcpStream>::open(node, 16 << 10).await?;
    let mut times = Vec::with_capacity(CALLS);
    for id in 0..WARM_UP + CALLS {
        let call = call(session, id);
        let began = Instant::now();
        let (head, body) = connection.exchange(&call).await?;
        if id >= WARM_UP {
            times.push(began.elapsed());
        }
        ensure!(head.status == 200 && body.windows(5).any(|window| window == b"hello"), "{head:?}");
    }
    times.sort_unstable();
    Ok(times)
}

/// The time of a call, and its processor time, when many are under way. Both include the client.
async fn at_once(session: &str, node: SocketAddr) -> anyhow::Result<(Duration, Duration)> {
    let (began, spent) = (Instant::now(), processor_time()?);
    let mut lanes = tokio::task::JoinSet::new();
    for lane in 0..AT_ONCE {
        let session = session.to_owned();
        lanes.spawn(async move {
            let mut connection = HttpConnection::<TcpStream>::open(node, 16 << 10).await?;
            for id in 0..CALLS / AT_ONCE {
                let (head, _) = connection.exchange(&call(&session, id * AT_ONCE + lane)).await?;
                ensure!(head.status == 200, "{head:?}");
            }
            anyhow::Ok(())
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    let calls = u32::try_from(CALLS / AT_ONCE * AT_ONCE)?;
    Ok((began.elapsed() / calls, (processor_time()? - spent) / calls))
}

/// KiB of this process for each stream that nothing happens on.
async fn idle(owner: SocketAddr, node: SocketAddr) -> anyhow::Result<f64> {
    let mut sessions = Vec::new();
    for _ in 0..STREAMS {
        sessions.push(begin(owner).await?);
    }
    let before = memory()?;
    let mut streams = Vec::with_capacity(STREAMS);
    for session in &sessions {
        let mut stream = TcpStream::connect(node).await?;
        stream.write_all(&Ask::get().header("Mcp-Session-Id", session).bytes()).await?;
        let mut read = [0; 1024];
        let length = stream.read(&mut read).await?;
        ensure!(
            read[..length].starts_with(b"HTTP/1.1 200"),
            "{:?}",
            String::from_utf8_lossy(&read[..length])
        );
        streams.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let grown = memory()?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    Ok(grown as f64 / STREAMS as f64)
}

/// KiB of memory that this process has in use.
fn memory() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("RssAnon")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Processor time of this process.
fn processor_time() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(')').context("stat")?.1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}
