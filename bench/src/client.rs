//! The client side: the MCP requests of the harness as ready-made bytes, and the checks of their answers.
//!
//! No request is built and no answer is parsed while calls are measured, because the client shares the machine with the
//! server under test: its cost is taken from the server's share of the cores.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use memchr::memmem;
use serde::Serialize;
use tenure_testkit::wire::{Ask, HttpConnection};
use tokio::net::TcpStream;

const PROTOCOL: &str = "2025-11-25";
/// The revision without sessions, and what its requests say of themselves in their params.
const MODERN_PROTOCOL: &str = "2026-07-28";
const MODERN_META: &str = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"tenure-bench","version":"0.1.0"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tenure-bench","version":"0.1.0"}}}"#;
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Ids have seven digits from first to last, so that a request never changes its length.
const FIRST_ID: u32 = 1_000_000;
const ID_DIGITS: usize = 7;

/// Where a server is reached.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    path: String,
    /// What clients show with each request.
    authorization: Option<String>,
}

/// A connection that is used again for each call.
pub(crate) type Connection = HttpConnection<TcpStream>;

impl Endpoint {
    /// Reads `http://127.0.0.1:41234/mcp`.
    pub(crate) fn parse(url: &str) -> Result<Endpoint> {
        let rest = url.strip_prefix("http://").with_context(|| format!("`{url}` is no http:// URL"))?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let address = authority.parse().with_context(|| format!("`{url}` names no IP address and port"))?;
        let path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
        Ok(Endpoint { address, path, authorization: None })
    }

    /// The same for clients that show these credentials.
    pub(crate) fn with_authorization(self, authorization: Option<String>) -> Endpoint {
        Endpoint { authorization, ..self }
    }

    /// Connects to it.
    pub(crate) async fn connect(&self, buffer_bytes: usize) -> Result<Connection> {
        let opened = HttpConnection::open(self.address, buffer_bytes).await;
        opened.with_context(|| format!("connect to {}", self.address))
    }

    /// Addresses a request to it, in a session if there is one.
    fn ask(&self, ask: Ask, session: Option<&str>) -> Ask {
        let host = self.address.to_string();
        let ask = ask.at(&self.path).header("Host", &host).header("MCP-Protocol-Version", PROTOCOL);
        let ask = ask.header_if("Authorization", self.authorization.as_deref());
        ask.header_if("Mcp-Session-Id", session)
    }
}

/// Opens a session on a connection: `initialize`, then `notifications/initialized`.
///
/// Returns its id, or `None` from a server that keeps no sessions.
pub(crate) async fn open_session(connection: &mut Connection, endpoint: &Endpoint) -> Result<Option<String>> {
    // `initialize` negotiates the revision; every later request names it.
    let initialize = endpoint.ask(Ask::post(INITIALIZE), None).without("MCP-Protocol-Version");
    let (head, body) = connection.exchange(&initialize.bytes()).await.context("send `initialize`")?;
    let is_result =
        memmem::find(body, br#""id":1"#).is_some() && memmem::find(body, br#""result""#).is_some();
    ensure!(head.status == 200 && is_result, "`initialize` failed: {}", describe(head.status, body));
    let session = head.header("mcp-session-id").map(str::to_owned);
    let initialized = endpoint.ask(Ask::post(INITIALIZED), session.as_deref()).bytes();
    let answer = connection.exchange(&initialized).await.context("send `notifications/initialized`")?;
    let (head, body) = answer;
    ensure!(head.status == 202, "`notifications/initialized` failed: {}", describe(head.status, body));
    Ok(session)
}

/// Begins a data session of the strawman's dialect, and returns its id.
pub(crate) async fn open_data_session(
    connection: &mut Connection,
    endpoint: &Endpoint,
    session: Option<&str>,
) -> Result<String> {
    const CREATE: &str = r#"{"jsonrpc":"2.0","id":2,"method":"session/create","params":{}}"#;
    let create = endpoint.ask(Ask::post(CREATE), session).bytes();
    let (head, body) = connection.exchange(&create).await.context("send `session/create`")?;
    let id = memmem::find(body, br#""sess-"#).and_then(|at| {
        let id = &body[at + 1..];
        std::str::from_utf8(&id[..memchr::memchr(b'"', id)?]).ok()
    });
    let id = id.filter(|_| head.status == 200);
    Ok(id.with_context(|| format!("`session/create` failed: {}", describe(head.status, body)))?.to_owned())
}

/// The GET that opens a session's stream, or resumes one after `last_event`.
pub(crate) fn stream_request(
    endpoint: &Endpoint,
    session: Option<&str>,
    last_event: Option<&str>,
) -> Vec<u8> {
    endpoint.ask(Ask::get(), session).header_if("Last-Event-ID", last_event).bytes()
}

/// The call that makes a server emit `count` notifications on the call's own stream.
pub(crate) fn emit_request(endpoint: &Endpoint, session: Option<&str>, count: usize) -> Vec<u8> {
    // The progress token is for servers which route only progress to the stream of a call.
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"bench_emit","arguments":{{"count":{count}}},"_meta":{{"progressToken":"bench"}}}}}}"#
    );
    endpoint.ask(Ask::post(body), session).bytes()
}

/// What is called over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Calling {
    /// An echo, by a client that knows nothing of data sessions.
    Echo,
    /// An echo of revision 2026-07-28, which has no sessions.
    ModernEcho,
    /// An echo of so much more text that a call and its answer together have the bytes of one with a cookie.
    LongEcho,
    /// An echo in a data session of the caller's own, which it does not look at.
    EchoInDataSession,
    /// A tool that reads what the data session holds.
    ReadState,
    /// A tool that changes what the data session holds.
    ChangeState,
}

impl Calling {
    /// Whether the caller opens a session first.
    pub(crate) fn has_session(self) -> bool {
        self != Calling::ModernEcho
    }

    /// Whether the caller has a data session.
    pub(crate) fn has_data_session(self) -> bool {
        !matches!(self, Calling::Echo | Calling::ModernEcho | Calling::LongEcho)
    }

    /// The tool and its arguments, and what a good answer contains.
    fn tool(self) -> (&'static str, &'static [u8]) {
        match self {
            Calling::LongEcho => (
                r#""name":"public_echo","arguments":{"text":"hello, and as much as a cookie takes that goes to and fro with every call in a data session."}"#,
                br#""hello, and"#,
            ),
            Calling::Echo | Calling::ModernEcho | Calling::EchoInDataSession => {
                (r#""name":"public_echo","arguments":{"text":"hello"}"#, br#""hello""#)
            }
            Calling::ReadState => (r#""name":"session_counter_get","arguments":{}"#, br#""counter":0"#),
            Calling::ChangeState => (r#""name":"session_counter_inc","arguments":{}"#, br#""counter":"#),
        }
    }
}

/// A call whose id grows with each use; the bytes are built once and patched in place.
#[derive(Debug)]
pub(crate) struct ToolCall {
    request: Vec<u8>,
    id_at: usize,
    /// `"id":` and the id of the last request: what its answer must contain.
    expected: Vec<u8>,
    /// What a good answer contains too: the tool's part, and the type of a result or the cookie of the data session.
    content: &'static [u8],
    also: Option<Vec<u8>>,
    id: u32,
}

impl ToolCall {
    /// A call as a line, for a server that is spoken to over pipes.
    pub(crate) fn line(calling: Calling) -> ToolCall {
        ToolCall::framed(calling, None, |body| format!("{body}\n").into_bytes())
    }

    /// A call, in a data session if one is named.
    pub(crate) fn new(
        endpoint: &Endpoint,
        session: Option<&str>,
        calling: Calling,
        data_session: Option<&str>,
    ) -> ToolCall {
        ToolCall::framed(calling, data_session, |body| {
            let ask = endpoint.ask(Ask::post(body), session);
            match calling.has_session() {
                true => ask.bytes(),
                false => ask
                    .header("MCP-Protocol-Version", MODERN_PROTOCOL)
                    .header("Mcp-Method", "tools/call")
                    .header("Mcp-Name", "public_echo")
                    .bytes(),
            }
        })
    }

    fn framed(calling: Calling, data_session: Option<&str>, frame: impl FnOnce(&str) -> Vec<u8>) -> ToolCall {
        let expected = format!(r#""id":{FIRST_ID}"#);
        let (tool, content) = calling.tool();
        let meta = match (data_session, calling.has_session()) {
            (Some(id), _) => format!(r#","_meta":{{"mcp/session":{{"id":"{id}"}}}}"#),
            (None, true) => String::new(),
            (None, false) => MODERN_META.to_owned(),
        };
        let body =
            format!(r#"{{"jsonrpc":"2.0",{expected},"method":"tools/call","params":{{{tool}{meta}}}}}"#);
        let request = frame(&body);
        let id_at = memmem::rfind(&request, expected.as_bytes()).expect("the body holds the id") + 5;
        let also = match (data_session, calling.has_session()) {
            (Some(id), _) => Some(format!(r#""mcp/session":{{"id":"{id}""#)),
            (None, true) => None,
            (None, false) => Some(r#""resultType":"complete""#.to_owned()),
        };
        let also = also.map(String::into_bytes);
        ToolCall { request, id_at, expected: expected.into_bytes(), content, also, id: FIRST_ID }
    }

    /// The next request.
    pub(crate) fn next_request(&mut self) -> &[u8] {
        self.id += 1;
        assert!(self.id < FIRST_ID * 10, "a run makes fewer than nine million calls per connection");
        let mut left = self.id;
        for place in (0..ID_DIGITS).rev() {
            let digit = b'0' + (left % 10) as u8;
            self.request[self.id_at + place] = digit;
            self.expected[5 + place] = digit;
            left /= 10;
        }
        &self.request
    }

    /// Fails unless this answers the last request as the tool does, with what its era or its cookie asks for.
    pub(crate) fn check(&self, status: u16, body: &[u8]) -> Result<()> {
        let is_answer = status == 200
            && memmem::find(body, &self.expected)
                .is_some_and(|at| !body.get(at + self.expected.len()).is_some_and(u8::is_ascii_digit))
            && memmem::find(body, br#""result""#).is_some()
            && memmem::find(body, self.content).is_some()
            && self.also.as_ref().is_none_or(|also| memmem::find(body, also).is_some())
            && memmem::find(body, br#""isError":true"#).is_none();
        ensure!(is_answer, "call {} was not answered as it should be: {}", self.id, describe(status, body));
        Ok(())
    }
}

fn describe(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let short: String = text.chars().take(300).collect();
    format!("status {status}, body `{}`", short.trim_end())
}

#[cfg(test)]
mod tests {
    use super::{Calling, Endpoint, ToolCall};

    fn call() -> ToolCall {
        let endpoint = Endpoint::parse("http://127.0.0.1:80/mcp").unwrap();
        ToolCall::new(&endpoint, Some("s-1"), Calling::Echo, None)
    }

    #[test]
    fn each_request_has_the_next_id_and_the_same_length() {
        let mut call = call();
        let first = call.next_request().to_vec();
        let second = call.next_request().to_vec();
        assert!(String::from_utf8(first.clone()).unwrap().contains(r#""id":1000001,"#));
        assert!(String::from_utf8(second.clone()).unwrap().contains(r#""id":1000002,"#));
        assert_eq!(first.len(), second.len());
    }

    #[test]
    fn only_the_echo_of_the_last_request_passes() {
        let mut call = call();
        call.next_request();
        let answer = |id: &str, text: &str, is_error: bool| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}],"isError":{is_error}}}}}"#
            )
        };
        assert!(call.check(200, answer("1000001", "hello", false).as_bytes()).is_ok());
        for (status, wrong) in [
            (500, answer("1000001", "hello", false)),
            (200, answer("1000002", "hello", false)),
            (200, answer("10000011", "hello", false)),
            (200, answer("1000001", "bye", false)),
            (200, answer("1000001", "hello", true)),
            (200, r#"{"jsonrpc":"2.0","id":1000001,"error":{"code":-32603,"message":"hello"}}"#.to_owned()),
        ] {
            assert!(call.check(status, wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_call_without_a_session_says_what_it_is_and_wants_to_hear_that_the_result_is_complete() {
        let endpoint = Endpoint::parse("http://127.0.0.1:80/mcp").unwrap();
        let mut call = ToolCall::new(&endpoint, None, Calling::ModernEcho, None);
        let request = String::from_utf8(call.next_request().to_vec()).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        for line in ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: public_echo"] {
            assert!(head.lines().any(|other| other == line), "{head}");
        }
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let meta = &body["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object());
        let answer = |kind: &str| {
            format!(r#"{{"id":1000001,"result":{{"resultType":"{kind}","content":[{{"text":"hello"}}]}}}}"#)
        };
        assert!(call.check(200, answer("complete").as_bytes()).is_ok());
        assert!(call.check(200, answer("input_required").as_bytes()).is_err());
    }

    #[test]
    fn an_answer_in_a_data_session_brings_its_cookie_back() {
        let endpoint = Endpoint::parse("http://127.0.0.1:80/mcp").unwrap();
        let mut call = ToolCall::new(&endpoint, None, Calling::ReadState, Some("sess-1"));
        let request = String::from_utf8(call.next_request().to_vec()).unwrap();
        assert!(
            request.ends_with(r#""arguments":{},"_meta":{"mcp/session":{"id":"sess-1"}}}}"#),
            "{request}"
        );
        let answer = |cookie: &str| {
            format!(
                r#"{{"id":1000001,"result":{{"structuredContent":{{"counter":0}},"_meta":{{"mcp/session":{cookie}}}}}}}"#
            )
        };
        assert!(call.check(200, answer(r#"{"id":"sess-1","expiry":"…"}"#).as_bytes()).is_ok());
        for wrong in ["null", r#"{"id":"sess-2"}"#] {
            assert!(call.check(200, answer(wrong).as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_long_echo_has_as_many_bytes_as_an_echo_with_a_cookie() {
        let endpoint = Endpoint::parse("http://127.0.0.1:80/mcp").unwrap();
        let id = format!("sess-{}", "0".repeat(32));
        let bytes = |calling, id| ToolCall::new(&endpoint, None, calling, id).request.len();
        let plain = bytes(Calling::Echo, None);
        let cookie = format!(r#""_meta":{{"mcp/session":{{"id":"{id}","expiry":"2026-11-16T06:07:03Z"}}}},"#);
        let with_cookie = bytes(Calling::EchoInDataSession, Some(&*id)) - plain + cookie.len();
        // Its text goes both ways; a length may take a digit more.
        let long = 2 * (bytes(Calling::LongEcho, None) - plain);
        assert!(long.abs_diff(with_cookie) <= 2, "{long} {with_cookie}");
    }

    #[test]
    fn an_endpoint_needs_an_address() {
        assert!(Endpoint::parse("https://127.0.0.1:80/mcp").is_err());
        assert!(Endpoint::parse("http://localhost/mcp").is_err());
        assert_eq!(Endpoint::parse("http://127.0.0.1:80/mcp").unwrap().path, "/mcp");
    }
}
