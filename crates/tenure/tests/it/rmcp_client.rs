//! rmcp's own client, as people use it: it connects, calls, is asked, loses its connection, and goes on.

#![expect(deprecated, reason = "rmcp deprecates log messages, which every revision with sessions has")]

use std::net::SocketAddr;
use std::sync::Mutex;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams,
    ElicitResult, ElicitationAction, Implementation, LoggingMessageNotificationParam,
    ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::node::{Steered, announce, demo, demo_with, say};
use crate::support::proxy::Proxy;
use crate::support::wait::{until, within};

/// A client that notes what it hears and is called Ada.
struct Guest {
    heard: mpsc::Sender<String>,
    questions: Mutex<Vec<String>>,
}

impl Guest {
    fn new() -> (Self, mpsc::Receiver<String>) {
        let (heard, hears) = mpsc::channel(1024);
        (Self { heard, questions: Mutex::default() }, hears)
    }

    async fn note(&self, what: String) {
        self.heard.send(what).await.expect("the test listens");
    }
}

impl ClientHandler for Guest {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("guest", "1"))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.note(format!("progress {}", params.progress)).await;
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.note(params.data.as_str().unwrap_or_default().to_owned()).await;
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        self.questions.lock().expect("no holder panicked").push(message);
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "name": "Ada" })))
    }
}

type Client = RunningService<RoleClient, Guest>;

pub(crate) fn over_http(
    url: impl Into<std::sync::Arc<str>>,
) -> impl rmcp::transport::Transport<RoleClient> + 'static {
    // The command's own client turns TLS on in reqwest, which then wants to know whose cryptography to use.
    drop(rustls::crypto::ring::default_provider().install_default());
    StreamableHttpClientTransport::from_uri(url)
}

async fn connect(server: SocketAddr) -> (Client, mpsc::Receiver<String>) {
    let (guest, hears) = Guest::new();
    let transport = over_http(format!("http://{server}/mcp"));
    (within("connect", guest.serve(transport)).await.expect("a session"), hears)
}

async fn hear(hears: &mut mpsc::Receiver<String>) -> String {
    within("something to hear", hears.recv()).await.expect("the client lives")
}

async fn call(client: &Client, tool: &'static str, arguments: &Value) -> CallToolResult {
    let arguments = arguments.as_object().expect("an object").clone();
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    within(tool, client.call_tool(params)).await.expect("a result")
}

fn text(result: &CallToolResult) -> String {
    let result = serde_json::to_value(result).expect("JSON");
    result["content"][0]["text"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn it_connects_lists_and_calls() {
    let node = demo().await;
    let (client, _hears) = connect(node.address()).await;
    let info = client.peer_info().expect("a handshake");
    assert_eq!(info.protocol_version, ProtocolVersion::V_2025_11_25);
    let tools = within("tools", client.list_all_tools()).await.unwrap();
    assert_eq!((tools.len(), tools[0].name.as_ref()), (27, "public_echo"));
    assert_eq!(text(&call(&client, "public_echo", &json!({ "text": "hello" })).await), "hello");
    let made = call(&client, "create_workspace", &json!({})).await.structured_content.expect("a workspace");
    let work = json!({ "workspace_id": made["workspace_id"] });
    for counter in 1..=3 {
        let result = call(&client, "session_counter_inc", &work).await;
        assert_eq!(
            result.structured_content,
            Some(json!({ "counter": counter })),
            "one workspace for all calls"
        );
    }
    let resources = within("resources", client.list_all_resources()).await.unwrap();
    assert_eq!(resources.len(), 3);
    let prompts = within("prompts", client.list_all_prompts()).await.unwrap();
    assert_eq!(prompts[0].name, "summarize_notebook");
    assert_eq!(node.sessions().tallies().sessions, 1);
    within("it leaves", client.cancel()).await.unwrap();
    until("it has deleted its session", || node.sessions().tallies().sessions == 0).await;
}

#[tokio::test]
async fn rl1_it_goes_on_after_a_refusal_and_is_told_when_to_come_back() {
    let node = demo_with(&[("limits.tools", "public_echo = 1/h"), ("limits.max_wait", "0s")]).await;
    let (client, _hears) = connect(node.address()).await;
    let echo = json!({ "text": "hello" });
    assert_eq!(text(&call(&client, "public_echo", &echo).await), "hello");
    let params = CallToolRequestParams::new("public_echo").with_arguments(echo.as_object().unwrap().clone());
    let refused = within("a refusal", client.call_tool(params)).await.unwrap_err();
    let rmcp::ServiceError::McpError(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.code.0, -31029);
    assert!(error.data.expect("data")["retryAfterMs"].as_u64().is_some_and(|wait| wait > 3_000_000));
    call(&client, "create_workspace", &json!({})).await;
    assert_eq!(node.sessions().tallies().sessions, 1, "in the same session");
}

#[tokio::test]
async fn it_hears_of_progress_while_it_waits() {
    let node = demo().await;
    let (client, mut hears) = connect(node.address()).await;
    let result = call(&client, "long_task", &json!({ "seconds": 1 })).await;
    assert_eq!(text(&result), "worked for 1 s");
    assert_eq!(
        (hear(&mut hears).await, hear(&mut hears).await),
        ("progress 0".to_owned(), "progress 1".to_owned())
    );
}

#[tokio::test]
async fn it_answers_an_elicitation() {
    let node = demo().await;
    let (client, _hears) = connect(node.address()).await;
    assert_eq!(text(&call(&client, "ask_name", &json!({})).await), "Hello, Ada!");
    assert_eq!(*client.service().questions.lock().unwrap(), ["What is your name?"]);
}

#[tokio::test]
async fn a_client_that_tries_the_modern_revision_first_falls_back_where_it_is_not_served() {
    let node = demo_with(&[("eras", "legacy")]).await;
    let (guest, _hears) = Guest::new();
    let transport = over_http(node.url());
    let mode = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: None,
    };
    let client = within("connect", guest.serve_with_lifecycle(transport, mode)).await.expect("it falls back");
    assert_eq!(client.peer_info().unwrap().protocol_version, ProtocolVersion::V_2025_11_25);
    assert_eq!(text(&call(&client, "public_echo", &json!({ "text": "legacy" })).await), "legacy");
    assert_eq!(node.sessions().tallies().created, 1);
}

#[tokio::test]
async fn a_client_that_tries_the_modern_revision_first_needs_no_session() {
    let node = demo().await;
    let (guest, _hears) = Guest::new();
    let mode = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: None,
    };
    let client = within("connect", guest.serve_with_lifecycle(over_http(node.url()), mode)).await.unwrap();
    assert_eq!(client.peer_info().unwrap().protocol_version, ProtocolVersion::V_2026_07_28);
    assert_eq!(text(&call(&client, "public_echo", &json!({ "text": "modern" })).await), "modern");
    assert_eq!(text(&call(&client, "ask_name", &json!({})).await), "Hello, Ada!");
    assert_eq!(*client.service().questions.lock().unwrap(), ["What is your name?"]);
    assert_eq!(node.sessions().tallies().created, 0);
    assert_eq!(node.exchanges().tallies().parked, 0);
}

/// A client behind a proxy, in the middle of a call that has said `hello`.
async fn mid_call() -> (Steered, Proxy, mpsc::Receiver<String>, tokio::task::JoinHandle<CallToolResult>) {
    let steered = Steered::start().await;
    let proxy = Proxy::to(steered.address()).await;
    let (client, hears) = connect(proxy.address()).await;
    let calling = tokio::spawn(async move { call(&client, "work", &json!({})).await });
    (steered, proxy, hears, calling)
}

fn result_of(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

#[tokio::test]
async fn a_connection_cut_in_the_middle_of_a_call_does_not_cost_the_result() {
    let (mut steered, proxy, mut hears, calling) = mid_call().await;
    let call = steered.script.call().await;
    say(&call, "hello").await;
    assert_eq!(hear(&mut hears).await, "hello");
    proxy.cut();
    say(&call, "said while no client listened").await;
    assert_eq!(hear(&mut hears).await, "said while no client listened", "it resumes by itself");
    proxy.cut();
    assert!(!call.context.is_cancelled());
    call.answer(&result_of("worth the wait"));
    assert_eq!(text(&within("the result", calling).await.unwrap()), "worth the wait");
    assert!(proxy.accepted() > 4, "{} connections", proxy.accepted());
}

#[tokio::test]
async fn an_answer_that_came_while_the_connection_was_down_is_fetched() {
    let (mut steered, proxy, mut hears, calling) = mid_call().await;
    let call = steered.script.call().await;
    say(&call, "hello").await;
    assert_eq!(hear(&mut hears).await, "hello");
    // All in one breath, so that the client cannot have come back in between.
    proxy.cut();
    say(&call, "missed").await;
    call.answer(&result_of("fetched"));
    assert_eq!(hear(&mut hears).await, "missed");
    assert_eq!(text(&within("the result", calling).await.unwrap()), "fetched");
}

#[tokio::test]
async fn the_server_may_send_it_away_and_it_comes_back_for_the_result() {
    let mut steered = Steered::with(&[("streams.retry", "50ms")]).await;
    let (client, mut hears) = connect(steered.address()).await;
    let calling = tokio::spawn(async move { call(&client, "work", &json!({})).await });
    let call = steered.script.call().await;
    say(&call, "hello").await;
    call.context.close_connection();
    assert_eq!(hear(&mut hears).await, "hello");
    say(&call, "polled").await;
    assert_eq!(hear(&mut hears).await, "polled");
    call.answer(&result_of("done"));
    assert_eq!(text(&within("the result", calling).await.unwrap()), "done");
}

#[tokio::test]
async fn news_goes_on_after_the_listening_connection_was_cut() {
    let mut steered = Steered::start().await;
    let proxy = Proxy::to(steered.address()).await;
    let (_client, mut hears) = connect(proxy.address()).await;
    let link = steered.script.opened().await;
    for round in 0..3 {
        announce(&link, &format!("news {round}")).await;
        assert_eq!(hear(&mut hears).await, format!("news {round}"));
        proxy.cut();
    }
}

#[tokio::test]
async fn it_starts_a_new_session_when_its_own_is_gone() {
    let node = demo().await;
    let (client, _hears) = connect(node.address()).await;
    let made = call(&client, "create_workspace", &json!({})).await.structured_content.expect("a workspace");
    let work = json!({ "workspace_id": made["workspace_id"] });
    call(&client, "session_counter_inc", &work).await;
    let key = node.sessions().list()[0].key;
    assert!(node.sessions().revoke(&key).await.expect("the store works"));
    let result = call(&client, "session_counter_get", &work).await;
    assert_eq!(
        result.structured_content,
        Some(json!({ "counter": 1 })),
        "the workspace outlives the session"
    );
    assert_eq!(node.sessions().tallies().created, 2);
}
