//! The access log: one line for each request, when its answer has ended.
//!
//! In: [`RequestEnd`] from the transport. Out: a line of `key=value`, or of JSON, in the queue of the log, with the target
//! `access` at `info`. The line is written here and not by the subscriber, which would cost more than a call. There may be
//! very many, so the limit for lines of one kind does not count them, and they are the first that are dropped.

use std::cell::RefCell;
use std::fmt::{Arguments, Write};
use std::sync::Arc;

use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_transport::observe::{Outcome, RequestEnd, RequestObserver};

use super::LOG;
use super::queue::Queue;
use crate::escape::plain;
use crate::time_text;
use crate::url_text::public_name;

/// The paths of health checks. They come every few seconds, and say nothing as long as all is well.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];

thread_local! {
    /// Each thread writes its lines into the same buffer, one after the other.
    static LINE: RefCell<Line> = RefCell::default();
}

#[derive(Default)]
struct Line {
    text: String,
    /// The second that `stamp` is about.
    second: u64,
    stamp: String,
}

/// Writes the lines. Nothing happens in a process whose log an embedder writes.
struct AccessLog {
    queue: Queue,
    form: LineForm,
}

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineForm {
    /// `key=value`.
    Text,
    /// JSON.
    Json,
}

/// The observer that writes the access log, if this process writes its log itself.
pub(crate) fn access() -> Option<Arc<dyn RequestObserver>> {
    let log = LOG.get()?;
    Some(Arc::new(AccessLog { queue: log.queue.clone(), form: log.form }))
}

impl RequestObserver for AccessLog {
    fn ended(&self, request: &RequestEnd<'_>) {
        if !tracing::enabled!(target: "access", tracing::Level::INFO) || is_healthy(request) {
            return;
        }
        LINE.with_borrow_mut(|Line { text, second, stamp }| {
            let now = SystemClock.now();
            if now.0 / 1000 != *second || stamp.is_empty() {
                (*second, *stamp) = (now.0 / 1000, time_text::stamp(Time(now.0 / 1000 * 1000)));
            }
            // Only the milliseconds change within a second.
            let start = &stamp[..stamp.len() - "000Z".len()];
            text.clear();
            write_line(text, request, self.form, format_args!("{start}{:03}Z", now.0 % 1000));
            self.queue.push_in_passing(text.as_bytes());
        });
    }
}

fn is_healthy(request: &RequestEnd<'_>) -> bool {
    request.http.is_some_and(|http| HEALTH.contains(&http.path) && http.status == Some(200))
}

/// Writes a line about a request, with its line break.
fn write_line(line: &mut String, request: &RequestEnd<'_>, form: LineForm, now: Arguments<'_>) {
    let mut fields = Fields { line: &mut *line, form };
    // Writing to a string cannot fail, here and below.
    let _ = match form {
        LineForm::Text => write!(fields.line, "{now}  INFO access:"),
        LineForm::Json => write!(
            fields.line,
            "{{\"timestamp\":\"{now}\",\"level\":\"INFO\",\"message\":\"request\",\"target\":\"access\""
        ),
    };
    fields.word("via", request.transport);
    if let Some(http) = &request.http {
        fields.text("http", http.method.as_str());
        fields.text("path", http.path);
        if let Some(status) = http.status {
            fields.number("status", status);
        }
    }
    fields.some("endpoint", request.endpoint);
    fields.some("method", request.method.map(tenure_protocol::Method::as_str));
    // The query of a URI may hold secrets.
    fields.some("name", request.name.map(|name| public_name(request.method, name)).as_deref());
    if let Some(batch) = request.batch {
        fields.number("batch", batch);
    }
    match request.outcome {
        Outcome::None => {}
        Outcome::Result => fields.word("outcome", "ok"),
        Outcome::ToolError => fields.word("outcome", "tool_error"),
        Outcome::Error { code, reason } => {
            fields.word("outcome", "error");
            fields.number("code", code);
            if let Some(reason) = reason {
                fields.word("reason", reason.as_str());
            }
        }
    }
    let micros = request.duration.as_micros();
    fields.number("ms", format_args!("{}.{:03}", micros / 1000, micros % 1000));
    fields.number("in", request.bytes_in);
    fields.number("out", request.bytes_out);
    if !request.is_complete {
        fields.number("cut", true);
    }
    fields.some("session", request.session);
    fields.some("principal", request.principal.name());
    fields.some("app", request.principal.client());
    fields.some("client", request.client);
    if let Some(remote) = request.remote {
        // A proxy says no port.
        match remote.port() {
            0 => fields.plain("remote", remote.ip()),
            _ => fields.plain("remote", remote),
        }
    }
    fields.some("id", request.correlation);
    fields.some("trace", request.trace);
    if form == LineForm::Json {
        line.push('}');
    }
    // Foreign texts are in quotes now; what controls a terminal within them is escaped, as in the rest of the log.
    if !line.is_ascii() || line.contains('\u{7f}') {
        *line = plain(line);
    }
    line.push('\n');
}

struct Fields<'a> {
    line: &'a mut String,
    form: LineForm,
}

impl Fields<'_> {
    fn key(&mut self, key: &str) {
        match self.form {
            LineForm::Text => self.line.extend([" ", key, "="]),
            LineForm::Json => self.line.extend([",\"", key, "\":"]),
        }
    }

    /// A number, or another value that needs no quotes.
    fn number(&mut self, key: &str, value: impl std::fmt::Display) {
        self.key(key);
        let _ = write!(self.line, "{value}");
    }

    /// A value of our own that is text in JSON.
    fn plain(&mut self, key: &str, value: impl std::fmt::Display) {
        self.key(key);
        let _ = match self.form {
            LineForm::Text => write!(self.line, "{value}"),
            LineForm::Json => write!(self.line, "\"{value}\""),
        };
    }

    /// A word of our own.
    fn word(&mut self, key: &str, value: &str) {
        self.key(key);
        match self.form {
            LineForm::Text => self.line.push_str(value),
            LineForm::Json => self.line.extend(["\"", value, "\""]),
        }
    }

    fn some(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    /// A text that may come from anybody.
    fn text(&mut self, key: &str, value: &str) {
        let is_bare = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'=');
        if !value.is_empty() && value.bytes().all(is_bare) {
            return self.word(key, value);
        }
        self.key(key);
        self.line.push_str(&serde_json::Value::from(value).to_string());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;
    use tenure_protocol::Reason;
    use tenure_session::Principal;
    use tenure_transport::observe::HttpEnd;

    use super::*;

    const NOW: &str = "2025-11-25T08:30:00.123Z";

    fn line(request: &RequestEnd<'_>, form: LineForm, now: &str) -> String {
        let mut line = String::new();
        write_line(&mut line, request, form, format_args!("{now}"));
        line
    }

    /// The lines about a request in both forms.
    fn both(request: &RequestEnd<'_>) -> String {
        line(request, LineForm::Text, NOW) + &line(request, LineForm::Json, NOW)
    }

    #[test]
    fn a_line_has_a_key_and_a_value_for_all_that_is_known() {
        let (method, principal) = (
            tenure_protocol::Method::ToolsCall,
            Principal::verified("corp:alice".into(), Some("app".into())),
        );
        let mut request = RequestEnd::of(&principal);
        request.http = Some(HttpEnd { method: &hyper::Method::POST, path: "/mcp/files", status: Some(200) });
        request.transport = "https";
        (request.endpoint, request.method, request.name) = (Some("files"), Some(&method), Some("read_file"));
        (request.outcome, request.is_complete) = (Outcome::ToolError, true);
        (request.bytes_in, request.bytes_out) = (120, 240);
        request.duration = Duration::from_micros(1234);
        (request.session, request.client) = (Some("s-4f3a9c01"), Some("agent 1.0"));
        request.remote = Some("203.0.113.7:0".parse().unwrap());
        (request.correlation, request.trace) = (Some("f3c1"), Some("0af7651916cd43dd8448eb211c80319c"));
        expect![[r#"
            2025-11-25T08:30:00.123Z  INFO access: via=https http=POST path=/mcp/files status=200 endpoint=files method=tools/call name=read_file outcome=tool_error ms=1.234 in=120 out=240 session=s-4f3a9c01 principal=corp:alice app=app client="agent 1.0" remote=203.0.113.7 id=f3c1 trace=0af7651916cd43dd8448eb211c80319c
            {"timestamp":"2025-11-25T08:30:00.123Z","level":"INFO","message":"request","target":"access","via":"https","http":"POST","path":"/mcp/files","status":200,"endpoint":"files","method":"tools/call","name":"read_file","outcome":"tool_error","ms":1.234,"in":120,"out":240,"session":"s-4f3a9c01","principal":"corp:alice","app":"app","client":"agent 1.0","remote":"203.0.113.7","id":"f3c1","trace":"0af7651916cd43dd8448eb211c80319c"}
        "#]]
        .assert_eq(&both(&request));
    }

    #[test]
    fn a_refusal_and_a_client_that_went_away_are_seen() {
        let principal = Principal::ANONYMOUS;
        let mut request = RequestEnd::of(&principal);
        request.http = Some(HttpEnd { method: &hyper::Method::GET, path: "/mcp", status: Some(401) });
        request.transport = "http";
        request.outcome = Outcome::Error { code: -31001, reason: Some(Reason::Unauthorized) };
        expect![[r#"
            2025-11-25T08:30:00.123Z  INFO access: via=http http=GET path=/mcp status=401 outcome=error code=-31001 reason=unauthorized ms=0.000 in=0 out=0 cut=true
            {"timestamp":"2025-11-25T08:30:00.123Z","level":"INFO","message":"request","target":"access","via":"http","http":"GET","path":"/mcp","status":401,"outcome":"error","code":-31001,"reason":"unauthorized","ms":0.000,"in":0,"out":0,"cut":true}
        "#]]
        .assert_eq(&both(&request));
    }

    #[test]
    fn foreign_texts_cannot_forge_a_field_or_a_line() {
        let principal = Principal::ANONYMOUS;
        let hostile = "x status=200\r\n2025 ERROR \"\u{1b}[2J\u{202e}\u{7f}\\";
        let method = tenure_protocol::Method::new(hostile);
        let mut request = RequestEnd::of(&principal);
        (request.transport, request.method, request.name) = ("http", Some(&method), Some(hostile));
        request.client = Some("");
        let text = line(&request, LineForm::Text, NOW);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.trim_end().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{text}");
        assert!(
            text.contains(r#" method="x status=200\r\n2025 ERROR \"\u001b[2J\u202e\u007f\\" "#),
            "{text}"
        );
        assert!(text.contains(r#" client="" "#) || text.contains(r#" client="""#), "{text}");
        let json: serde_json::Value = serde_json::from_str(&line(&request, LineForm::Json, NOW)).unwrap();
        assert_eq!(json["method"], hostile);
    }

    #[test]
    fn secrets_of_uris_stay_out() {
        let principal = Principal::ANONYMOUS;
        let mut request = RequestEnd::of(&principal);
        request.name = Some("https://me:geheim@example.com/a?token=geheim#geheim");
        let text = line(&request, LineForm::Text, NOW);
        assert!(text.contains(" name=https://example.com/a ") && !text.contains("geheim"), "{text}");
    }
}
