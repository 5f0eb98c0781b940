//! A client over a pipe, and the other end of the pipe.

use std::time::Duration;

use rmcp::{
    ServiceError,
    model::{CallToolRequestParams, CallToolResult},
};
use serde_json::{Value, json};
use tenure_client::{ConnectedClient, Jar, JarServer, SessionOptions, SessionTransport};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

pub(crate) const STRAWMAN: &str = "mcp/session";
pub(crate) const SEP: &str = "io.modelcontextprotocol/session";

pub(crate) fn strawman() -> Value {
    json!({"tools": {}, "experimental": {"session": {"version": 1, "features": ["create", "resume", "delete"]}}})
}

pub(crate) fn sep() -> Value {
    json!({"tools": {}, "sessions": {}})
}

pub(crate) fn options() -> SessionOptions {
    SessionOptions::new(Jar::in_memory())
}

pub(crate) fn server() -> JarServer {
    JarServer::url("test:server")
}

/// Connects to a server that the function plays.
pub(crate) async fn connect_with<F: AsyncFnOnce(&mut Wire)>(
    options: SessionOptions,
    play: F,
) -> (Result<ConnectedClient, tenure_client::Error>, Wire) {
    let (near, far) = tokio::io::duplex(256 * 1024);
    let (read, write) = tokio::io::split(near);
    let layer = SessionTransport::over_lines(read, write, server(), options);
    let mut wire = Wire::new(far);
    let (client, ()) = tokio::join!(ConnectedClient::start((), layer), play(&mut wire));
    (client, wire)
}

/// A modern server's answer to `server/discover`, with these capabilities.
pub(crate) fn discovered(capabilities: &Value) -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        "ttlMs": 0, "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "1"}}})
}

/// The server's end of the pipe.
pub(crate) struct Wire {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
}

/// Connects to a server with these capabilities.
pub(crate) async fn connect(capabilities: Value, options: SessionOptions) -> (ConnectedClient, Wire) {
    let (near, far) = tokio::io::duplex(256 * 1024);
    let (read, write) = tokio::io::split(near);
    let layer = SessionTransport::over_lines(read, write, server(), options);
    let mut wire = Wire::new(far);
    let (client, ()) = tokio::join!(ConnectedClient::start((), layer), wire.handshake(capabilities));
    (client.unwrap(), wire)
}

impl Wire {
    pub(crate) fn new(far: DuplexStream) -> Self {
        let (read, write) = tokio::io::split(far);
        Self { lines: BufReader::new(read).lines(), write }
    }

    pub(crate) async fn handshake(&mut self, capabilities: Value) {
        let probe = self.next_of("server/discover").await;
        self.error(&probe, -32601, "Method not found").await;
        self.initialize(capabilities).await;
    }

    /// Answers the handshake of a transport session.
    pub(crate) async fn initialize(&mut self, capabilities: Value) {
        let request = self.next_of("initialize").await;
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": {"name": "scripted", "version": "1"}});
        self.result(&request, result).await;
        self.next_of("notifications/initialized").await;
    }

    /// The next message of the client. The clock is paused, so a client that stays silent fails at once.
    pub(crate) async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(3600), self.lines.next_line()).await;
        let line = line.expect("the client stays silent").unwrap().expect("the client has hung up");
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) async fn next_of(&mut self, method: &str) -> Value {
        let message = self.next().await;
        assert_eq!(message["method"], method, "{message}");
        message
    }

    /// All messages that the client sends until it closes the connection.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(line) = self.lines.next_line().await.unwrap() {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        rest
    }

    pub(crate) async fn result(&mut self, request: &Value, result: Value) {
        self.write(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    pub(crate) async fn error(&mut self, request: &Value, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.write(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
    }

    pub(crate) async fn write(&mut self, message: Value) {
        self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Answers `session/create` or `sessions/create` with this cookie.
    pub(crate) async fn create(&mut self, cookie: Value) -> Value {
        let request = self.next().await;
        let result = match request["method"].as_str() {
            Some("session/create") => json!({"_meta": {STRAWMAN: cookie}}),
            Some("sessions/create") => json!({ "session": cookie }),
            _ => panic!("not a creation: {request}"),
        };
        self.result(&request, result).await;
        request
    }

    /// Answers a tool call, and returns it.
    pub(crate) async fn tool(&mut self, meta: Value) -> Value {
        let request = self.next_of("tools/call").await;
        self.result(&request, done(meta)).await;
        request
    }
}

/// A tool's result with this `_meta`.
pub(crate) fn done(meta: Value) -> Value {
    let mut result = json!({"content": [{"type": "text", "text": "done"}]});
    if !meta.is_null() {
        result["_meta"] = meta;
    }
    result
}

/// Calls a tool. A call that is never answered fails at once, since the clock is paused.
pub(crate) async fn call(client: &ConnectedClient) -> Result<CallToolResult, ServiceError> {
    let answer = client.call_tool(CallToolRequestParams::new("t"));
    tokio::time::timeout(Duration::from_secs(3600), answer).await.expect("the call hangs")
}

/// The cookie on a request.
pub(crate) fn cookie<'a>(request: &'a Value, key: &str) -> &'a Value {
    &request["params"]["_meta"][key]
}

/// Calls a tool that the server answers with this `_meta`, and returns the request that the server received.
pub(crate) async fn round(client: &ConnectedClient, wire: &mut Wire, meta: Value) -> Value {
    let (result, request) = tokio::join!(call(client), wire.tool(meta));
    result.unwrap();
    request
}

pub(crate) fn current(client: &ConnectedClient) -> Option<String> {
    client.sessions().current().map(|session| session.id.reveal().to_owned())
}

/// The state of a session in the jar: `used`, `kept`, the reason why it is invalid, or nothing.
pub(crate) fn in_jar(jar: &Jar, id: &str) -> Option<String> {
    let records = jar.read().unwrap().records();
    let kept =
        records.into_iter().flat_map(|record| record.cookies).find(|kept| kept.cookie.id().reveal() == id)?;
    Some(match kept.invalidated {
        Some((_, reason)) => reason.unwrap(),
        None if kept.last_used => "used".to_owned(),
        None => "kept".to_owned(),
    })
}

/// Lets all other tasks run until they are idle.
pub(crate) async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}
