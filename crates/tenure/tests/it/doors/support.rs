//! Clients of the two doors that carry a whole session, as raw as possible.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response as Shake;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::support::client::{Ask, Response, connect};
use crate::support::events::{Events, SseEvent, gist};
use crate::support::session::{initialize_params, notification, request};
use crate::support::wait::within;

/// Every door open.
pub(crate) const ALL: &[(&str, &str)] = &[
    ("doors.sse", "true"),
    ("doors.rpc", "true"),
    ("doors.post_sse", "true"),
    ("doors.mcp_sse", "true"),
    ("doors.websocket", "true"),
];

/// Every door open, and these settings.
pub(crate) fn all_and(settings: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    ALL.iter().chain(settings).copied().collect()
}

/// A client of revision 2024-11-05: a stream, and where to post.
pub(crate) struct OldClient {
    pub(crate) server: SocketAddr,
    pub(crate) events: Events,
    pub(crate) post: String,
}

impl OldClient {
    /// Opens the stream and nothing more.
    pub(crate) async fn open(server: SocketAddr) -> Self {
        Self::over(get_sse(), server).await
    }

    /// Comes back as an `EventSource` does.
    pub(crate) async fn back(server: SocketAddr, last_event_id: &str) -> Self {
        Self::over(get_sse().header("Last-Event-ID", last_event_id), server).await
    }

    async fn over(ask: Ask, server: SocketAddr) -> Self {
        let mut events = ask.open(server).await;
        let SseEvent { event, data, .. } = events.event().await.expect("a first event");
        assert_eq!(event.as_deref(), Some("endpoint"));
        Self { server, events, post: data.expect("an address to post to") }
    }

    /// Opens a session.
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let mut client = Self::open(server).await;
        client.initialize("2024-11-05").await;
        client
    }

    pub(crate) async fn initialize(&mut self, revision: &str) {
        self.send(&request(0, "initialize", &initialize_params(revision))).await;
        let (_, answer) = self.events.message().await.expect("an answer");
        assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        self.send(&notification("notifications/initialized")).await;
    }

    pub(crate) fn ask(&self, body: &str) -> Ask {
        Ask::post_to(&self.post, body).without("Accept")
    }

    /// Posts a message, which must be taken.
    pub(crate) async fn send(&self, message: &Value) {
        let response = self.ask(&message.to_string()).send(self.server).await;
        assert_eq!((response.status(), response.body.len()), (202, 0), "{response:?}");
    }

    pub(crate) async fn call(&self, id: u64, tool: &str, arguments: &Value) {
        self.send(&tool_call(id, tool, arguments)).await;
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Value {
        self.events.message().await.expect("a message").1
    }

    pub(crate) async fn heard(&mut self) -> String {
        gist(&self.next().await)
    }
}

pub(crate) fn get_sse() -> Ask {
    Ask::new("GET", "/sse").header("Accept", "text/event-stream")
}

pub(crate) fn tool_call(id: u64, tool: &str, arguments: &Value) -> Value {
    let meta = json!({ "progressToken": format!("p{id}") });
    request(id, "tools/call", &json!({ "name": tool, "arguments": arguments, "_meta": meta }))
}

pub(crate) fn answer(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// A client with a WebSocket.
pub(crate) struct Socket {
    pub(crate) frames: WebSocketStream<TcpStream>,
    /// The name of the session, as the handshake tells it.
    pub(crate) id: String,
}

/// A handshake with these headers beside the usual ones.
pub(crate) async fn shake(
    server: SocketAddr,
    headers: &[(&'static str, &str)],
) -> Result<(WebSocketStream<TcpStream>, Shake), Error> {
    let mut request = format!("ws://{server}/ws").into_client_request().expect("a request");
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().expect("a header"));
    }
    let stream = connect(server).await;
    within("the handshake", tokio_tungstenite::client_async(request, stream)).await
}

impl Socket {
    /// Opens the socket and nothing more.
    pub(crate) async fn open(server: SocketAddr, headers: &[(&'static str, &str)]) -> Self {
        let (frames, response) = shake(server, headers).await.expect("a socket");
        let id = response.headers()["mcp-session-id"].to_str().expect("text").to_owned();
        Self { frames, id }
    }

    /// Opens a session.
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let mut socket = Self::open(server, &[("sec-websocket-protocol", "mcp")]).await;
        socket.send(&request(0, "initialize", &initialize_params("2025-11-25"))).await;
        assert_eq!(socket.heard().await, "result 0");
        socket.send(&notification("notifications/initialized")).await;
        socket
    }

    /// Comes back to a session.
    pub(crate) async fn back(server: SocketAddr, id: &str) -> Self {
        Self::open(server, &[("mcp-session-id", id)]).await
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_frame(Message::text(message.to_string())).await;
    }

    pub(crate) async fn send_frame(&mut self, frame: Message) {
        within("a frame is sent", self.frames.send(frame)).await.expect("sent");
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            match within("a frame", self.frames.next()).await.expect("the socket is open").expect("a frame") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("not a message: {other:?}"),
            }
        }
    }

    pub(crate) async fn heard(&mut self) -> String {
        gist(&self.next().await)
    }

    /// Passes over everything up to the end; how the server closed the socket, if it did.
    pub(crate) async fn closed(&mut self) -> Option<CloseFrame> {
        loop {
            match within("the end", self.frames.next()).await {
                Some(Ok(Message::Close(frame))) => {
                    // Says goodbye too.
                    while let Some(Ok(_)) = within("the end", self.frames.next()).await {}
                    return frame;
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// The code that the server closes the socket with.
    pub(crate) async fn close_code(&mut self) -> u16 {
        self.closed().await.expect("a goodbye").code.into()
    }
}

/// A response's status and the word for what went wrong.
pub(crate) fn refusal(response: &Response) -> (u16, String) {
    let (status, _, reason) = response.fault();
    (status, reason)
}
