//! rmcp handlers at bad moments: timed out, withdrawn, with odd tokens, panicking before they exist.

#![expect(deprecated, reason = "roots belong to the revisions that sessions speak")]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ProgressNotificationParam,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tenure_backend::rmcp::RmcpBackend;
use tenure_protocol::{Method, Notification, RawJson};
use tenure_session::call::Caller;
use tenure_session::{Limits, Principal, Session, Sessions};
use tenure_store::memory::Memory;
use tenure_testkit::runtime;
use tokio::sync::mpsc;

struct Server {
    told: mpsc::Sender<&'static str>,
    go: Arc<tokio::sync::Notify>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match &*request.name {
            "hang" => {
                self.told.send("started").await.unwrap();
                context.ct.cancelled().await;
                self.told.send("cancelled").await.unwrap();
            }
            // Ignores its cancellation token, as most handlers do.
            "deaf" => {
                self.told.send("started").await.unwrap();
                self.go.notified().await;
                self.told
                    .send(if context.peer.list_roots().await.is_ok() { "answered" } else { "refused" })
                    .await
                    .unwrap();
            }
            _ => {
                let token = context.meta.get_progress_token().expect("a token");
                context.peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await.expect("sent");
            }
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("ok")]).into())
    }
}

fn start(limits: Limits) -> (Sessions, mpsc::Receiver<&'static str>, Arc<tokio::sync::Notify>) {
    let (told, hears) = mpsc::channel(16);
    let go = Arc::new(tokio::sync::Notify::new());
    let for_handler = Arc::clone(&go);
    let make = move || Server { told: told.clone(), go: Arc::clone(&for_handler) };
    (runtime::start(Arc::new(Memory::new()), Arc::new(RmcpBackend::new(make)), limits), hears, go)
}

fn call(session: &Arc<Session>, id: u64, tool: &str) {
    drop(runtime::send(session, runtime::request(id, "tools/call", &json!({ "name": tool }))));
}

fn cancel(session: &Arc<Session>, id: u64) {
    let params = Some(RawJson::of(&json!({ "requestId": id })));
    session.notification(Notification { method: Method::Cancelled, params }).unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_call_that_times_out_is_told() {
    let (sessions, mut told, _) =
        start(Limits { request_timeout: Duration::from_secs(3), ..Limits::default() });
    let session = runtime::session(&sessions, "2025-11-25").await;
    for id in 1..=3 {
        call(&session, id, "hang");
        assert_eq!(told.recv().await, Some("started"));
    }
    // The first was called in place and is dropped; the two in rmcp's loop see the cancellation.
    for _ in 0..2 {
        assert_eq!(told.recv().await, Some("cancelled"));
    }
    assert!(session.info().calls.is_empty());
}

#[tokio::test]
async fn a_question_of_a_withdrawn_call_is_not_sent() {
    let (sessions, mut told, go) = start(Limits::default());
    let session = runtime::session(&sessions, "2025-11-25").await;
    call(&session, 1, "hang");
    assert_eq!(told.recv().await, Some("started"));
    call(&session, 2, "deaf");
    assert_eq!(told.recv().await, Some("started"));
    cancel(&session, 2);
    cancel(&session, 1);
    assert_eq!(told.recv().await, Some("cancelled"));
    call(&session, 3, "hang");
    assert_eq!(told.recv().await, Some("started"));
    go.notify_one();
    assert_eq!(told.recv().await, Some("refused"));
    assert_eq!(session.info().events, 0, "no stream got a message");
}

#[tokio::test]
async fn a_progress_token_may_be_written_with_escapes() {
    let (sessions, _told, _) = start(Limits::default());
    let session = runtime::session(&sessions, "2025-11-25").await;
    let mut request = runtime::request(1, "tools/call", &json!({}));
    request.params = Some(RawJson::trusted(r#"{"name":"report","_meta":{"progressToken":"job\/1"}}"#));
    let answer = session.request(request, Caller::anonymous("test")).await.unwrap();
    let all = runtime::events(&mut runtime::reader_of(answer)).await;
    assert_eq!(all[0]["params"]["progressToken"], "job/1");
    assert_eq!(all.len(), 2);
}

#[tokio::test]
async fn a_panic_while_a_handler_is_made_is_an_error() {
    let make = || -> Server { panic!("a panic for testing") };
    let sessions =
        runtime::start(Arc::new(Memory::new()), Arc::new(RmcpBackend::new(make)), Limits::default());
    let request = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
    let created = sessions.create(request, &Principal::ANONYMOUS).await.unwrap();
    assert_eq!(runtime::parse(&created.answer)["error"]["data"]["reason"], "internal");
    assert_eq!(sessions.tallies().sessions, 0);
}
