//! A node is lost. What it had is served by the next one, and a client of a third node keeps its connection.

use serde_json::json;
use tenure_session::backend::Opening;
use tenure_testkit::fake_backend::BackendEvent;

use super::world::{Lone, Shared};
use crate::support::node::{announce, say};
use crate::support::session::{Session, request};

/// Loses the node that has a session; the others learn it as they would some seconds later.
async fn lose(shared: &Shared, node: &mut Lone, session: &Session) {
    let owner = shared.owner(session).await.expect("an owner");
    node.lose().await;
    shared.remove(owner).await;
}

// B4
#[tokio::test]
async fn the_next_request_wakes_the_session_of_a_lost_node() {
    let shared = Shared::new(&[]);
    let (mut one, mut other) = shared.pair().await;
    let session = one.session().await;
    assert_eq!(session.request(1, "ping", &json!({})).send(other.address).await.status(), 200);
    lose(&shared, &mut one, &session).await;
    assert_eq!(session.request(2, "ping", &json!({})).send(other.address).await.status(), 200);
    assert_eq!(other.script.opened().await.opening, Opening::Wake);
}

// B3 and B4, without help: the lease has to run out.
#[tokio::test]
async fn a_node_that_falls_silent_is_replaced_before_its_clients_give_up() {
    let shared = Shared::new(&[]);
    let (mut one, other) = shared.pair().await;
    let session = one.session().await;
    assert_eq!(session.request(1, "ping", &json!({})).send(other.address).await.status(), 200);
    one.lose().await;
    let response = session.request(2, "ping", &json!({})).send(other.address).await;
    assert_eq!(response.status(), 200, "{response:?}");
}

// B11
#[tokio::test]
async fn the_standalone_stream_goes_on_over_the_same_connection() {
    let shared = Shared::new(&[]);
    let (mut one, mut other) = shared.pair().await;
    let session = Session::start(one.address).await;
    let link = one.script.opened().await;
    let mut events = session.get().open(other.address).await;
    announce(&link, "before").await;
    assert_eq!(events.heard().await, "before");
    lose(&shared, &mut one, &session).await;
    // The reader that waits makes its node wake the session.
    let link = other.script.opened().await;
    assert_eq!(link.opening, Opening::Wake);
    announce(&link, "after").await;
    loop {
        let heard = events.heard().await;
        // The server may have changed meanwhile, so the client is told to ask again.
        if heard == "after" {
            break;
        }
        assert_ne!(heard, "before", "an event came twice");
    }
}

// B11 and B7: the log has a note of the call.
#[tokio::test]
async fn the_stream_of_a_call_that_is_not_safe_ends_with_interrupted() {
    let shared = Shared::new(&[]);
    let (mut one, mut other) = shared.pair().await;
    let session = one.session().await;
    let connection = session.request(1, "tools/call", &json!({ "name": "any" })).begin(other.address).await;
    let call = one.script.call().await;
    say(&call, "hello").await;
    let mut events = connection.events().await;
    assert_eq!(events.heard().await, "hello");
    lose(&shared, &mut one, &session).await;
    drop(call);
    other.script.opened().await;
    // The next owner asks the server which tools may be called twice.
    let listing = other.script.call().await;
    assert_eq!(listing.request.method.as_str(), "tools/list");
    listing.answer(&json!({ "tools": [{ "name": "any", "inputSchema": {} }] }));
    let (_, answer) = events.message().await.expect("an answer");
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-31010)), "{answer}");
    assert_eq!(events.rest().await, Vec::<String>::new());
}

// B11 and B7: the log has a note of the call.
#[tokio::test]
async fn the_stream_of_a_call_that_is_safe_ends_with_its_answer() {
    let shared = Shared::new(&[]);
    let (mut one, mut other) = shared.pair().await;
    let session = one.session().await;
    let connection =
        session.request(1, "resources/read", &json!({ "uri": "a:b" })).begin(other.address).await;
    let call = one.script.call().await;
    say(&call, "hello").await;
    let mut events = connection.events().await;
    assert_eq!(events.heard().await, "hello");
    lose(&shared, &mut one, &session).await;
    drop(call);
    let again = other.script.call().await;
    assert_eq!(again.request.method.as_str(), "resources/read");
    again.answer(&json!({ "contents": [] }));
    let (_, answer) = events.message().await.expect("an answer");
    assert_eq!((&answer["id"], &answer["result"]), (&json!(1), &json!({ "contents": [] })), "{answer}");
    assert!(events.message().await.is_none() && events.is_complete());
}

// B7: the log knows nothing of the call.
#[tokio::test]
async fn a_call_that_may_have_run_is_not_carried_out_again_unless_that_is_safe() {
    let shared = Shared::new(&[]);
    let (mut one, mut other) = shared.pair().await;
    let session = one.session().await;
    let unsafe_call = session.request(1, "tools/call", &json!({ "name": "pay" })).begin(other.address).await;
    let first = one.script.call().await;
    let safe_call = session.request(2, "prompts/list", &json!({})).begin(other.address).await;
    let second = one.script.call().await;
    lose(&shared, &mut one, &session).await;
    drop((first, second));
    let mut runs = Vec::new();
    let serve = async {
        loop {
            let BackendEvent::Call(call) = other.script.next().await else { continue };
            let method = call.request.method.as_str().to_owned();
            runs.push(method.clone());
            match method.as_str() {
                "tools/list" => call.answer(&json!({ "tools": [{ "name": "pay", "inputSchema": {} }] })),
                _ => call.answer(&json!({ "prompts": [] })),
            }
            if runs.len() == 2 {
                break;
            }
        }
    };
    let (mut unsafe_call, mut safe_call) = (unsafe_call, safe_call);
    let (unsafe_answer, safe_answer, ()) = tokio::join!(unsafe_call.response(), safe_call.response(), serve);
    assert_eq!(unsafe_answer.json()["error"]["code"], -31010, "{unsafe_answer:?}");
    assert_eq!(safe_answer.json()["result"], json!({ "prompts": [] }), "{safe_answer:?}");
    runs.sort();
    assert_eq!(runs, ["prompts/list", "tools/list"], "the tool was not called");
}

// B15
#[tokio::test]
async fn a_session_of_a_lost_node_can_be_deleted() {
    let shared = Shared::new(&[]);
    let (mut one, other) = shared.pair().await;
    let session = one.session().await;
    assert_eq!(session.request(1, "ping", &json!({})).send(other.address).await.status(), 200);
    lose(&shared, &mut one, &session).await;
    assert_eq!(session.delete().send(other.address).await.status(), 204);
    assert_eq!(session.request(2, "ping", &json!({})).send(other.address).await.status(), 404);
}

#[tokio::test]
async fn a_third_node_follows_a_session_from_owner_to_owner() {
    let shared = Shared::new(&[]);
    let (mut one, mut two) = shared.pair().await;
    let three = shared.node().await;
    let session = Session::start(one.address).await;
    let link = one.script.opened().await;
    let mut events = session.get().open(three.address).await;
    announce(&link, "one").await;
    assert_eq!(events.heard().await, "one");
    // The second node becomes the owner while the first one is lost and before the third one finds out.
    let owner = shared.owner(&session).await.expect("an owner");
    one.lose().await;
    shared.remove(owner).await;
    assert_eq!(session.request(1, "ping", &json!({})).send(two.address).await.status(), 200);
    drop(three);
    drop(events);
    let mut events = session.get().open(two.address).await;
    let link = two.script.opened().await;
    announce(&link, "two").await;
    while events.heard().await != "two" {}
}

// B7
#[tokio::test]
async fn every_request_of_a_batch_is_answered_although_no_node_can_take_it_over() {
    let shared = Shared::new(&[]);
    let (mut one, other) = (shared.node().await, shared.refusing().await);
    let session = Session::of_revision(one.address, "2025-03-26").await;
    one.script.opened().await;
    let pay = |id| request(id, "tools/call", &json!({ "name": "pay" }));
    let mut events = session.post(&json!([pay(1), pay(2)])).open(other.address).await;
    let calls = (one.script.call().await, one.script.call().await);
    lose(&shared, &mut one, &session).await;
    drop(calls);
    let mut answered = Vec::new();
    while let Some((_, message)) = events.message().await {
        // Answers of a batch may come as an array.
        let answers = message.as_array().cloned().unwrap_or_else(|| vec![message]);
        for answer in answers {
            assert_eq!(answer["error"]["code"], -31010, "{answer}");
            answered.push(answer["id"].clone());
        }
    }
    assert_eq!(answered, [json!(1), json!(2)]);
}

// B7
#[tokio::test]
async fn a_call_that_may_have_run_is_not_said_to_be_refused_because_its_next_node_cannot_serve_it() {
    let shared = Shared::new(&[]);
    let (mut one, other) = (shared.node().await, shared.refusing().await);
    let session = one.session().await;
    let pay = || session.request(1, "tools/call", &json!({ "name": "pay" }));
    let mut lost = pay().begin(other.address).await;
    let call = one.script.call().await;
    lose(&shared, &mut one, &session).await;
    drop(call);
    assert_eq!(lost.response().await.json()["error"]["code"], -31010);
    // One that no node has begun can be sent again.
    let refused = pay().send(other.address).await.json();
    assert_eq!(refused["error"]["data"]["reason"], "backend_unavailable", "{refused}");
}

// B11
#[tokio::test]
async fn a_stream_whose_client_has_no_event_id_yet_goes_on_where_it_began() {
    let shared = Shared::new(&[]);
    let (mut one, mut other) = shared.pair().await;
    // Streams of this revision begin without an id.
    let session = Session::of_revision(one.address, "2025-06-18").await;
    let link = one.script.opened().await;
    let mut first = session.get().open(other.address).await;
    announce(&link, "before").await;
    assert_eq!(first.heard().await, "before");
    let mut events = session.get().open(other.address).await;
    assert_eq!(first.rest().await, Vec::<String>::new(), "it was replaced");
    lose(&shared, &mut one, &session).await;
    let link = other.script.opened().await;
    announce(&link, "after").await;
    loop {
        let heard = events.heard().await;
        if heard == "after" {
            break;
        }
        assert_ne!(heard, "before", "what was delivered before the stream began came once more");
    }
}
