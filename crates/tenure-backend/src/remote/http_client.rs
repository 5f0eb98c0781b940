//! The HTTP client of one server: sends requests, and classifies the answers.
//!
//! In: message bodies and the headers of a session. Out: an [`HttpAnswer`], or a [`Fault`] that says whether a retry
//! can help.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, RequestBuilder, Response, Url};
use serde::Deserialize;
use tenure_protocol::{Error, Incoming, Message, RawJson, Reason, RpcError};
use tenure_session::call::Caller;

use crate::remote::Upstream;
use crate::remote::credentials::{CredentialHeaders, NoCredentials, OnBehalf, UpstreamCredentials};
use crate::remote::events::UpstreamEvents;
use crate::remote::outage::{Away, Fault, Outage, Reached, Waits};
use crate::remote::request_headers;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// How much of the body of a refusal is read.
const MAX_REFUSAL: usize = 64 << 10;

pub(super) struct HttpClient {
    client: Client,
    url: Url,
    /// The URL as it may stand in a log.
    place: String,
    /// Fixed headers of the configuration.
    headers: HeaderMap,
    credentials: Option<Arc<dyn UpstreamCredentials>>,
    max: usize,
    /// Shared by all URLs of the server.
    outage: Arc<Outage>,
}

/// The headers that identify a session at the server, and whom a request in it is for.
#[derive(Clone, Default)]
pub(super) struct SessionHeaders {
    pub(super) id: Option<HeaderValue>,
    pub(super) version: Option<HeaderValue>,
    pub(super) whom: OnBehalf,
}

impl SessionHeaders {
    /// A request for this client, before the server has named a session.
    pub(super) fn of(whom: OnBehalf) -> Self {
        Self { whom, ..Self::default() }
    }

    /// The same session, for a message that asks for nothing.
    pub(super) fn telling(&self) -> Self {
        Self { whom: self.whom.telling(), ..self.clone() }
    }

    /// The same session, for a request of this caller.
    pub(super) fn for_caller(&self, caller: &Caller) -> Self {
        Self { whom: OnBehalf::caller(caller), ..self.clone() }
    }
}

/// The answer to an HTTP request.
pub(super) enum HttpAnswer {
    /// Accepted, without a body.
    Accepted,
    Json(Bytes),
    Stream(UpstreamEvents),
    /// The server does not know the session.
    Unknown,
    /// 401 or 403: the server does not take our credentials. What it says about that is meant for us, and a client that was told
    /// would log in at the wrong place.
    Unauthorized(StatusCode),
    Refused(StatusCode, Bytes),
}

impl HttpAnswer {
    /// The answer to a request within a session. For an unknown session a server should answer 404, but many answer 400
    /// with the reason as text. If the text means something else, a new session may still help.
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

/// How long an unused connection is kept. Servers on Node and uvicorn close theirs after five seconds. A request that
/// is sent at that moment is lost, and we cannot know whether it was carried out. So we close first.
const IDLE: Duration = Duration::from_secs(3);

impl HttpClient {
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
        // Without a crypto provider, building a client with TLS panics. Fails if one is installed already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = Client::builder()
            .connect_timeout(upstream.connect_timeout)
            .pool_idle_timeout(IDLE)
            // A redirected request would take our credentials to another server.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| error.to_string())?;
        let (max, outage) = (upstream.max_message_bytes, Arc::new(Outage::new(upstream.patience)));
        let credentials = upstream.credentials.clone();
        Ok(Self { client, url, place, headers, credentials, max, outage })
    }

    /// A client for another URL of the same server, which the server has named. It must have the same origin, because
    /// our credentials and the clients' messages go there.
    pub(super) fn at(&self, name: &str) -> Result<Self, RpcError> {
        let named = self.url.join(name.trim()).ok().filter(|url| url.origin() == self.url.origin());
        let Some(mut url) = named else {
            tracing::error!(url = self.place(), "the server upstream names an endpoint of another origin");
            return Err(broken("The server names an endpoint of another origin"));
        };
        // The server need not repeat its credentials in the URL. Neither call can fail, since the URL has a host.
        let _ = url.set_username(self.url.username());
        let _ = url.set_password(self.url.password());
        Ok(Self {
            client: self.client.clone(),
            place: place(&url),
            url,
            headers: self.headers.clone(),
            credentials: self.credentials.clone(),
            max: self.max,
            outage: Arc::clone(&self.outage),
        })
    }

    /// The server's URL without secrets, for the log.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// The retry state of one request.
    pub(super) fn waits(&self) -> Waits<'_> {
        self.outage.waits()
    }

    /// Posts a message.
    pub(super) async fn post(&self, session: &SessionHeaders, body: Bytes) -> Result<HttpAnswer, Fault> {
        let response = self.send(session, body).await?;
        self.answer_to(session, response).await
    }

    /// Posts a message, and reads only the head of the answer.
    pub(super) async fn send(&self, session: &SessionHeaders, body: Bytes) -> Result<Response, Fault> {
        self.deliver(&session.whom, headers_of(session), body).await
    }

    /// Posts a message without a session, with additional headers.
    pub(super) async fn post_alone(
        &self,
        whom: &OnBehalf,
        own: HeaderMap,
        body: Bytes,
    ) -> Result<HttpAnswer, Fault> {
        let response = self.deliver(whom, own, body).await?;
        self.answer(response).await
    }

    async fn deliver(&self, whom: &OnBehalf, own: HeaderMap, body: Bytes) -> Result<Response, Fault> {
        let request = || {
            let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, JSON).header(ACCEPT, BOTH);
            request.body(body.clone())
        };
        self.authorized(whom, own, request).await
    }

    /// Opens the listen stream, or resumes a stream after `last_event`.
    pub(super) async fn get(
        &self,
        session: &SessionHeaders,
        last_event: Option<HeaderValue>,
    ) -> Result<HttpAnswer, Fault> {
        let mut own = headers_of(session);
        if let Some(id) = last_event {
            own.insert(LAST_EVENT, id);
        }
        let request = || self.client.get(self.url.clone()).header(ACCEPT, EVENTS);
        let response = self.authorized(&session.whom, own, request).await?;
        self.answer_to(session, response).await
    }

    /// Sends a request with our credentials. If the server refuses them with 401, it has not carried the request out: they are
    /// renewed once, and the request is sent once more.
    async fn authorized(
        &self,
        whom: &OnBehalf,
        own: HeaderMap,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<Response, Fault> {
        let mut headers = self.headers.clone();
        request_headers::add_from_client(&mut headers, own);
        let send = async |headers: HeaderMap| {
            let sent = request().headers(headers).send().await;
            sent.map_err(|error| self.unreachable(error, Reached::Perhaps))
        };
        let Some(credentials) = &self.credentials else { return send(headers).await };
        let failed = |missing: NoCredentials| Fault::Final(missing.error());
        let used = credentials.headers(whom).await.map_err(failed)?;
        let response = send(with(headers.clone(), &used)).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        match credentials.renewed(whom, &used).await.map_err(failed)? {
            Some(renewed) => {
                tracing::debug!(url = self.place(), "the server upstream refused a token; sending another");
                send(with(headers, &renewed)).await
            }
            None => Ok(response),
        }
    }

    /// Whether other credentials may be there later.
    pub(super) fn renews_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    async fn answer_to(&self, session: &SessionHeaders, response: Response) -> Result<HttpAnswer, Fault> {
        let answer = self.answer(response).await?;
        Ok(if session.id.is_some() { answer.within_session() } else { answer })
    }

    /// Ends the session at the server.
    pub(super) async fn delete(&self, session: &SessionHeaders) {
        let request = || self.client.delete(self.url.clone());
        if let Err(fault) = self.authorized(&session.whom.telling(), headers_of(session), request).await {
            let error = fault.into_error();
            tracing::debug!(url = self.place(), %error, "could not end a session upstream");
        }
    }

    /// Reads the rest of an answer, unless it is a stream.
    pub(super) async fn answer(&self, response: Response) -> Result<HttpAnswer, Fault> {
        let status = response.status();
        if is_away(status) {
            return Err(self.refused_as_away(response).await);
        }
        self.outage.ends(&self.place);
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(HttpAnswer::Accepted),
            _ if status.is_success() && kind == "text/event-stream" => {
                Ok(HttpAnswer::Stream(UpstreamEvents::new(response, self.max)))
            }
            _ if status.is_success() => Ok(HttpAnswer::Json(self.body(response, self.max).await?)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                tracing::warn!(url = self.place(), %status, "the server upstream does not take our credentials");
                Ok(HttpAnswer::Unauthorized(status))
            }
            _ => {
                let body = self.body(response, MAX_REFUSAL).await.unwrap_or_default();
                Ok(HttpAnswer::Refused(status, body))
            }
        }
    }

    /// Parses the data: one message, or a batch, which revision 2025-03-26 allows. Drops what is not a message.
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
            tracing::warn!(
                url = self.place(),
                "the server upstream sent something that is not a message; dropped"
            );
        }
        messages
    }

    /// A proxy in front of the server says that it is away, or the server itself says that it is unavailable.
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

    /// The error for a connection that failed, or that broke after the request had got as far as `reached`.
    fn unreachable(&self, error: reqwest::Error, reached: Reached) -> Fault {
        // The whole chain goes to the log only: it names hosts, which clients must not see.
        let error = error.without_url();
        let mut causes = Vec::new();
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        let (url, cause) = (self.place(), causes.join(": "));
        match self.outage.is_on() {
            // The warning was logged when the outage began.
            true => tracing::debug!(url, error = cause, "the server upstream still cannot be reached"),
            false => tracing::warn!(url, error = cause, "the server upstream cannot be reached"),
        }
        let words = "The server cannot be reached";
        let (error, reached) = match error.is_connect() {
            // Nothing was sent. The link stays: the server may still know the session when it is back.
            true if is_stranger(&error) => return Fault::Final(RpcError::refused(words)),
            true => (RpcError::refused(words), Reached::NotSent),
            false => (broken(words), reached),
        };
        Fault::Away(Away { error, reached, status: None, is_own: false, retry_after: None })
    }
}

/// Whether a connection failed because of the peer's identity, such as an untrusted certificate. A retry does not help
/// then.
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

/// Whether the status says that the server is away.
fn is_away(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// The pause of `Retry-After`, if it is in seconds. Dates are rare, and our own pauses are as good.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The error for a server that does not take our credentials.
pub(super) fn unauthorized() -> RpcError {
    RpcError::of(Reason::BackendUnauthorized, "The server does not accept the credentials of this gateway")
}

fn headers_of(session: &SessionHeaders) -> HeaderMap {
    let named = [(SESSION, &session.id), (VERSION, &session.version)];
    named.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
}

/// Credentials take the place of fixed headers of the same name.
fn with(mut headers: HeaderMap, credentials: &CredentialHeaders) -> HeaderMap {
    for (name, value) in &credentials.headers {
        headers.insert(name.clone(), value.clone());
    }
    headers
}

/// The error for a refusal without an error object of the server.
pub(super) fn refused_with(status: StatusCode) -> RpcError {
    let words = format!("The server answered {status}");
    Error::new(Reason::BackendUnavailable, words).with("status", status.as_u16()).to_rpc()
}

/// The error that the body of a refusal carries.
pub(super) fn error_of(body: &Bytes) -> Option<RpcError> {
    match Message::parse(body) {
        Ok(Message::Response(response)) => response.outcome.err(),
        // An error without an id is not a valid response, but it has the reason.
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

/// The error for a server that cannot be reached, or whose answer is invalid.
pub(super) fn broken(what: &str) -> RpcError {
    RpcError::of(Reason::BackendUnavailable, what.to_owned())
}

/// A URL without the parts that may be secret: user, password, query and fragment.
pub(super) fn place(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// The `Last-Event-ID` to resume after this event; `None` if the id cannot be a header. A GET without that header would
/// open the listen stream instead.
pub(super) fn resume_after(id: &str) -> Option<HeaderValue> {
    HeaderValue::from_bytes(id.as_bytes()).ok().filter(|id| !id.is_empty())
}

/// Whether a retry may succeed: the server has failed, is busy, or has not noticed the end of an old stream.
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
        let http = HttpClient::new(&Upstream::new(format!("http://{}/mcp", listener.local_addr().unwrap())))
            .unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = [0; 4096];
            assert!(stream.read(&mut read).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
            let answered = tokio::time::Instant::now();
            assert_eq!(stream.read(&mut read).await.unwrap(), 0, "closed by the client");
            answered.elapsed()
        };
        let (answer, idle) = tokio::join!(http.client.get(http.url.clone()).send(), server);
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
        let http = HttpClient::new(&Upstream::new("http://user:key@example.com/a/sse?key=1")).unwrap();
        for (name, expected) in [
            ("/messages?id=1", "http://user:key@example.com/messages?id=1"),
            ("messages", "http://user:key@example.com/a/messages"),
            ("?id=1", "http://user:key@example.com/a/sse?id=1"),
            ("http://example.com:80/messages\n", "http://user:key@example.com/messages"),
            ("http://other:word@example.com/", "http://user:key@example.com/"),
        ] {
            assert_eq!(http.at(name).map(|http| http.url.to_string()).unwrap(), expected);
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
            assert!(http.at(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_url_that_is_refused_is_not_repeated() {
        for url in ["ftp://user:key@example.com/?key", "http://user:key@:key/", "key"] {
            let refused = HttpClient::new(&Upstream::new(url)).err().unwrap();
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
            let answer = HttpAnswer::Refused(StatusCode::from_u16(status).unwrap(), body).within_session();
            matches!(answer, HttpAnswer::Unknown)
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
