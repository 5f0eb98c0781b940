//! The newest records of the audit log, and whether its chain is whole.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::admin::api::{AdminApi, Outcome};
use crate::admin::error::AdminError;
use crate::admin::request::Asked;
use crate::admin::role::AdminRole;
use crate::audit::{LogFile, verify};

/// How much of the end of the log is looked at: so many bytes and records, for so long.
const MOST_BYTES: u64 = 4 << 20;
const MOST_RECORDS: usize = 20_000;
const LOOK_TIME: Duration = Duration::from_millis(150);

/// How long the chain is verified for an answer.
const CHECK_TIME: Duration = Duration::from_millis(150);

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
    /// How many were looked at then.
    #[serde(skip_serializing_if = "Option::is_none")]
    looked_at: Option<usize>,
}

#[derive(Serialize)]
struct ChainState {
    ok: bool,
    /// The number of the last record that was checked.
    checked_to: u64,
    /// Whether there are later ones that were not checked: `tenure audit verify` does it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
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
    let until = Instant::now() + LOOK_TIME;
    let (mut rows, mut looked_at, mut is_cut) = (Vec::new(), 0, start > 0);
    for line in lines.iter().rev().filter(|line| !line.is_empty()) {
        if rows.len() == wanted.most {
            break;
        }
        if looked_at == MOST_RECORDS || Instant::now() >= until {
            is_cut = true;
            break;
        }
        looked_at += 1;
        rows.extend(serde_json::from_slice(line).ok().filter(|record| fits(record, wanted)));
    }
    let chain = match length <= VERIFIED_BYTES {
        true => Some(chain(path, Instant::now() + CHECK_TIME)?),
        false => None,
    };
    // A page that is full says nothing of the rest.
    let looked_at = (is_cut && rows.len() < wanted.most).then_some(looked_at);
    Ok(AuditRows { rows, chain, is_cut, looked_at })
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

/// Checks the chain from its beginning, until the time is up.
fn chain(path: &Path, until: Instant) -> std::io::Result<ChainState> {
    let is_cut = Arc::new(AtomicBool::new(false));
    let lines = UntilLate {
        lines: BufReader::new(File::open(path)?),
        until,
        is_between_lines: false,
        is_cut: Arc::clone(&is_cut),
    };
    let file = LogFile { name: path.display().to_string(), lines: Box::new(lines) };
    let verified = verify(vec![file], Vec::new(), None)?;
    let is_cut = is_cut.load(Ordering::Relaxed);
    Ok(match verified {
        Ok(verified) => ChainState { ok: true, checked_to: verified.last, is_cut, why: None },
        Err(broken) => {
            let checked_to = broken.seq.saturating_sub(1);
            ChainState { ok: false, checked_to, is_cut: false, why: Some(broken.why) }
        }
    })
}

/// The lines of a file until the time is up: what was checked by then is a whole chain of its own.
struct UntilLate {
    lines: BufReader<File>,
    until: Instant,
    /// Whether a line was read to its end; the first one is read in any case.
    is_between_lines: bool,
    is_cut: Arc<AtomicBool>,
}

impl Read for UntilLate {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for UntilLate {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        let is_late = self.is_between_lines && Instant::now() >= self.until;
        let bytes = self.lines.fill_buf()?;
        if is_late && !bytes.is_empty() {
            self.is_cut.store(true, Ordering::Relaxed);
            return Ok(&[]);
        }
        Ok(bytes)
    }

    fn consume(&mut self, read: usize) {
        if let Some(last) = read.checked_sub(1) {
            self.is_between_lines = self.lines.buffer().get(last) == Some(&b'\n');
        }
        self.lines.consume(read);
    }
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

    #[test]
    fn a_long_log_is_looked_at_and_checked_as_far_as_there_is_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let record = |seq: u64| format!("{{\"event\":\"refused\",\"seq\":{seq}}}\n");
        let text: String = (1..=30_000).map(record).collect();
        std::fs::write(&path, &text).unwrap();
        let wanted =
            |event: &str| Wanted { since: None, principal: None, event: Some(event.to_owned()), most: 5 };
        let newest = |event: &str| newest(&path, &wanted(event)).unwrap();
        let found = newest("refused");
        assert_eq!((found.rows[0]["seq"].as_u64(), found.rows.len()), (Some(30_000), 5));
        assert_eq!((found.is_cut, found.looked_at), (false, None), "a page that is full");
        let none = newest("nothing");
        assert!(none.is_cut && none.rows.is_empty());
        assert!(none.looked_at.is_some_and(|looked_at| looked_at <= MOST_RECORDS), "{:?}", none.looked_at);
    }

    #[tokio::test]
    async fn what_was_checked_when_the_time_is_up_is_said_to_be_whole_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.jsonl");
        let settings = crate::audit::AuditSettings {
            file: file.clone(),
            key_file: None,
            head_file: None,
            is_required: false,
            arguments: Vec::new(),
            prefixes: None,
            redact: Vec::new(),
            max_bytes: 1 << 30,
        };
        let clock = std::sync::Arc::new(tenure_session::port::clock::SystemClock);
        let log = crate::audit::Audit::open(&settings, clock).unwrap();
        log.close().await;
        let whole = chain(&file, Instant::now() + Duration::from_secs(60)).unwrap();
        assert!(whole.ok && !whole.is_cut && whole.checked_to > 1, "{}", whole.checked_to);
        let cut = chain(&file, Instant::now()).unwrap();
        assert_eq!((cut.ok, cut.checked_to, cut.is_cut), (true, 1, true));
    }
}
