//! Tools written for rmcp that get the state they work on as an argument.

use std::sync::{Arc, LazyLock};

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::{ErrorData, ServerHandler, tool, tool_handler, tool_router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_backend::rmcp::{DataState, MaybeState, RmcpBackend};
use tenure_layers::data::{DataLayer, KindOfState, Policy};
use tenure_session::call::Caller;
use tenure_session::port::clock::SystemClock;
use tenure_session::port::store::Store;
use tenure_session::state::{StateKind, StateLimits};
use tenure_session::{Answer, Limits, Session, States};
use tenure_store::memory::Memory;
use tenure_testkit::runtime;

#[derive(Serialize, Deserialize, Default)]
struct Basket {
    apples: u32,
}

static TOOLS: LazyLock<ToolRouter<Shop>> = LazyLock::new(Shop::tool_router);

struct Shop;

#[tool_router]
impl Shop {
    #[tool(description = "Adds an apple")]
    async fn add(&self, basket: DataState<Basket>) -> Result<String, ErrorData> {
        let apples = basket.change(|basket| {
            basket.apples += 1;
            Ok(basket.apples)
        });
        Ok(apples.await?.to_string())
    }

    #[tool(description = "Adds an apple, unless somebody else did meanwhile")]
    async fn add_once(&self, basket: DataState<Basket>) -> Result<String, ErrorData> {
        let (mut mine, seen) = basket.get()?;
        mine.apples += 1;
        basket.update(seen, &mine).await?;
        // Using the same edition again is a conflict.
        let error = basket.update(seen, &mine).await.expect_err("it has changed");
        Ok(error.data.unwrap_or_default()["reason"].to_string())
    }

    #[tool(description = "Counts apples, if there is a basket")]
    async fn count(&self, basket: MaybeState<Basket>) -> Result<String, ErrorData> {
        match basket.0 {
            Some(basket) => Ok(basket.get()?.0.apples.to_string()),
            None => Ok("no basket".to_owned()),
        }
    }

    #[tool(description = "Throws the basket away")]
    async fn throw_away(&self, basket: DataState<Basket>) -> Result<String, ErrorData> {
        basket.delete().await.map(|()| "gone".to_owned())
    }
}

#[tool_handler(router = TOOLS)]
impl ServerHandler for Shop {}

async fn start() -> Arc<Session> {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let states = States::start(Arc::clone(&store), Arc::new(SystemClock), StateLimits::default());
    let basket = KindOfState::new(StateKind::new("basket").expect("a kind"), "a basket")
        .used_by(["add", "throw_away"]);
    let shop = Arc::new(RmcpBackend::new(|| Shop));
    let layer = DataLayer::new(shop, states, Policy::default(), vec![basket]);
    runtime::session(&runtime::start(store, Arc::new(layer), Limits::default()), "2025-11-25").await
}

async fn ask(session: &Arc<Session>, id: u64, method: &str, params: &Value) -> Value {
    let request = runtime::request(id, method, params);
    match session.request(request, Caller::anonymous("test")).await.expect("admitted") {
        Answer::Json(body) | Answer::TryLater { body, .. } => runtime::parse(&body),
        Answer::Stream(mut reader) => runtime::events(&mut reader).await.pop().expect("an answer"),
        Answer::Withdrawn => panic!("an answer"),
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_tool_gets_the_state_of_the_cookie_and_of_the_handle() {
    let session = start().await;
    let made = ask(&session, 1, "session/create", &json!({})).await;
    let cookie = json!({ "mcp/session": { "id": made["result"]["id"] } });
    let call = |tool: &str| json!({ "name": tool, "_meta": cookie });
    for apples in ["1", "2"] {
        assert_eq!(text(&ask(&session, 2, "tools/call", &call("add")).await), apples);
    }
    assert_eq!(text(&ask(&session, 3, "tools/call", &call("add_once")).await), r#""conflict""#);
    assert_eq!(text(&ask(&session, 4, "tools/call", &call("count")).await), "3");

    let made = ask(&session, 5, "tools/call", &json!({ "name": "create_basket" })).await;
    let handle = &made["result"]["structuredContent"]["basket_id"];
    let call = json!({ "name": "add", "arguments": { "basket_id": handle } });
    assert_eq!(text(&ask(&session, 6, "tools/call", &call).await), "1", "another basket");
    assert_eq!(text(&ask(&session, 7, "tools/call", &json!({ "name": "count" })).await), "no basket");
}

#[tokio::test]
async fn calls_side_by_side_lose_nothing() {
    let session = start().await;
    let made = ask(&session, 1, "session/create", &json!({})).await;
    let call = json!({ "name": "add", "_meta": { "mcp/session": { "id": made["result"]["id"] } } });
    let calls: Vec<_> =
        (10..74).map(|id| runtime::send(&session, runtime::request(id, "tools/call", &call))).collect();
    for sent in calls {
        sent.await.expect("answered");
    }
    let count = json!({ "name": "count", "_meta": call["_meta"] });
    assert_eq!(text(&ask(&session, 99, "tools/call", &count).await), "64");
}

#[tokio::test]
async fn a_tool_that_needs_a_state_is_not_called_without_and_can_end_it() {
    let session = start().await;
    let refused = ask(&session, 1, "tools/call", &json!({ "name": "add" })).await;
    assert!(text(&refused).starts_with("Session required."), "{refused}");
    let made = ask(&session, 2, "session/create", &json!({})).await;
    let cookie = json!({ "mcp/session": { "id": made["result"]["id"] } });
    let gone = ask(&session, 3, "tools/call", &json!({ "name": "throw_away", "_meta": cookie })).await;
    assert_eq!((text(&gone), &gone["result"]["_meta"]), ("gone", &json!({ "mcp/session": null })));
    let refused = ask(&session, 4, "tools/call", &json!({ "name": "add", "_meta": cookie })).await;
    assert_eq!(refused["error"]["data"]["reason"], "session_deleted");
}
