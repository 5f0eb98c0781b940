//! One row, one round: sessions opened, memory read, calls on all connections, calls one at a time.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::clock::now;
use crate::gateway::Plan;
use crate::gateway::callers::{HttpCaller, Opens, PipeCaller};
use crate::gateway::rows::Row;
use crate::gateway::running::Running;
use crate::load::{Load, Window, drive};

/// Opening sessions, all of them.
const DEADLINE: Duration = Duration::from_secs(120);
const WARM_UP_CALLS: usize = 20;

/// What was seen of one row.
#[derive(Debug, Serialize)]
pub(crate) struct GatewayRound {
    /// Connections that called, each with its own session.
    connections: usize,
    pub(crate) calls_per_second: f64,
    pub(crate) gateway_cpu_us_per_call: f64,
    pub(crate) server_cpu_us_per_call: f64,
    client_cpu_us_per_call: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// With a single call in flight.
    pub(crate) alone_p50_us: f64,
    pub(super) alone_p99_us: f64,
    pub(crate) alone_gateway_cpu_us_per_call: f64,
    #[serde(flatten)]
    pub(super) opened: Option<OpenedSessions>,
    pub(super) gateway_bytes: u64,
    /// Processes of the server behind all these sessions.
    pub(crate) servers: usize,
    /// CPU time others used meanwhile, in cores; high means a noisy figure.
    pub(crate) other_cores: f64,
}

/// What further sessions cost that were opened.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct OpenedSessions {
    pub(super) opened_per_second: f64,
    pub(super) gateway_cpu_us_per_open: f64,
    pub(super) bytes_per_session: f64,
}

impl std::fmt::Display for GatewayRound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.0}/s, {:.1} µs CPU of the gateway per call, p50 {:.0} µs, alone {:.0} µs",
            self.calls_per_second, self.gateway_cpu_us_per_call, self.p50_us, self.alone_p50_us
        )?;
        match self.opened {
            Some(opened) => write!(f, ", {:.0} sessions/s", opened.opened_per_second),
            None => Ok(()),
        }
    }
}

/// Starts a row, measures it, and ends it.
pub(crate) async fn measure(row: &Row, plan: Plan, dir: Option<&Path>) -> Result<GatewayRound> {
    let running = Running::start(row, dir).await?;
    let calling = row.client.calling();
    let figures = match &running.endpoint {
        Some(endpoint) => calls(&running, plan, async || HttpCaller::connect(endpoint, calling).await).await,
        None => calls(&running, plan, async || PipeCaller::connect(&row.program, calling).await).await,
    };
    let figures = figures.with_context(|| format!("see what it does{}", running.log()))?;
    running.stop().await?;
    Ok(figures)
}

async fn calls<C: Opens>(
    running: &Running,
    plan: Plan,
    connect: impl AsyncFn() -> Result<C>,
) -> Result<GatewayRound> {
    let family = &running.family;
    let Load { connections, warm_up, window } = plan.load;
    let mut callers = Vec::with_capacity(connections);
    for _ in 0..connections {
        let caller = async {
            let mut caller = connect().await?;
            for _ in 0..WARM_UP_CALLS {
                caller.call().await?;
            }
            anyhow::Ok(caller)
        };
        callers.push(timeout(DEADLINE, caller).await.context("open a session")??);
    }

    let mut gateway_bytes = family.settled_memory().await?;
    let mut opened = None;
    if plan.sessions > 0 {
        let (bytes_before, before) = (gateway_bytes, family.read()?);
        refresh(&mut callers).await?;
        let started = now();
        callers = open_all(callers, plan.sessions).await?;
        let elapsed = started.elapsed().as_secs_f64();
        let spent = family.read()?.since(&before);
        gateway_bytes = family.settled_memory().await?;
        let sessions = plan.sessions as f64;
        opened = Some(OpenedSessions {
            opened_per_second: sessions / elapsed,
            gateway_cpu_us_per_open: micros(spent.gateway) / sessions,
            bytes_per_session: (gateway_bytes as f64 - bytes_before as f64) / sessions,
        });
    }
    let servers = family.members()?.server.len();

    // All connections first: what compiles itself while it runs shall be warm when it is called alone.
    refresh(&mut callers).await?;
    let alone = Load { connections: 1, warm_up: warm_up / 2, window: window / 2 };
    let (window, mut callers) = drive(callers, plan.load, || family.read()).await.context("call")?;
    callers.truncate(1);
    refresh(&mut callers).await?;
    let (single, _callers) = drive(callers, alone, || family.read()).await.context("call alone")?;

    let spent_calling = window.after.since(&window.before);
    let spent_alone = single.after.since(&single.before);
    let others = window.busy.saturating_sub(spent_calling.gateway + spent_calling.server + window.client_cpu);
    Ok(GatewayRound {
        connections,
        calls_per_second: window.calls as f64 / window.elapsed.as_secs_f64(),
        gateway_cpu_us_per_call: per_call(spent_calling.gateway, &window),
        server_cpu_us_per_call: per_call(spent_calling.server, &window),
        client_cpu_us_per_call: per_call(window.client_cpu, &window),
        p50_us: micros(window.latency.quantile(0.50)),
        p99_us: micros(window.latency.quantile(0.99)),
        alone_p50_us: micros(single.latency.quantile(0.50)),
        alone_p99_us: micros(single.latency.quantile(0.99)),
        alone_gateway_cpu_us_per_call: per_call(spent_alone.gateway, &single),
        opened,
        gateway_bytes,
        servers,
        other_cores: others.as_secs_f64() / window.elapsed.as_secs_f64(),
    })
}

async fn refresh<C: Opens>(callers: &mut [C]) -> Result<()> {
    for caller in callers {
        caller.refresh().await?;
    }
    Ok(())
}

/// Opens so many more sessions, all callers at once.
async fn open_all<C: Opens>(callers: Vec<C>, count: usize) -> Result<Vec<C>> {
    let mut openers = JoinSet::new();
    let all = callers.len();
    for (place, mut caller) in callers.into_iter().enumerate() {
        let share = count / all + usize::from(place < count % all);
        openers.spawn(async move {
            for _ in 0..share {
                caller.open().await?;
            }
            anyhow::Ok(caller)
        });
    }
    let mut callers = Vec::with_capacity(all);
    let opened = async {
        while let Some(opener) = openers.join_next().await {
            callers.push(opener.context("run an opener")??);
        }
        anyhow::Ok(())
    };
    timeout(DEADLINE, opened).await.with_context(|| format!("open {count} sessions"))??;
    Ok(callers)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn per_call<T>(time: Duration, window: &Window<T>) -> f64 {
    micros(time) / window.calls as f64
}
