//! Requests to the server, and what comes back in general.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, RequestBuilder, Response, Url};
use serde::Deserialize;
use tenure_protocol::{Error, Incoming, Message, RawJson, Reason, RpcError};

use crate::remote::Upstream;
use crate::remote::events::Events;
use crate::remote::outage::{Away, Fault, Outage, Reached, Waits};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// How much of a refusal is read.
const MAX_REFUSAL: usize = 64 << 10;

pub(super) struct Door {
    client: Client,
    url: Url,
    /// The URL as it may stand in a log.
    place: String,
    headers: HeaderMap,
    max: usize,
    /// One for all places at the server.
    outage: Arc<Outage>,
}

/// What the server knows a session by.
#[derive(Clone, Default)]
pub(super) struct Visit {
    pub(super) session: Option<HeaderValue>,
    pub(super) version: Option<HeaderValue>,
}

/// What came back.
pub(super) enum Answer {
    /// Taken, and nothing to say.
    Accepted,
    Json(Bytes),
    Stream(Events),
    /// The session is not there.
    Unknown,
    Refused(StatusCode, Bytes),
}

impl Answer {
    /// The answer to somebody who has a session. That it is not there should be said with 404, but many servers say 400,
    /// with the reason in words; whatever else is wrong, another session may put it right.
    pub(super) fn within_session(self) -> Self {
        match self {
            Self::Refused(StatusCode::NOT_FOUND, _) => Self::Unknown,
            Self::Refused(StatusCode::BAD_REQUEST, body)
                if !matches!(Message::parse(&body), Ok(Message::Response(_)))
                    && memchr::memmem::find(&body.to_ascii_lowercase(), b"session").is_some() =>
            {
                Self::Unknown
            }
            answer => answer,
        }
    }
}

/// How long a connection is kept that is not used. Servers on Node and on uvicorn close theirs after five seconds. A request
/// that is sent just then is lost, and whether it was carried out cannot be known. So we close first.
const IDLE: Duration = Duration::from_secs(3);

impl Door {
    pub(super) fn new(upstream: &Upstream) -> Result<Self, String> {
        // The URL itself stays out of the message: it may carry a key.
        let url: Url = upstream.url.parse().map_err(|error| format!("its URL makes no sense: {error}"))?;
        let place = place(&url);
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("`{place}` is not an http or https URL"));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &upstream.headers {
            let bad = || format!("the header `{name}` cannot be sent");
            let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.append(HeaderName::try_from(name).map_err(|_| bad())?, value);
        }
        // Without one, a client that can speak TLS panics when it is made. Another may have been first.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = Client::builder()
            .connect_timeout(upstream.connect_timeout)
            .pool_idle_timeout(IDLE)
            // A request that is sent on elsewhere would take our credentials along.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| error.to_string())?;
        let (max, outage) = (upstream.max_message_bytes, Arc::new(Outage::new(upstream.patience)));
        Ok(Self { client, url, place, headers, max, outage })
    }

    /// The door of another place at the same server, which has named it. It must be the same server: our credentials
    /// go there too, and so would what clients say.
    pub(super) fn at(&self, name: &str) -> Result<Self, RpcError> {
        let named = self.url.join(name.trim()).ok().filter(|url| url.origin() == self.url.origin());
        let Some(mut url) = named else {
            tracing::error!(url = self.place(), "the server upstream names an endpoint of another origin");
            return Err(broken("The server names an endpoint of another origin"));
        };
        // They belong to the server, and need not be repeated by it. Neither can fail, since the URL has a host.
        let _ = url.set_username(self.url.username());
        let _ = url.set_password(self.url.password());
        Ok(Self {
            client: self.client.clone(),
            place: place(&url),
            url,
            headers: self.headers.clone(),
            max: self.max,
            outage: Arc::clone(&self.outage),
        })
    }

    /// Where the server is, without anything that may be secret.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// How a request waits for the server.
    pub(super) fn waits(&self) -> Waits<'_> {
        self.outage.waits()
    }

    /// Posts a message.
    pub(super) async fn post(&self, visit: &Visit, body: Bytes) -> Result<Answer, Fault> {
        let response = self.send(visit, body).await?;
        self.answer_to(visit, response).await
    }

    /// Posts a message, of whose answer only the head is read.
    pub(super) async fn send(&self, visit: &Visit, body: Bytes) -> Result<Response, Fault> {
        self.deliver(self.headers_of(visit), body).await
    }

    /// Posts a message that belongs to no session, with headers of its own.
    pub(super) async fn post_alone(&self, own: HeaderMap, body: Bytes) -> Result<Answer, Fault> {
        let mut headers = self.headers.clone();
        headers.extend(own);
        let response = self.deliver(headers, body).await?;
        self.answer(response).await
    }

    async fn deliver(&self, headers: HeaderMap, body: Bytes) -> Result<Response, Fault> {
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, JSON).header(ACCEPT, BOTH);
        request
            .headers(headers)
            .body(body)
            .send()
            .await
            .map_err(|error| self.unreachable(error, Reached::Perhaps))
    }

    /// Opens the stream of what belongs to no request, or resumes a stream.
    pub(super) async fn get(&self, visit: &Visit, last_event: Option<HeaderValue>) -> Result<Answer, Fault> {
        let mut request = self.client.get(self.url.clone()).header(ACCEPT, EVENTS);
        if let Some(id) = last_event {
            request = request.header(LAST_EVENT, id);
        }
        let sent = self.with(visit, request).send().await;
        let response = sent.map_err(|error| self.unreachable(error, Reached::Perhaps))?;
        self.answer_to(visit, response).await
    }

    async fn answer_to(&self, visit: &Visit, response: Response) -> Result<Answer, Fault> {
        let answer = self.answer(response).await?;
        Ok(if visit.session.is_some() { answer.within_session() } else { answer })
    }

    /// Ends the session there.
    pub(super) async fn delete(&self, visit: &Visit) {
        let request = self.with(visit, self.client.delete(self.url.clone()));
        if let Err(error) = request.send().await {
            tracing::debug!(url = self.place(), error = %error.without_url(), "could not end a session upstream");
        }
    }

    fn with(&self, visit: &Visit, request: RequestBuilder) -> RequestBuilder {
        request.headers(self.headers_of(visit))
    }

    fn headers_of(&self, visit: &Visit) -> HeaderMap {
        let mut headers = self.headers.clone();
        if let Some(session) = &visit.session {
            headers.insert(SESSION, session.clone());
        }
        if let Some(version) = &visit.version {
            headers.insert(VERSION, version.clone());
        }
        headers
    }

    /// Reads the rest of an answer, unless it is a stream.
    pub(super) async fn answer(&self, response: Response) -> Result<Answer, Fault> {
        let status = response.status();
        if is_away(status) {
            return Err(self.refused_as_away(response).await);
        }
        self.outage.ends(&self.place);
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(Answer::Accepted),
            _ if status.is_success() && kind == "text/event-stream" => {
                Ok(Answer::Stream(Events::new(response, self.max)))
            }
            _ if status.is_success() => Ok(Answer::Json(self.body(response, self.max).await?)),
            _ => {
                let body = self.body(response, MAX_REFUSAL).await.unwrap_or_default();
                Ok(Answer::Refused(status, body))
            }
        }
    }

    /// The messages in what came: one, or several at once, which revision 2025-03-26 allows. What is none is left out.
    pub(super) fn messages(&self, data: &Bytes) -> Vec<Message> {
        let (messages, parts) = match Incoming::parse(data) {
            Ok(Incoming::One(message)) => (vec![message], 1),
            Ok(Incoming::Batch(parts)) => {
                let messages = parts.iter().filter_map(|part| Message::parse(part.bytes()).ok());
                (messages.collect(), parts.len())
            }
            Err(_) => (Vec::new(), 1),
        };
        if messages.len() < parts {
            tracing::warn!(url = self.place(), "what came from upstream is not a message");
        }
        messages
    }

    /// What stands in front of the server says that it is away, or the server itself that it cannot be asked now.
    async fn refused_as_away(&self, response: Response) -> Fault {
        let (status, retry_after) = (response.status(), retry_after(response.headers()));
        let body = self.body(response, MAX_REFUSAL).await.unwrap_or_default();
        if !self.outage.is_on() {
            tracing::warn!(url = self.place(), %status, "the server upstream is away");
        }
        let own = error_of(&body);
        Fault::Away(Away {
            is_own: own.is_some(),
            error: own.unwrap_or_else(|| refused_with(status)),
            reached: Reached::Perhaps,
            status: Some(status.as_u16()),
            retry_after,
        })
    }

    async fn body(&self, response: Response, max: usize) -> Result<Bytes, Fault> {
        let mut body = BytesMut::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.unreachable(error, Reached::Server))?;
            if body.len() + chunk.len() > max {
                return Err(Fault::Final(broken(&format!("The server's answer is longer than {max} bytes"))));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    /// The error for a connection that could not be made, or broke after a request had reached this.
    fn unreachable(&self, error: reqwest::Error, reached: Reached) -> Fault {
        // The whole chain goes to the log; it names hosts, which are not the client's business.
        let error = error.without_url();
        let mut causes = Vec::new();
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        let (url, cause) = (self.place(), causes.join(": "));
        match self.outage.is_on() {
            // It was said when it began.
            true => tracing::debug!(url, error = cause, "the server upstream still cannot be reached"),
            false => tracing::warn!(url, error = cause, "the server upstream cannot be reached"),
        }
        let words = "The server cannot be reached";
        let (error, reached) = match error.is_connect() {
            // Nothing was sent. The link stands nevertheless: the session may be there when the server is back.
            true if is_stranger(&error) => return Fault::Final(RpcError::refused(words)),
            true => (RpcError::refused(words), Reached::Nobody),
            false => (broken(words), reached),
        };
        Fault::Away(Away { error, reached, status: None, is_own: false, retry_after: None })
    }
}

/// Whether a connection failed because of what answered there, such as a certificate that is not to be trusted. Waiting
/// does not mend that.
fn is_stranger(error: &reqwest::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && error.kind() == std::io::ErrorKind::InvalidData
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether a refusal says that the server behind it is away.
fn is_away(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// How long to wait, if that is said in seconds. A date is rare, and the pauses of our own are no worse.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The error for a refusal without words of the server's own.
pub(super) fn refused_with(status: StatusCode) -> RpcError {
    let words = format!("The server answered {status}");
    Error::new(Reason::BackendUnavailable, words).with("status", status.as_u16()).to_rpc()
}

/// The error that the body of a refusal carries.
pub(super) fn error_of(body: &Bytes) -> Option<RpcError> {
    match Message::parse(body) {
        Ok(Message::Response(response)) => response.outcome.err(),
        // An error without an id is no response, but says what is wrong.
        _ => error_in(body),
    }
}

fn error_in(body: &Bytes) -> Option<RpcError> {
    #[derive(Deserialize)]
    struct Carries<'a> {
        #[serde(borrow)]
        error: &'a serde_json::value::RawValue,
    }
    let carries: Carries<'_> = serde_json::from_slice(body).ok()?;
    let error = carries.error.get();
    error.starts_with('{').then(|| RpcError::from_raw(RawJson::trusted(body.slice_ref(error.as_bytes()))))
}

/// The session that the answer to `initialize` names.
pub(super) fn session_in(response: &Response) -> Option<HeaderValue> {
    response.headers().get(SESSION).cloned()
}

/// The server is not there, or does not make sense.
pub(super) fn broken(what: &str) -> RpcError {
    RpcError::of(Reason::BackendUnavailable, what.to_owned())
}

/// The server's answer, or something before it, cannot be taken.
pub(super) fn too_long() -> RpcError {
    RpcError::of(Reason::EventTooLarge, "The server's answer is longer than a message may be")
}

/// A URL without what may be secret: user, password, query and fragment.
pub(super) fn place(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// An event's id as it is sent to resume after it; `None` if it cannot be sent. Without it the server would
/// take us to ask for another stream, that of what belongs to no request.
pub(super) fn resume_after(id: &str) -> Option<HeaderValue> {
    HeaderValue::from_bytes(id.as_bytes()).ok().filter(|id| !id.is_empty())
}

/// Whether a refusal may be gone the next time: the server is ill, busy, or has not seen an old stream end.
pub(super) fn may_pass(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::REQUEST_TIMEOUT
            | StatusCode::CONFLICT
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS
    ) || status.is_server_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_is_not_used_is_closed_before_its_server_closes_it() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let door =
            Door::new(&Upstream::new(format!("http://{}/mcp", listener.local_addr().unwrap()))).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = [0; 4096];
            assert!(stream.read(&mut read).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
            let answered = tokio::time::Instant::now();
            assert_eq!(stream.read(&mut read).await.unwrap(), 0, "closed by the client");
            answered.elapsed()
        };
        let (answer, idle) = tokio::join!(door.client.get(door.url.clone()).send(), server);
        assert_eq!(answer.unwrap().status(), 200);
        assert!(idle < Duration::from_secs(5), "{idle:?}");
    }

    #[test]
    fn a_place_has_no_secrets() {
        for (url, expected) in [
            ("https://user:key@example.com/mcp?key=1#key", "https://example.com/mcp"),
            ("http://[::1]:8080", "http://[::1]:8080/"),
            ("https://example.com:443/a/b", "https://example.com/a/b"),
        ] {
            assert_eq!(place(&url.parse().unwrap()), expected);
        }
    }

    #[test]
    fn an_endpoint_is_of_the_same_origin() {
        let door = Door::new(&Upstream::new("http://user:key@example.com/a/sse?key=1")).unwrap();
        for (name, expected) in [
            ("/messages?id=1", "http://user:key@example.com/messages?id=1"),
            ("messages", "http://user:key@example.com/a/messages"),
            ("?id=1", "http://user:key@example.com/a/sse?id=1"),
            ("http://example.com:80/messages\n", "http://user:key@example.com/messages"),
            ("http://other:word@example.com/", "http://user:key@example.com/"),
        ] {
            assert_eq!(door.at(name).map(|door| door.url.to_string()).unwrap(), expected);
        }
        for name in [
            "https://example.com/messages",
            "http://example.com:8080/messages",
            "http://example.org/messages",
            "//example.org/messages",
            "http://example.com@example.org/",
            "http://[",
            "data:,",
        ] {
            assert!(door.at(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_url_that_is_refused_is_not_repeated() {
        for url in ["ftp://user:key@example.com/?key", "http://user:key@:key/", "key"] {
            let refused = Door::new(&Upstream::new(url)).err().unwrap();
            assert!(!refused.contains("key"), "{refused}");
        }
    }

    #[test]
    fn only_an_id_that_can_be_sent_is_resumed_after() {
        for id in ["1", "a b", "é", "a\tb"] {
            assert_eq!(resume_after(id).unwrap().as_bytes(), id.as_bytes());
        }
        for id in ["", "a\u{1}", "\u{7f}"] {
            assert_eq!(resume_after(id), None);
        }
    }

    #[test]
    fn a_session_that_is_not_there_is_known_by_the_words() {
        let within_session = |status: u16, body: &str| {
            let body = Bytes::copy_from_slice(body.as_bytes());
            let answer = Answer::Refused(StatusCode::from_u16(status).unwrap(), body).within_session();
            matches!(answer, Answer::Unknown)
        };
        for body in [
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#,
            "Invalid or missing session ID",
            "No transport found for sessionId",
        ] {
            assert!(within_session(400, body), "{body}");
            assert!(within_session(404, body), "{body}");
            assert!(!within_session(403, body), "{body}");
        }
        for body in [
            "",
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Bad Request"},"id":null}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"your browser session is over"},"id":7}"#,
        ] {
            assert!(!within_session(400, body), "{body}");
        }
    }

    #[test]
    fn some_refusals_pass() {
        let passing = (100..600).filter(|code| may_pass(StatusCode::from_u16(*code).unwrap()));
        let expected = [408, 409, 425, 429].into_iter().chain(500..600);
        assert_eq!(passing.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}
