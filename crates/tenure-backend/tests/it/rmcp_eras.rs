//! One rmcp handler for clients of both eras: what it asks, what it sees of them, and what becomes of it.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequestParams,
    InputRequiredResult, ProgressNotificationParam, ProtocolVersion, ServerCapabilities, ServerConfig,
    SubscriptionFilter,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tenure_backend::native::{Handler, Introduction, Native};
use tenure_backend::rmcp::RmcpBackend;
use tenure_protocol::{Method, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Responder};
use tenure_session::call::{CallContext, Caller, Fanout, News, NewsListener};
use tenure_session::exchange::{ExchangeAnswer, ExchangeLimits};
use tenure_session::{Limits, Route, Session};
use tenure_store::memory::Memory;
use tenure_testkit::fake_client::FakeClient;
use tenure_testkit::{exchanges, runtime};
use tokio::sync::{Notify, mpsc};

fn form() -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    json!({ "mode": "form", "message": "Who are you?", "requestedSchema": schema })
}

/// An `input_required` result that asks for a name.
fn wish() -> Value {
    let question = json!({ "method": "elicitation/create", "params": form() });
    json!({ "resultType": "input_required", "inputRequests": { "who": question }, "requestState": "step 1" })
}

struct Server {
    told: mpsc::Sender<&'static str>,
    go: Arc<Notify>,
}

#[expect(clippy::disallowed_methods, reason = "the test is about a task without an owner")]
fn leave(task: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(task));
}

impl Server {
    /// Sends every kind of message that a handler can send.
    async fn speak(context: &RequestContext<RoleServer>) {
        let (peer, token) = (&context.peer, context.meta.get_progress_token().unwrap());
        // With a timeout: rmcp never reads a message that is queued while its loop ends, and the sender would hang.
        let short = Duration::from_millis(100);
        let progress = peer.notify_progress(ProgressNotificationParam::new(token, 9.0));
        drop(tokio::time::timeout(short, progress).await);
        drop(tokio::time::timeout(short, peer.notify_tool_list_changed()).await);
        let form: ElicitRequestParams = serde_json::from_value(form()).unwrap();
        let answer = tokio::time::timeout(short, peer.create_elicitation(form)).await;
        assert!(!matches!(answer, Ok(Ok(_))), "the client cannot answer any more");
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
        ServerConfig::new(tools.build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (told, go) = (self.told.clone(), Arc::clone(&self.go));
        let text = match &*request.name {
            "asks" => {
                let form: ElicitRequestParams = serde_json::from_value(form()).unwrap();
                let answer = context.peer.create_elicitation(form).await;
                let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                format!("asked: {}", answer.content.unwrap()["name"].as_str().unwrap())
            }
            "wishes" => match (request.input_responses, request.request_state.as_deref()) {
                (Some(answers), Some("step 1")) => {
                    format!("wished: {}", json!(answers)["who"]["content"]["name"].as_str().unwrap())
                }
                _ => {
                    let wish: InputRequiredResult = serde_json::from_value(wish()).unwrap();
                    return Ok(wish.into());
                }
            },
            "who" => {
                let (version, client) = (context.protocol_version().unwrap(), context.client_info().unwrap());
                format!("{version} {}", client.name)
            }
            "hangs" => {
                let token = context.ct.clone();
                leave(async move {
                    token.cancelled().await;
                    told.try_send("cancelled").unwrap();
                });
                self.told.try_send("started").unwrap();
                std::future::pending().await
            }
            "leaves a task" => {
                leave(async move {
                    go.notified().await;
                    Self::speak(&context).await;
                    let ours = context.extensions.get::<Arc<CallContext>>().unwrap();
                    assert!(ours.ask(&Method::RootsList, None).await.is_err(), "the call is over");
                    told.try_send("spoke").unwrap();
                });
                "left".to_owned()
            }
            "leaves at once" => {
                leave(async move {
                    Self::speak(&context).await;
                    told.try_send("spoke").unwrap();
                });
                // So that it sends at the moment of the answer.
                tokio::task::yield_now().await;
                "left".to_owned()
            }
            "panics" => panic!("a panic for testing"),
            _ => return Err(ErrorData::invalid_params("no such tool", None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

struct Told {
    told: mpsc::Receiver<&'static str>,
    go: Arc<Notify>,
}

fn server() -> (Arc<dyn Backend>, Told) {
    let (sender, told) = mpsc::channel(16);
    let go = Arc::new(Notify::new());
    let for_handlers = Arc::clone(&go);
    let make = move || Server { told: sender.clone(), go: Arc::clone(&for_handlers) };
    (Arc::new(RmcpBackend::new(make)), Told { told, go })
}

fn client() -> Arc<FakeClient> {
    FakeClient::new(json!({ "elicitation": {}, "roots": {} }))
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "_meta": { "progressToken": "p" } })
}

fn text(message: &Value) -> &str {
    message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("a text: {message}"))
}

/// Calls a tool that wants to know a name, without a session.
async fn in_exchanges(backend: Arc<dyn Backend>, name: &str) -> String {
    let runtime = exchanges::start(backend.responder().unwrap(), ExchangeLimits::default());
    let client = client();
    let send = async |id, params| {
        exchanges::json_of(exchanges::send(&runtime, &client, id, "tools/call", params).await)
    };
    let asked = send(1, tool(name)).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let questions = asked["result"]["inputRequests"].as_object().unwrap();
    let (key, question) = questions.iter().next().unwrap();
    assert_eq!((questions.len(), &question["method"]), (1, &json!("elicitation/create")), "{asked}");
    assert_eq!(question["params"], form());
    let mut again = tool(name);
    again["requestState"] = asked["result"]["requestState"].clone();
    again["inputResponses"][key] = json!({ "action": "accept", "content": { "name": "Ann" } });
    let mut broken = again.clone();
    broken["requestState"] = "made up".into();
    let request = client.call(2, "tools/call", broken).request;
    let checked = tenure_protocol::modern::check(request, None, runtime.eras()).unwrap();
    let refused = runtime.request(checked, Caller::anonymous("test")).await;
    assert!(
        matches!(refused, ExchangeAnswer::Refused(error) if error.reason() == Reason::InvalidRequestState)
    );
    let answer = send(3, again).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(runtime.tallies().parked, 0);
    text(&answer).to_owned()
}

async fn ask_and_answer(session: &Arc<Session>, id: u64, name: &str) -> String {
    let request = runtime::request(id, "tools/call", &tool(name));
    let answer = session.request(request, Caller::anonymous("test")).await.unwrap();
    let mut reader = runtime::reader_of(answer);
    let (_, question) = runtime::event(&mut reader).await.unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(question["params"]["message"], form()["message"]);
    let result = json!({ "action": "accept", "content": { "name": "Ann" } });
    let response = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
    let body = serde_json::to_vec(&response).unwrap().into();
    let Ok(tenure_protocol::Message::Response(response)) = tenure_protocol::Message::parse(&body) else {
        panic!("a response");
    };
    session.response(response).unwrap();
    let (_, answer) = runtime::event(&mut reader).await.unwrap();
    assert_eq!(answer["result"].get("resultType"), None, "sessions know no types of results: {answer}");
    text(&answer).to_owned()
}

/// Calls a tool that wants to know a name, in a session.
async fn in_a_session(backend: Arc<dyn Backend>, name: &str) -> String {
    let sessions = runtime::start(Arc::new(Memory::new()), backend, Limits::default());
    let session = runtime::session(&sessions, "2025-11-25").await;
    ask_and_answer(&session, 1, name).await
}

#[tokio::test]
async fn a_peer_is_asked_in_either_era() {
    assert_eq!(in_exchanges(server().0, "asks").await, "asked: Ann");
    assert_eq!(in_a_session(server().0, "asks").await, "asked: Ann");
}

#[tokio::test]
async fn a_result_may_ask_for_input_in_either_era() {
    assert_eq!(in_exchanges(server().0, "wishes").await, "wished: Ann");
    assert_eq!(in_a_session(server().0, "wishes").await, "wished: Ann");
}

#[tokio::test]
async fn a_result_may_ask_for_input_while_another_call_is_in_flight() {
    let (backend, mut told) = server();
    let sessions = runtime::start(Arc::new(Memory::new()), backend, Limits::default());
    let session = runtime::session(&sessions, "2025-11-25").await;
    let hanging = runtime::send(&session, runtime::request(1, "tools/call", &tool("hangs")));
    assert_eq!(told.told.recv().await, Some("started"));
    assert_eq!(ask_and_answer(&session, 2, "wishes").await, "wished: Ann");
    hanging.abort();
}

struct NativeWishes;

impl Handler for NativeWishes {
    fn introduction(&self) -> Introduction {
        Introduction {
            name: "wishes",
            version: "1",
            capabilities: json!({ "tools": {} }),
            instructions: None,
        }
    }

    async fn call(self: Arc<Self>, call: Call) -> Reply {
        let params: Value = call.request.params.unwrap().read().unwrap();
        match (&params["inputResponses"]["who"]["content"]["name"], params["requestState"].as_str()) {
            (Value::String(name), Some("step 1")) => {
                let text = format!("wished: {name}");
                Ok(RawJson::of(&json!({ "content": [{ "type": "text", "text": text }] })))
            }
            (Value::Null, None) => Ok(RawJson::of(&wish())),
            _ => Err(RpcError::of(Reason::InvalidParams, format!("not {params}"))),
        }
    }
}

#[tokio::test]
async fn native_handlers_may_ask_by_result_too() {
    assert_eq!(in_exchanges(Arc::new(Native::new(|_| NativeWishes)), "wishes").await, "wished: Ann");
    assert_eq!(in_a_session(Arc::new(Native::new(|_| NativeWishes)), "wishes").await, "wished: Ann");
}

#[tokio::test]
async fn a_question_for_want_of_a_capability_names_it() {
    let runtime = exchanges::start(server().0.responder().unwrap(), ExchangeLimits::default());
    let unable = FakeClient::new(json!({}));
    for name in ["asks", "wishes"] {
        let answer = exchanges::send(&runtime, &unable, 1, "tools/call", tool(name)).await;
        let answer = exchanges::json_of(answer);
        assert_eq!(answer["error"]["code"], -32021, "{name}: {answer}");
        assert!(answer["error"]["data"]["requiredCapabilities"]["elicitation"].is_object(), "{answer}");
    }
}

#[tokio::test]
async fn a_handler_sees_the_version_and_the_client_of_the_request() {
    let runtime = exchanges::start(server().0.responder().unwrap(), ExchangeLimits::default());
    let answer = exchanges::send(&runtime, &client(), 1, "tools/call", tool("who")).await;
    assert_eq!(text(&exchanges::json_of(answer)), "2026-07-28 fake");
    let sessions = runtime::start(Arc::new(Memory::new()), server().0, Limits::default());
    let session = runtime::session(&sessions, "2025-06-18").await;
    let request = runtime::request(1, "tools/call", &tool("who"));
    let answer = session.request(request, Caller::anonymous("test")).await.unwrap();
    assert_eq!(text(&runtime::json_of(answer)), "2025-06-18 test");
}

fn begun(backend: Arc<dyn Backend>) -> (Arc<dyn Responder>, Arc<Heard>) {
    let (responder, fanout, heard) =
        (backend.responder().unwrap(), Fanout::new(Route::MAIN), Arc::new(Heard::default()));
    let listener = Arc::downgrade(&(Arc::clone(&heard) as Arc<dyn NewsListener>));
    fanout.add(listener);
    responder.begin(fanout);
    (responder, heard)
}

/// Records the news to all clients.
#[derive(Default)]
struct Heard(parking_lot::Mutex<Vec<News>>);

impl NewsListener for Heard {
    fn resource_updated(&self, _: &Route, _: &str) {}

    fn list_changed(&self, _: &Route, news: News) {
        self.0.lock().push(news);
    }
}

#[tokio::test]
async fn dropping_a_call_cancels_what_its_handler_set_going() {
    let (backend, mut told) = server();
    let (responder, _) = begun(backend);
    let mut call = responder.respond(client().call(1, "tools/call", tool("hangs")));
    tokio::select! {
        reply = &mut call => panic!("it hangs, and does not answer {reply:?}"),
        started = told.told.recv() => assert_eq!(started, Some("started")),
    }
    drop(call);
    let heard = tokio::time::timeout(Duration::from_secs(10), told.told.recv()).await;
    assert_eq!(heard.unwrap(), Some("cancelled"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_after_the_answer_are_dropped() {
    let (backend, mut told) = server();
    let (responder, heard) = begun(backend);
    // The behaviour of rmcp's loop at its end depends on scheduling, so try it often.
    for id in 0..1000 {
        let client = client();
        let name = if id % 2 == 0 { "leaves at once" } else { "leaves a task" };
        responder.respond(client.call(id, "tools/call", tool(name))).await.unwrap();
        // A message at the moment of the answer may still be in time.
        let news = heard.0.lock().len();
        if name == "leaves a task" {
            drop(client.heard());
            told.go.notify_one();
        }
        assert_eq!(told.told.recv().await, Some("spoke"));
        assert_eq!(heard.0.lock().len(), news);
        assert!(name == "leaves at once" || client.heard().is_empty());
    }
}

#[tokio::test]
async fn a_question_after_the_answer_is_refused() {
    let (backend, mut told) = server();
    let runtime = exchanges::start(backend.responder().unwrap(), ExchangeLimits::default());
    let answer = exchanges::send(&runtime, &client(), 1, "tools/call", tool("leaves a task")).await;
    assert_eq!(text(&exchanges::json_of(answer)), "left");
    told.go.notify_one();
    let spoke = tokio::time::timeout(Duration::from_secs(10), told.told.recv()).await;
    assert_eq!(spoke.expect("no question is left waiting"), Some("spoke"));
}

#[tokio::test]
async fn a_panic_harms_no_other_caller() {
    let runtime = exchanges::start(server().0.responder().unwrap(), ExchangeLimits::default());
    let answer = exchanges::send(&runtime, &client(), 1, "tools/call", tool("panics")).await;
    assert_eq!(exchanges::json_of(answer)["error"]["data"]["reason"], "internal");
    let answer = exchanges::send(&runtime, &client(), 2, "tools/call", tool("who")).await;
    assert_eq!(text(&exchanges::json_of(answer)), "2026-07-28 fake");
}

/// A handler with listens of its own, or of the legacy era alone.
struct Particular {
    versions: &'static [ProtocolVersion],
}

impl ServerHandler for Particular {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
        ServerConfig::new(tools.build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(self.versions)
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        context.sink().notify_tool_list_changed().await.unwrap();
        Ok(())
    }
}

#[tokio::test]
async fn a_handler_may_serve_listens_itself() {
    let versions = ProtocolVersion::KNOWN_VERSIONS;
    let (responder, heard) = begun(Arc::new(RmcpBackend::new(move || Particular { versions })));
    let client = client();
    let params = json!({ "notifications": { "toolsListChanged": true, "promptsListChanged": true } });
    let ended = responder.respond(client.call(7, "subscriptions/listen", params)).await.unwrap();
    let ended: Value = ended.read().unwrap();
    const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
    assert_eq!(ended["_meta"][SUBSCRIPTION], 7, "{ended}");
    let said = client.heard();
    assert_eq!(said[0].0, Method::Acknowledged);
    assert_eq!(said[0].1["notifications"], json!({ "toolsListChanged": true }));
    assert_eq!(said[1].0, Method::ToolsListChanged);
    assert!(said.iter().all(|(_, params)| params["_meta"][SUBSCRIPTION] == 7), "{said:?}");
    assert_eq!((said.len(), heard.0.lock().len()), (2, 0), "its news are its own");
}

#[tokio::test]
async fn handlers_of_the_legacy_era_alone_answer_no_exchanges() {
    const LEGACY: &[ProtocolVersion] = &[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25];
    let backend = Arc::new(RmcpBackend::new(|| Particular { versions: LEGACY }));
    assert!(backend.responder().is_none());
    let broken = Arc::new(RmcpBackend::new(|| -> Particular { panic!("a panic for testing") }));
    assert!(broken.responder().is_none());
}
