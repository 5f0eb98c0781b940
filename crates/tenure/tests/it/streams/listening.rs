//! The stream that GET opens.

use serde_json::json;
use tenure_session::call::News;

use crate::support::client::{Ask, Connection};
use crate::support::events::{SseEvent, SseItem};
use crate::support::node::{Steered, announce, demo, demo_with};
use crate::support::session::Session;
use crate::support::wait::until;

#[tokio::test]
async fn a_stream_opens_with_a_comment_and_then_a_priming_event() {
    let node = demo_with(&[("streams.retry", "2s500ms")]).await;
    let session = Session::start(node.address()).await;
    let mut stream = session.listen().await;
    assert_eq!(stream.next().await, Some(SseItem::Comment("stream".to_owned())));
    let Some(SseItem::Event(prime)) = stream.next().await else { panic!("a priming event") };
    let id = prime.id.clone().unwrap();
    assert_eq!(
        prime,
        SseEvent { id: Some(id.clone()), retry: Some(2500), data: Some(String::new()), event: None }
    );
    assert_eq!(stream.raw(), format!(": stream\n\nid: {id}\nretry: 2500\ndata: \n\n"));
}

#[tokio::test]
async fn older_revisions_get_no_priming_event() {
    let mut steered = Steered::start().await;
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        let session = Session::of_revision(steered.address(), revision).await;
        let link = steered.script.opened().await;
        // The session's revision counts; the header may be absent or name a newer one.
        let ask = session.get().header("MCP-Protocol-Version", "2025-11-25");
        let mut stream = ask.open(session.server).await;
        assert_eq!(stream.next().await, Some(SseItem::Comment("stream".to_owned())), "{revision}");
        announce(&link, "news").await;
        let event = stream.event().await.unwrap();
        assert!(event.data.unwrap().contains("news"), "{revision}: the first event is a message");
        assert!(event.id.is_some(), "{revision}: and can be resumed after");
    }
}

#[tokio::test]
async fn the_headers_of_a_stream_keep_proxies_from_holding_it_back() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let stream = session.listen().await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert_eq!(stream.header("cache-control"), Some("no-cache, no-transform"));
    assert_eq!(stream.header("x-accel-buffering"), Some("no"));
    assert_eq!(stream.header("mcp-session-id"), Some(session.id.as_str()));
    assert_eq!(stream.header("content-length"), None);
}

#[tokio::test]
async fn a_quiet_stream_is_kept_alive_with_comments() {
    let mut steered = Steered::with(&[("http.keep_alive", "30ms")]).await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    stream.event().await.unwrap();
    for _ in 0..3 {
        assert_eq!(stream.next().await, Some(SseItem::Comment("keep-alive".to_owned())));
    }
    announce(&link, "news").await;
    assert_eq!(stream.heard().await, "news");
    assert_eq!(stream.next().await, Some(SseItem::Comment("keep-alive".to_owned())));
    assert!(stream.raw().contains("\n\n: keep-alive\n\n"));
}

#[tokio::test]
async fn a_get_needs_a_session() {
    let node = demo().await;
    let response = Ask::get().send(node.address()).await;
    assert_eq!(response.fault(), (400, -32602, "session_required".to_owned()));
    let response = Ask::get().header("Mcp-Session-Id", &"0".repeat(32)).send(node.address()).await;
    assert_eq!(response.fault(), (404, -32001, "session_not_found".to_owned()));
}

#[tokio::test]
async fn news_reaches_a_listener_in_order_as_message_events() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    for n in 0..100 {
        announce(&link, &n.to_string()).await;
    }
    for n in 0..100 {
        let mut event = stream.event().await.unwrap();
        if event.data.as_deref() == Some("") {
            event = stream.event().await.unwrap();
        }
        assert_eq!(event.event.as_deref(), Some("message"));
        let message: serde_json::Value = serde_json::from_str(&event.data.unwrap()).unwrap();
        assert_eq!(message["params"]["data"], n.to_string());
        assert_eq!(message["method"], "notifications/message");
    }
}

#[tokio::test]
async fn news_from_before_the_first_get_is_not_lost() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    announce(&link, "early").await;
    announce(&link, "bird").await;
    let mut stream = session.listen().await;
    assert_eq!(stream.heard().await, "early");
    assert_eq!(stream.heard().await, "bird");
}

#[tokio::test]
async fn a_second_get_replaces_the_first() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let mut first = session.listen().await;
    announce(&link, "one").await;
    assert_eq!(first.heard().await, "one");
    let mut second = session.listen().await;
    assert_eq!(first.rest().await, Vec::<String>::new());
    assert!(first.is_complete(), "the first ends in good order");
    announce(&link, "two").await;
    assert_eq!(second.heard().await, "two", "no message comes on both");
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_stream() {
    let mut steered = Steered::with(&[("http.keep_alive", "10ms")]).await;
    let (session, _link) = steered.session().await;
    let stream = session.listen().await;
    let readers = || steered.node.sessions().list()[0].readers;
    assert_eq!(readers(), 1);
    drop(stream);
    until("the server notices", || readers() == 0).await;
}

#[tokio::test]
async fn a_list_change_reaches_every_session_that_listens() {
    let steered = Steered::start().await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let session = Session::start(steered.address()).await;
        streams.push(session.listen().await);
    }
    let unfinished = Session::begin(steered.address(), "2025-11-25").await;
    let mut quiet = unfinished.listen().await;
    steered.node.sessions().fanout().list_changed(News::Tools);
    for stream in &mut streams {
        assert_eq!(stream.message().await.unwrap().1["method"], "notifications/tools/list_changed");
    }
    unfinished.delete().send(steered.address()).await;
    assert_eq!(quiet.rest().await, Vec::<String>::new(), "nothing but ping and logs before initialized");
}

#[tokio::test]
async fn a_request_that_waits_behind_a_stream_does_not_hold_it_back() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let mut connection = Connection::open(session.server).await;
    let mut both = session.get().bytes();
    both.extend(session.request(1, "ping", &json!({})).bytes());
    connection.write(&both).await;
    let mut stream = connection.events().await;
    announce(&link, "news").await;
    assert_eq!(stream.heard().await, "news");
}
