//! The access log: one line for each request, when its answer has ended.
//!
//! In: [`RequestEnd`] from the transport. Out: a line of `key=value`, or of JSON, in the queue of the log, with the target
//! `access` at `info`. The line is written here and not by the subscriber, which would cost more than a call. There may be
//! very many, so the limit for lines of one kind does not count them, and they are the first that are dropped.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_transport::observe::{Outcome, RequestEnd, RequestObserver};
use tracing_subscriber::filter::Targets;

use super::LOG;
use super::queue::Queue;
use crate::escape::plain;
use crate::time_text;
use crate::url_text::public_name;

/// The paths of health checks. They come every few seconds, and say nothing as long as all is well.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];

/// Whether the filter of the log lets the lines through now: an operator may change it for a while.
static ARE_SHOWN: AtomicBool = AtomicBool::new(true);

thread_local! {
    /// Each thread writes its lines into the same buffer, one after the other.
    static LINE: RefCell<Line> = RefCell::default();
}

#[derive(Default)]
struct Line {
    text: Vec<u8>,
    /// The second that `stamp` is about.
    second: u64,
    /// The time of the line. Only the milliseconds change within a second.
    stamp: String,
}

/// Writes the lines.
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

/// The observer that writes the access log, if this process writes its log itself and the filter of the log lets its lines
/// through when the process starts. Without it nothing needs to be noted of requests, also when the filter is changed later.
pub(crate) fn access() -> Option<Arc<dyn RequestObserver>> {
    let log = LOG.get().filter(|_| is_wanted())?;
    Some(Arc::new(AccessLog { queue: log.queue.clone(), form: log.form }))
}

/// Whether the filter of the log lets the lines through.
fn is_wanted() -> bool {
    tracing::enabled!(target: "access", tracing::Level::INFO)
}

/// Whether a filter lets the lines through.
pub(super) fn is_shown_by(filter: &Targets) -> bool {
    filter.would_enable("access", &tracing::Level::INFO)
}

/// Writes the lines from now on, or leaves them out.
pub(super) fn show(are_shown: bool) {
    ARE_SHOWN.store(are_shown, Ordering::Relaxed);
}

impl RequestObserver for AccessLog {
    fn ended(&self, request: &RequestEnd<'_>) {
        if is_healthy(request) || !ARE_SHOWN.load(Ordering::Relaxed) {
            return;
        }
        LINE.with_borrow_mut(|Line { text, second, stamp }| {
            let now = SystemClock.now();
            if now.0 / 1000 != *second || stamp.is_empty() {
                (*second, *stamp) = (now.0 / 1000, time_text::stamp(Time(now.0 / 1000 * 1000)));
            }
            let start = &stamp[..stamp.len() - "000Z".len()];
            text.clear();
            let time = (start, now.0 % 1000);
            match self.form {
                LineForm::Text => write_line::<false>(text, request, time),
                LineForm::Json => write_line::<true>(text, request, time),
            }
            self.queue.push_in_passing(text);
        });
    }
}

fn is_healthy(request: &RequestEnd<'_>) -> bool {
    request.http.is_some_and(|http| HEALTH.contains(&http.path) && http.status == Some(200))
}

/// A key with what stands before and behind it, in each form: one piece of text is copied faster than three.
#[derive(Clone, Copy)]
struct Key {
    text: &'static str,
    json: &'static str,
    /// For values that stand in quotes.
    quoted_json: &'static str,
}

macro_rules! key {
    ($name:literal) => {
        Key {
            text: concat!(" ", $name, "="),
            json: concat!(",\"", $name, "\":"),
            quoted_json: concat!(",\"", $name, "\":\""),
        }
    };
}

/// Writes a line about a request, with its line break. The time is given as its text up to the second, and milliseconds. The form
/// is known when this is compiled, so that keys are copied as numbers are, without a call for each.
fn write_line<const JSON: bool>(line: &mut Vec<u8>, request: &RequestEnd<'_>, (start, millis): (&str, u64)) {
    let mut fields = Fields::<JSON> { line, has_quotes: false };
    if JSON {
        fields.push("{\"timestamp\":\"");
    }
    fields.push(start);
    fields.three_digits(millis);
    fields.push(match JSON {
        false => "Z  INFO access:",
        true => "Z\",\"level\":\"INFO\",\"message\":\"request\",\"target\":\"access\"",
    });
    fields.word(key!("via"), request.transport);
    if let Some(http) = &request.http {
        // No byte of a method needs quotes, nor does one of our own names below.
        fields.word(key!("http"), http.method.as_str());
        fields.text(key!("path"), http.path);
        if let Some(status) = http.status {
            fields.number(key!("status"), status.into());
        }
    }
    fields.some(key!("endpoint"), request.endpoint);
    fields.some(key!("method"), request.method.map(tenure_protocol::Method::as_str));
    // The query of a URI may hold secrets.
    fields.some(key!("name"), request.name.map(|name| public_name(request.method, name)).as_deref());
    if let Some(batch) = request.batch {
        fields.number(key!("batch"), batch as u64);
    }
    match request.outcome {
        Outcome::None => {}
        Outcome::Result => fields.word(key!("outcome"), "ok"),
        Outcome::ToolError => fields.word(key!("outcome"), "tool_error"),
        Outcome::Limited { reason } => {
            fields.word(key!("outcome"), "limited");
            fields.word(key!("reason"), reason.as_str());
        }
        Outcome::Error { code, reason } => {
            fields.word(key!("outcome"), "error");
            fields.key(key!("code"));
            fields.push(itoa::Buffer::new().format(code));
            if let Some(reason) = reason {
                fields.word(key!("reason"), reason.as_str());
            }
        }
    }
    let micros = u64::try_from(request.duration.as_micros()).unwrap_or(u64::MAX);
    fields.number(key!("ms"), micros / 1000);
    fields.push(".");
    fields.three_digits(micros % 1000);
    fields.number(key!("in"), request.bytes_in);
    fields.number(key!("out"), request.bytes_out);
    if !request.is_complete {
        fields.key(key!("cut"));
        fields.push("true");
    }
    if let Some(session) = request.session {
        fields.word(key!("session"), session);
    }
    fields.some(key!("principal"), request.principal.name());
    fields.some(key!("app"), request.principal.client());
    fields.some(key!("client"), request.client);
    if let Some(remote) = request.remote {
        fields.address(key!("remote"), remote);
    }
    fields.some(key!("id"), request.correlation);
    if let Some(trace) = request.trace {
        fields.word(key!("trace"), trace);
    }
    if JSON {
        fields.push("}");
    }
    // Control characters can occur only in quotes. They are escaped there, as in the rest of the log.
    if fields.has_quotes && (!line.is_ascii() || line.contains(&0x7f)) {
        *line = plain(&String::from_utf8_lossy(line)).into_bytes();
    }
    line.push(b'\n');
}

/// The bytes that stand without quotes in a text.
static BARE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        table[byte as usize] = !matches!(byte, b'"' | b'\\' | b'=');
        byte += 1;
    }
    table
};

struct Fields<'a, const JSON: bool> {
    line: &'a mut Vec<u8>,
    /// Some text stands in quotes because it needs them.
    has_quotes: bool,
}

impl<const JSON: bool> Fields<'_, JSON> {
    #[inline]
    fn push(&mut self, text: &str) {
        self.line.extend_from_slice(text.as_bytes());
    }

    #[inline]
    fn key(&mut self, key: Key) {
        self.push(if JSON { key.json } else { key.text });
    }

    /// Most numbers here are small, and their digits are copied without a call.
    #[inline]
    fn digits(&mut self, number: u64) {
        match number {
            0..10 => self.line.push(digit(number)),
            10..100 => self.line.extend_from_slice(&[digit(number / 10), digit(number)]),
            100..1000 => self.three_digits(number),
            _ => self.push(itoa::Buffer::new().format(number)),
        }
    }

    /// A number below a thousand, with zeros in front.
    fn three_digits(&mut self, number: u64) {
        self.line.extend_from_slice(&[digit(number / 100), digit(number / 10), digit(number)]);
    }

    #[inline(always)]
    fn number(&mut self, key: Key, number: u64) {
        self.key(key);
        self.digits(number);
    }

    /// A word of our own.
    #[inline(always)]
    fn word(&mut self, key: Key, value: &str) {
        self.quoted(key, |fields| fields.push(value));
    }

    /// A value that stands in quotes in JSON.
    #[inline(always)]
    fn quoted(&mut self, key: Key, write: impl FnOnce(&mut Self)) {
        self.push(if JSON { key.quoted_json } else { key.text });
        write(self);
        if JSON {
            self.line.push(b'"');
        }
    }

    #[inline(always)]
    fn some(&mut self, key: Key, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    /// A text that any client may have written.
    #[inline(always)]
    fn text(&mut self, key: Key, value: &str) {
        // Texts are short: a look into a table costs less for each byte than a few comparisons do for many at once.
        match !value.is_empty() && value.bytes().fold(true, |all, byte| all & BARE[usize::from(byte)]) {
            true => self.word(key, value),
            false => self.escaped(key, value),
        }
    }

    #[cold]
    fn escaped(&mut self, key: Key, value: &str) {
        self.key(key);
        self.has_quotes = true;
        // Writing to memory cannot fail, here and below.
        let _ = serde_json::to_writer(&mut *self.line, value);
    }

    /// The address of a client. A proxy says no port.
    fn address(&mut self, key: Key, address: SocketAddr) {
        self.quoted(key, |fields| match address {
            SocketAddr::V4(address) => {
                let mut text = AddressText::default();
                for (place, number) in address.ip().octets().into_iter().enumerate() {
                    if place > 0 {
                        text.push(b'.');
                    }
                    text.number(number.into());
                }
                if address.port() != 0 {
                    text.push(b':');
                    text.number(address.port());
                }
                fields.line.extend_from_slice(&text.bytes[..text.length]);
            }
            SocketAddr::V6(address) => {
                use std::io::Write;
                let _ = match address.port() {
                    0 => write!(fields.line, "{}", address.ip()),
                    _ => write!(fields.line, "{address}"),
                };
            }
        });
    }
}

/// The text of an address of IPv4 with its port, which is copied into the line as one piece.
#[derive(Default)]
struct AddressText {
    bytes: [u8; 32],
    /// At most 21.
    length: usize,
}

impl AddressText {
    #[inline]
    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    #[inline]
    fn number(&mut self, number: u16) {
        for power in [10_000, 1000, 100, 10] {
            if number >= power {
                self.push(digit((number / power).into()));
            }
        }
        self.push(digit(number.into()));
    }
}

/// The last digit of a number.
#[inline]
fn digit(number: u64) -> u8 {
    b'0' + u8::try_from(number % 10).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;
    use tenure_protocol::Reason;
    use tenure_session::Principal;
    use tenure_transport::observe::HttpEnd;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn line(request: &RequestEnd<'_>, form: LineForm) -> String {
        let mut line = Vec::new();
        let time = ("2025-11-25T08:30:00.", 123);
        match form {
            LineForm::Text => write_line::<false>(&mut line, request, time),
            LineForm::Json => write_line::<true>(&mut line, request, time),
        }
        String::from_utf8(line).unwrap()
    }

    /// The lines about a request in both forms.
    fn both(request: &RequestEnd<'_>) -> String {
        line(request, LineForm::Text) + &line(request, LineForm::Json)
    }

    #[test]
    fn lines_that_the_filter_keeps_out_are_not_wanted() {
        for (filter, wanted) in
            [("info", true), ("info,access=off", false), ("warn", false), ("off,access=info", true)]
        {
            let targets: Targets = filter.parse().unwrap();
            let subscriber = tracing_subscriber::registry().with(targets);
            tracing::subscriber::with_default(subscriber, || assert_eq!(is_wanted(), wanted, "{filter}"));
        }
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
    fn numbers_and_addresses_are_written_as_the_library_writes_them() {
        let principal = Principal::ANONYMOUS;
        for number in [0, 7, 10, 42, 99, 100, 512, 999, 1000, 65_535, u64::MAX] {
            let mut request = RequestEnd::of(&principal);
            (request.bytes_in, request.bytes_out) = (number, number / 3);
            let line = line(&request, LineForm::Text);
            assert!(line.contains(&format!(" in={number} out={} ", number / 3)), "{line}");
        }
        for address in [
            "1.20.255.0:0",
            "127.0.0.1:1",
            "10.9.99.100:10",
            "255.255.255.255:65535",
            "0.0.0.0:9999",
            "[2001:db8::7]:443",
        ] {
            let mut request = RequestEnd::of(&principal);
            request.remote = Some(address.parse().unwrap());
            let (shown, line) = (address.trim_end_matches(":0"), line(&request, LineForm::Json));
            assert!(line.contains(&format!("\"remote\":\"{shown}\"")), "{line}");
        }
    }

    #[test]
    fn what_stands_without_quotes_is_printable_and_neither_a_quote_nor_an_equals_sign() {
        for byte in 0..=u8::MAX {
            let is_bare = byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'=');
            assert_eq!(BARE[usize::from(byte)], is_bare, "{byte:#x}");
        }
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
        let text = line(&request, LineForm::Text);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.trim_end().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{text}");
        assert!(
            text.contains(r#" method="x status=200\r\n2025 ERROR \"\u001b[2J\u202e\u007f\\" "#),
            "{text}"
        );
        assert!(text.contains(r#" client="" "#) || text.contains(r#" client="""#), "{text}");
        let json: serde_json::Value = serde_json::from_str(&line(&request, LineForm::Json)).unwrap();
        assert_eq!(json["method"], hostile);
    }

    #[test]
    fn secrets_of_uris_stay_out() {
        let principal = Principal::ANONYMOUS;
        let mut request = RequestEnd::of(&principal);
        request.name = Some("https://me:geheim@example.com/a?token=geheim#geheim");
        let text = line(&request, LineForm::Text);
        assert!(text.contains(" name=https://example.com/a ") && !text.contains("geheim"), "{text}");
    }

    #[test]
    fn addresses_are_written_as_they_are_read() {
        let principal = Principal::ANONYMOUS;
        let mut request = RequestEnd::of(&principal);
        for (address, written) in [
            ("203.0.113.7:0", "203.0.113.7"),
            ("203.0.113.7:65535", "203.0.113.7:65535"),
            ("0.10.255.1:9", "0.10.255.1:9"),
            ("[2001:db8::7]:0", "2001:db8::7"),
            ("[2001:db8::7]:443", "[2001:db8::7]:443"),
        ] {
            request.remote = Some(address.parse().unwrap());
            assert!(line(&request, LineForm::Text).contains(&format!(" remote={written}\n")), "{address}");
            let json: serde_json::Value = serde_json::from_str(&line(&request, LineForm::Json)).unwrap();
            assert_eq!(json["remote"], written);
        }
    }

    #[test]
    fn a_time_has_three_digits_behind_its_point() {
        let principal = Principal::ANONYMOUS;
        let mut request = RequestEnd::of(&principal);
        for (micros, written) in [(0, "0.000"), (7, "0.007"), (1_070, "1.070"), (65_000_123, "65000.123")] {
            request.duration = Duration::from_micros(micros);
            let text = line(&request, LineForm::Text);
            assert!(text.contains(&format!(" ms={written} ")), "{text}");
        }
    }
}
