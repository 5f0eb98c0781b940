//! Every bound has a clear error and loses nothing.

use serde_json::json;
use tenure_protocol::{Error, Kind, Method, RawJson, Reason};
use tenure_session::record::EndCause;
use tenure_session::{Limits, Principal};
use tenure_testkit::runtime::{self, json_of, send};

use crate::runtime::support::{World, all, request};

async fn create(world: &World, principal: &Principal) -> Result<(), Error> {
    let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
    world.sessions.create(initialize, principal).await.map(|created| assert!(created.session.is_some()))
}

#[tokio::test]
async fn sessions_are_bounded_in_all_and_by_principal() {
    let limits = Limits { max_sessions: 5, max_sessions_per_principal: 3, ..Limits::default() };
    let world = World::with(limits);
    let (alice, bob) = (Principal::named("alice"), Principal::named("bob"));
    for _ in 0..3 {
        create(&world, &alice).await.unwrap();
    }
    let error = create(&world, &alice).await.unwrap_err();
    assert_eq!((error.reason(), error.kind()), (Reason::TooManySessionsOfPrincipal, Kind::Full));
    create(&world, &bob).await.unwrap();
    create(&world, &bob).await.unwrap();
    assert_eq!(create(&world, &bob).await.unwrap_err().reason(), Reason::TooManySessions);
    // An end makes room again.
    let key = world.sessions.list().into_iter().find(|info| info.owner == alice).unwrap().key;
    assert!(world.sessions.revoke(&key).await.unwrap());
    create(&world, &alice).await.unwrap();
}

#[tokio::test]
async fn requests_in_flight_are_bounded_also_when_they_are_withdrawn() {
    let mut world = World::with(Limits { max_pending: 3, ..Limits::default() });
    let session = world.session().await;
    let mut calls = Vec::new();
    for id in 1..=3 {
        drop(send(&session, runtime::request(id, "tools/call", &json!({}))));
        calls.push(world.script.call().await);
    }
    let error = request(&session, 4, "tools/call").await.unwrap_err();
    assert_eq!((error.reason(), error.kind()), (Reason::TooManyRequests, Kind::Full));
    // A withdrawn request still occupies the backend until it has stopped.
    let params = Some(RawJson::trusted(r#"{"requestId":1}"#));
    session.notification(tenure_protocol::Notification { method: Method::Cancelled, params }).unwrap();
    assert_eq!(request(&session, 4, "tools/call").await.unwrap_err().reason(), Reason::TooManyRequests);
    for call in calls {
        call.answer(&json!({}));
    }
    // Pings are answered here and always possible.
    json_of(request(&session, 5, "ping").await.unwrap());
    while !session.info().calls.is_empty() {
        tokio::task::yield_now().await;
    }
    let waiting = loop {
        let waiting = send(&session, runtime::request(6, "tools/call", &json!({})));
        if let Ok(call) = tokio::time::timeout(std::time::Duration::from_secs(1), world.script.call()).await {
            call.answer(&json!({}));
            break waiting;
        }
    };
    json_of(waiting.await.unwrap());
}

#[tokio::test]
async fn streams_are_bounded() {
    let mut world = World::with(Limits { max_streams: 2, ..Limits::default() });
    let session = world.session().await;
    let (one, mut first) = world.streaming_call(&session, 1).await;
    let (_two, _second) = world.streaming_call(&session, 2).await;
    assert_eq!(request(&session, 3, "tools/call").await.unwrap_err().reason(), Reason::TooManyStreams);
    assert_eq!(session.listen(None).await.unwrap_err().reason(), Reason::TooManyStreams);
    one.answer(&json!({}));
    all(&mut first).await;
    drop(first);
    session.listen(None).await.unwrap();
}

#[tokio::test]
async fn an_answer_too_large_is_an_error_and_the_session_goes_on() {
    let mut world = World::with(Limits { max_event_bytes: 1000, ..Limits::default() });
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    let params = RawJson::of(&json!({ "level": "info", "data": "x".repeat(2000) }));
    let error = call.context.notify(&Method::LogMessage, Some(&params)).await.unwrap_err();
    assert_eq!(error.reason(), Reason::EventTooLarge);
    call.answer(&json!({ "text": "x".repeat(2000) }));
    assert_eq!(json_of(waiting.await.unwrap())["error"]["data"]["reason"], "event_too_large");
    let (call, mut reader) = world.streaming_call(&session, 2).await;
    call.answer(&json!({ "text": "x".repeat(2000) }));
    assert_eq!(all(&mut reader).await, ["prime", "hello", "error 2 event_too_large"]);
}

#[tokio::test]
async fn tombstones_are_bounded() {
    let world = World::with(Limits { max_tombstones: 2, ..Limits::default() });
    let mut ended = Vec::new();
    for _ in 0..4 {
        let session = world.session().await;
        world.sessions.end(&session, EndCause::Deleted).await.unwrap();
        ended.push(session);
    }
    let mut reasons = Vec::new();
    for session in ended {
        reasons.push(world.sessions.find(session.id(), &Principal::ANONYMOUS).await.unwrap_err().reason());
    }
    use Reason::{SessionDeleted, SessionNotFound};
    assert_eq!(reasons, [SessionNotFound, SessionNotFound, SessionDeleted, SessionDeleted]);
}

#[tokio::test]
async fn an_initialize_without_sense_is_refused() {
    let world = World::new();
    for params in [json!({}), json!({ "protocolVersion": 5 })] {
        let error =
            world.sessions.create(runtime::request(1, "initialize", &params), &Principal::ANONYMOUS).await;
        assert_eq!(error.unwrap_err().reason(), Reason::InvalidParams);
    }
}
