//! A server that breaks off: requests that are safe to repeat are sent again.

use serde_json::{Value, json};
use tenure_protocol::{Reason, RpcError};
use tenure_testkit::runtime::json_of;

use crate::over_exchanges::support::{World, send};

fn broken() -> RpcError {
    RpcError::of(Reason::BackendUnavailable, "the stream broke")
}

#[tokio::test]
async fn what_only_reads_is_sent_once_more() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, 1, "resources/read", &json!({ "uri": "a:b" }));
    let first = world.server.expect("resources/read").await;
    let id = first.id().clone();
    first.fail(broken());
    let second = world.server.expect("resources/read").await;
    assert_ne!(*second.id(), id);
    assert_eq!(second.params()["uri"], "a:b");
    second.answer(&json!({ "contents": [] }));
    assert_eq!(json_of(waiting.await.unwrap())["result"], json!({ "contents": [] }));
    // And only once.
    let waiting = send(&session, 2, "resources/read", &json!({ "uri": "a:b" }));
    world.server.expect("resources/read").await.fail(broken());
    world.server.expect("resources/read").await.fail(broken());
    assert_eq!(json_of(waiting.await.unwrap())["error"]["code"], -31011);
}

#[tokio::test]
async fn a_tool_is_called_again_only_if_it_says_that_this_does_no_harm() {
    let tools = json!({ "tools": [
        { "name": "harmless", "inputSchema": {}, "annotations": { "idempotentHint": true } },
        { "name": "harmful", "inputSchema": {} },
    ] });
    for (name, again) in [("harmless", true), ("harmful", false)] {
        let mut world = World::new();
        let session = world.session().await;
        let waiting = send(&session, 1, "tools/call", &json!({ "name": name }));
        world.server.expect("tools/call").await.fail(broken());
        world.server.expect("tools/list").await.answer(&tools);
        if again {
            world.server.expect("tools/call").await.answer(&json!({ "content": [] }));
        }
        let answer: Value = json_of(waiting.await.unwrap());
        assert_eq!(answer["result"].is_object(), again, "{answer}");
        assert_eq!(answer["error"]["code"] == -31011, !again, "{answer}");
    }
}

#[tokio::test]
async fn what_the_server_did_not_take_is_sent_once_more_whatever_it_is() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "harmful" }));
    world.server.expect("tools/call").await.fail(RpcError::refused("not taken"));
    world.server.expect("tools/call").await.answer(&json!({ "content": [] }));
    assert!(json_of(waiting.await.unwrap())["result"].is_object());
}
