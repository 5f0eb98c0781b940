//! A server at a URL.
//!
//! rmcp does the protocol and reqwest the HTTP. `TapClient` between them sends the handshake itself, so that the tap
//! can read the answer; all other messages go to rmcp's implementation for reqwest.

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

use super::ConnectedClient;
use crate::{
    error::{ClientErrorKind, Error},
    jar::JarServer,
    layer::{SessionOptions, SessionTransport, Tap},
};

type HttpResult<T> = Result<T, StreamableHttpError<reqwest::Error>>;
type Headers = HashMap<HeaderName, HeaderValue>;
type SseEvents = BoxStream<'static, Result<Sse, SseError>>;

/// The header in which a server of Streamable HTTP names its transport session.
const TRANSPORT_SESSION: &str = "mcp-session-id";
/// The largest answer to a handshake.
const MAX_HANDSHAKE_BYTES: usize = 16 * 1024 * 1024;
const MAX_REDIRECTS: usize = 10;

/// Options of the HTTP connection.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct HttpOptions {
    /// The token of `Authorization: Bearer`.
    pub bearer: Option<String>,
    /// Other headers.
    pub headers: Headers,
    /// The user of the server, if the jar must keep users apart. Tokens of two users need two principals.
    pub principal: Option<String>,
    /// The client to use; else we build one.
    pub client: Option<reqwest::Client>,
}

impl std::fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token and the values of headers are secrets.
        let names: Vec<_> = self.headers.keys().collect();
        f.debug_struct("HttpOptions").field("headers", &names).finish_non_exhaustive()
    }
}

/// Connects to a server over Streamable HTTP.
///
/// # Errors
///
/// `ClientErrorKind::Invalid` for a URL that this build cannot reach, `ClientErrorKind::Closed` if the handshake fails.
///
/// # Cancel safety
///
/// The connection is closed.
pub async fn connect_http(
    url: &str,
    http: HttpOptions,
    options: SessionOptions,
) -> Result<ConnectedClient, Error> {
    connect_http_with((), url, http, options).await
}

/// As `connect_http`, with a handler for the server's requests to its client.
///
/// # Errors
///
/// As `connect_http`.
pub async fn connect_http_with<H: Service<RoleClient>>(
    handler: H,
    url: &str,
    http: HttpOptions,
    options: SessionOptions,
) -> Result<ConnectedClient<H>, Error> {
    if cfg!(not(feature = "tls")) && url.trim_start().to_ascii_lowercase().starts_with("https:") {
        return Err(Error::new(
            ClientErrorKind::Invalid,
            "`https:` needs the feature `tls`, which this build has not",
        ));
    }
    let server = JarServer::url(url);
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
    ConnectedClient::start_with(handler, options, connect, was_answered).await
}

/// Whether the server answered the greeting in some way. If the greeting could not be sent, or the server wants a
/// token, a second attempt would fail too.
fn was_answered(error: &ClientInitializeError) -> bool {
    let ClientInitializeError::TransportError { error: transport, .. } = error else { return true };
    let sent = transport.error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
    !matches!(sent, Some(StreamableHttpError::Client(_))) && !error.is_authorization_required()
}

/// A reqwest client whose answer to the handshake the tap reads.
#[derive(Clone, Debug)]
pub struct TapClient {
    inner: reqwest::Client,
    tap: Tap,
}

impl TapClient {
    /// Lets `tap` read the answer to the handshake.
    pub fn new(inner: reqwest::Client, tap: Tap) -> Self {
        Self { inner, tap }
    }

    async fn post_handshake(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        bearer: Option<&str>,
        headers: &Headers,
    ) -> HttpResult<Option<StreamableHttpPostResponse>> {
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

    fn events(&self, response: reqwest::Response) -> SseEvents {
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
    ) -> HttpResult<StreamableHttpPostResponse> {
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
    ) -> HttpResult<StreamableHttpPostResponse> {
        if !self.tap.has_seen()
            && is_handshake(&message)
            && let Some(answer) = self.post_handshake(&uri, &message, bearer.as_deref(), &headers).await?
        {
            return Ok(answer);
        }
        // A refused handshake is sent again this way: it had no effect, and rmcp knows how to read every refusal.
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
    ) -> HttpResult<()> {
        self.inner.delete_session(uri, session_id, bearer, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        bearer: Option<String>,
        headers: Headers,
    ) -> HttpResult<SseEvents> {
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
    ) -> HttpResult<SseEvents> {
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

async fn read_bounded(response: reqwest::Response) -> HttpResult<Vec<u8>> {
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
        .map_err(|error| Error::with_source(ClientErrorKind::Invalid, "set up the HTTP client", error))
}

/// Follows only redirects that keep the message (307, 308) and stay at the same origin, because no other server may get
/// the token, the cookies and the headers.
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
    let failed = |error| Error::with_source(ClientErrorKind::Invalid, "set up TLS", error);
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
