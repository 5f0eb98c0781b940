//! Sessions do not see each other, whatever they send.

use serde_json::{Value, json};

use crate::support::events::gist;
use crate::support::node::{Steered, announce, demo, say};
use crate::support::session::Session;

#[tokio::test]
async fn two_sessions_may_use_the_same_request_ids_at_the_same_time() {
    let mut steered = Steered::start().await;
    let (ours, _) = steered.session().await;
    let (theirs, _) = steered.session().await;
    let (our_call, mut our_stream) = steered.streaming_call(&ours, 1).await;
    let (their_call, mut their_stream) = steered.streaming_call(&theirs, 1).await;
    say(&their_call, "for them").await;
    say(&our_call, "for us").await;
    their_call.answer(&json!({ "whose": "theirs" }));
    our_call.answer(&json!({ "whose": "ours" }));
    for (stream, text, whose) in
        [(&mut our_stream, "for us", "ours"), (&mut their_stream, "for them", "theirs")]
    {
        assert_eq!((stream.heard().await, stream.heard().await), ("hello".to_owned(), text.to_owned()));
        assert_eq!(stream.message().await.unwrap().1["result"]["whose"], whose);
    }
}

#[tokio::test]
async fn an_event_id_of_another_session_replays_nothing_of_it() {
    let mut steered = Steered::start().await;
    let (ours, our_link) = steered.session().await;
    let (theirs, their_link) = steered.session().await;
    let mut their_listening = theirs.listen().await;
    announce(&their_link, "their news").await;
    let (their_call, mut their_stream) = steered.streaming_call(&theirs, 1).await;
    // Our session has a stream of the same number, so that only the session can tell them apart.
    let (our_call, mut our_stream) = steered.streaming_call(&ours, 1).await;
    say(&their_call, "their secret").await;
    say(&our_call, "our secret").await;
    let mut ids = vec![
        their_stream.event().await.unwrap().id.unwrap(),
        their_listening.event().await.unwrap().id.unwrap(),
    ];
    for stream in [&mut their_stream, &mut their_listening] {
        ids.push(stream.message().await.unwrap().0);
    }
    for (n, id) in ids.iter().enumerate() {
        let mut fresh = ours.resume(id).await;
        announce(&our_link, &n.to_string()).await;
        assert_eq!(fresh.heard().await, n.to_string(), "{id}");
        assert!(!fresh.raw().contains("secret") && !fresh.raw().contains("their"), "{}", fresh.raw());
    }
    assert_eq!(their_stream.heard().await, "their secret", "their own stream was not taken over");
    assert_eq!(
        (our_stream.heard().await, our_stream.heard().await),
        ("hello".to_owned(), "our secret".to_owned())
    );
}

#[tokio::test]
async fn what_the_demo_keeps_belongs_to_one_workspace() {
    let node = demo().await;
    let (ours, theirs) = (Session::start(node.address()).await, Session::start(node.address()).await);
    let (our_work, their_work) = (ours.workspace().await, theirs.workspace().await);
    let on = |workspace: &str| json!({ "workspace_id": workspace, "text": "ours alone" });
    for n in 1..=3 {
        ours.tool(n, "session_counter_inc", &on(&our_work)).await;
    }
    ours.tool(4, "notebook_append", &on(&our_work)).await;
    let told = |response: Value| response["result"]["structuredContent"].clone();
    assert_eq!(told(ours.tool(5, "session_counter_get", &on(&our_work)).await.json())["counter"], 3);
    assert_eq!(told(theirs.tool(5, "session_counter_get", &on(&their_work)).await.json())["counter"], 0);
    assert_eq!(told(theirs.tool(6, "notebook_read", &on(&their_work)).await.json())["notes"], json!([]));
}

#[tokio::test]
async fn a_subscription_tells_only_the_session_that_made_it() {
    let node = demo().await;
    let (ours, theirs) = (Session::start(node.address()).await, Session::start(node.address()).await);
    let (mut our_stream, mut their_stream) = (ours.listen().await, theirs.listen().await);
    for uri in ["demo://notebook", "demo://visitors"] {
        let subscribe = ours.request(1, "resources/subscribe", &json!({ "uri": uri }));
        assert_eq!(subscribe.send(node.address()).await.json()["result"], json!({}));
    }
    for session in [&theirs, &ours] {
        let note = json!({ "workspace_id": session.workspace().await, "text": "only ours is watched" });
        session.tool(2, "notebook_append", &note).await;
    }
    assert_eq!(our_stream.message().await.unwrap().1["params"]["uri"], "demo://notebook");
    Session::begin(node.address(), "2025-11-25").await;
    assert_eq!(
        our_stream.message().await.unwrap().1["params"]["uri"],
        "demo://visitors",
        "shared, and ours to hear"
    );
    let unsubscribe = ours.request(3, "resources/unsubscribe", &json!({ "uri": "demo://visitors" }));
    assert_eq!(unsubscribe.send(node.address()).await.json()["result"], json!({}));
    Session::begin(node.address(), "2025-11-25").await;
    ours.delete().send(node.address()).await;
    theirs.delete().send(node.address()).await;
    assert_eq!(our_stream.rest().await, Vec::<String>::new());
    assert_eq!(their_stream.rest().await, Vec::<String>::new(), "they never subscribed");
}

#[tokio::test]
async fn the_log_level_is_each_sessions_own() {
    let mut steered = Steered::start().await;
    let (ours, our_link) = steered.session().await;
    let (theirs, their_link) = steered.session().await;
    let mut connection =
        ours.request(1, "logging/setLevel", &json!({ "level": "error" })).begin(ours.server).await;
    steered.script.call().await.answer(&json!({}));
    assert_eq!(gist(&connection.response().await.json()), "result 1");
    let (mut our_stream, mut their_stream) = (ours.listen().await, theirs.listen().await);
    announce(&our_link, "info").await;
    announce(&their_link, "info").await;
    assert_eq!(their_stream.heard().await, "info");
    ours.delete().send(ours.server).await;
    assert_eq!(our_stream.rest().await, Vec::<String>::new(), "below the level it asked for");
}
