//! Arrays of messages: revision 2025-03-26 has them, the others do not.

use serde_json::{Value, json};

use crate::support::client::Ask;
use crate::support::node::{Steered, demo, say};
use crate::support::session::{Session, initialize_params, notification, request};

const BATCHES: &str = "2025-03-26";

fn sorted(mut messages: Vec<String>) -> Vec<String> {
    messages.sort();
    messages
}

#[tokio::test]
async fn a_mixed_batch_is_answered_with_a_stream_of_all_its_answers() {
    let node = demo().await;
    let session = Session::of_revision(node.address(), BATCHES).await;
    let batch = json!([
        request(1, "tools/list", &json!({})),
        notification("notifications/roots/list_changed"),
        request(2, "ping", &json!({})),
        request(3, "no/such/method", &json!({})),
        request(4, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": "hi" } })),
    ]);
    let mut stream = session.post(&batch).open(node.address()).await;
    let answers = sorted(stream.rest().await);
    assert_eq!(answers, ["error 3 method_not_found", "result 1", "result 2", "result 4"]);
    assert!(stream.is_complete());
}

#[tokio::test]
async fn a_batch_of_one_is_a_batch() {
    let node = demo().await;
    let session = Session::of_revision(node.address(), BATCHES).await;
    let mut stream = session.post(&json!([request(1, "ping", &json!({}))])).open(node.address()).await;
    assert_eq!(stream.rest().await, ["result 1"]);
}

#[tokio::test]
async fn a_batch_without_requests_is_202() {
    let node = demo().await;
    let session = Session::of_revision(node.address(), BATCHES).await;
    for batch in [
        json!([notification("notifications/roots/list_changed"), notification("notifications/made/up")]),
        json!([{ "jsonrpc": "2.0", "id": 1, "result": {} }, { "jsonrpc": "2.0", "id": 2, "result": {} }]),
    ] {
        let response = session.post(&batch).send(node.address()).await;
        assert_eq!((response.status(), response.body.len()), (202, 0));
        assert_eq!(response.header("content-length"), Some("0"));
    }
}

#[tokio::test]
async fn initialize_must_not_be_in_a_batch() {
    let node = demo().await;
    let session = Session::of_revision(node.address(), BATCHES).await;
    let initialize = request(1, "initialize", &initialize_params(BATCHES));
    let batch = json!([request(2, "ping", &json!({})), initialize]);
    let response = session.post(&batch).send(node.address()).await;
    assert_eq!(response.fault(), (400, -32600, "invalid_request".to_owned()));
    let response = Ask::post(json!([initialize]).to_string()).send(node.address()).await;
    assert_eq!((response.status(), response.header("mcp-session-id")), (400, None));
    assert_eq!(node.sessions().tallies().created, 1);
}

#[tokio::test]
async fn a_batch_with_a_broken_element_is_refused_whole() {
    let node = demo().await;
    let session = Session::of_revision(node.address(), BATCHES).await;
    let work = json!({ "workspace_id": session.workspace().await });
    let count = request(1, "tools/call", &json!({ "name": "session_counter_inc", "arguments": work }));
    for broken in
        [json!(1), json!({}), json!({ "jsonrpc": "2.0", "id": null, "method": "ping" }), json!([count])]
    {
        let response = session.post(&json!([count, broken])).send(node.address()).await;
        assert_eq!(response.fault(), (400, -32600, "invalid_request".to_owned()), "{broken}");
    }
    let response = session.tool(2, "session_counter_get", &work).await;
    assert_eq!(response.json()["result"]["structuredContent"]["counter"], 0, "nothing of them was done");
    let empty = session.post(&json!([])).send(node.address()).await;
    assert_eq!(empty.fault(), (400, -32600, "invalid_request".to_owned()));
}

#[tokio::test]
async fn other_revisions_have_no_batches() {
    let node = demo().await;
    let batch = json!([request(1, "ping", &json!({}))]);
    for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let session = Session::of_revision(node.address(), revision).await;
        for batch in [&batch, &json!([notification("notifications/initialized")])] {
            // The session's revision counts, whatever the header says.
            let ask = session.post(batch).header("MCP-Protocol-Version", BATCHES);
            assert_eq!(ask.send(node.address()).await.fault(), (400, -32600, "batch_not_allowed".to_owned()));
        }
    }
    let response = Ask::post(batch.to_string()).send(node.address()).await;
    assert_eq!(
        response.fault(),
        (400, -32600, "batch_not_allowed".to_owned()),
        "nor is there one without a session"
    );
}

#[tokio::test]
async fn progress_and_answers_of_a_batch_share_one_stream_that_can_be_resumed() {
    let mut steered = Steered::start().await;
    let session = Session::of_revision(steered.address(), BATCHES).await;
    let batch = json!([request(1, "tools/call", &json!({})), request(2, "tools/call", &json!({}))]);
    let mut stream = session.post(&batch).open(session.server).await;
    let (one, two) = (steered.script.call().await, steered.script.call().await);
    say(&one, "first").await;
    assert_eq!(stream.heard().await, "first");
    let id = stream.last_id();
    drop(stream);
    say(&two, "second").await;
    two.answer(&json!({}));
    let mut resumed = session.resume(&id).await;
    assert_eq!((resumed.heard().await, resumed.heard().await), ("second".to_owned(), "result 2".to_owned()));
    one.answer(&json!({}));
    assert_eq!(resumed.rest().await, ["result 1"]);
}

#[tokio::test]
async fn one_id_twice_in_a_batch_is_answered_once_and_refused_once() {
    let mut steered = Steered::start().await;
    let session = Session::of_revision(steered.address(), BATCHES).await;
    let twice = json!([request(1, "tools/call", &json!({})), request(1, "tools/call", &json!({}))]);
    let mut stream = session.post(&twice).open(session.server).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(sorted(stream.rest().await), ["error 1 duplicate_request_id", "result 1"]);
}

#[tokio::test]
async fn a_request_of_a_batch_that_is_cancelled_leaves_the_others() {
    let mut steered = Steered::start().await;
    let session = Session::of_revision(steered.address(), BATCHES).await;
    let batch = json!([request(1, "tools/call", &json!({})), request(2, "tools/call", &json!({}))]);
    let mut stream = session.post(&batch).open(session.server).await;
    let (one, two) = (steered.script.call().await, steered.script.call().await);
    let cancel: Value =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    assert_eq!(session.post(&cancel).send(session.server).await.status(), 202);
    one.context.cancelled().await;
    two.answer(&json!({}));
    assert_eq!(stream.rest().await, ["result 2"]);
}

#[tokio::test]
async fn a_batch_of_more_requests_than_may_be_in_flight_is_served_as_far_as_it_may() {
    let mut steered = Steered::with(&[("session.max_pending", "2")]).await;
    let session = Session::of_revision(steered.address(), BATCHES).await;
    let batch: Vec<_> = (1..=4).map(|id| request(id, "tools/call", &json!({}))).collect();
    let mut stream = session.post(&json!(batch)).open(session.server).await;
    for id in [3, 4] {
        assert_eq!(stream.heard().await, format!("error {id} too_many_requests"));
    }
    for _ in 0..2 {
        steered.script.call().await.answer(&json!({}));
    }
    assert_eq!(sorted(stream.rest().await), ["result 1", "result 2"]);
}

#[tokio::test]
async fn a_batch_before_initialized_is_refused_message_by_message() {
    let node = demo().await;
    let session = Session::begin(node.address(), BATCHES).await;
    let batch = json!([
        request(1, "tools/list", &json!({})),
        notification("notifications/initialized"),
        request(2, "tools/list", &json!({})),
    ]);
    let mut stream = session.post(&batch).open(node.address()).await;
    assert_eq!(sorted(stream.rest().await), ["error 1 not_initialized", "result 2"]);
}
