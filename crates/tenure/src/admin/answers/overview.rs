//! How the server does at a glance, with what is wrong first; and who asks.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Grade, StoreDurability};
use tenure_session::supervise::LoopState;

use super::servers::{self, BackendView, SeenNodeRow};
use crate::admin::api::{AdminApi, Outcome};
use crate::admin::caller::{AdminCaller, Via};
use crate::admin::error::AdminError;
use crate::admin::login::LoginCode;
use crate::admin::request::Asked;
use crate::admin::role::AdminRole;
use crate::figures::{ProcessFigures, Rates, ResumeCounts};
use crate::operator::{CallRow, CallWait, LONG, key_text, now};
use crate::time_text::span;

/// The most sessions and calls that are looked at for what is wrong with them.
const MOST_SUSPECTS: usize = 100;

/// Sessions that ended within this time are counted.
const RECENT: Duration = Duration::from_secs(600);

/// From this share in percent on, a resource counts as nearly used up.
const NEARLY: u64 = 90;

#[derive(Serialize)]
pub(super) struct Me {
    name: String,
    roles: Vec<AdminRole>,
    via: Via,
    node: String,
    version: &'static str,
    started: u64,
    features: Features,
}

/// What this server has, so that the page leaves out what it has not.
#[derive(Serialize)]
struct Features {
    r#try: bool,
    cluster: bool,
    audit: bool,
    auth: bool,
    reload: bool,
    restart: bool,
    log: bool,
    sleep: bool,
}

/// Who asks.
pub(super) fn me(api: &AdminApi, caller: &AdminCaller) -> Me {
    let runtimes = &api.0.runtimes;
    Me {
        name: caller.name.clone(),
        roles: caller.role.included(),
        via: caller.via,
        node: node_label(api),
        version: env!("CARGO_PKG_VERSION"),
        started: api.0.started.0,
        features: Features {
            r#try: api.0.config.admin.can_try,
            cluster: runtimes.cluster.is_some(),
            audit: api.0.config.audit.file.is_some(),
            auth: runtimes.auth.is_some(),
            reload: false,
            restart: !runtimes.restarters.is_empty(),
            log: crate::logs::level().is_some(),
            sleep: true,
        },
    }
}

/// A one-time code for a browser. Only a user of this machine may ask for one: a key that could would outlive its revocation
/// in a cookie.
pub(super) fn code(api: &AdminApi, caller: &AdminCaller, asked: &Asked) -> Result<Outcome, AdminError> {
    if caller.via != Via::Socket {
        return Err(AdminError::forbidden("Codes are given out on the control socket alone")
            .hint("run `tenure admin open` on the server's machine"));
    }
    let url = api.0.url.get().ok_or_else(|| {
        AdminError::not_supported("This server has no page for operators")
            .hint("start it with `--admin`, or set `admin.listen`")
    })?;
    let role = asked.text("role").and_then(AdminRole::parse).unwrap_or(AdminRole::Admin);
    let (code, expires) = api.0.logins.code(caller.uid, role, now());
    Ok(Outcome::of(&LoginCode { url: format!("{url}/login#{code}"), code, expires: expires.0 }))
}

/// How the server does.
#[derive(Serialize, Clone, Debug)]
pub(in crate::admin) struct Overview {
    time: u64,
    node: NodeState,
    problems: Vec<Problem>,
    sessions: SessionCounts,
    rates: Rates,
    calls: CallCounts,
    streams: StreamCounts,
    /// Since the start.
    resumes: ResumeCounts,
    /// By reason, since the start.
    refused: BTreeMap<String, u64>,
    process: ProcessFigures,
    store: StoreState,
    backends: Vec<BackendView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<SeenNodeRow>,
}

#[derive(Serialize, Clone, Debug)]
struct NodeState {
    label: String,
    version: &'static str,
    started: u64,
    state: &'static str,
    ready: bool,
    why: Vec<String>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "snake_case")]
enum Severity {
    Error,
    Warning,
}

/// Something that is wrong, in words.
#[derive(Serialize, Clone, Debug)]
struct Problem {
    severity: Severity,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<About>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
}

#[derive(Serialize, Clone, Debug)]
struct About {
    kind: &'static str,
    key: String,
    label: String,
}

#[derive(Serialize, Clone, Debug)]
struct SessionCounts {
    awake: usize,
    dormant: usize,
    /// Within the last ten minutes, of the newest 500.
    ended_recent: usize,
    waiting_for_client: usize,
    total: usize,
}

#[derive(Serialize, Clone, Debug)]
struct CallCounts {
    in_flight: usize,
    waiting_for_client: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_started: Option<u64>,
}

#[derive(Serialize, Clone, Debug)]
struct StreamCounts {
    open: usize,
    readers: usize,
}

#[derive(Serialize, Clone, Debug)]
struct StoreState {
    kind: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

/// How the server does now.
pub(in crate::admin) fn overview(api: &AdminApi) -> Overview {
    let runtimes = &api.0.runtimes;
    let now = now();
    let glance = runtimes.sessions.glance(now.before(LONG), MOST_SUSPECTS);
    let without = api.0.operator.calls_without_session();
    let waiting = servers::waiting(&glance.calls_waiting, &without);
    let oldest = without.iter().map(|call| call.started).chain(glance.oldest_call.map(|at| at.0)).min();
    let total = runtimes.sessions.tallies().sessions;
    let figures = runtimes.figures.now();
    let ended_recent = runtimes.figures.ended_since(now.before(RECENT));
    let backends = servers::with_waiting(figures.backends, &waiting);
    let mut problems = of_server(api);
    // As `/readyz` has it: a server behind that cannot be reached does not make this one unfit.
    let why: Vec<String> = problems
        .iter()
        .filter(|problem| problem.severity == Severity::Error)
        .map(|problem| problem.text.clone())
        .collect();
    problems.extend(backends.iter().filter_map(of_backend));
    problems.extend(glance.suspects.iter().flat_map(|key| of_session(api, key, now)));
    problems.extend(without.iter().filter_map(|call| of_call(call, now)).take(MOST_SUSPECTS));
    problems.sort_by_key(|problem| (problem.severity, problem.since.unwrap_or(0)));
    let is_open = runtimes.sessions.is_ready();
    let ready = is_open && why.is_empty();
    let state = match (is_open, ready) {
        (false, _) => "draining",
        (true, true) => "serving",
        (true, false) => "not_ready",
    };
    Overview {
        time: now.0,
        node: NodeState {
            label: node_label(api),
            version: env!("CARGO_PKG_VERSION"),
            started: api.0.started.0,
            state,
            ready,
            why,
        },
        problems,
        sessions: SessionCounts {
            awake: glance.awake,
            dormant: total.saturating_sub(glance.awake),
            ended_recent,
            waiting_for_client: glance.waiting_for_client,
            total,
        },
        rates: figures.rates,
        calls: CallCounts {
            in_flight: glance.calls + without.len(),
            waiting_for_client: waiting.values().sum(),
            oldest_started: oldest,
        },
        streams: StreamCounts { open: glance.streams, readers: glance.readers },
        resumes: figures.resumes,
        refused: figures.refused,
        process: figures.process,
        store: store(api),
        backends,
        nodes: servers::nodes(api),
    }
}

fn node_label(api: &AdminApi) -> String {
    match &api.0.runtimes.cluster {
        Some(cluster) => format!("{:?}", cluster.roster.node()),
        None => crate::audit::node_name(),
    }
}

fn store(api: &AdminApi) -> StoreState {
    let store = &api.0.runtimes.store.store;
    let kind = match store.capabilities().durability {
        StoreDurability::Process => "memory",
        StoreDurability::Machine | StoreDurability::Disk => "disk",
        StoreDurability::Replicated { .. } => "nats",
    };
    match store.trouble() {
        None => StoreState { kind, state: "well", trouble: None },
        Some(trouble) => {
            let state = match trouble.grade {
                Grade::Degraded => "degraded",
                Grade::Down => "down",
                Grade::Lost => "lost",
            };
            StoreState { kind, state, trouble: Some(trouble.what) }
        }
    }
}

/// What is wrong with the server itself.
fn of_server(api: &AdminApi) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add = |severity, text, kind: &'static str| {
        let about = Some(About { kind, key: String::new(), label: String::new() });
        problems.push(Problem { severity, text, about, since: None });
    };
    let runtimes = &api.0.runtimes;
    if let Some(trouble) = runtimes.store.store.trouble() {
        let is_partial = trouble.grade == Grade::Degraded;
        let severity = if is_partial { Severity::Warning } else { Severity::Error };
        add(severity, format!("the store is in trouble: {}", trouble.what), "store");
    }
    if let Some(text) = api.0.operator.fallen() {
        let is_down = matches!(runtimes.sessions.loops().state(), LoopState::Down(_));
        add(if is_down { Severity::Error } else { Severity::Warning }, text, "loop");
    }
    if let Some(cluster) = &runtimes.cluster
        && !cluster.roster.is_confirmed()
    {
        let text = "this node cannot renew its lease, so it answers for none of its sessions";
        add(Severity::Error, text.to_owned(), "node");
    }
    for usage in api.0.operator.usage() {
        if usage.total > 0 && usage.used.saturating_mul(100) / usage.total >= NEARLY {
            let most =
                usage.peers.first().map(|peer| format!("; most of it by {}", peer.peer)).unwrap_or_default();
            let percent = usage.used.saturating_mul(100) / usage.total;
            add(Severity::Warning, format!("{percent}% of `{}` are in use{most}", usage.resource), "limit");
        }
    }
    problems
}

/// A server that could not be reached the last time.
fn of_backend(row: &BackendView) -> Option<Problem> {
    let name = row.name();
    let (since, why) = row.trouble()?;
    let text = format!("the server `{name}` cannot be reached: {why}");
    let about = Some(About { kind: "backend", key: name.to_owned(), label: name.to_owned() });
    Some(Problem { severity: Severity::Error, text, about, since })
}

fn of_session(api: &AdminApi, key: &tenure_session::SessionKey, now: Time) -> Vec<Problem> {
    let Some(listed) = api.0.operator.listed(key) else { return Vec::new() };
    let since = listed.row.oldest_call.or(listed.row.created).filter(|since| *since <= now.0);
    let about = About { kind: "session", key: key_text(key), label: key.label() };
    let problem = |text| Problem { severity: Severity::Warning, text, about: Some(about.clone()), since };
    listed.problems.into_iter().map(problem).collect()
}

/// A call without a session that looks stuck, in the words that are used for those in a session.
fn of_call(call: &CallRow, now: Time) -> Option<Problem> {
    let age = Duration::from_millis(now.0.saturating_sub(call.started));
    let name = match &call.tool {
        Some(tool) => format!("`{} {tool}`", call.method),
        None => format!("`{}`", call.method),
    };
    let text = match call.waits_for {
        _ if age < LONG => return None,
        CallWait::Client if call.questions > 0 => {
            format!("{name} has waited {} for the client to answer a question", span(age))
        }
        CallWait::Client => format!("{name} has waited {} for the client to come back", span(age)),
        CallWait::Reader => format!("{name} has waited for the client to read; it began {} ago", span(age)),
        CallWait::Server => format!("{name} runs for {} and has no answer yet", span(age)),
        CallWait::News | CallWait::NextProcess => return None,
    };
    let about = About { kind: "call", key: call.label.clone(), label: call.label.clone() };
    Some(Problem { severity: Severity::Warning, text, about: Some(about), since: Some(call.started) })
}
