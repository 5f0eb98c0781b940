//! `/ws`: a session over a WebSocket. A frame is a message, in text or, with the same meaning, in binary.

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

use super::frames::{self, Writing};
use super::keeper::{Doorkeeper, Seat};
use super::sse::named;
use crate::duplex::{Input, Line, MAX_WAITING};
use crate::http::body::Body;
use crate::http::doors::connection::{Farewell, Parting, Talking};
use crate::http::endpoint::{Endpoint, Remote};
use crate::http::headers;
use crate::http::reject::reject;

/// The subprotocol that clients of MCP ask for.
const SUBPROTOCOL: &str = "mcp";

/// How much is read at a time; what a quiet socket costs.
const BUFFER_BYTES: usize = 8 << 10;

/// How long a client may take to say goodbye too.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The socket of a client.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

impl Doorkeeper {
    pub(super) async fn open_socket(
        &self,
        endpoint: &Endpoint,
        parts: Parts,
        remote: Option<&Remote>,
    ) -> Response<Body> {
        match self.try_open_socket(endpoint, parts, remote).await {
            Ok(response) => response,
            Err(error) => reject(&error, None),
        }
    }

    async fn try_open_socket(
        &self,
        endpoint: &Endpoint,
        parts: Parts,
        remote: Option<&Remote>,
    ) -> Result<Response<Body>, Error> {
        let accept = accept(&parts)?;
        self.check_open(endpoint)?;
        let rules = endpoint.rules();
        let mut caller = endpoint.bodiless(&parts, remote);
        caller.transport = "websocket";
        let claim = named(&parts)?;
        let talking =
            Talking::prepare(self, endpoint.sessions(), caller, rules.max_body_bytes, claim).await?;
        let subprotocol = asks_for(&parts.headers, SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
        let id = HeaderValue::from_str(&talking.id().expose());
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES)
            .max_message_size(Some(rules.max_body_bytes))
            .max_frame_size(Some(rules.max_body_bytes));
        let (keep_alive, seat) = (rules.keep_alive, parts.extensions.get::<Seat>().cloned());
        let upgrade = hyper::upgrade::on(Request::from_parts(parts, ()));
        self.spawn(async move {
            match upgrade.await {
                Ok(upgraded) => {
                    let io = TokioIo::new(upgraded);
                    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
                    talk(talking, socket, seat, keep_alive).await;
                }
                Err(error) => tracing::debug!(%error, "a connection did not become a socket"),
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

async fn talk(talking: Talking, socket: Socket, seat: Option<Seat>, keep_alive: Duration) {
    let (sink, stream) = socket.split();
    let (output, messages) = mpsc::channel(MAX_WAITING);
    let (heard, pongs) = mpsc::channel(1);
    let (farewell, fault) = (Farewell::default(), Arc::default());
    let input =
        Frames { stream, heard, goodbye: false, ended: false, fault: Arc::clone(&fault), _seat: seat };
    let writing =
        Writing { messages, pongs, cursor: talking.cursor(), farewell: farewell.clone(), fault, keep_alive };
    // Beside the talk, because it has to write while nobody waits for it.
    let (last, written) = oneshot::channel();
    let written = async { written.await.unwrap_or_default() };
    let writing = async move { drop(last.send(frames::write(sink, writing).await)) };
    tokio::join!(talking.run(input, output, farewell, written), writing);
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

/// Whether a header with a list of words has this one.
fn asks_for(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name);
    let mut words = values.iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    words.any(|said| said.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

/// What the client says.
struct Frames {
    stream: SplitStream<Socket>,
    /// Told of every ping that came back.
    heard: mpsc::Sender<u64>,
    goodbye: bool,
    ended: bool,
    /// Why the socket has to be closed, if the client broke the rules.
    fault: Arc<OnceLock<CloseCode>>,
    // Counts among the connections as long as the socket is open.
    _seat: Option<Seat>,
}

impl Input for Frames {
    async fn next(&mut self) -> io::Result<Option<Line>> {
        while !self.ended {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => return Ok(Some(Line::Whole(own(text.as_bytes())))),
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(Line::Whole(own(&bytes)))),
                Some(Ok(Message::Pong(number))) => {
                    if let Ok(number) = <[u8; 8]>::try_from(&number[..]) {
                        // If there is no room, a later one says the same and more.
                        let _ = self.heard.try_send(u64::from_be_bytes(number));
                    }
                }
                // Answered by the library with the next read or write.
                Some(Ok(Message::Ping(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(frame))) => {
                    // A browser whose page is left says that it goes away: it may come back.
                    self.goodbye =
                        frame.is_none_or(|frame| matches!(frame.code, CloseCode::Normal | CloseCode::Status));
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "a socket cannot be read");
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

impl Parting for Frames {
    fn said_goodbye(&self) -> bool {
        self.goodbye
    }

    /// Reads until the client has said goodbye too, so that it can read ours before the connection is gone.
    async fn finish(&mut self) {
        let rest = async { while let Ok(Some(_)) = self.next().await {} };
        drop(tokio::time::timeout(LAST_WORDS, rest).await);
    }
}

/// Copied, because what is in flight keeps its params, and a slice would keep the whole buffer.
fn own(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// How a socket is closed whose client broke the rules.
fn code(error: &tungstenite::Error) -> Option<CloseCode> {
    match error {
        tungstenite::Error::Capacity(_) => Some(CloseCode::Size),
        tungstenite::Error::Utf8(_) => Some(CloseCode::Invalid),
        tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => None,
        tungstenite::Error::Protocol(_) => Some(CloseCode::Protocol),
        _ => None,
    }
}
