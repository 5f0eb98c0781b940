//! The load generator: so many connections, each with one call in flight and with its own session, if calls have one.
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

/// Somebody who can make a call, and wait for its answer.
pub(crate) trait Calls: Send + 'static {
    /// Makes one call; fails unless it is answered as it should be.
    fn call(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// The events inside a window, at all targets; `before` and `after` are what the kernel said of the servers.
#[derive(Debug)]
pub(crate) struct Window<T> {
    pub(crate) calls: u64,
    pub(crate) elapsed: Duration,
    pub(crate) before: T,
    pub(crate) after: T,
    pub(crate) client_cpu: Duration,
    /// All cores, all processes.
    pub(crate) busy: Duration,
    pub(crate) latency: Histogram,
}

/// Read by every caller after each call; written by `drive` alone.
#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    calls: AtomicU64,
}

/// How often a window that saw no answer looks for one.
const ANSWER_LOOKS: Duration = Duration::from_millis(5);

const WARM_UP: u8 = 0;
const MEASURING: u8 = 1;
const DONE: u8 = 2;

/// Puts the load on a server and measures one window.
pub(crate) async fn run(server: &Server, load: Load, calling: Calling) -> Result<Measured> {
    let callers = timeout(DEADLINE, connect(server.endpoint(), load.connections, calling))
        .await
        .context("open the sessions")??;
    let (window, _) = drive(callers, load, || server.cpu()).await?;
    let server_cpu = window.after.since(window.before);
    Ok(Measured {
        calls: window.calls,
        elapsed: window.elapsed,
        server_cpu,
        client_cpu: window.client_cpu,
        other_cpu: window.busy.saturating_sub(server_cpu + window.client_cpu),
        latency: window.latency,
    })
}

/// Lets all callers call, measures one window, and gives the callers back.
pub(crate) async fn drive<C: Calls, T>(
    callers: Vec<C>,
    load: Load,
    read: impl Fn() -> Result<T>,
) -> Result<(Window<T>, Vec<C>)> {
    let shared = Arc::new(Shared::default());
    let mut running = JoinSet::new();
    for caller in callers {
        running.spawn(call_until_done(caller, Arc::clone(&shared)));
    }
    pause(load.warm_up, &mut running).await?;

    let (busy, client, before) = (BusyTime::read()?, CpuTime::of("self")?, read()?);
    let (started, calls_before) = (now(), shared.calls.load(Relaxed));
    shared.phase.store(MEASURING, Relaxed);
    pause(load.window, &mut running).await?;
    // On a machine with much else to do a short window may see no answer at all; then it lasts until the first one.
    let waits_until = started + DEADLINE;
    while shared.calls.load(Relaxed) == calls_before && now() < waits_until {
        pause(ANSWER_LOOKS, &mut running).await?;
    }
    let (elapsed, calls) = (started.elapsed(), shared.calls.load(Relaxed) - calls_before);
    let after = read()?;
    let client_cpu = CpuTime::of("self")?.since(client);
    let busy = BusyTime::read()?.since(busy);
    shared.phase.store(DONE, Relaxed);

    let (mut latency, mut callers) = (Histogram::new(), Vec::new());
    while let Some(done) =
        timeout(DEADLINE, running.join_next()).await.context("wait for the last answers")?
    {
        let (caller, latencies) = done.context("run a caller")??;
        latency.merge(&latencies);
        callers.push(caller);
    }
    ensure!(calls > 0, "no call was answered within {elapsed:?}");
    Ok((Window { calls, elapsed, before, after, client_cpu, busy, latency }, callers))
}

/// Sleeps, unless a caller fails first.
async fn pause<C: Calls>(duration: Duration, callers: &mut JoinSet<Result<(C, Histogram)>>) -> Result<()> {
    tokio::select! {
        () = sleep(duration) => Ok(()),
        Some(caller) = callers.join_next() => {
            caller.context("run a caller")??;
            unreachable!("a caller ends well only in the phase `DONE`")
        }
    }
}

/// Calls until the phase is `DONE`; returns the latencies of the calls in the window.
async fn call_until_done<C: Calls>(mut caller: C, shared: Arc<Shared>) -> Result<(C, Histogram)> {
    let mut latency = Histogram::new();
    let mut sent = now();
    loop {
        caller.call().await?;
        // The answer to one call is the start of the next: one look at the clock serves both.
        let answered = now();
        shared.calls.fetch_add(1, Relaxed);
        match shared.phase.load(Relaxed) {
            WARM_UP => {}
            MEASURING => latency.record(answered - sent),
            _ => return Ok((caller, latency)),
        }
        sent = answered;
    }
}

async fn connect(endpoint: &Endpoint, count: usize, calling: Calling) -> Result<Vec<Caller>> {
    let mut callers = Vec::with_capacity(count);
    for _ in 0..count {
        callers.push(Caller::connect(endpoint, calling).await?);
    }
    Ok(callers)
}

/// Calls a tool over HTTP, on a connection of its own.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) connection: Connection,
    pub(crate) call: ToolCall,
}

impl Caller {
    pub(crate) async fn connect(endpoint: &Endpoint, calling: Calling) -> Result<Caller> {
        let mut connection = endpoint.connect(BUFFER_BYTES).await?;
        let session = match calling.has_session() {
            true => open_session(&mut connection, endpoint).await?,
            false => None,
        };
        let data_session = match calling.has_data_session() {
            true => Some(open_data_session(&mut connection, endpoint, session.as_deref()).await?),
            false => None,
        };
        let call = ToolCall::new(endpoint, session.as_deref(), calling, data_session.as_deref());
        Ok(Caller { connection, call })
    }

    /// Connects again if the other side has hung up meanwhile; the session stays.
    pub(crate) async fn refresh(&mut self, endpoint: &Endpoint) -> Result<()> {
        // The runtime has to hear of it first.
        tokio::task::yield_now().await;
        if self.connection.is_closed() {
            self.connection = endpoint.connect(BUFFER_BYTES).await?;
        }
        Ok(())
    }
}

impl Calls for Caller {
    async fn call(&mut self) -> Result<()> {
        let (head, body) = self.connection.exchange(self.call.next_request()).await?;
        self.call.check(head.status, body)
    }
}
