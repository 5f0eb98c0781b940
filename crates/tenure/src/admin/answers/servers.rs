//! The servers behind, and the nodes beside this one.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;
use tenure_session::Route;

use crate::admin::api::{AdminApi, Outcome};
use crate::admin::error::AdminError;
use crate::admin::request::Asked;
use crate::admin::through;
use crate::figures::BackendRow;
use crate::operator::{CallRow, CallWait, now};
use crate::wire::NamedRestarter;

/// The name of the only server, if it has none, and of several merged into one.
const MAIN: &str = "main";

/// A server behind, in a list.
#[derive(Serialize, Clone, Debug)]
pub(super) struct BackendView {
    #[serde(flatten)]
    row: BackendRow,
    /// Requests to it that wait for a client.
    waiting: usize,
}

impl BackendView {
    pub(super) fn name(&self) -> &str {
        &self.row.name
    }

    /// Since when and why it cannot be reached; `None` if it can.
    pub(super) fn trouble(&self) -> Option<(Option<u64>, &str)> {
        if self.row.up {
            return None;
        }
        let last = self.row.last_error.as_ref();
        Some((last.map(|last| last.at), last.map_or("it did not say why", |last| &last.text)))
    }
}

/// A node in the overview: what it last wrote of itself. `nodes` asks it.
#[derive(Serialize, Clone, Debug)]
pub(super) struct SeenNodeRow {
    node: String,
    label: String,
    address: String,
    version: String,
    state: &'static str,
    /// Sessions in its memory.
    load: u64,
    /// Its clock, as it last told.
    clock_ms: u64,
}

/// All servers behind.
pub(super) fn backends(api: &AdminApi) -> Vec<BackendView> {
    let glance = api.0.runtimes.sessions.glance(now(), 0);
    let waiting = waiting(&glance.calls_waiting, &api.0.operator.calls_without_session());
    with_waiting(api.0.runtimes.figures.now().backends, &waiting)
}

/// Requests that wait for a client, by the endpoint that they came to.
pub(super) type Waiting = BTreeMap<Option<String>, usize>;

/// Those of sessions, and those without.
pub(super) fn waiting(of_sessions: &Waiting, without: &[CallRow]) -> Waiting {
    let mut waiting = of_sessions.clone();
    for call in without.iter().filter(|call| call.waits_for == CallWait::Client) {
        *waiting.entry(call.backend.clone()).or_default() += 1;
    }
    waiting
}

/// Servers with the requests to them that wait for a client.
pub(super) fn with_waiting(rows: Vec<BackendRow>, waiting: &Waiting) -> Vec<BackendView> {
    let is_one = rows.len() == 1;
    let of_it = |name: &str| match is_one {
        true => waiting.values().sum(),
        false => waiting.get(&Some(name.to_owned())).copied().unwrap_or_default(),
    };
    rows.into_iter().map(|row| BackendView { waiting: of_it(&row.name), row }).collect()
}

/// One server behind, with its tools. A server that does not list them says why in `tools_error`.
pub(super) async fn backend(api: &AdminApi, asked: &Asked) -> Result<Outcome, AdminError> {
    let name = asked.path.get("name").map(String::as_str).unwrap_or_default();
    let found = backends(api).into_iter().find(|row| row.name() == name);
    let row = found.ok_or_else(|| no_server(name))?;
    let mut shown = serde_json::to_value(&row).expect("a row has a JSON form");
    match through::tools(api, name).await {
        Ok(listed) => {
            shown["tools"] = json!(listed.tools);
            if listed.is_cut {
                shown["tools_cut"] = true.into();
            }
        }
        Err(error) => {
            shown["tools"] = json!([]);
            shown["tools_error"] = error.message.into();
        }
    }
    Ok(Outcome::of(&shown))
}

/// The endpoint of a server behind.
pub(in crate::admin) fn endpoint(api: &AdminApi, name: &str) -> Result<Route, AdminError> {
    let several = &api.0.config.backends;
    match name {
        MAIN => Ok(Route::MAIN),
        name if several.iter().any(|behind| behind.name == name) => Ok(Route::named(name)),
        name => Err(no_server(name)),
    }
}

/// What restarts a server behind.
pub(in crate::admin) fn restarter<'a>(
    api: &'a AdminApi,
    name: &str,
) -> Result<&'a NamedRestarter, AdminError> {
    endpoint(api, name)?;
    let own = |named: &&NamedRestarter| named.name.as_deref().unwrap_or(MAIN) == name;
    api.0.runtimes.restarters.iter().find(own).ok_or_else(|| {
        AdminError::not_supported("Only servers that are programs of this machine can be restarted")
    })
}

fn no_server(name: &str) -> AdminError {
    AdminError::not_found(format!("There is no server `{name}` behind")).hint("`backends` lists them")
}

/// All nodes of the cluster as this one has seen them, this one first; none without a cluster.
pub(super) fn nodes(api: &AdminApi) -> Vec<SeenNodeRow> {
    let Some(cluster) = &api.0.runtimes.cluster else { return Vec::new() };
    let roster = &cluster.roster;
    let one = |node: String, info: tenure_session::cluster::NodeInfo| SeenNodeRow {
        label: node.chars().take(10).collect(),
        node,
        address: info.peer_address,
        version: info.version,
        state: if info.is_draining { "draining" } else { "serving" },
        load: info.load,
        clock_ms: info.wall_ms,
    };
    let own = one(format!("{:?}", roster.node()), roster.info());
    let peers = roster.peers().into_iter().map(|(node, info)| one(format!("{node:?}"), info));
    std::iter::once(own).chain(peers).collect()
}
