//! rmcp's own server on our disk engine: the process is killed, and its clients go on with the next one.

use std::net::SocketAddr;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ProgressNotificationParam, ResourceUpdatedNotificationParam,
};
use rmcp::service::{NotificationContext, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Child;
use tokio::sync::mpsc;

use crate::support::events::Events;
use crate::support::example;
use crate::support::session::Session;
use crate::support::wait::within;

const EXAMPLE: &str = "rmcp_durable";

/// The example in a process of its own.
struct Durable {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Durable {
    /// Starts it on a free port, with a store of its own.
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let (child, address) = example::run(EXAMPLE, "127.0.0.1:0", folder.path()).await;
        Self { child, address, folder }
    }

    /// Kills the process and starts another one on the same port and store.
    async fn kill_and_start_again(&mut self) {
        // SIGKILL: nothing is said or written on the way out.
        within("it dies", self.child.kill()).await.expect("it was alive");
        let (child, address) = example::run(EXAMPLE, &self.address.to_string(), self.folder.path()).await;
        assert_eq!(address, self.address);
        self.child = child;
    }
}

/// The messages of a stream with their ids, until it ends.
async fn all(stream: &mut Events) -> Vec<(String, Value)> {
    let mut messages = Vec::new();
    while let Some(message) = stream.message().await {
        messages.push(message);
    }
    messages
}

/// A `tools/call` that asks for progress.
async fn call(session: &Session, id: u64, tool: &str, arguments: &Value) -> Vec<(String, Value)> {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
    let mut stream = session.request(id, "tools/call", &params).open(session.server).await;
    all(&mut stream).await
}

fn uris(messages: &[(String, Value)]) -> Vec<&str> {
    messages.iter().map(|(_, message)| message["params"]["uri"].as_str().expect("a uri")).collect()
}

#[tokio::test]
async fn a_session_survives_a_kill_and_ends_when_it_is_deleted() {
    let mut server = Durable::start().await;
    let session = Session::start(server.address).await;
    server.kill_and_start_again().await;
    let answer = call(&session, 1, "whoami", &json!({})).await;
    assert_eq!(answer.len(), 1);
    assert_eq!(answer[0].1["result"]["content"][0]["text"], "it", "it knows who introduced itself before");
    let unknown = Session {
        server: server.address,
        id: "no-session-of-this-server".to_owned(),
        path: "/mcp".to_owned(),
    };
    assert_eq!(unknown.tool(1, "whoami", &json!({})).await.status(), 404);
    server.kill_and_start_again().await;
    assert_eq!(session.delete().send(server.address).await.status(), 202);
    assert_eq!(session.tool(2, "whoami", &json!({})).await.status(), 404);
    server.kill_and_start_again().await;
    assert_eq!(session.tool(3, "whoami", &json!({})).await.status(), 404, "it stays dead");
}

#[tokio::test]
async fn the_stream_of_a_call_is_resumed_after_a_kill() {
    let mut server = Durable::start().await;
    let session = Session::start(server.address).await;
    let other = call(&session, 1, "count", &json!({ "to": 3 })).await;
    let said = call(&session, 2, "count", &json!({ "to": 600 })).await;
    assert_eq!((other.len(), said.len()), (4, 601), "progress and the result");
    assert_eq!(said[600].1["result"]["content"][0]["text"], "600");
    server.kill_and_start_again().await;
    for seen in [0, 299, 599, 600] {
        let mut stream = session.resume(&said[seen].0).await;
        assert_eq!(all(&mut stream).await, said[seen + 1..], "after event {seen}");
    }
    let mut stream = session.resume(&other[2].0).await;
    assert_eq!(all(&mut stream).await, other[3..], "of that stream only");
    let mut stream = session.resume("0").await;
    assert_eq!(all(&mut stream).await, [], "an id that was never given out");
}

#[tokio::test]
async fn the_session_s_own_stream_is_resumed_after_a_kill_and_goes_on() {
    let mut server = Durable::start().await;
    let session = Session::start(server.address).await;
    let mut listening = session.listen().await;
    call(&session, 1, "announce", &json!({ "uris": ["note://1", "note://2"] })).await;
    let first = listening.message().await.expect("an event");
    let second = listening.message().await.expect("an event");
    drop(listening);
    // These two have no reader; they are in the store all the same.
    call(&session, 2, "announce", &json!({ "uris": ["note://3", "note://4"] })).await;
    server.kill_and_start_again().await;
    let missed = all(&mut session.resume(&second.0).await).await;
    assert_eq!(uris(&missed), ["note://3", "note://4"]);
    // The same stream, now written by another process.
    call(&session, 3, "announce", &json!({ "uris": ["note://5"] })).await;
    let everything = all(&mut session.resume(&first.0).await).await;
    assert_eq!(uris(&everything), ["note://2", "note://3", "note://4", "note://5"]);
    assert_eq!((&everything[0], &everything[1..3]), (&second, &missed[..]), "with the ids they had");
}

#[tokio::test]
async fn a_call_that_a_kill_cut_off_is_answered_as_interrupted_when_it_is_resumed() {
    let mut server = Durable::start().await;
    let session = Session::start(server.address).await;
    let work = json!({ "name": "work", "arguments": { "seconds": 3600 }, "_meta": { "progressToken": 7 } });
    let mut stream = session.request(7, "tools/call", &work).open(server.address).await;
    let primed = stream.event().await.expect("a priming event").id.expect("with an id");
    let (began, _) = stream.message().await.expect("that it began");
    let finished = call(&session, 8, "count", &json!({ "to": 2 })).await;
    // As long as it runs, a client that resumes it is told to come back.
    assert_eq!(all(&mut session.resume(&began).await).await, []);
    server.kill_and_start_again().await;
    let answer = all(&mut session.resume(&began).await).await;
    assert_eq!(answer.len(), 1, "{answer:?}");
    let (id, message) = &answer[0];
    assert_eq!((&message["id"], &message["error"]["code"]), (&json!(7), &json!(-31010)), "{message}");
    assert_eq!(message["error"]["data"]["reason"], "interrupted");
    // Once: the same event for everyone who comes back, also after the next kill.
    assert_eq!(all(&mut session.resume(&began).await).await, answer);
    server.kill_and_start_again().await;
    assert_eq!(all(&mut session.resume(&began).await).await, answer);
    assert_eq!(all(&mut session.resume(id).await).await, []);
    let since_primed = all(&mut session.resume(&primed).await).await;
    assert_eq!((since_primed.len(), since_primed.last()), (2, answer.last()), "progress and the answer");
    // An answered request stays answered.
    assert_eq!(all(&mut session.resume(&finished[0].0).await).await, finished[1..]);
}

#[tokio::test]
async fn rmcp_s_client_is_told_that_its_call_was_cut_off() {
    let mut server = Durable::start().await;
    let config = StreamableHttpClientTransportConfig::with_uri(format!("http://{}/mcp", server.address))
        .reinit_on_expired_session(false);
    drop(rustls::crypto::ring::default_provider().install_default());
    let transport = StreamableHttpClientTransport::from_config(config);
    let (began, mut begins) = mpsc::channel(1);
    let client = within("connect", Worker(began).serve(transport)).await.expect("a session");
    let arguments = json!({ "seconds": 3600 }).as_object().expect("an object").clone();
    let params = CallToolRequestParams::new("work").with_arguments(arguments);
    let calling = tokio::spawn(async move { client.call_tool(params).await });
    within("that it began", begins.recv()).await.expect("the client lives");
    server.kill_and_start_again().await;
    // It comes back after the three seconds that rmcp tells it to wait.
    let error = within("the answer", calling).await.expect("no panic").expect_err("it was cut off");
    match error {
        ServiceError::McpError(error) => assert_eq!(error.code.0, -31010, "{error:?}"),
        other => panic!("{other:?}"),
    }
}

/// A client that notes that a call has begun.
struct Worker(mpsc::Sender<()>);

impl ClientHandler for Worker {
    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        // Told once; the test listens once.
        let _ = self.0.try_send(());
    }
}

/// A client that notes what it is told of.
struct Guest(mpsc::Sender<String>);

impl ClientHandler for Guest {
    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.0.send(params.uri).await.expect("the test listens");
    }
}

async fn tool(
    client: &RunningService<RoleClient, Guest>,
    name: &'static str,
    arguments: &Value,
) -> CallToolResult {
    let arguments = arguments.as_object().expect("an object").clone();
    let params = CallToolRequestParams::new(name).with_arguments(arguments);
    within(name, client.call_tool(params)).await.expect("a result")
}

#[tokio::test]
async fn rmcp_s_client_does_not_notice_a_kill() {
    let mut server = Durable::start().await;
    let (heard, mut hears) = mpsc::channel(16);
    // Told not to begin anew, it would fail if its session were gone.
    let config = StreamableHttpClientTransportConfig::with_uri(format!("http://{}/mcp", server.address))
        .reinit_on_expired_session(false);
    // The command's own client turns TLS on in reqwest, which then wants to know whose cryptography to use.
    drop(rustls::crypto::ring::default_provider().install_default());
    let transport = StreamableHttpClientTransport::from_config(config);
    let client = within("connect", Guest(heard).serve(transport)).await.expect("a session");
    let name = text(&tool(&client, "whoami", &json!({})).await);
    // It does not say when it begins to listen, and what came before is not for it: told until it hears.
    let mut told = Vec::new();
    let heard = loop {
        told.push(format!("note://{}", told.len()));
        tool(&client, "announce", &json!({ "uris": [told.last()] })).await;
        if let Ok(heard) = tokio::time::timeout(Duration::from_millis(200), hears.recv()).await {
            break heard.expect("the client lives");
        }
        assert!(told.len() < 50, "it hears nothing");
    };
    server.kill_and_start_again().await;
    assert_eq!(text(&tool(&client, "whoami", &json!({})).await), name);
    tool(&client, "announce", &json!({ "uris": ["note://new"] })).await;
    // It hears what was told since, from whichever process, each once; rmcp hands them out in any order.
    let since = told.iter().skip_while(|uri| **uri != heard).skip(1).map(String::as_str);
    let mut expected: Vec<&str> = since.chain(["note://new"]).collect();
    let mut rest = Vec::new();
    for _ in &expected {
        rest.push(within("an announcement", hears.recv()).await.expect("the client lives"));
    }
    expected.sort_unstable();
    rest.sort_unstable();
    assert_eq!(rest, expected);
}

fn text(result: &CallToolResult) -> String {
    let result = serde_json::to_value(result).expect("JSON");
    result["content"][0]["text"].as_str().expect("a text").to_owned()
}
