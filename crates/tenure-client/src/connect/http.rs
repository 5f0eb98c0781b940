//! A server behind a URL.
//!
//! rmcp does the protocol and reqwest the HTTP. In between stands a client that sends the handshake itself, so
//! that the tap sees its answer; everything else goes to rmcp's implementation for reqwest.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use futures_util::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use http::{HeaderName, HeaderValue, header};
use reqwest::redirect;
use rmcp::{
    RoleClient, Service,
    model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage},
    service::ClientInitializeError,
    transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
        StreamableHttpError, StreamableHttpPostResponse,
    },
};
use sse_stream::{Sse, SseStream};

use super::Client;
use crate::{
    error::{Error, Kind},
    jar::Server,
    layer::{Options, SessionTransport, Tap},
};

type Outcome<T> = Result<T, StreamableHttpError<reqwest::Error>>;
type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// The header in which a server of Streamable HTTP names its transport session.
const TRANSPORT_SESSION: &str = "mcp-session-id";
/// No answer to a handshake is larger than this.
const MAX_HANDSHAKE_BYTES: usize = 16 * 1024 * 1024;
const MAX_REDIRECTS: usize = 10;

/// What goes along with every request.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Http {
    /// The token of `Authorization: Bearer`.
    pub bearer: Option<String>,
    /// Other headers.
    pub headers: Headers,
    /// On whose behalf, if the jar has to tell. Two tokens of two users need two of these.
    pub principal: Option<String>,
    /// The client to send with; else one of our own.
    pub client: Option<reqwest::Client>,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither the token nor the values of headers.
        let names: Vec<_> = self.headers.keys().collect();
        f.debug_struct("Http").field("headers", &names).finish_non_exhaustive()
    }
}

/// Connects to a server over Streamable HTTP.
///
/// # Errors
///
/// `Kind::Invalid` for a URL that this build cannot reach, `Kind::Closed` if the handshake fails.
///
/// # Cancel safety
///
/// The connection is closed.
pub async fn connect_http(url: &str, http: Http, options: Options) -> Result<Client, Error> {
    connect_http_with((), url, http, options).await
}

/// As `connect_http`, with a handler for what the server asks of its client.
///
/// # Errors
///
/// As `connect_http`.
pub async fn connect_http_with<H: Service<RoleClient>>(
    handler: H,
    url: &str,
    http: Http,
    options: Options,
) -> Result<Client<H>, Error> {
    if cfg!(not(feature = "tls")) && url.trim_start().to_ascii_lowercase().starts_with("https:") {
        return Err(Error::new(Kind::Invalid, "`https:` needs the feature `tls`, which this build has not"));
    }
    let server = Server::url(url);
    let server = match http.principal {
        Some(principal) => server.with_principal(principal),
        None => server,
    };
    let client = match http.client {
        Some(client) => client,
        None => reqwest_client()?,
    };
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.trim());
    config.auth_header = http.bearer;
    config.custom_headers = http.headers;
    let connect = |options| {
        let tap = Tap::default();
        let client = TapClient { inner: client.clone(), tap: tap.clone() };
        let transport = StreamableHttpClientTransport::with_client(client, config.clone());
        Ok(SessionTransport::new(transport, tap, server.clone(), options))
    };
    Client::start_with(handler, options, connect, was_answered).await
}

/// Whether a greeting got an answer of some kind. One that was not sent, or that asks for a token, will fare no better
/// the second time.
fn was_answered(error: &ClientInitializeError) -> bool {
    let ClientInitializeError::TransportError { error: transport, .. } = error else { return true };
    let sent = transport.error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
    !matches!(sent, Some(StreamableHttpError::Client(_))) && !error.is_authorization_required()
}

/// A reqwest client that shows the answer to a handshake to a tap.
#[derive(Clone, Debug)]
pub struct TapClient {
    inner: reqwest::Client,
    tap: Tap,
}

impl TapClient {
    /// Shows what `inner` reads to `tap`.
    pub fn new(inner: reqwest::Client, tap: Tap) -> Self {
        Self { inner, tap }
    }

    async fn post_handshake(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        bearer: Option<&str>,
        headers: &Headers,
    ) -> Outcome<Option<StreamableHttpPostResponse>> {
        let mut request = self.inner.post(uri).header(header::ACCEPT, "text/event-stream, application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(bearer) = bearer {
            request = request.bearer_auth(bearer);
        }
        let response = request.json(message).send().await?;
        if response.status() != http::StatusCode::OK {
            return Ok(None);
        }
        let session = response.headers().get(TRANSPORT_SESSION);
        let session = session.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        match kind {
            Some(kind) if kind.starts_with("application/json") => {
                let body = read_bounded(response).await?;
                self.tap.look(&body);
                let answer = serde_json::from_slice(&body)?;
                Ok(Some(StreamableHttpPostResponse::Json(answer, session)))
            }
            Some(kind) if kind.starts_with("text/event-stream") => {
                Ok(Some(StreamableHttpPostResponse::Sse(self.events(response), session)))
            }
            kind => Err(StreamableHttpError::UnexpectedContentType(kind.map(str::to_owned))),
        }
    }

    fn events(&self, response: reqwest::Response) -> Events {
        let tap = self.tap.clone();
        let mut left = MAX_HANDSHAKE_BYTES;
        let bytes = response.bytes_stream().map_err(std::io::Error::other).and_then(move |bytes| {
            let fits = left.checked_sub(bytes.len());
            left = fits.unwrap_or(0);
            std::future::ready(match fits {
                Some(_) => Ok(bytes),
                None => Err(std::io::Error::other("the answer to the handshake is too large")),
            })
        });
        let events = SseStream::from_bytes_stream(bytes);
        let look = move |event: &Sse| {
            if let Some(data) = &event.data {
                tap.look(data.as_bytes());
            }
        };
        events.inspect_ok(look).boxed()
    }
}

impl StreamableHttpClient for TapClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        bearer: Option<String>,
        headers: Headers,
    ) -> Outcome<StreamableHttpPostResponse> {
        let limit = MAX_HANDSHAKE_BYTES;
        self.post_message_with_max_sse_event_size(uri, message, session_id, bearer, headers, limit).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        bearer: Option<String>,
        headers: Headers,
        max_sse_event_size: usize,
    ) -> Outcome<StreamableHttpPostResponse> {
        if !self.tap.has_seen()
            && is_handshake(&message)
            && let Some(answer) = self.post_handshake(&uri, &message, bearer.as_deref(), &headers).await?
        {
            return Ok(answer);
        }
        // Also a handshake that was refused: it made nothing, and rmcp knows how to read every refusal, so it
        // may ask again.
        self.inner
            .post_message_with_max_sse_event_size(
                uri,
                message,
                session_id,
                bearer,
                headers,
                max_sse_event_size,
            )
            .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        bearer: Option<String>,
        headers: Headers,
    ) -> Outcome<()> {
        self.inner.delete_session(uri, session_id, bearer, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        bearer: Option<String>,
        headers: Headers,
    ) -> Outcome<Events> {
        self.inner.get_stream(uri, session_id, last_event_id, bearer, headers).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        bearer: Option<String>,
        headers: Headers,
        max_sse_event_size: usize,
    ) -> Outcome<Events> {
        self.inner
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                bearer,
                headers,
                max_sse_event_size,
            )
            .await
    }
}

fn is_handshake(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::InitializeRequest(_)))
}

async fn read_bounded(response: reqwest::Response) -> Outcome<Vec<u8>> {
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        body.extend_from_slice(&piece?);
        if body.len() > MAX_HANDSHAKE_BYTES {
            let text = Cow::from("the answer to the handshake is too large");
            return Err(StreamableHttpError::UnexpectedServerResponse(text));
        }
    }
    Ok(body)
}

fn reqwest_client() -> Result<reqwest::Client, Error> {
    let builder = reqwest::Client::builder().redirect(redirect::Policy::custom(follow));
    with_tls(builder)?
        .build()
        .map_err(|error| Error::with_source(Kind::Invalid, "set up the HTTP client", error))
}

/// Follows what keeps the message (307, 308) and stays at the same server: tokens, cookies and headers are for
/// nobody else.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps_message = [307, 308].contains(&attempt.status().as_u16());
    let first = attempt.previous().first();
    let same_server = first.is_some_and(|first| first.origin() == attempt.url().origin());
    if keeps_message && same_server && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

#[cfg(feature = "tls")]
fn with_tls(builder: reqwest::ClientBuilder) -> Result<reqwest::ClientBuilder, Error> {
    use rustls_platform_verifier::BuilderVerifierExt as _;
    let failed = |error| Error::with_source(Kind::Invalid, "set up TLS", error);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_platform_verifier()
        .map_err(failed)?
        .with_no_client_auth();
    Ok(builder.tls_backend_preconfigured(config))
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unnecessary_wraps, reason = "fails with TLS")]
fn with_tls(builder: reqwest::ClientBuilder) -> Result<reqwest::ClientBuilder, Error> {
    Ok(builder)
}
