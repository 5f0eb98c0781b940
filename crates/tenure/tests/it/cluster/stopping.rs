//! A node stops in order while it relays for others.

use serde_json::json;

use super::world::Shared;
use crate::support::client::Ask;
use crate::support::node::{announce, say};
use crate::support::session::Session;
use crate::support::wait::within;

#[tokio::test]
async fn a_stop_of_the_node_in_between_waits_for_the_answer_of_a_call() {
    let (mut one, mut other) = Shared::new(&[("shutdown.grace", "8s")]).pair().await;
    let session = one.session().await;
    let mut connection =
        session.request(1, "tools/call", &json!({ "name": "any" })).begin(other.address).await;
    let call = one.script.call().await;
    let stopping = other.stop();
    // Longer than connections get for their last bytes.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert!(!stopping.is_finished());
    call.answer(&json!({ "done": true }));
    assert_eq!(connection.response().await.json()["result"], json!({ "done": true }));
    within("the stop", stopping).await.unwrap();
}

#[tokio::test]
async fn a_stop_of_the_node_in_between_sends_readers_to_another_node() {
    let (mut one, mut other) = Shared::new(&[]).pair().await;
    let session = Session::start(one.address).await;
    let link = one.script.opened().await;
    let mut standalone = session.get().open(other.address).await;
    announce(&link, "before").await;
    assert_eq!(standalone.heard().await, "before");
    let connection = session.request(1, "tools/call", &json!({ "name": "any" })).begin(other.address).await;
    let call = one.script.call().await;
    say(&call, "hello").await;
    let mut of_call = connection.events().await;
    assert_eq!(of_call.heard().await, "hello");
    let stopping = other.stop();
    for events in [&mut standalone, &mut of_call] {
        let last = events.event().await.expect("a last event");
        assert!(last.retry.is_some() && last.data.is_none(), "{last:?}");
        assert!(events.event().await.is_none() && events.is_complete());
    }
    within("the stop", stopping).await.unwrap();
    // The call goes on at its node, and its client finds it there.
    call.answer(&json!({ "done": true }));
    let mut rest = session.resume(&of_call.last_id()).await;
    let (_, answer) = rest.message().await.expect("an answer");
    assert_eq!(answer["result"], json!({ "done": true }));
}

#[tokio::test]
async fn a_session_leaves_a_node_that_stops_for_one_that_remembers_it_there() {
    let (mut one, mut other) = Shared::new(&[("shutdown.grace", "9s")]).pair().await;
    let (quiet, busy) = (one.session().await, one.session().await);
    let mut running = busy.request(1, "tools/call", &json!({ "name": "any" })).begin(one.address).await;
    let call = one.script.call().await;
    let pong = quiet.request(1, "ping", &json!({})).send(other.address).await;
    assert_eq!(pong.status(), 200, "{pong:?}");
    let (address, stopping) = (one.address, one.stop());
    let drains = async { while Ask::new("GET", "/readyz").send(address).await.status() == 200 {} };
    within("the stop begins", drains).await;
    // The call keeps the node from ending, and a request that is still sent there has to wait for nothing.
    let began = tokio::time::Instant::now();
    let ping = quiet.request(2, "ping", &json!({}));
    let (pong, _link) = tokio::join!(ping.send(address), other.script.opened());
    assert_eq!(pong.json()["result"], json!({}), "{pong:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(3), "{:?}", began.elapsed());
    call.answer(&json!({ "done": true }));
    assert_eq!(running.response().await.json()["result"], json!({ "done": true }));
    within("the stop", stopping).await.unwrap();
}
