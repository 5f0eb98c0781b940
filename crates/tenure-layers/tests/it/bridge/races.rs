//! Clients that leave and servers that end at bad moments.

use serde_json::json;
use tenure_protocol::{Method, Reason, RpcError};
use tenure_testkit::fake_backend::{BackendEvent, Opens};
use tenure_testkit::fake_client::FakeClient;

use crate::bridge::support::{World, tool, value};

#[tokio::test]
async fn a_client_that_leaves_while_a_session_is_opened_leaves_nothing_behind() {
    let mut world = World::new();
    world.backend.set_opens(Opens::Hangs);
    let call = world.call("t");
    tokio::task::yield_now().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(world.bridge.sessions(), 0);
    world.backend.set_opens(Opens::Well);
    world.done(tool(&FakeClient::new(json!({})), "t")).await;
}

#[tokio::test]
async fn a_session_whose_request_was_not_answered_is_not_used_again() {
    let mut world = World::new();
    let call = world.call("t");
    let (mut held, opened) = world.asked().await;
    call.abort();
    held.abandoned().await;
    world.script.closed().await;
    assert_eq!(world.bridge.sessions(), 0);
    // Later messages of the server about the request are dropped.
    let client = FakeClient::new(json!({ "roots": {} }));
    let next = world.start(tool(&client, "t"));
    let (answering, _) = world.asked().await;
    assert_ne!(answering.link, held.link);
    let gone = opened.unwrap().outlet;
    drop(gone.notify(&Method::LogMessage, None).await);
    gone.ask(&Method::RootsList, None).await.unwrap_err();
    assert_eq!(client.heard(), []);
    answering.answer(&json!({}));
    next.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_ends_during_a_call_fails_it_and_is_not_asked_again() {
    let mut world = World::new();
    let call = world.call("t");
    let (held, opened) = world.asked().await;
    let link = held.link;
    opened.unwrap().outlet.link_lost();
    // As real links do: a link reports its loss first, then its calls fail.
    drop(held);
    assert_eq!(value(call.await.unwrap())["error"]["code"], -31011);
    world.script.closed().await;
    assert_ne!(world.done(tool(&FakeClient::new(json!({})), "t")).await, link);
    assert_eq!(world.bridge.sessions(), 1);
}

#[tokio::test]
async fn a_request_that_only_reads_is_sent_to_the_next_server() {
    let mut world = World::new();
    let call = world.start(FakeClient::new(json!({})).call(1, "tools/list", json!({})));
    let (held, opened) = world.asked().await;
    opened.unwrap().outlet.link_lost();
    drop(held);
    world.script.call().await.answer(&json!({ "tools": [] }));
    assert_eq!(value(call.await.unwrap()), json!({ "tools": [] }));
}

#[tokio::test]
async fn a_request_that_was_not_taken_goes_to_a_new_session_once() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    // Two sessions, both of which the server will have forgotten.
    let calls = [world.start(tool(&client, "t")), world.start(tool(&client, "t"))];
    let mut outlets = Vec::new();
    let mut asked = Vec::new();
    while asked.len() < 2 {
        match world.script.next().await {
            BackendEvent::Opened(link) => outlets.push((link.link, link.outlet)),
            BackendEvent::Call(call) => asked.push(call),
            _ => {}
        }
    }
    asked.into_iter().for_each(|call| call.answer(&json!({})));
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let refuse = |call: tenure_testkit::fake_backend::FakeCall| {
        let outlet = outlets.iter().find(|(link, _)| *link == call.link).map(|(_, outlet)| outlet);
        outlet.inspect(|outlet| outlet.link_lost());
        call.end(Err(RpcError::refused("forgotten")));
    };
    let call = world.start(tool(&client, "t"));
    refuse(world.script.call().await);
    let second = world.script.call().await;
    assert!(
        outlets.iter().all(|(link, _)| *link != second.link),
        "a session that the server may have forgotten"
    );
    second.answer(&json!({ "content": [] }));
    assert_eq!(value(call.await.unwrap()), json!({ "content": [] }));
    // A server's own error cannot make us send a request again.
    let call = world.start(tool(&client, "t"));
    world.script.call().await.end(Err(RpcError::refused("says the server itself")));
    assert_eq!(value(call.await.unwrap())["error"]["code"], -31011);
}

#[tokio::test]
async fn a_session_that_is_lost_while_unused_is_thrown_away() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    let call = world.start(tool(&client, "t"));
    let (asked, opened) = world.asked().await;
    asked.answer(&json!({}));
    call.await.unwrap().unwrap();
    assert_eq!(world.bridge.sessions(), 1);
    opened.unwrap().outlet.link_lost();
    assert_eq!(world.bridge.sessions(), 0);
    world.script.closed().await;
    assert_eq!(world.done(tool(&client, "t")).await, 2);
}

#[tokio::test]
async fn a_client_that_withdraws_is_heard_by_the_link_and_the_session_is_not_used_again() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    let call = world.start(tool(&client, "t"));
    let (held, _) = world.asked().await;
    assert!(!held.context.is_cancelled());
    client.cancel();
    held.context.cancelled().await;
    // This answer is the link's; the server may still be working.
    held.end(Err(RpcError::of(Reason::Cancelled, "withdrawn")));
    assert_eq!(value(call.await.unwrap())["error"]["code"], -31010);
    world.script.closed().await;
    assert_eq!(world.bridge.sessions(), 0);
}

#[tokio::test]
async fn a_link_that_panics_takes_its_session_with_it() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    let call = world.start(client.call(1, "test/panic", json!({})));
    assert!(call.await.unwrap_err().is_panic());
    assert_eq!(world.bridge.sessions(), 0);
    world.script.closed().await;
    world.done(tool(&client, "t")).await;
}
