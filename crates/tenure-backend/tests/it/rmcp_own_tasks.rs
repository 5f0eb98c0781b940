//! rmcp handlers that keep their own tasks with rmcp's task manager. Tenure keeps none of them.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock,
    CreateTaskResult, GetTaskParams, GetTaskResult, InputRequest, ServerCapabilities, ServerConfig,
    UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tenure_backend::rmcp::{RmcpBackend, ToolTask};
use tenure_layers::data::{DataLayer, Policy};
use tenure_session::States;
use tenure_session::backend::Backend;
use tenure_session::call::Became;
use tenure_session::exchange::{ExchangeLimits, Exchanges};
use tenure_session::port::clock::SystemClock;
use tenure_session::port::store::{Space, Store};
use tenure_session::state::StateLimits;
use tenure_session::task::{TaskLimits, Tasks};
use tenure_store::memory::Memory;
use tenure_testkit::exchanges;
use tenure_testkit::fake_client::FakeClient;

/// One handler is made per request, so all of them share the task manager.
struct Clerk {
    tasks: TaskManager,
}

/// The work of the task: asks for a name, and signs with it.
async fn sign(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let form = json!({ "mode": "form", "message": "Who signs?", "requestedSchema": schema });
    let question = json!({ "method": "elicitation/create", "params": form });
    let question: InputRequest = serde_json::from_value(question).expect("a question");
    let answer = task.request_input("who", question).await?;
    let name = answer["content"]["name"].as_str().unwrap_or("nobody").to_owned();
    Ok(CallToolResult::success(vec![ContentBlock::text(format!("signed by {name}"))]))
}

impl ServerHandler for Clerk {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        assert_eq!(
            ToolTask::of(&context).begin(Duration::from_secs(60)).await?,
            Became::No,
            "it keeps its own"
        );
        let task = self.tasks.spawn(TaskOptions::default(), |task| Box::pin(sign(task)));
        Ok(CreateTaskResult::new(task).into())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

struct World {
    exchanges: Exchanges,
    store: Arc<dyn Store>,
    client: Arc<FakeClient>,
}

impl World {
    /// With or without data sessions in front.
    fn new(has_data_sessions: bool) -> Self {
        let tasks = TaskManager::new();
        let clerk: Arc<dyn Backend> = Arc::new(RmcpBackend::new(move || Clerk { tasks: tasks.clone() }));
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let backend = match has_data_sessions {
            true => {
                let states = States::start(Arc::clone(&store), Arc::new(SystemClock), StateLimits::default());
                Arc::new(DataLayer::new(clerk, states, Policy::default(), Vec::new()))
            }
            false => clerk,
        };
        let responder = backend.responder().expect("handlers of both eras");
        let ours = Tasks::start(Arc::clone(&store), Arc::new(SystemClock), TaskLimits::default());
        let exchanges = exchanges::start(responder, ExchangeLimits::default()).with_tasks(ours);
        let client = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
        Self { exchanges, store, client: FakeClient::new(client) }
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        exchanges::json_of(exchanges::send(&self.exchanges, &self.client, 1, method, params).await)
    }

    async fn until(&self, id: &str, status: &str) -> Value {
        let there = async {
            loop {
                let task = self.ask("tasks/get", json!({ "taskId": id })).await["result"].take();
                if task["status"] == status {
                    return task;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), there).await.expect("the task gets there in time")
    }

    /// Makes a call, which becomes a task at once.
    async fn task(&self) -> String {
        let created = self.ask("tools/call", json!({ "name": "sign" })).await["result"].take();
        assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")));
        created["taskId"].as_str().expect("an id").to_owned()
    }
}

async fn signs(world: &World) {
    let discovered = world.ask("server/discover", json!({})).await;
    let extensions = &discovered["result"]["capabilities"]["extensions"];
    assert!(extensions["io.modelcontextprotocol/tasks"].is_object(), "{discovered}");
    let id = world.task().await;
    let asking = world.until(&id, "input_required").await;
    assert_eq!(asking["inputRequests"]["who"]["params"]["message"], "Who signs?");
    let answer = json!({ "action": "accept", "content": { "name": "Ann" } });
    let update = json!({ "taskId": id, "inputResponses": { "who": answer } });
    assert_eq!(world.ask("tasks/update", update).await["result"]["resultType"], "complete");
    let done = world.until(&id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "signed by Ann");

    let unwanted = world.task().await;
    world.until(&unwanted, "input_required").await;
    let cancelled = world.ask("tasks/cancel", json!({ "taskId": unwanted })).await;
    assert_eq!(cancelled["result"]["resultType"], "complete");
    world.until(&unwanted, "cancelled").await;
    let unknown = world.ask("tasks/get", json!({ "taskId": "none" })).await;
    assert_eq!(
        (&unknown["error"]["code"], &unknown["error"]["message"]),
        (&json!(-32602), &json!("unknown task: none"))
    );
    assert_eq!(world.store.list(Space::Task, None, 10).await.expect("a store").len(), 0, "none is ours");
}

#[tokio::test]
async fn a_handler_with_a_task_manager_keeps_its_own_tasks() {
    signs(&World::new(false)).await;
}

#[tokio::test]
async fn data_sessions_in_front_leave_tasks_alone() {
    signs(&World::new(true)).await;
}

#[tokio::test]
async fn a_client_that_knows_no_tasks_is_refused_as_rmcp_does() {
    let world = World::new(false);
    let unable = FakeClient::new(json!({}));
    for (method, params) in
        [("tools/call", json!({ "name": "sign" })), ("tasks/get", json!({ "taskId": "none" }))]
    {
        let request = unable.call(1, method, params).request;
        let checked = tenure_protocol::modern::check(request, None, world.exchanges.eras()).expect("checked");
        let caller = tenure_session::call::Caller::anonymous("test");
        let code = match world.exchanges.request(checked, caller).await {
            tenure_session::exchange::ExchangeAnswer::Refused(error) => error.to_rpc().code(),
            answer => exchanges::json_of(answer)["error"]["code"].as_i64().expect("an error"),
        };
        assert_eq!(code, -32021, "{method}");
    }
}
