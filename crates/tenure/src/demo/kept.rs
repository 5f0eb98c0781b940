//! What the demo server keeps: one workspace per data session or handle, with a counter, notes and hashes.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tenure_session::data::KindOfState;
use tenure_session::runtime::CallContext;
use tenure_session::state::Kind;
use tenure_session::{Reason, RpcError, State};

/// The most notes and hashes one workspace keeps.
pub(super) const MAX_KEPT: usize = 1000;

/// The tools that work on a workspace.
const TOOLS: [&str; 12] = [
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
];

/// A workspace.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) counter: u64,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    #[serde(default)]
    pub(super) hashes: BTreeMap<String, String>,
}

/// The kind of state that the demo's tools work on.
pub(super) fn workspace() -> KindOfState {
    let schema = json!({
        "type": "object",
        "properties": { "title": { "type": "string", "maxLength": 200, "description": "A name for it" } },
    });
    let about = "a workspace with a counter, a notebook and a store of hashes";
    KindOfState::new(Kind::new("workspace").expect("a kind"), about).made_from(schema, begin).used_by(TOOLS)
}

fn begin(params: &Map<String, Value>) -> Result<Bytes, String> {
    let title = match params.get("title") {
        None | Some(Value::Null) => None,
        Some(Value::String(title)) if title.chars().count() <= 200 => Some(title.clone()),
        Some(_) => return Err("`title` is a text of up to 200 letters.".to_owned()),
    };
    let kept = Kept { title, ..Kept::default() };
    serde_json::to_vec(&kept).map(Bytes::from).map_err(|error| error.to_string())
}

/// The workspace that a request works on.
pub(super) fn of(context: &CallContext) -> Result<&State, RpcError> {
    let sentence = "Session required. Call session/create or session/resume first.";
    context.state().ok_or_else(|| RpcError::of(Reason::SessionRequired, sentence))
}

/// Its notes.
pub(super) fn notes(context: &CallContext) -> Result<Vec<String>, RpcError> {
    let (kept, _) = of(context)?.get::<Kept>().map_err(|fault| fault.to_error().to_rpc())?;
    Ok(kept.notes)
}
