//! The demo server's data: one workspace per data session or handle, with a counter, notes and hashes.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tenure_layers::data::KindOfState;
use tenure_protocol::{Reason, RpcError};
use tenure_session::State;
use tenure_session::call::CallContext;
use tenure_session::state::StateKind;

/// The most notes and hashes one workspace keeps.
pub(super) const MAX_KEPT: usize = 1000;

/// The tools that work on a workspace.
const TOOLS: [&str; 18] = [
    "echo",
    "whoami",
    "session_probe",
    "session_reset",
    "session_counter_inc",
    "session_counter_get",
    "notebook_append",
    "notebook_read",
    "notebook_clear",
    "notebook_status",
    "hashcheck_store",
    "hashcheck_verify",
    "hashcheck_list",
    "hashcheck_delete",
    "client_notes_add",
    "client_notes_list",
    "client_notes_clear",
    "client_notes_status",
];

/// A workspace.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct DemoWorkspace {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) counter: u64,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    #[serde(default)]
    pub(super) hashes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) client_notes: Vec<String>,
}

impl DemoWorkspace {
    /// Removes everything but the title.
    pub(super) fn empty(&mut self) {
        *self = Self { title: self.title.take(), ..Self::default() };
    }
}

/// The kind of state that the demo's tools work on.
pub(super) fn workspace() -> KindOfState {
    let schema = json!({
        "type": "object",
        "properties": { "title": { "type": "string", "maxLength": 200, "description": "A name for it" } },
    });
    let about = "a workspace with a counter, a notebook and a store of hashes";
    KindOfState::new(StateKind::new("workspace").expect("a kind"), about)
        .made_from(schema, begin)
        .made_by("session_start")
        .used_by(TOOLS)
}

fn begin(params: &Map<String, Value>) -> Result<Bytes, String> {
    // `session_start` calls it a label.
    let title = match params.get("title").or_else(|| params.get("label")) {
        None | Some(Value::Null) => None,
        Some(Value::String(title)) if title.chars().count() <= 200 => Some(title.clone()),
        Some(_) => return Err("A title is a text of up to 200 letters.".to_owned()),
    };
    let kept = DemoWorkspace { title, ..DemoWorkspace::default() };
    serde_json::to_vec(&kept).map(Bytes::from).map_err(|error| error.to_string())
}

/// The workspace that a request works on.
pub(super) fn of(context: &CallContext) -> Result<&State, RpcError> {
    let sentence = "Session required. Call session/create or session/resume first.";
    context.state().ok_or_else(|| RpcError::of(Reason::SessionRequired, sentence))
}

/// Its notes.
pub(super) fn notes(context: &CallContext) -> Result<Vec<String>, RpcError> {
    let (kept, _) = of(context)?.get::<DemoWorkspace>().map_err(|fault| fault.to_error().to_rpc())?;
    Ok(kept.notes)
}
