//! `/ws`: a session over a WebSocket. Each frame is one message, as text or as binary, with the same meaning.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::SplitStream;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tenure_protocol::{Error, Reason};
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

use super::frames::{self, FrameWriterParts};
use super::keeper::{Doorkeeper, SharedPermit};
use super::sse::named;
use crate::duplex::{Input, InputMessage, MAX_WAITING};
use crate::http::access::Sender;
use crate::http::body::Body;
use crate::http::doors::connection::{ClosableInput, DoorConnection, EndSignal};
use crate::http::endpoint::Endpoint;
use crate::http::headers;
use crate::http::reject::reject;

/// The subprotocol that MCP clients ask for.
const SUBPROTOCOL: &str = "mcp";

/// How many bytes are read at a time. A quiet socket takes this much memory.
const BUFFER_BYTES: usize = 8 << 10;

/// How long a client may take to send its close frame.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The socket of a client.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

impl Doorkeeper {
    pub(super) async fn open_socket(
        &self,
        endpoint: &Endpoint,
        parts: Parts,
        sender: &Sender<'_>,
    ) -> Response<Body> {
        match self.try_open_socket(endpoint, parts, sender).await {
            Ok(response) => response,
            Err(error) => reject(&error, None),
        }
    }

    async fn try_open_socket(
        &self,
        endpoint: &Endpoint,
        parts: Parts,
        sender: &Sender<'_>,
    ) -> Result<Response<Body>, Error> {
        let accept = accept(&parts)?;
        self.check_open(endpoint)?;
        let rules = endpoint.rules();
        let mut caller = endpoint.bodiless(&parts, sender);
        caller.transport = "websocket";
        let claim = named(&parts)?;
        let connection = DoorConnection::prepare(self, endpoint, (caller, sender), claim).await?;
        let subprotocol = asks_for(&parts.headers, SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
        let id = HeaderValue::from_str(&connection.id().expose());
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES)
            .max_message_size(Some(rules.max_body_bytes))
            .max_frame_size(Some(rules.max_body_bytes));
        let (keep_alive, permit) = (rules.keep_alive, parts.extensions.get::<SharedPermit>().cloned());
        let upgrade = hyper::upgrade::on(Request::from_parts(parts, ()));
        self.spawn(async move {
            match upgrade.await {
                Ok(upgraded) => {
                    let io = TokioIo::new(upgraded);
                    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
                    serve(connection, socket, permit, keep_alive).await;
                }
                Err(error) => tracing::debug!(%error, "a connection could not be upgraded to a WebSocket"),
            }
        });
        let mut response = Response::new(Body::EMPTY);
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        if subprotocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
        }
        if let Ok(id) = id {
            headers.insert(headers::SESSION_ID, id);
        }
        Ok(response)
    }
}

async fn serve(
    connection: DoorConnection,
    socket: Socket,
    permit: Option<SharedPermit>,
    keep_alive: Duration,
) {
    let (sink, stream) = socket.split();
    let (output, messages) = mpsc::channel(MAX_WAITING);
    let (pong_sender, pongs) = mpsc::channel(1);
    let (end_signal, fault) = (EndSignal::default(), Arc::default());
    let input = Frames {
        stream,
        pongs: pong_sender,
        closed: false,
        ended: false,
        fault: Arc::clone(&fault),
        _permit: permit,
    };
    let parts = FrameWriterParts {
        messages,
        pongs,
        cursor: connection.cursor(),
        end_signal: end_signal.clone(),
        fault,
        keep_alive,
    };
    // Runs beside the connection, because it has to write while the connection does other work.
    let (last, written) = oneshot::channel();
    let written = async { written.await.unwrap_or_default() };
    let writing = async move { drop(last.send(frames::write(sink, parts).await)) };
    tokio::join!(connection.run(input, output, end_signal, written), writing);
}

/// Checks the handshake; returns the answer to the client's key.
fn accept(parts: &Parts) -> Result<HeaderValue, Error> {
    let headers = &parts.headers;
    let refused = |what: &'static str| Error::new(Reason::UpgradeRequired, what);
    let asks = asks_for(headers, CONNECTION, "upgrade") && asks_for(headers, UPGRADE, "websocket");
    if !asks || parts.version != http::Version::HTTP_11 {
        return Err(refused("Open a WebSocket here, over HTTP/1.1"));
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(refused("Sec-WebSocket-Version must be 13"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    // 16 bytes in base64.
    if key.len() != 24 || !key.ends_with(b"==") {
        return Err(Error::new(Reason::InvalidRequest, "Sec-WebSocket-Key is missing or malformed"));
    }
    HeaderValue::from_str(&derive_accept_key(key))
        .map_err(|error| Error::new(Reason::Internal, "The handshake failed").caused_by(error))
}

/// Whether a header that lists words contains this word.
fn asks_for(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name);
    let mut words = values.iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    words.any(|found| found.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

/// The frames of the client.
struct Frames {
    stream: SplitStream<Socket>,
    /// Gets the number of every pong.
    pongs: mpsc::Sender<u64>,
    /// The client sent a normal close frame.
    closed: bool,
    ended: bool,
    /// The close code, if the client broke the protocol.
    fault: Arc<OnceLock<CloseCode>>,
    // Counts as a connection as long as the socket is open.
    _permit: Option<SharedPermit>,
}

impl Input for Frames {
    async fn next(&mut self) -> io::Result<Option<InputMessage>> {
        while !self.ended {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => return Ok(Some(InputMessage::Whole(own(text.as_bytes())))),
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(InputMessage::Whole(own(&bytes)))),
                Some(Ok(Message::Pong(number))) => {
                    if let Ok(number) = <[u8; 8]>::try_from(&number[..]) {
                        // If the queue is full, a later pong confirms more.
                        let _ = self.pongs.try_send(u64::from_be_bytes(number));
                    }
                }
                // The library answers a ping with the next read or write.
                Some(Ok(Message::Ping(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(frame))) => {
                    // A browser that leaves the page sends "going away"; its client may come back.
                    self.closed =
                        frame.is_none_or(|frame| matches!(frame.code, CloseCode::Normal | CloseCode::Status));
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "a WebSocket cannot be read");
                    if let Some(code) = code(&error) {
                        let _ = self.fault.set(code);
                    }
                    self.ended = true;
                }
                None => self.ended = true,
            }
        }
        Ok(None)
    }
}

impl ClosableInput for Frames {
    fn was_closed(&self) -> bool {
        self.closed
    }

    /// Reads until the client has sent its close frame, so that it can read the server's before the connection closes.
    async fn finish(&mut self) {
        let rest = async { while let Ok(Some(_)) = self.next().await {} };
        drop(tokio::time::timeout(LAST_WORDS, rest).await);
    }
}

/// Copied, because a request in flight keeps its params, and a slice would keep the whole buffer.
fn own(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// The close code for a client that broke the protocol.
fn code(error: &tungstenite::Error) -> Option<CloseCode> {
    match error {
        tungstenite::Error::Capacity(_) => Some(CloseCode::Size),
        tungstenite::Error::Utf8(_) => Some(CloseCode::Invalid),
        tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => None,
        tungstenite::Error::Protocol(_) => Some(CloseCode::Protocol),
        _ => None,
    }
}
