//! Tools written for rmcp that get the session they are called in as an argument.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::{ErrorData, ServerHandler, tool, tool_handler, tool_router};
use serde_json::{Value, json};
use tenure_backend::rmcp::{MaybeSession, RmcpBackend, ToolSession};
use tenure_session::backend::Backend;
use tenure_session::call::Caller;
use tenure_session::exchange::ExchangeLimits;
use tenure_session::settings::IdleTtl;
use tenure_session::{Answer, Limits, Session};
use tenure_store::memory::Memory;
use tenure_testkit::fake_client::FakeClient;
use tenure_testkit::{exchanges, runtime};

const HOUR: Duration = Duration::from_secs(60 * 60);

static TOOLS: LazyLock<ToolRouter<Desk>> = LazyLock::new(Desk::tool_router);

struct Desk;

#[tool_router]
impl Desk {
    #[tool(description = "Counts its calls in this session")]
    async fn count(&self, session: ToolSession) -> Result<String, ErrorData> {
        let count = session.change_metadata(|metadata| {
            let count = metadata.get("count").and_then(Value::as_u64).unwrap_or(0) + 1;
            metadata.insert("count".to_owned(), count.into());
            Ok(count)
        });
        Ok(count.await?.to_string())
    }

    #[tool(description = "Keeps the session for two hours, and says what there was before")]
    async fn keep(&self, session: ToolSession) -> Result<String, ErrorData> {
        let before = session.idle_ttl();
        session.set_ttl(IdleTtl::After(2 * HOUR)).await?;
        Ok(format!("{before:?} then {:?}", session.idle_ttl()))
    }

    #[tool(description = "Puts too much into it, and then something that is out of date")]
    async fn fail(&self, session: ToolSession) -> Result<String, ErrorData> {
        let (before, seen) = session.metadata();
        let much = session.change_metadata(|metadata| {
            metadata.insert("much".to_owned(), "x".repeat(100_000).into());
            Ok(())
        });
        let much = much.await.expect_err("too large").data.unwrap_or_default();
        session.set_metadata(seen, before.clone()).await?;
        let late = session.set_metadata(seen, before).await.expect_err("out of date");
        Ok(format!("{} {}", much["reason"], late.data.unwrap_or_default()["reason"]))
    }

    #[tool(description = "Says whether there is a session")]
    async fn look(&self, session: MaybeSession) -> String {
        session.0.map_or("none".to_owned(), |session| format!("{:?}", session.metadata().0.get("count")))
    }
}

#[tool_handler(router = TOOLS)]
impl ServerHandler for Desk {}

async fn call(session: &Arc<Session>, id: u64, tool: &str) -> Value {
    let request = runtime::request(id, "tools/call", &json!({ "name": tool }));
    match session.request(request, Caller::anonymous("test")).await.expect("admitted") {
        Answer::Json(body) | Answer::TryLater { body, .. } => runtime::parse(&body),
        Answer::Stream(mut reader) => runtime::events(&mut reader).await.pop().expect("an answer"),
        Answer::Withdrawn => panic!("an answer"),
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("a text in {answer}"))
}

// A3.05, A6.09: arbitrary metadata, read and changed; A3.04: a time of its own.
#[tokio::test]
async fn a6_09_a_tool_reads_and_changes_the_metadata_and_the_time_of_its_session() {
    let backend = Arc::new(RmcpBackend::new(|| Desk));
    let sessions = runtime::start(Arc::new(Memory::new()), backend, Limits::default());
    let session = runtime::session(&sessions, "2025-11-25").await;
    assert_eq!(text(&call(&session, 1, "look").await), "None");
    for count in ["1", "2"] {
        assert_eq!(text(&call(&session, 2, "count").await), count);
    }
    assert_eq!(text(&call(&session, 3, "keep").await), "Some(1800s) then Some(7200s)");
    assert_eq!(text(&call(&session, 4, "fail").await), r#""metadata_too_large" "conflict""#);
    let settings = session.info().settings;
    assert_eq!(settings.metadata, json!({ "count": 2 }).as_object().expect("an object").clone());
    assert_eq!(settings.ttl, IdleTtl::After(2 * HOUR));
    // Another session does not see it.
    let other = runtime::session(&sessions, "2025-11-25").await;
    assert_eq!(text(&call(&other, 1, "look").await), "None");
    // Concurrent changes are not lost.
    let request = |id| runtime::request(id, "tools/call", &json!({ "name": "count" }));
    let calls: Vec<_> = (10..42).map(|id| runtime::send(&other, request(id))).collect();
    for sent in calls {
        sent.await.expect("answered");
    }
    assert_eq!(other.metadata().0["count"], 32);
}

#[tokio::test]
async fn a_call_without_a_session_has_none_to_change() {
    let backend: Arc<dyn Backend> = Arc::new(RmcpBackend::new(|| Desk));
    let exchanges =
        exchanges::start(backend.responder().expect("handlers of both eras"), ExchangeLimits::default());
    let client = FakeClient::new(json!({}));
    let call = async |tool: &str| {
        let params = json!({ "name": tool, "arguments": {} });
        exchanges::json_of(exchanges::send(&exchanges, &client, 1, "tools/call", params).await)
    };
    assert_eq!(text(&call("look").await), "none");
    let refused = call("count").await;
    assert_eq!(refused["error"]["data"]["reason"], "session_required", "{refused}");
}
