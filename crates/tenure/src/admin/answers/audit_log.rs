//! The newest records of the audit log, and whether its chain is whole.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::admin::api::{AdminApi, Outcome};
use crate::admin::error::AdminError;
use crate::admin::request::Asked;
use crate::admin::role::AdminRole;
use crate::audit::{LogFile, verify};

/// How much of the end of the log is looked at.
const MOST_BYTES: u64 = 4 << 20;

/// A longer log is not verified for an answer; `tenure audit verify` does it.
const VERIFIED_BYTES: u64 = 8 << 20;

#[derive(Serialize)]
struct AuditRows {
    rows: Vec<Value>,
    /// Left out if the log is too long to be verified here.
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<ChainState>,
    /// Whether the log has older records that were not looked at.
    is_cut: bool,
}

#[derive(Serialize)]
struct ChainState {
    ok: bool,
    /// The number of the last record that was checked.
    checked_to: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

/// The newest records that fit.
pub(super) async fn records(api: &AdminApi, asked: &Asked, role: AdminRole) -> Result<Outcome, AdminError> {
    let file = api.0.config.audit.file.clone();
    let file = file.ok_or_else(|| {
        AdminError::not_supported("This server keeps no audit log")
            .hint("set `audit.file`, as docs/audit.md says")
    })?;
    let text = |name: &str| asked.query(name).map(str::to_owned);
    let wanted = Wanted {
        since: text("since"),
        principal: text("principal"),
        event: text("event"),
        most: asked.limit(),
    };
    let read = tokio::task::spawn_blocking(move || newest(&file, &wanted)).await;
    let read = read.map_err(|_| AdminError::failed("The audit log could not be read"))?;
    let mut rows =
        read.map_err(|error| AdminError::failed(format!("The audit log cannot be read: {error}")))?;
    if role < AdminRole::Payloads {
        rows.rows.iter_mut().for_each(hide_contents);
    }
    Ok(Outcome::of(&rows))
}

/// Leaves out the arguments of tools, and metadata before and after a change.
fn hide_contents(record: &mut Value) {
    if let Some(record) = record.as_object_mut() {
        record.remove("args");
        record.remove("change");
    }
}

struct Wanted {
    since: Option<String>,
    principal: Option<String>,
    event: Option<String>,
    most: usize,
}

fn newest(path: &Path, wanted: &Wanted) -> std::io::Result<AuditRows> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(MOST_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let mut lines = bytes.split(|byte| *byte == b'\n').collect::<Vec<_>>();
    if start > 0 && !lines.is_empty() {
        // Only the end of a line.
        lines.remove(0);
    }
    let records = lines.iter().rev().filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let rows = records.filter(|record| fits(record, wanted)).take(wanted.most).collect();
    let chain = if length <= VERIFIED_BYTES { Some(chain(path)?) } else { None };
    Ok(AuditRows { rows, chain, is_cut: start > 0 })
}

fn fits(record: &Value, wanted: &Wanted) -> bool {
    let text = |name: &str| record[name].as_str().unwrap_or_default();
    wanted.since.as_deref().is_none_or(|since| text("time") >= since)
        && wanted.event.as_deref().is_none_or(|event| text("event") == event)
        && wanted.principal.as_deref().is_none_or(|wanted| principal(&record["principal"]) == wanted)
}

fn principal(record: &Value) -> String {
    let text = |name: &str| record[name].as_str();
    match (text("iss"), text("sub")) {
        (Some(issuer), Some(subject)) => format!("{issuer}:{subject}"),
        (None, Some(subject)) => subject.to_owned(),
        (_, None) => text("kind").unwrap_or_default().to_owned(),
    }
}

fn chain(path: &Path) -> std::io::Result<ChainState> {
    let file =
        LogFile { name: path.display().to_string(), lines: Box::new(BufReader::new(File::open(path)?)) };
    Ok(match verify(vec![file], Vec::new(), None)? {
        Ok(verified) => ChainState { ok: true, checked_to: verified.last, why: None },
        Err(broken) => {
            ChainState { ok: false, checked_to: broken.seq.saturating_sub(1), why: Some(broken.why) }
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_viewer_sees_of_a_record_neither_arguments_nor_what_was_changed() {
        let mut record = json!({ "event": "call_finished", "name": "pay", "args": { "to": "x" }, "change": { "a": [1, 2] } });
        hide_contents(&mut record);
        assert_eq!(record, json!({ "event": "call_finished", "name": "pay" }));
    }
}
