//! An audit log that is open: its settings, and the ways to record.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_layers::merge::ToolPrefixes;
use tenure_protocol::Error;
use tenure_session::Principal;
use tenure_session::port::clock::Clock;
use tenure_session::rate::rate_limited;
use tenure_transport::observe::RequestObserver;

use super::events::RefusalObserver;
use super::file::{self, AuditFile, Found};
use super::key::{self, AuditKey};
use super::record::{Event, PrincipalRecord, Record, cut, shortened};
use super::refusals::{LeftOut, Refusals};
use super::writer::{AuditWriter, Receipt, WriterParts};
use crate::failure::Failure;

/// The settings of the log.
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
    /// The servers behind `/mcp` by the prefixes of their tools, if there are several.
    pub(crate) prefixes: Option<ToolPrefixes>,
    /// JSON pointers to parts of arguments that are left out.
    pub(crate) redact: Vec<String>,
    /// A file of this size is put aside.
    pub(crate) max_bytes: u64,
}

/// The default place of the newest head of a log.
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
    prefixes: Option<ToolPrefixes>,
    pub(super) redact: Vec<String>,
    refusals: Mutex<Refusals>,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").field("key", &self.key).finish_non_exhaustive()
    }
}

/// An action of an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminAction<'a> {
    pub(crate) who: AdminIdentity<'a>,
    /// Its name.
    pub(crate) operation: &'a str,
    /// The object of the action; may be empty.
    pub(crate) about: &'a str,
    pub(crate) is_done: bool,
    /// From what, to what.
    pub(crate) change: Option<&'a str>,
    /// Why, in the operator's words.
    pub(crate) reason: Option<&'a str>,
    pub(crate) remote: Option<IpAddr>,
}

/// Who an operator is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AdminIdentity<'a> {
    /// A user of this machine.
    User(Option<u32>),
    /// The principal of a key or a token.
    Principal(&'a str),
}

/// A caller that the port for operators did not let in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedOperator<'a> {
    /// Whose credentials they are, if they are good for something else.
    pub(crate) principal: Option<&'a str>,
    /// What was shown: a code, a cookie, or a key or token.
    pub(crate) shown: Option<&'a str>,
    /// The status of the answer.
    pub(crate) code: u16,
    pub(crate) reason: &'a str,
    pub(crate) remote: IpAddr,
}

/// The method of a record about such a caller: what it asked for does not matter, and may be anything.
const ADMIN: &str = "admin";

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
            writer.note(Box::new(record));
        }
        let mut opened = Record::new(Event::AuditOpened, writer.now());
        opened.key = Some(key.public().into());
        opened.bytes_in = (torn > 0).then_some(torn);
        opened.name = Some(format!("tenure {}", env!("CARGO_PKG_VERSION")).into());
        writer.note(Box::new(opened));
        Ok(Arc::new(Self {
            writer,
            key,
            is_required: settings.is_required,
            arguments: settings.arguments.clone(),
            prefixes: settings.prefixes.clone(),
            redact: settings.redact.clone(),
            refusals: Mutex::default(),
        }))
    }

    /// A record of something that happens now.
    pub(crate) fn begin(&self, event: Event) -> Record {
        Record::new(event, self.writer.now())
    }

    /// The time now, as records have it.
    pub(super) fn stamp(&self) -> Box<str> {
        crate::time_text::stamp(self.writer.now()).into()
    }

    /// Records something, and says whether that worked.
    pub(super) fn record(&self, record: Box<Record>) -> Receipt {
        self.writer.record(record)
    }

    /// Records an event without a wait.
    pub(crate) fn note(&self, record: Record) {
        self.writer.note(Box::new(record));
    }

    /// Records a refusal. Of very many only their number is recorded.
    pub(super) fn refused(&self, record: Record) {
        if self.counts_refusal(&record) {
            self.note(record);
        }
    }

    /// Records that a limit inside of this layer has refused a call. The request that it belongs to is not recorded once more.
    pub(super) fn refused_call(&self, record: Record) {
        if let Some(id) = &record.request_id {
            self.was_told(id);
        }
        self.refused(record);
    }

    /// The same for a call whose beginning was recorded: its end is too.
    pub(super) fn refused_after_all(&self, record: Record) -> Receipt {
        if let Some(id) = &record.request_id {
            self.was_told(id);
        }
        self.counts_refusal(&record);
        self.record(Box::new(Record { event: Event::CallFinished, ..record }))
    }

    /// Notes that the call of this request is recorded, so that its answer is not recorded as a refusal.
    pub(super) fn was_told(&self, id: &str) {
        self.refusals.lock().was_told(id.into());
    }

    /// Records how a request was refused, unless its call was recorded.
    pub(super) fn refused_request(&self, record: Record) {
        let is_told = record.request_id.as_ref().is_some_and(|id| self.refusals.lock().is_told(id));
        if !is_told {
            self.refused(record);
        }
    }

    /// Counts a refusal, and says whether it is recorded by itself.
    fn counts_refusal(&self, record: &Record) -> bool {
        let (is_recorded, left_out) = self.refusals.lock().count(record, self.writer.now());
        self.tell_left_out(left_out);
        is_recorded
    }

    /// Refuses a call of a caller with too many refused calls, so that its records do not fill the log.
    pub(super) fn too_often(&self, record: &Record) -> Option<Error> {
        let (most, wait) = self.refusals.lock().too_often(record, self.writer.now())?;
        Some(rate_limited("principal", &format!("{most} refused calls a minute"), wait))
    }

    fn tell_left_out(&self, left_out: Vec<LeftOut>) {
        for LeftOut { principal, remote, count } in left_out {
            let mut record = self.begin(Event::Refused);
            (record.count, record.reason) = (Some(count), Some("more_of_the_same".into()));
            (record.principal, record.remote) = (principal, remote);
            self.note(record);
        }
    }

    /// Hears of requests, to record refusals.
    pub(crate) fn of_refusals(self: &Arc<Self>) -> Arc<dyn RequestObserver> {
        Arc::new(RefusalObserver(Arc::clone(self)))
    }

    /// Records what an operator did.
    pub(crate) fn operator_did(&self, action: &AdminAction<'_>) {
        let mut record = self.begin(Event::AdminAction);
        record.principal = Some(match action.who {
            AdminIdentity::User(uid) => PrincipalRecord::operator(uid),
            AdminIdentity::Principal(name) => PrincipalRecord::of(&Principal::named(name)),
        });
        (record.method, record.name) = (Some(action.operation.into()), Some(cut(action.about)));
        record.outcome = Some(if action.is_done { "ok" } else { "error" });
        record.change = action.change.map(|change| shortened(change.to_owned()).into());
        record.reason = action.reason.map(|reason| shortened(reason.to_owned()).into());
        record.remote = action.remote.map(|remote| remote.to_string().into());
        self.note(record);
    }

    /// Records a caller that the port for operators did not let in. Of very many only their number is recorded.
    pub(crate) fn refused_operator(&self, refused: &RefusedOperator<'_>) {
        let mut record = self.begin(Event::Refused);
        let principal = refused.principal.map_or(Principal::ANONYMOUS, Principal::named);
        record.principal = Some(PrincipalRecord::of(&principal));
        (record.method, record.name) = (Some(ADMIN.into()), refused.shown.map(Box::from));
        (record.code, record.reason) = (Some(refused.code.into()), Some(refused.reason.into()));
        record.remote = Some(refused.remote.to_string().into());
        self.refused(record);
    }

    /// Whether the arguments of a tool are recorded: it is listed by the name that clients use, or by its server's own.
    pub(super) fn has_arguments_of(&self, backend: Option<&str>, tool: &str) -> bool {
        if self.arguments.is_empty() {
            return false;
        }
        let (owner, own) = match (backend, &self.prefixes) {
            (None, Some(prefixes)) => prefixes.owner(tool),
            (backend, _) => (backend.map(str::to_owned), tool.to_owned()),
        };
        let whole = owner.map(|owner| format!("{owner}/{own}"));
        self.arguments.iter().any(|pattern| {
            [Some(tool), Some(&own), whole.as_deref()]
                .into_iter()
                .flatten()
                .any(|name| matches(pattern, name))
        })
    }

    /// Puts the file aside and begins another one.
    pub(crate) fn rotate(&self) {
        self.writer.rotate();
    }

    /// Signs and closes the log, so that the next process can open it.
    ///
    /// # Cancel safety
    /// The log is closed even if this is dropped early.
    pub(crate) async fn close(&self) {
        let left_out = self.refusals.lock().end();
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
pub(crate) fn node_name() -> String {
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
