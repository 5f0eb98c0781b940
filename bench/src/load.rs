//! The load generator: so many connections, each with its own session and one call in flight.
//!
//! A closed loop on one thread. Every answer is checked, since a benchmark must not measure errors;
//! the first wrong one ends the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::{Calling, Connection, Endpoint, ToolCall, open_data_session, open_session};
use crate::clock::now;
use crate::histogram::Histogram;
use crate::machine::BusyTime;
use crate::process::{CpuTime, Server};

/// How long opening all sessions, and ending all calls, may take.
const DEADLINE: Duration = Duration::from_secs(30);
const BUFFER_BYTES: usize = 8 * 1024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
}

/// What happened inside the window.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) calls: u64,
    pub(crate) elapsed: Duration,
    pub(crate) server_cpu: Duration,
    pub(crate) client_cpu: Duration,
    /// What neither the server nor the client used: builds, other tenants, the kernel's own work.
    pub(crate) other_cpu: Duration,
    pub(crate) latency: Histogram,
}

/// Read by every caller after each call; written by `run` alone.
#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    calls: AtomicU64,
}

const WARM_UP: u8 = 0;
const MEASURING: u8 = 1;
const DONE: u8 = 2;

/// Puts the load on a server and measures one window.
pub(crate) async fn run(server: &Server, load: Load, calling: Calling) -> Result<Measured> {
    let shared = Arc::new(Shared::default());
    let mut callers = JoinSet::new();
    for caller in timeout(DEADLINE, connect(server.endpoint(), load.connections, calling))
        .await
        .context("open the sessions")??
    {
        callers.spawn(caller.call_until_done(Arc::clone(&shared)));
    }
    pause(load.warm_up, &mut callers).await?;

    let (busy, client, cpu) = (BusyTime::read()?, CpuTime::of("self")?, server.cpu()?);
    let (started, calls_before) = (now(), shared.calls.load(Relaxed));
    shared.phase.store(MEASURING, Relaxed);
    pause(load.window, &mut callers).await?;
    let (elapsed, calls) = (started.elapsed(), shared.calls.load(Relaxed) - calls_before);
    let server_cpu = server.cpu()?.since(cpu);
    let client_cpu = CpuTime::of("self")?.since(client);
    let other_cpu = BusyTime::read()?.since(busy).saturating_sub(server_cpu + client_cpu);
    shared.phase.store(DONE, Relaxed);

    let mut latency = Histogram::new();
    while let Some(caller) =
        timeout(DEADLINE, callers.join_next()).await.context("wait for the last answers")?
    {
        latency.merge(&caller.context("run a caller")??);
    }
    ensure!(calls > 0, "no call was answered within {elapsed:?}");
    Ok(Measured { calls, elapsed, server_cpu, client_cpu, other_cpu, latency })
}

/// Sleeps, unless a caller fails first.
async fn pause(duration: Duration, callers: &mut JoinSet<Result<Histogram>>) -> Result<()> {
    tokio::select! {
        () = sleep(duration) => Ok(()),
        Some(caller) = callers.join_next() => {
            caller.context("run a caller")??;
            unreachable!("a caller ends well only in the phase `DONE`")
        }
    }
}

async fn connect(endpoint: &Endpoint, count: usize, calling: Calling) -> Result<Vec<Caller>> {
    let mut callers = Vec::with_capacity(count);
    for _ in 0..count {
        let mut connection = Connection::open(endpoint, BUFFER_BYTES).await?;
        let session = open_session(&mut connection, endpoint).await?;
        let data_session = match calling.has_data_session() {
            true => Some(open_data_session(&mut connection, endpoint, session.as_deref()).await?),
            false => None,
        };
        let call = ToolCall::new(endpoint, session.as_deref(), calling, data_session.as_deref());
        callers.push(Caller { connection, call });
    }
    Ok(callers)
}

#[derive(Debug)]
struct Caller {
    connection: Connection,
    call: ToolCall,
}

impl Caller {
    /// Calls until the phase is `DONE`; returns the latencies of the calls in the window.
    async fn call_until_done(mut self, shared: Arc<Shared>) -> Result<Histogram> {
        let mut latency = Histogram::new();
        let mut sent = now();
        loop {
            let head = self.connection.exchange(self.call.next_request()).await?;
            self.call.check(head.status, self.connection.body())?;
            // The answer to one call is the start of the next: one look at the clock serves both.
            let answered = now();
            shared.calls.fetch_add(1, Relaxed);
            match shared.phase.load(Relaxed) {
                WARM_UP => {}
                MEASURING => latency.record(answered - sent),
                _ => return Ok(latency),
            }
            sent = answered;
        }
    }
}
