//! rmcp on both sides: its own client at handlers whose tools become tasks, which we keep, or which the handler keeps.

use std::sync::Arc;
use std::time::Duration;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities,
    ClientConfig, ContentBlock, CreateTaskResult, ElicitRequestParams, GetTaskParams, GetTaskResult,
    Implementation, InputRequest, ProtocolVersion, ServerCapabilities, ServerConfig, TaskPayload, TaskStatus,
    UpdateTaskParams,
};
use rmcp::service::{Peer, RequestContext, RunningService};
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use rmcp::{
    ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, RoleServer, ServerHandler, tool,
    tool_handler, tool_router,
};
use serde_json::{Value, json};
use tenure::Node;
use tenure_backend::rmcp::{RmcpBackend, ToolTask};
use tenure_session::backend::Backend;

use crate::rmcp_client::over_http;
use crate::support::node::config;
use crate::support::wait::within;

fn form() -> Value {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    json!({ "mode": "form", "message": "Who signs?", "requestedSchema": schema })
}

fn signed(content: &Value) -> String {
    format!("signed by {}", content["name"].as_str().unwrap_or("nobody"))
}

/// Its tasks are kept for it.
struct Desk {
    tools: ToolRouter<Self>,
}

#[tool_router]
impl Desk {
    #[tool(description = "Asks for a name, and signs with it")]
    async fn sign(&self, task: ToolTask, peer: Peer<RoleServer>) -> Result<String, ErrorData> {
        task.require()?;
        task.begin(Duration::from_secs(60)).await?;
        let form: ElicitRequestParams = serde_json::from_value(form()).expect("a form");
        let answer = peer.create_elicitation(form).await;
        let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(signed(&answer.content.unwrap_or_default()))
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Desk {}

/// It keeps its own, as rmcp has it.
struct Clerk {
    tasks: TaskManager,
}

async fn sign(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let question = json!({ "method": "elicitation/create", "params": form() });
    let question: InputRequest = serde_json::from_value(question).expect("a question");
    let answer = task.request_input("who", question).await?;
    Ok(CallToolResult::success(vec![ContentBlock::text(signed(&answer["content"]))]))
}

impl ServerHandler for Clerk {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
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

type Client = RunningService<RoleClient, ClientConfig>;

/// Calls the tool, which is a task at once.
async fn begin(client: &Client) -> String {
    let answer = within("a call", client.call_tool_once(CallToolRequestParams::new("sign"))).await;
    match answer.expect("an answer") {
        CallToolResponse::Task(created) => created.task.task_id,
        other => panic!("a task, not {other:?}"),
    }
}

async fn until(client: &Client, id: &str, status: TaskStatus) -> TaskPayload {
    let there = async {
        loop {
            let got = client.get_task(GetTaskParams::new(id)).await.expect("a task");
            if got.task.status() == status {
                return got.task.payload;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within("the status", there).await
}

async fn works(backend: Arc<dyn Backend>) {
    let node = Node::with_backend(&config(&[]), backend).await.expect("a node");
    let capabilities = ClientCapabilities::builder().enable_elicitation().enable_tasks().build();
    let client = ClientConfig::new(capabilities, Implementation::new("signer", "1"));
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let mode = ClientLifecycleMode::Auto { preferred_versions, legacy_version: None };
    let connected = client.serve_with_lifecycle(over_http(node.url()), mode);
    let client = within("connect", connected).await.expect("a server");
    let server = client.peer_info().expect("a discovery");
    assert!(server.capabilities.supports_tasks());

    let id = begin(&client).await;
    let TaskPayload::InputRequired { input_requests } = until(&client, &id, TaskStatus::InputRequired).await
    else {
        panic!("questions");
    };
    let [key] = &input_requests.keys().collect::<Vec<_>>()[..] else { panic!("one: {input_requests:?}") };
    let answer = json!({ "action": "accept", "content": { "name": "Ann" } });
    let answers = UpdateTaskParams::new(id.clone(), [((*key).clone(), answer)].into());
    within("an update", client.update_task(answers)).await.expect("acknowledged");
    let TaskPayload::Completed { result } = until(&client, &id, TaskStatus::Completed).await else {
        panic!("a result");
    };
    assert_eq!(result["content"][0]["text"], "signed by Ann");

    let unwanted = begin(&client).await;
    until(&client, &unwanted, TaskStatus::InputRequired).await;
    within("a cancellation", client.cancel_task(CancelTaskParams::new(&*unwanted)))
        .await
        .expect("acknowledged");
    until(&client, &unwanted, TaskStatus::Cancelled).await;
}

#[tokio::test]
async fn rmcps_client_follows_tasks_that_are_kept_for_a_handler() {
    works(Arc::new(RmcpBackend::new(|| Desk { tools: Desk::tool_router() }))).await;
}

#[tokio::test]
async fn rmcps_client_follows_tasks_that_a_handler_keeps_itself() {
    let tasks = TaskManager::new();
    works(Arc::new(RmcpBackend::new(move || Clerk { tasks: tasks.clone() }))).await;
}
