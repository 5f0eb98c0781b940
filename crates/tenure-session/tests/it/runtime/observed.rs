//! What an observer hears of a session's life, and what is kept of it with the session.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tenure_protocol::{Method, RawJson};
use tenure_session::figures::{RequestFigures, TimelineEvent};
use tenure_session::limits::UnknownEventId;
use tenure_session::port::observer::{Happened, SessionEvent, SessionObserver, all_of};
use tenure_session::record::EndCause;
use tenure_session::{Limits, Session};
use tenure_testkit::runtime;

use crate::runtime::support::{World, all, next, request, resume, say, settle};

/// What was heard, in a word or two each.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl SessionObserver for Heard {
    fn happened(&self, event: &SessionEvent<'_>) {
        let word = match event.what {
            Happened::Created { .. } => "created".to_owned(),
            Happened::Woken { .. } => "woken".to_owned(),
            Happened::NotWoken { reason, .. } => format!("not woken: {}", reason.as_str()),
            Happened::Slept => "slept".to_owned(),
            Happened::Ended { how, requests, .. } => format!("{how} after {requests}"),
            Happened::CallBegun => "call".to_owned(),
            Happened::CallEnded { .. } => "call over".to_owned(),
            Happened::Resumed { how } => how.word().to_owned(),
            Happened::Replayed { events } => format!("{events} replayed"),
            Happened::ReaderAttached { replaces: false, .. } => "reader".to_owned(),
            Happened::ReaderAttached { replaces: true, .. } => "other reader".to_owned(),
            Happened::ReaderDetached { is_broken: true, .. } => "broken".to_owned(),
            Happened::ReaderDetached { is_broken: false, .. } => "read".to_owned(),
            Happened::Interrupted { method } => format!("{method} interrupted"),
            Happened::RunAgain { method } => format!("{method} again"),
            Happened::LinkOpened { .. } => "link".to_owned(),
            Happened::Asked { .. } => "asked".to_owned(),
            Happened::Answered { how, .. } => format!("answered: {how}"),
            Happened::QuestionWithdrawn { .. } => "withdrawn".to_owned(),
            // How often depends on how events are batched.
            Happened::Appended { is_logged: true, .. } => return,
            other => format!("{other:?}"),
        };
        assert!(event.session.is_some_and(|key| key.label() == event.label), "{word}: which session");
        self.0.lock().push(word);
    }
}

impl Heard {
    fn of(world: &World) -> Arc<Self> {
        let heard = Arc::new(Self::default());
        world.sessions.observed_by(heard.clone());
        heard
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

fn timeline(session: &Session) -> Vec<TimelineEvent> {
    session.figures().timeline.iter().map(|entry| entry.what).collect()
}

#[tokio::test]
async fn a_call_whose_connection_breaks_and_comes_back_is_told_in_order() {
    let mut world = World::new();
    let heard = Heard::of(&world);
    let session = world.session().await;
    assert_eq!(heard.take(), ["link", "created"]);
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    drop(reader);
    say(&call, "missed").await;
    say(&call, "this").await;
    let mut reader = resume(&session, &id).await.unwrap();
    assert_eq!(next(&mut reader).await.1, "missed");
    // A second connection for the same stream takes it over.
    let mut other = resume(&session, &id).await.unwrap();
    call.answer(&json!({}));
    assert_eq!(all(&mut other).await, ["prime", "missed", "this", "result 1"]);
    drop((reader, other));
    settle().await;
    let told = heard.take();
    let expected = [
        "call",
        "reader",
        "broken",
        "2 replayed",
        "replayed",
        "reader",
        "2 replayed",
        "replayed",
        "other reader",
        "call over",
        "read",
        "read",
    ];
    assert_eq!(told, expected);
    let expected = [TimelineEvent::Dropped, TimelineEvent::Resumed, TimelineEvent::Replaced];
    assert_eq!(timeline(&session), expected);
    world.sessions.end(&session, EndCause::Deleted).await.unwrap();
    assert_eq!(heard.take(), ["deleted after 0"]);
}

#[tokio::test(start_paused = true)]
async fn figures_and_timeline_outlive_sleep_and_a_kill() {
    let limits = Limits { dormant_after: Some(Duration::from_secs(60)), ..Limits::default() };
    let mut world = World::with(limits.clone());
    let heard = Heard::of(&world);
    let session = world.session().await;
    session.count(&RequestFigures {
        method: &Method::ToolsCall,
        name: Some("echo"),
        has_failed: true,
        took: Some(Duration::from_millis(3)),
        bytes_in: 7,
        bytes_out: 11,
        remote: Some("192.0.2.7:99".parse().unwrap()),
        transport: "https",
    });
    let key = *session.key();
    let id = *session.id();
    drop(session);
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.script.closed().await;
    assert_eq!(heard.take(), ["link", "created", "slept"]);
    let (asleep, _) = world.sessions.figures_of(&key).await.expect("its record");
    assert_eq!((asleep.tool_calls, asleep.errors, asleep.bytes_out), (1, 1, 11));
    let session = world.sessions.find(&id, &tenure_session::Principal::ANONYMOUS).await.unwrap();
    assert_eq!(heard.take(), ["link", "woken"]);
    // The wake has written the record, so a kill takes nothing.
    let world = world.killed(limits);
    let session = world.find(&session).await.unwrap();
    let figures = session.figures();
    assert_eq!((figures.requests, figures.tool_calls, figures.errors), (1, 1, 1));
    assert_eq!((figures.last_tool.as_deref(), figures.transport.as_deref()), (Some("echo"), Some("https")));
    assert_eq!(figures.remote, Some("192.0.2.7:99".parse().unwrap()));
    assert_eq!(timeline(&session), [TimelineEvent::Slept, TimelineEvent::Woken]);
    assert_eq!(figures.timeline[1].times, 2, "after the sleep, and after the kill");
}

#[tokio::test]
async fn an_id_of_another_session_and_a_fresh_stream_for_it_are_told_apart() {
    for (way, expected) in [(UnknownEventId::Error, "foreign"), (UnknownEventId::Fresh, "fresh")] {
        let world = World::with(Limits { unknown_event_id: way, ..Limits::default() });
        let heard = Heard::of(&world);
        let session = world.session().await;
        heard.take();
        drop(resume(&session, "not-an-id").await);
        assert_eq!(heard.take(), [expected]);
        assert_eq!(timeline(&session), [TimelineEvent::ResumedForeign]);
    }
}

#[tokio::test]
async fn requests_that_a_kill_left_open_are_told_as_interrupted_or_run_again() {
    let mut world = World::new();
    let old = world.session().await;
    let (_call, mut reader) = world.streaming_call(&old, 7).await;
    next(&mut reader).await;
    let waiting = runtime::send(&old, runtime::request(8, "resources/read", &json!({ "uri": "test://a" })));
    let reading = world.script.call().await;
    say(&reading, "first try").await;
    // Read, so that it is in the log.
    next(&mut runtime::reader_of(waiting.await.unwrap())).await;
    let mut world = world.killed(Limits::default());
    let heard = Heard::of(&world);
    let session = world.find(&old).await.unwrap();
    let (mut lists, mut again) = (0, 0);
    for _ in 0..2 {
        let call = world.script.call().await;
        match call.request.method {
            Method::ToolsList => {
                lists += 1;
                call.answer(&json!({ "tools": [] }));
            }
            _ => {
                again += 1;
                call.answer(&json!({}));
            }
        }
    }
    assert_eq!((lists, again), (1, 1));
    settle().await;
    let mut told = heard.take();
    told.sort();
    assert_eq!(
        told,
        ["call", "call over", "link", "resources/read again", "tools/call interrupted", "woken"]
    );
    let mut events = timeline(&session);
    events.sort_by_key(|event| event.word());
    assert_eq!(events, [TimelineEvent::Interrupted, TimelineEvent::RunAgain, TimelineEvent::Woken]);
}

#[tokio::test]
async fn a_question_whose_server_no_longer_waits_is_told_as_withdrawn() {
    let mut world = World::new();
    let heard = Heard::of(&world);
    let session = world.session().await;
    heard.take();
    let waiting = runtime::send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    let context = call.context.clone();
    let asking =
        tokio::spawn(async move { context.ask(&Method::RootsList, Some(&RawJson::EMPTY_OBJECT)).await });
    let mut reader = runtime::reader_of(waiting.await.unwrap());
    assert!(next(&mut reader).await.1.contains("roots/list"));
    asking.abort();
    drop(asking.await);
    call.answer(&json!({}));
    all(&mut reader).await;
    settle().await;
    assert_eq!(heard.take(), ["call", "asked", "reader", "withdrawn", "call over"]);
    assert_eq!(timeline(&session), [TimelineEvent::Asked, TimelineEvent::NotAnswered]);
}

/// Observers in a row hear the same, and none at all is nothing to call.
#[tokio::test]
async fn several_observers_are_one() {
    assert!(all_of([]).is_none());
    let (one, two) = (Arc::new(Heard::default()), Arc::new(Heard::default()));
    let mut world = World::new();
    world.sessions.observed_by(all_of([one.clone() as _, two.clone() as _]).expect("two"));
    let session = world.session().await;
    let asking = tokio::spawn({
        let session = Arc::clone(&session);
        async move { request(&session, 1, "tools/list").await }
    });
    world.script.call().await.answer(&json!({}));
    asking.await.unwrap().unwrap();
    let told = one.take();
    assert_eq!(told, two.take());
    assert_eq!(told, ["link", "created", "call", "call over"]);
}
