//! Tools written for rmcp whose calls become tasks, which Tenure keeps.

use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::model::{CallToolResult, ContentBlock, ElicitRequestParams, ProgressNotificationParam};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt, tool, tool_handler, tool_router};
use serde_json::{Value, json};
use tenure_backend::rmcp::{RmcpBackend, ToolTask};
use tenure_session::Limits;
use tenure_session::backend::Backend;
use tenure_session::call::{Became, CallContext, Caller};
use tenure_session::exchange::{ExchangeLimits, Exchanges};
use tenure_session::port::clock::SystemClock;
use tenure_session::port::store::Store;
use tenure_session::task::{TaskLimits, Tasks};
use tenure_store::memory::Memory;
use tenure_testkit::fake_client::FakeClient;
use tenure_testkit::{exchanges, runtime};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc};

const MINUTE: Duration = Duration::from_secs(60);

/// What the handlers of a test share.
struct Site {
    told: mpsc::Sender<String>,
    go: Notify,
    /// The handlers of calls, and the contexts that their peers hold.
    seen: Mutex<Vec<(Weak<()>, Weak<CallContext>)>>,
}

static TOOLS: LazyLock<ToolRouter<Digger>> = LazyLock::new(Digger::tool_router);

struct Digger {
    site: Arc<Site>,
    here: Arc<()>,
}

impl Digger {
    /// Records the working handlers, so that the test can see them end.
    fn begins(&self, context: &RequestContext<RoleServer>) {
        let ours = context.extensions.get::<Arc<CallContext>>().map(Arc::downgrade);
        self.site.seen.lock().push((Arc::downgrade(&self.here), ours.unwrap_or_default()));
    }

    fn tells(&self, what: &str) {
        self.site.told.try_send(what.to_owned()).expect("the test listens");
    }
}

#[tool_router]
impl Digger {
    #[tool(description = "Digs until it may stop")]
    async fn dig(&self, task: ToolTask, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        self.begins(&context);
        let became = task.begin(MINUTE).await?;
        let token = context.meta.get_progress_token().expect("a token");
        let progress = ProgressNotificationParam::new(token, 1.0);
        context.peer.notify_progress(progress).await.expect("even if no client gets it");
        self.tells("begun");
        self.site.go.notified().await;
        Ok(format!("{became:?}"))
    }

    #[tool(description = "Asks how deep")]
    async fn ask(&self, task: ToolTask, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        self.begins(&context);
        task.begin(MINUTE).await?;
        let (deep, wide) = tokio::join!(how(&context, "deep"), how(&context, "wide"));
        Ok(format!("{} deep, {} wide", deep?, wide?))
    }

    #[tool(description = "Asks how deep, and then takes its time")]
    async fn ask_first(
        &self,
        task: ToolTask,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        self.begins(&context);
        task.require()?;
        let deep = how(&context, "deep").await?;
        task.begin(MINUTE).await?;
        self.tells("begun");
        self.site.go.notified().await;
        let wide = how(&context, "wide").await?;
        Ok(format!("{deep} deep, {wide} wide"))
    }

    #[tool(description = "Finds nothing")]
    async fn find(&self, task: ToolTask) -> Result<CallToolResult, ErrorData> {
        task.begin(MINUTE).await?;
        Ok(CallToolResult::error(vec![ContentBlock::text("nothing")]))
    }

    #[tool(description = "Has a broken spade")]
    async fn fail(&self, task: ToolTask) -> Result<CallToolResult, ErrorData> {
        task.begin(MINUTE).await?;
        Err(ErrorData::internal_error("The spade is broken", Some(json!({ "spade": 1 }))))
    }

    #[tool(description = "Stops when it is told to")]
    async fn listen(&self, task: ToolTask, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        self.begins(&context);
        task.begin(MINUTE).await?;
        context.ct.cancelled().await;
        self.tells("cancelled");
        Ok("stopped".to_owned())
    }

    #[tool(description = "Never stops")]
    async fn go_on(&self, task: ToolTask, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        self.begins(&context);
        task.begin(MINUTE).await?;
        std::future::pending().await
    }

    #[tool(description = "Works as a task, or not at all")]
    async fn need(&self, task: ToolTask) -> Result<String, ErrorData> {
        task.require()?;
        Ok("dug".to_owned())
    }
}

#[tool_handler(router = TOOLS)]
impl ServerHandler for Digger {}

async fn how(context: &RequestContext<RoleServer>, what: &str) -> Result<i64, ErrorData> {
    let schema = json!({ "type": "object", "properties": { "feet": { "type": "integer" } } });
    let form = json!({
        "mode": "form", "message": format!("How {what}?"), "requestedSchema": schema,
        "_meta": { "dev.tenure/inputKey": what },
    });
    let form: ElicitRequestParams = serde_json::from_value(form).expect("a form");
    let answer = context.peer.create_elicitation(form).await;
    let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(answer.content.unwrap_or_default()["feet"].as_i64().unwrap_or_default())
}

/// A server, its one client, and what its handlers say.
struct World {
    exchanges: Exchanges,
    client: Arc<FakeClient>,
    site: Arc<Site>,
    told: mpsc::Receiver<String>,
}

fn site() -> (Arc<Site>, mpsc::Receiver<String>) {
    let (told, hears) = mpsc::channel(16);
    (Arc::new(Site { told, go: Notify::new(), seen: Mutex::default() }), hears)
}

fn digger(site: &Arc<Site>) -> Arc<dyn Backend> {
    let site = Arc::clone(site);
    Arc::new(RmcpBackend::new(move || Digger { site: Arc::clone(&site), here: Arc::default() }))
}

fn serve(backend: Arc<dyn Backend>, store: Arc<dyn Store>) -> Exchanges {
    let responder = backend.responder().expect("handlers of both eras");
    let tasks = Tasks::start(store, Arc::new(SystemClock), TaskLimits::default());
    exchanges::start(responder, ExchangeLimits::default()).with_tasks(tasks)
}

impl World {
    fn new() -> Self {
        Self::on(Arc::new(Memory::new()))
    }

    fn on(store: Arc<dyn Store>) -> Self {
        let (site, told) = site();
        let client = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
        Self { exchanges: serve(digger(&site), store), client: FakeClient::new(client), site, told }
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        exchanges::json_of(exchanges::send(&self.exchanges, &self.client, 1, method, params).await)
    }

    /// Calls a tool that becomes a task.
    async fn task(&self, tool: &str) -> String {
        let created = self.ask("tools/call", call(tool)).await;
        assert_eq!(created["result"]["resultType"], "task", "{created}");
        created["result"]["taskId"].as_str().expect("an id").to_owned()
    }

    /// Calls a tool that asks something first.
    async fn task_after_question(&self, tool: &str) -> String {
        let asked = self.ask("tools/call", call(tool)).await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        let mut again = call(tool);
        again["requestState"] = asked["result"]["requestState"].clone();
        again["inputResponses"]["deep"] = json!({ "action": "accept", "content": { "feet": 9 } });
        let created = self.ask("tools/call", again).await;
        assert_eq!(created["result"]["resultType"], "task", "{created}");
        created["result"]["taskId"].as_str().expect("an id").to_owned()
    }

    async fn get(&self, id: &str) -> Value {
        self.ask("tasks/get", json!({ "taskId": id })).await["result"].take()
    }

    async fn until(&self, id: &str, is: impl Fn(&Value) -> bool) -> Value {
        let there = async {
            loop {
                let task = self.get(id).await;
                if is(&task) {
                    return task;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), there).await.expect("the task gets there in time")
    }

    async fn until_status(&self, id: &str, status: &str) -> Value {
        self.until(id, |task| task["status"] == status).await
    }

    async fn answer(&self, id: &str, key: &str, feet: i64) {
        let answer = json!({ "action": "accept", "content": { "feet": feet } });
        let params = json!({ "taskId": id, "inputResponses": { key: answer } });
        assert_eq!(self.ask("tasks/update", params).await["result"]["resultType"], "complete");
    }

    async fn hear(&mut self, what: &str) {
        assert_eq!(self.told.recv().await.as_deref(), Some(what));
    }

    /// Whether a handler is still working.
    fn is_busy(&self) -> bool {
        let seen = self.site.seen.lock();
        assert!(!seen.is_empty(), "a handler has worked");
        seen.iter().any(|(handler, context)| handler.strong_count() + context.strong_count() > 0)
    }

    /// Waits until the handlers of calls, rmcp's loops and everything that they hold are dropped.
    async fn until_free(&self) {
        let free = async {
            while self.is_busy() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), free).await.expect("they are let go in time");
    }
}

fn call(tool: &str) -> Value {
    json!({ "name": tool, "_meta": { "progressToken": "p" } })
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("a text: {result}"))
}

#[tokio::test]
async fn a_tool_becomes_a_task_and_its_result_is_the_outcome() {
    let mut world = World::new();
    let discovered = world.ask("server/discover", json!({})).await;
    let extensions = &discovered["result"]["capabilities"]["extensions"];
    assert!(extensions["io.modelcontextprotocol/tasks"].is_object(), "{discovered}");
    // If its progress had been sent, the answer would be a stream.
    let id = world.task("dig").await;
    world.hear("begun").await;
    assert_eq!(world.get(&id).await["status"], "working");
    assert!(world.is_busy());
    world.site.go.notify_one();
    let task = world.until_status(&id, "completed").await;
    assert_eq!(text(&task["result"]), "Task");
    world.until_free().await;
}

#[tokio::test]
async fn a_tool_that_failed_has_completed_and_an_error_is_a_failure() {
    let world = World::new();
    let found = world.task("find").await;
    let task = world.until_status(&found, "completed").await;
    assert_eq!((&task["result"]["isError"], text(&task["result"])), (&json!(true), "nothing"));
    let failed = world.task("fail").await;
    let task = world.until_status(&failed, "failed").await;
    let error = json!({ "code": -32603, "message": "The spade is broken", "data": { "spade": 1 } });
    assert_eq!((&task["error"], task.get("result")), (&error, None));
}

#[tokio::test]
async fn a_question_of_a_task_waits_until_a_client_asks_for_it() {
    let world = World::new();
    let id = world.task("ask").await;
    let both = |task: &Value| task["inputRequests"].as_object().is_some_and(|asked| asked.len() == 2);
    let asked = world.until(&id, both).await;
    assert_eq!(asked["status"], "input_required");
    let question = &asked["inputRequests"]["deep"];
    assert_eq!(
        (&question["method"], &question["params"]["message"]),
        (&json!("elicitation/create"), &json!("How deep?"))
    );
    world.answer(&id, "deep", 9).await;
    let left = world.until(&id, |task| task["inputRequests"].get("deep").is_none()).await;
    assert!(left["inputRequests"]["wide"].is_object(), "{left}");
    world.answer(&id, "wide", 4).await;
    let task = world.until_status(&id, "completed").await;
    assert_eq!(text(&task["result"]), "9 deep, 4 wide");
    world.until_free().await;
}

#[tokio::test]
async fn a_tool_may_ask_first_and_become_a_task_then() {
    let mut world = World::new();
    let id = world.task_after_question("ask_first").await;
    world.hear("begun").await;
    world.site.go.notify_one();
    // The same handler goes on as a task.
    world.until_status(&id, "input_required").await;
    world.answer(&id, "wide", 4).await;
    let task = world.until_status(&id, "completed").await;
    assert_eq!(text(&task["result"]), "9 deep, 4 wide");
    assert_eq!(world.site.seen.lock().len(), 1);
    world.until_free().await;
}

#[tokio::test]
async fn a_cancellation_reaches_the_handler_and_lets_it_go() {
    let mut world = World::new();
    let id = world.task("listen").await;
    let acknowledged = world.ask("tasks/cancel", json!({ "taskId": id })).await;
    assert_eq!(acknowledged["result"]["resultType"], "complete");
    world.hear("cancelled").await;
    world.until_free().await;
    assert_eq!(world.get(&id).await["status"], "cancelled");
    // A handler that asks stops waiting for the answer, even if it asked before it became a task.
    for tool in ["ask", "ask_first"] {
        let asking = match tool {
            "ask" => world.task(tool).await,
            _ => world.task_after_question(tool).await,
        };
        world.site.go.notify_one();
        world.until_status(&asking, "input_required").await;
        world.ask("tasks/cancel", json!({ "taskId": asking })).await;
        world.until_free().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deaf_handler_is_let_go_when_its_task_is_cancelled_or_has_no_time_left() {
    let world = World::new();
    let cancelled = world.task("go_on").await;
    world.ask("tasks/cancel", json!({ "taskId": cancelled })).await;
    free_in_time(&world).await;
    assert_eq!(world.get(&cancelled).await["status"], "cancelled");
    let late = world.task("go_on").await;
    free_in_time(&world).await;
    let task = world.get(&late).await;
    assert_eq!((&task["status"], &task["error"]["data"]["reason"]), (&json!("failed"), &json!("timed_out")));
    // A handler that watches its token sees the timeout.
    let mut world = world;
    world.task("listen").await;
    world.hear("cancelled").await;
    free_in_time(&world).await;
}

/// The same as `until_free`, with paused time.
async fn free_in_time(world: &World) {
    for _ in 0..1000 {
        if !world.is_busy() {
            return;
        }
        tokio::time::advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
    panic!("they are let go in time");
}

#[tokio::test]
async fn a_shutdown_lets_handlers_go_and_their_tasks_were_interrupted() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let world = World::on(Arc::clone(&store));
    let ids = [world.task("go_on").await, world.task("listen").await, world.task("ask").await];
    assert_eq!(world.exchanges.shut_down(Duration::ZERO).await, 3);
    world.until_free().await;
    let next = World::on(store);
    for id in ids {
        let task = next.get(&id).await;
        assert_eq!(
            (&task["status"], &task["error"]["data"]["reason"]),
            (&json!("failed"), &json!("interrupted"))
        );
    }
}

#[tokio::test]
async fn a_client_that_knows_no_tasks_waits() {
    let world = World::new();
    let (site, exchanges) = (&world.site, &world.exchanges);
    let unable = FakeClient::new(json!({}));
    site.go.notify_one();
    let answer = exchanges::send(exchanges, &unable, 1, "tools/call", call("dig")).await;
    let messages = exchanges::messages(answer).await;
    let [progress, answer] = &messages[..] else { panic!("progress and an answer: {messages:?}") };
    assert_eq!(progress["method"], "notifications/progress");
    assert_eq!(text(&answer["result"]), "No");
    let refused =
        exchanges::json_of(exchanges::send(exchanges, &unable, 2, "tools/call", call("need")).await);
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let needed = &refused["error"]["data"]["requiredCapabilities"]["extensions"];
    assert!(needed["io.modelcontextprotocol/tasks"].is_object(), "{refused}");
    let answer = world.ask("tools/call", call("need")).await;
    assert_eq!(text(&answer["result"]), "dug");
}

#[tokio::test]
async fn in_a_session_a_tool_goes_on_as_it_was() {
    let (site, _told) = site();
    let sessions = runtime::start(Arc::new(Memory::new()), digger(&site), Limits::default());
    let session = runtime::session(&sessions, "2025-11-25").await;
    site.go.notify_one();
    let request = runtime::request(1, "tools/call", &call("dig"));
    let answer = session.request(request, Caller::anonymous("test")).await.expect("admitted");
    let events = runtime::events(&mut runtime::reader_of(answer)).await;
    assert_eq!(text(&events.last().expect("an answer")["result"]), "No");
    let request = runtime::request(2, "tools/call", &call("need"));
    let refused = session.request(request, Caller::anonymous("test")).await.expect("admitted");
    assert_eq!(runtime::json_of(refused)["error"]["code"], -32021);
}

#[tokio::test]
async fn where_rmcp_serves_alone_nothing_becomes_a_task() {
    let (site, _told) = site();
    let (here, there) = tokio::io::duplex(1 << 16);
    let handler = Digger { site: Arc::clone(&site), here: Arc::default() };
    let starts = handler.serve(tokio::io::split(there));
    let (lines, mut out) = tokio::io::split(here);
    let mut lines = BufReader::new(lines).lines();
    let client = async {
        let initialize = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" },
        });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize });
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        out.write_all(format!("{hello}\n{ready}\n").as_bytes()).await.expect("the server reads");
    };
    let (server, ()) = tokio::join!(starts, client);
    let _server = server.expect("it serves");
    lines.next_line().await.expect("a line");
    site.go.notify_one();
    let mut answers = Vec::new();
    for (id, tool) in [(1, "dig"), (2, "need")] {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call(tool) });
        out.write_all(format!("{request}\n").as_bytes()).await.expect("the server reads");
        while answers.len() < id {
            let line = lines.next_line().await.expect("a line").expect("an answer");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == id {
                answers.push(message);
            }
        }
    }
    assert_eq!(text(&answers[0]["result"]), format!("{:?}", Became::No));
    assert_eq!(answers[1]["error"]["code"], -32021);
}
