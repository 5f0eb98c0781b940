//! Events that are no longer kept, and ids that never were.

use serde_json::json;

use crate::support::node::{Steered, announce, say};
use crate::support::session::Session;
use crate::support::wait::until;

/// Ids that parse as nothing, that were never given out, or that belong elsewhere.
fn strange_ids(own: &str) -> Vec<String> {
    let tag = own.rsplit('-').next().unwrap();
    vec![
        "42".to_owned(),
        "garbage".to_owned(),
        "session_1_2_3".to_owned(),
        "-".to_owned(),
        "--".to_owned(),
        format!("0-ffffffffffffffff-{tag}"),
        format!("77-1-{tag}"),
        format!("ffffffff-1-{tag}"),
        format!("100000000-1-{tag}"),
        format!("{own}0"),
        own.to_uppercase() + "-",
        "x".repeat(4000),
        "ünbekannt".to_owned(),
    ]
}

#[tokio::test]
async fn an_unknown_id_opens_the_standalone_stream_as_if_there_were_none() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    say(&call, "not for the standalone stream").await;
    let own = stream.message().await.unwrap().0;
    for (n, id) in strange_ids(&own).into_iter().enumerate() {
        let mut fresh = session.resume(&id).await;
        announce(&link, &n.to_string()).await;
        assert_eq!(fresh.heard().await, n.to_string(), "{id}");
    }
}

#[tokio::test]
async fn an_empty_last_event_id_is_no_id() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    // By the specification of EventSource, a client that has seen no id sends none, or an empty one.
    let mut fresh = session.resume("").await;
    announce(&link, "news").await;
    assert_eq!(fresh.heard().await, "news");
}

#[tokio::test]
async fn an_unknown_id_can_be_an_error_instead() {
    let mut steered = Steered::with(&[("streams.unknown_event_id", "error")]).await;
    let (session, _link) = steered.session().await;
    let (_call, mut stream) = steered.streaming_call(&session, 1).await;
    let own = stream.message().await.unwrap().0;
    for id in strange_ids(&own) {
        let response = session.get().header("Last-Event-ID", &id).send(session.server).await;
        assert_eq!(response.fault(), (400, -32600, "unknown_event_id".to_owned()), "{id}");
    }
    session.resume(&own).await;
}

#[tokio::test]
async fn an_unknown_id_can_replay_everything_of_the_standalone_stream() {
    let mut steered = Steered::with(&[("streams.unknown_event_id", "replay_all")]).await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    for n in 1..=3 {
        announce(&link, &n.to_string()).await;
        stream.heard().await;
    }
    let (call, mut other) = steered.streaming_call(&session, 1).await;
    other.heard().await;
    say(&call, "of another stream").await;
    let mut all = session.resume("42").await;
    for n in 1..=3 {
        assert_eq!(all.heard().await, n.to_string());
    }
    announce(&link, "live").await;
    assert_eq!(all.heard().await, "live");
}

#[tokio::test]
async fn a_client_that_missed_forgotten_events_is_told_and_gets_the_rest() {
    let mut steered = Steered::with(&[("streams.max_session_events", "5")]).await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    stream.heard().await;
    let early = stream.last_id();
    drop(stream);
    for n in 1..=20 {
        say(&call, &n.to_string()).await;
    }
    assert!(steered.node.sessions().list()[0].events <= 5);
    call.answer(&json!({}));
    let items = session.resume(&early).await.items().await;
    let gap = ": gap: events were missed here, they were no longer kept";
    assert_eq!(items[..3], [": stream", "prime", gap]);
    let kept = &items[3..];
    let expected: Vec<_> = (1..=20).map(|n| n.to_string()).chain(["result 1".to_owned()]).collect();
    assert!((1..=5).contains(&kept.len()) && expected.ends_with(kept), "the newest, in order: {kept:?}");
}

#[tokio::test]
async fn a_gap_can_be_told_to_the_application_too() {
    let settings = [("streams.max_session_events", "3"), ("streams.on_gap", "warn")];
    let mut steered = Steered::with(&settings).await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    announce(&link, "1").await;
    stream.heard().await;
    let early = stream.last_id();
    drop(stream);
    for n in 2..=10 {
        announce(&link, &n.to_string()).await;
    }
    let mut resumed = session.resume(&early).await;
    let (id, warning) = resumed.message().await.unwrap();
    assert_eq!((id.as_str(), &warning["method"]), ("", &json!("notifications/message")));
    assert_eq!(warning["params"]["level"], "warning");
    let next: u32 = resumed.heard().await.parse().unwrap();
    assert!(next >= 8);
    for n in next + 1..=10 {
        assert_eq!(resumed.heard().await, n.to_string());
    }
}

#[tokio::test]
async fn a_gap_can_end_the_stream_for_its_client() {
    let settings = [("streams.max_session_events", "3"), ("streams.on_gap", "error")];
    let mut steered = Steered::with(&settings).await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    announce(&link, "1").await;
    stream.heard().await;
    for n in 2..=10 {
        announce(&link, &n.to_string()).await;
    }
    let ask = session.get().header("Last-Event-ID", &stream.last_id());
    // C16: not with 404, since the session goes on.
    assert_eq!(ask.send(session.server).await.fault(), (400, -32600, "stream_forgotten".to_owned()));
}

#[tokio::test]
async fn a_finished_stream_whose_events_are_gone_is_forgotten() {
    let mut steered = Steered::with(&[("streams.max_session_events", "3")]).await;
    let (session, link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    stream.heard().await;
    let id = stream.last_id();
    call.answer(&json!({}));
    stream.rest().await;
    drop(stream);
    for n in 0..10 {
        announce(&link, &n.to_string()).await;
    }
    let response = session.get().header("Last-Event-ID", &id).send(session.server).await;
    // Not 404, which would cost the client its session for one old stream.
    assert_eq!(response.fault(), (400, -32600, "stream_forgotten".to_owned()));
    assert_eq!(session.request(9, "ping", &json!({})).send(session.server).await.status(), 200);
}

#[tokio::test]
async fn events_are_forgotten_when_their_time_is_up_and_the_stream_goes_on() {
    let mut steered = Steered::with(&[("streams.event_ttl", "50ms")]).await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    announce(&link, "old").await;
    announce(&link, "older than its time").await;
    stream.heard().await;
    let id = stream.last_id();
    drop(stream);
    until("the events are forgotten", || steered.node.sessions().list()[0].events == 0).await;
    let mut resumed = session.resume(&id).await;
    announce(&link, "new").await;
    assert_eq!(resumed.heard().await, "new");
    assert!(resumed.raw().contains(": gap"), "the loss is not silent: {}", resumed.raw());
}

#[tokio::test]
async fn old_events_of_a_quiet_stream_do_not_make_a_gap_for_a_client_that_has_them() {
    let mut steered = Steered::with(&[("streams.event_ttl", "50ms")]).await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    announce(&link, "old").await;
    stream.heard().await;
    let id = stream.last_id();
    drop(stream);
    until("the event is forgotten", || steered.node.sessions().list()[0].events == 0).await;
    let mut resumed = session.resume(&id).await;
    announce(&link, "new").await;
    assert_eq!(resumed.heard().await, "new");
    assert!(!resumed.raw().contains(": gap"), "nothing was missed: {}", resumed.raw());
}

#[tokio::test]
async fn events_of_other_streams_being_forgotten_are_no_gap() {
    let mut steered = Steered::with(&[("streams.max_session_events", "4")]).await;
    let session = Session::start(steered.address()).await;
    let link = steered.script.opened().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    stream.heard().await;
    let id = stream.last_id();
    drop(stream);
    for n in 0..20 {
        announce(&link, &n.to_string()).await;
    }
    say(&call, "last").await;
    call.answer(&json!({}));
    let items = session.resume(&id).await.items().await;
    assert_eq!(
        items,
        [": stream", "prime", "last", "result 1"],
        "the client has missed nothing of this stream"
    );
}
