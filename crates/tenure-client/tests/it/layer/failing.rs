//! Tests of transports that fail, hide capabilities, or are dropped early.

use std::io;

use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use serde_json::{Value, json};
use tenure_client::{ConnectedClient, Create, Dialect, Jar, SessionOptions, SessionTransport, Tap};
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};

use crate::layer::support::{
    STRAWMAN, Wire, call, connect, cookie, current, options, round, server, settle, strawman,
};

type Lines = AsyncRwTransport<RoleClient, ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

/// A transport of JSON lines on which requests of one method fail after the first few.
struct Failing {
    lines: Lines,
    method: &'static str,
    good: usize,
}

impl Transport<RoleClient> for Failing {
    type Error = io::Error;

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let mut fails = false;
        if let JsonRpcMessage::Request(request) = &item
            && request.request.method() == self.method
        {
            fails = self.good == 0;
            self.good = self.good.saturating_sub(1);
        }
        let sent = self.lines.send(item);
        async move { if fails { Err(io::Error::other("the wire is cut")) } else { sent.await } }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.lines.receive().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.lines.close().await
    }
}

/// Connects without a tap, like a transport that does not know taps.
async fn connect_failing(
    capabilities: Value,
    options: SessionOptions,
    method: &'static str,
    good: usize,
) -> (ConnectedClient, Wire) {
    let (near, far) = tokio::io::duplex(256 * 1024);
    let (read, write) = tokio::io::split(near);
    let transport = Failing { lines: AsyncRwTransport::new_client(read, write), method, good };
    let layer = SessionTransport::new(transport, Tap::default(), server(), options);
    let mut wire = Wire::new(far);
    let (client, ()) = tokio::join!(ConnectedClient::start((), layer), wire.handshake(capabilities));
    (client.unwrap(), wire)
}

#[tokio::test(start_paused = true)]
async fn without_a_tap_only_the_strawman_is_seen() {
    let both = json!({"experimental": {"session": {}}, "sessions": {}});
    let (client, _wire) = connect_failing(both, options(), "", 0).await;
    assert_eq!(client.sessions().dialect(), Some(Dialect::Strawman));
    let (client, _wire) = connect_failing(json!({"sessions": {}}), options(), "", 0).await;
    assert_eq!(client.sessions().dialect(), None);
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_cannot_be_sent_blocks_no_caller() {
    let (client, mut wire) = connect_failing(strawman(), options(), "session/create", 0).await;
    let request = round(&client, &mut wire, Value::Null).await;
    assert!(cookie(&request, STRAWMAN).is_null());
}

#[tokio::test(start_paused = true)]
async fn a_held_call_that_cannot_be_sent_fails_as_it_would_have_without_the_layer() {
    let (client, mut wire) = connect_failing(strawman(), options(), "tools/call", 0).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let creation = wire.next_of("session/create").await;
        settle().await;
        wire.result(&creation, json!({"id": "a"})).await;
    });
    let error = result.unwrap_err();
    assert!(matches!(error, rmcp::ServiceError::TransportSend(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_repetition_that_cannot_be_sent_leaves_the_refusal() {
    let options = SessionOptions { create: Create::WhenRequired, ..options() };
    let (client, mut wire) = connect_failing(strawman(), options, "tools/call", 1).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("tools/call").await;
        wire.error(&request, -32002, "Session required: the refusal").await;
        wire.create(json!({"id": "a"})).await;
    });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("the refusal"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_makes_texts_of_numbers_is_understood() {
    let (client, mut wire) = connect(strawman(), options()).await;
    wire.create(json!({"id": "a"})).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let mut request = wire.next_of("tools/call").await;
        request["id"] = json!(request["id"].to_string());
        wire.result(&request, crate::layer::support::done(json!({STRAWMAN: {"id": "b"}}))).await;
    });
    result.unwrap();
    assert_eq!(current(&client).as_deref(), Some("b"));
}

#[test]
fn what_could_wait_is_written_when_the_runtime_goes() {
    let jar = Jar::in_memory();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connected = runtime.block_on(async {
        let (client, mut wire) = connect(strawman(), SessionOptions::new(jar.clone())).await;
        wire.create(json!({"id": "a", "expiry": "2098-01-01T00:00:00Z"})).await;
        round(&client, &mut wire, json!({STRAWMAN: {"id": "a", "expiry": "2099-01-01T00:00:00Z"}})).await;
        (client, wire)
    });
    let stored = || jar.active(&server(), Dialect::Strawman).unwrap().unwrap().expiry().map(str::to_owned);
    assert_eq!(stored().as_deref(), Some("2098-01-01T00:00:00Z"), "it waits");
    drop(runtime);
    assert_eq!(stored().as_deref(), Some("2099-01-01T00:00:00Z"));
    drop(connected);
}
