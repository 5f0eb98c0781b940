//! An audit log that is open: what the configuration asks for, and the ways to record.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_session::port::clock::{Clock, Time};
use tenure_transport::observe::RequestObserver;

use super::events::RefusalObserver;
use super::file::{self, AuditFile, Found};
use super::key::{self, AuditKey};
use super::record::{Event, PrincipalRecord, Record, cut};
use super::writer::{AuditWriter, Receipt, WriterParts};
use crate::failure::Failure;

/// At most this many refusals are recorded one by one in this interval: a client can cause them at will.
const MOST_REFUSALS: u64 = 100;
const WHILE: Duration = Duration::from_secs(10);

/// Where the log is and what it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AuditSettings {
    pub(crate) file: PathBuf,
    /// The key; beside the log if it is `None`.
    pub(crate) key_file: Option<PathBuf>,
    /// Where the newest head is kept too; beside the log if it is `None`.
    pub(crate) head_file: Option<PathBuf>,
    /// A call that cannot be recorded is not carried out.
    pub(crate) is_required: bool,
    /// The tools whose arguments are recorded, as `BACKEND/TOOL`, `TOOL` or with `*`.
    pub(crate) arguments: Vec<String>,
    /// JSON pointers to parts of arguments that are left out.
    pub(crate) redact: Vec<String>,
    /// A file of this size is put aside.
    pub(crate) max_bytes: u64,
}

/// Where the newest head of a log is kept, unless the configuration says.
pub(crate) fn head_place(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".head");
    name.into()
}

/// An open audit log.
pub(crate) struct Audit {
    writer: AuditWriter,
    pub(super) key: Arc<AuditKey>,
    pub(super) is_required: bool,
    arguments: Vec<String>,
    pub(super) redact: Vec<String>,
    refusals: Mutex<Refusals>,
}

#[derive(Default)]
struct Refusals {
    since: Time,
    recorded: u64,
    left_out: u64,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Audit {
    /// Opens the log. The first record says which key signs it.
    ///
    /// # Errors
    /// When the log or its key cannot be used, another process writes to it, or it was cut.
    pub(crate) fn open(settings: &AuditSettings, clock: Arc<dyn Clock>) -> Result<Arc<Self>, Failure> {
        let head = settings.head_file.clone().unwrap_or_else(|| head_place(&settings.file));
        let place = settings.key_file.clone().unwrap_or_else(|| key::default_place(&settings.file));
        let key = Arc::new(AuditKey::open(&place, file::exists(&settings.file, &head))?);
        let Found { output, chain, continues, torn } = AuditFile::open(&settings.file, &head)?;
        if torn > 0 {
            tracing::warn!(bytes = torn, "removed a half-written record from the end of the audit log");
        }
        let parts = WriterParts {
            output: Box::new(output),
            chain,
            key: Arc::clone(&key),
            node: node_name(),
            max_bytes: settings.max_bytes,
        };
        let writer = AuditWriter::start(parts, clock)
            .map_err(|error| Failure::new("cannot start the thread of the audit log").caused_by(error))?;
        if let Some(old) = continues {
            let mut record = Record::new(Event::AuditContinued, writer.now());
            record.name = (!old.is_empty()).then(|| old.into());
            writer.note(record);
        }
        let mut opened = Record::new(Event::AuditOpened, writer.now());
        opened.key = Some(key.public().into());
        opened.bytes_in = (torn > 0).then_some(torn);
        opened.name = Some(format!("tenure {}", env!("CARGO_PKG_VERSION")).into());
        writer.note(opened);
        Ok(Arc::new(Self {
            writer,
            key,
            is_required: settings.is_required,
            arguments: settings.arguments.clone(),
            redact: settings.redact.clone(),
            refusals: Mutex::default(),
        }))
    }

    /// A record of something that happens now.
    pub(crate) fn begin(&self, event: Event) -> Record {
        Record::new(event, self.writer.now())
    }

    /// Records something, and says whether that worked.
    pub(super) fn record(&self, record: Record) -> Receipt {
        self.writer.record(record)
    }

    /// Records something that nothing waits for.
    pub(crate) fn note(&self, record: Record) {
        self.writer.note(record);
    }

    /// Records a refusal. Of very many only their number is recorded.
    pub(super) fn refused(&self, record: Record) {
        let now = self.writer.now();
        let left_out = {
            let mut refusals = self.refusals.lock();
            if now.since(refusals.since) > WHILE || now < refusals.since {
                (refusals.since, refusals.recorded) = (now, 0);
            }
            if refusals.recorded >= MOST_REFUSALS {
                refusals.left_out += 1;
                return;
            }
            refusals.recorded += 1;
            std::mem::take(&mut refusals.left_out)
        };
        self.tell_left_out(left_out);
        self.note(record);
    }

    fn tell_left_out(&self, left_out: u64) {
        if left_out > 0 {
            let mut record = self.begin(Event::Refused);
            record.count = Some(left_out);
            record.reason = Some("more_of_the_same".into());
            self.note(record);
        }
    }

    /// Hears of requests, to record refusals.
    pub(crate) fn of_refusals(self: &Arc<Self>) -> Arc<dyn RequestObserver> {
        Arc::new(RefusalObserver(Arc::clone(self)))
    }

    /// Records what an operator did.
    pub(crate) fn operator_did(&self, uid: Option<u32>, method: &str, name: &str, is_done: bool) {
        let mut record = self.begin(Event::AdminAction);
        record.principal = Some(PrincipalRecord::operator(uid));
        (record.method, record.name) = (Some(method.into()), Some(cut(name)));
        record.outcome = Some(if is_done { "ok" } else { "error" });
        self.note(record);
    }

    /// Whether the arguments of a tool are recorded.
    pub(super) fn has_arguments_of(&self, backend: Option<&str>, tool: &str) -> bool {
        let whole = backend.map(|backend| format!("{backend}/{tool}"));
        self.arguments.iter().any(|pattern| {
            matches(pattern, tool) || whole.as_deref().is_some_and(|whole| matches(pattern, whole))
        })
    }

    /// Puts the file aside and begins another one.
    pub(crate) fn rotate(&self) {
        self.writer.rotate();
    }

    /// Signs the log and gives it up, so that the next process can have it.
    ///
    /// # Cancel safety
    /// The log is closed even if this is dropped early.
    pub(crate) async fn close(&self) {
        let left_out = std::mem::take(&mut self.refusals.lock().left_out);
        self.tell_left_out(left_out);
        self.writer.close().await;
    }
}

/// Whether a text fits a pattern, where `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(first) else { return false };
    let mut places = text.char_indices().map(|(place, _)| place).chain([text.len()]);
    places.any(|place| matches(rest, &text[place..]))
}

/// This machine and this process.
fn node_name() -> String {
    let host =
        std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.unwrap_or_default();
    let host = if host.trim().is_empty() { "node" } else { host.trim() };
    format!("{}/{}", cut(host), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_those_of_scopes_do() {
        for (pattern, text, fits) in [
            ("*", "echo", true),
            ("echo", "echo", true),
            ("echo", "echos", false),
            ("read_*", "read_file", true),
            ("read_*", "files/read_file", false),
            ("files/*", "files/read_file", true),
            ("*_file", "read_file", true),
            ("r*d*e", "read_file", true),
            ("r*x*e", "read_file", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
