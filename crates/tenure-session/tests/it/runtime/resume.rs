//! Resumption: exactly the later events of exactly that stream, then live, without a gap.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Method, RawJson, Reason};
use tenure_session::id::{Position, StreamId};
use tenure_session::limits::{OnGap, UnknownEventId};
use tenure_session::session::Item;
use tenure_session::{EventId, Limits, Session};

use crate::runtime::support::{World, all, next, resume, say, settle, short};

#[tokio::test]
async fn a_resumed_stream_replays_what_came_later_and_goes_on_live() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (first, _) = next(&mut reader).await;
    say(&call, "two").await;
    let (second, _) = next(&mut reader).await;
    drop(reader);
    say(&call, "three").await;
    say(&call, "four").await;
    let mut resumed = resume(&session, &second).await.unwrap();
    assert_eq!(next(&mut resumed).await.1, "three");
    say(&call, "five").await;
    call.answer(&json!({}));
    assert_eq!(all(&mut resumed).await, ["four", "five", "result 1"]);
    drop(resumed);
    // Resuming again from anywhere gives the same, also after the end; every id is as it was.
    let mut again = resume(&session, &first).await.unwrap();
    assert_eq!(next(&mut again).await, (second, "two".to_owned()));
    assert_eq!(all(&mut again).await, ["three", "four", "five", "result 1"]);
}

#[tokio::test]
async fn any_number_of_drops_repeats_and_loses_nothing() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (mut last, _) = next(&mut reader).await;
    let mut seen = Vec::new();
    for round in 0..10 {
        // Some while connected, some while not.
        for n in 0..5 {
            say(&call, &format!("{round}.{n}")).await;
        }
        for _ in 0..3 {
            let (id, text) = next(&mut reader).await;
            seen.push(text);
            last = id;
        }
        drop(reader);
        say(&call, &format!("{round}.away")).await;
        reader = resume(&session, &last).await.unwrap();
    }
    call.answer(&json!({}));
    seen.extend(all(&mut reader).await.into_iter().filter(|text| text != "prime"));
    let expected: Vec<String> = (0..10)
        .flat_map(|round| (0..5).map(move |n| format!("{round}.{n}")).chain([format!("{round}.away")]))
        .chain(["result 1".to_owned()])
        .collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn streams_of_one_session_never_mix_and_ids_are_unique() {
    let mut world = World::new();
    let session = world.session().await;
    let (one, mut first) = world.streaming_call(&session, 1).await;
    let (two, mut second) = world.streaming_call(&session, 2).await;
    let mut ids = std::collections::HashSet::new();
    let (one_id, _) = next(&mut first).await;
    let (two_id, _) = next(&mut second).await;
    for n in 0..10 {
        say(&one, &format!("one {n}")).await;
        say(&two, &format!("two {n}")).await;
    }
    one.answer(&json!({}));
    two.answer(&json!({}));
    for (id, prefix) in [(one_id, "one"), (two_id, "two")] {
        ids.insert(id.clone());
        let mut reader = resume(&session, &id).await.unwrap();
        for n in 0..10 {
            let (id, text) = next(&mut reader).await;
            assert_eq!(text, format!("{prefix} {n}"));
            assert!(ids.insert(id), "an id was used twice");
        }
    }
}

#[tokio::test]
async fn an_event_id_of_another_session_is_never_honoured() {
    let mut world = World::new();
    let (mine, other) = (world.session().await, world.session().await);
    let (call, mut reader) = world.streaming_call(&other, 1).await;
    let (id, _) = next(&mut reader).await;
    say(&call, "secret").await;
    // By default such an id opens a fresh standalone stream: nothing of the other session is in it.
    let mut fresh = resume(&mine, &id).await.unwrap();
    world.sessions.fanout().list_changed(tenure_session::call::News::Tools);
    let (_, message) = next(&mut fresh).await;
    assert!(message.contains("list_changed"), "{message}");
}

#[tokio::test]
async fn ids_that_were_never_given_out_are_unknown() {
    let limits = Limits { unknown_event_id: UnknownEventId::Error, ..Limits::default() };
    let mut world = World::with(limits);
    let session = world.session().await;
    let (_call, mut reader) = world.streaming_call(&session, 1).await;
    next(&mut reader).await;
    let names = session.event_names();
    let made_up = [
        EventId::new(&names, StreamId::new(77), Position(1)).to_string(),
        String::new(),
        "42".to_owned(),
        "garbage".to_owned(),
        "1-1-zzzzzzzz".to_owned(),
        "x".repeat(10_000),
    ];
    for id in made_up {
        assert_eq!(resume(&session, &id).await.unwrap_err().reason(), Reason::UnknownEventId, "{id}");
    }
}

#[tokio::test]
async fn everything_kept_can_be_replayed_for_an_unknown_id_if_so_configured() {
    let world = World::with(Limits { unknown_event_id: UnknownEventId::ReplayAll, ..Limits::default() });
    let session = world.session().await;
    world.sessions.fanout().list_changed(tenure_session::call::News::Tools);
    let mut reader = session.listen(None).await.unwrap();
    next(&mut reader).await;
    let mut again = resume(&session, "garbage").await.unwrap();
    assert!(next(&mut again).await.1.contains("tools/list_changed"));
}

#[tokio::test]
async fn a_new_get_replaces_a_half_dead_one() {
    let world = World::new();
    let session = world.session().await;
    let mut old = session.listen(None).await.unwrap();
    let mut new = session.listen(None).await.unwrap();
    assert_eq!(all(&mut old).await, ["prime"]);
    world.sessions.fanout().list_changed(tenure_session::call::News::Prompts);
    assert!(next(&mut new).await.1.contains("prompts/list_changed"));
    // The old connection's end must not detach its successor.
    drop(old);
    world.sessions.fanout().list_changed(tenure_session::call::News::Tools);
    assert!(next(&mut new).await.1.contains("tools/list_changed"));
}

#[tokio::test]
async fn news_from_before_the_first_get_is_not_lost_and_not_repeated() {
    let world = World::new();
    let session = world.session().await;
    world.sessions.fanout().list_changed(tenure_session::call::News::Tools);
    let mut reader = session.listen(None).await.unwrap();
    let (id, first) = next(&mut reader).await;
    assert!(first.contains("tools/list_changed"));
    drop(reader);
    world.sessions.fanout().list_changed(tenure_session::call::News::Prompts);
    let mut without_id = session.listen(None).await.unwrap();
    assert!(next(&mut without_id).await.1.contains("prompts/list_changed"));
    let mut with_id = resume(&session, &id).await.unwrap();
    assert!(next(&mut with_id).await.1.contains("prompts/list_changed"));
}

#[tokio::test]
async fn a_gap_is_reported_and_not_hidden() {
    let mut world = World::with(Limits { max_session_events: 5, ..Limits::default() });
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    drop(reader);
    for n in 0..20 {
        say(&call, &n.to_string()).await;
    }
    assert_eq!(session.info().events, 5);
    let mut resumed = resume(&session, &id).await.unwrap();
    call.answer(&json!({}));
    assert_eq!(all(&mut resumed).await, ["prime", "gap", "15", "16", "17", "18", "19", "result 1"]);
}

#[tokio::test]
async fn a_gap_is_a_warning_or_an_error_if_so_configured() {
    for (on_gap, expected) in [(OnGap::Warn, None), (OnGap::Error, Some(Reason::StreamForgotten))] {
        let mut world = World::with(Limits { max_session_events: 2, on_gap, ..Limits::default() });
        let session = world.session().await;
        let (call, mut reader) = world.streaming_call(&session, 1).await;
        let (id, _) = next(&mut reader).await;
        drop(reader);
        for n in 0..5 {
            say(&call, &n.to_string()).await;
        }
        let resumed = resume(&session, &id).await;
        assert_eq!(resumed.as_ref().err().map(tenure_protocol::Error::reason), expected);
        if let Ok(mut reader) = resumed {
            call.answer(&json!({}));
            let items = all(&mut reader).await;
            assert_eq!(items[1..3], ["gap", "events were missed: they were no longer kept"]);
        }
    }
}

#[tokio::test]
async fn a_forgotten_stream_is_refused_so_that_its_client_does_not_wait_forever() {
    let mut world = World::with(Limits { max_session_events: 3, ..Limits::default() });
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    call.answer(&json!({}));
    all(&mut reader).await;
    drop(reader);
    for _ in 0..10 {
        world.sessions.fanout().list_changed(tenure_session::call::News::Tools);
    }
    assert_eq!(resume(&session, &id).await.unwrap_err().reason(), Reason::StreamForgotten);
}

#[tokio::test(start_paused = true)]
async fn events_are_forgotten_when_they_are_old() {
    let limits = Limits {
        event_ttl: Duration::from_secs(60),
        idle_ttl: None,
        max_lifetime: None,
        ..Limits::default()
    };
    let mut world = World::with(limits);
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    say(&call, "old").await;
    drop(reader);
    tokio::time::sleep(Duration::from_secs(40)).await;
    say(&call, "young").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(session.info().events, 1);
    let mut resumed = resume(&session, &id).await.unwrap();
    call.answer(&json!({}));
    assert_eq!(all(&mut resumed).await, ["prime", "gap", "young", "result 1"]);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(session.info().events, 0);
}

#[tokio::test]
async fn bytes_are_bounded_as_well_as_counts() {
    let mut world = World::with(Limits { max_session_event_bytes: 10_000, ..Limits::default() });
    let session = world.session().await;
    let (call, _reader) = world.streaming_call(&session, 1).await;
    for _ in 0..100 {
        say(&call, &"x".repeat(1000)).await;
    }
    assert!(session.info().events < 10, "{} events", session.info().events);
    call.answer(&json!({}));
}

#[tokio::test]
async fn an_event_that_was_given_while_its_append_is_under_way_is_not_given_again() {
    let mut world = World::with(Limits { max_tail_events: 1, ..Limits::default() });
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (first, _) = next(&mut reader).await;
    drop(reader);
    for text in ["one", "two"] {
        say(&call, text).await;
    }
    world.store.hold_answers_of_appends();
    say(&call, "three").await;
    settle().await;
    // It is in the log already, so a reader that looks there finds it.
    let mut resumed = resume(&session, &first).await.unwrap();
    assert_eq!(next(&mut resumed).await.1, "one");
    assert_eq!(next(&mut resumed).await.1, "two");
    let (third, text) = next(&mut resumed).await;
    assert_eq!(text, "three");
    drop(resumed);
    let mut again = resume(&session, &third).await.unwrap();
    world.store.answer_appends();
    call.answer(&json!({}));
    assert_eq!(all(&mut again).await, ["prime", "result 1"]);
}

#[tokio::test(start_paused = true)]
async fn events_that_come_while_a_resume_looks_into_the_log_are_not_skipped() {
    let event_ttl = Duration::from_secs(60);
    let limits = Limits { event_ttl, idle_ttl: None, dormant_after: None, ..Limits::default() };
    let tail = limits.max_tail_events;
    let mut world = World::with(limits);
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    drop(reader);
    say(&call, "old").await;
    tokio::time::sleep(2 * event_ttl).await;
    assert_eq!(session.info().events, 0, "what the resume is after is no longer kept");
    world.store.hold_answers_of_reads();
    let mut reads = world.store.reads();
    let resuming = tokio::spawn({
        let (session, id) = (session.clone(), id.clone());
        async move { resume(&session, &id).await.unwrap() }
    });
    reads.changed().await.unwrap();
    // More than is kept at hand for a reader.
    let many = 2 * tail;
    for n in 0..many {
        say(&call, &n.to_string()).await;
    }
    world.store.answer_reads();
    let mut resumed = resuming.await.unwrap();
    call.answer(&json!({}));
    let mut expected = vec!["prime".to_owned(), "gap".to_owned()];
    expected.extend((0..many).map(|n| n.to_string()));
    expected.push("result 1".to_owned());
    assert_eq!(all(&mut resumed).await, expected);
}

/// Takes the stream of news over again and again, a few events each time, until nothing is left. Returns what it was
/// given.
async fn take_turns(session: Arc<Session>) -> Vec<String> {
    let mut taken = Vec::new();
    loop {
        let mut reader = session.listen(None).await.unwrap();
        for _ in 0..5 {
            match poll_fn(|cx| Poll::Ready(reader.poll_next(cx))).await {
                Poll::Ready(Some(item @ Item::Event { .. })) => taken.push(short(&item)),
                Poll::Ready(Some(_)) => {}
                // Another reader has taken the stream over.
                Poll::Ready(None) => break,
                Poll::Pending => return taken,
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_take_a_stream_from_each_other_give_every_event_once() {
    const EVENTS: usize = 10_000;
    let mut world = World::with(Limits { max_session_events: 2 * EVENTS, ..Limits::default() });
    let session = world.session().await;
    let outlet = world.script.opened().await.outlet;
    for n in 0..EVENTS {
        let params = RawJson::of(&json!({ "level": "info", "data": n.to_string() }));
        outlet.notify(&Method::LogMessage, Some(&params)).await.unwrap();
    }
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        readers.spawn(take_turns(Arc::clone(&session)));
    }
    let mut taken = readers.join_all().await.concat();
    taken.sort_by_key(|text| text.parse::<usize>().unwrap());
    let expected: Vec<String> = (0..EVENTS).map(|n| n.to_string()).collect();
    let repeated = taken.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(repeated, None, "given twice, of {} that were given", taken.len());
    assert_eq!(taken, expected);
}
