//! One message or a stream, and what comes on it in which order.

use serde_json::json;
use tenure_protocol::modern::Caching;
use tenure_protocol::{Eras, Method, Reason};
use tenure_session::exchange::ExchangeAnswer;
use tokio::time::Instant;

use super::support::{
    Making, Try, World, error_of, failure, flow_of, gist, is_quiet, json_of, next, pass, rest, say, saying,
    seconds, settle,
};

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_the_first_thing_said_is_one_message() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().id("a")).await;
    assert_eq!(world.tallies().running, 1);
    call.answer(&json!({ "content": [] }));
    let answer = json_of(waiting.await.unwrap());
    assert_eq!(
        answer,
        json!({
            "jsonrpc": "2.0",
            "id": "a",
            "result": {
                "resultType": "complete",
                "content": [],
                "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "steered", "version": "1" } },
            },
        })
    );
    world.assert_idle();
    assert_eq!(world.tallies().begun, 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_server_is_passed_on_with_its_code() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::of("no/such", json!({}))).await;
    call.fail(failure(Reason::MethodNotFound));
    assert_eq!(error_of(&json_of(waiting.await.unwrap())).0, -32601);
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn the_first_message_makes_a_stream_that_ends_with_the_answer() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().level("info")).await;
    let before = Instant::now();
    say(&call, "one").await;
    let mut flow = flow_of(waiting.await.unwrap());
    assert_eq!(before.elapsed(), seconds(0), "at once");
    assert_eq!(gist(&next(&mut flow).await), "one");
    assert!(is_quiet(&mut flow).await);
    say(&call, "two").await;
    say(&call, "three").await;
    call.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["two", "three", "complete 1"]);
    assert!(flow.next().await.is_none(), "and nothing ever after");
    drop(flow);
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn messages_before_the_answer_come_first_even_if_they_were_not_read_meanwhile() {
    let world = World::acting(|call| {
        Box::pin(async move {
            for text in ["one", "two", "three"] {
                let params = tenure_protocol::RawJson::of(&json!({ "level": "error", "data": text }));
                call.context.notify(&Method::LogMessage, Some(&params)).await.unwrap();
            }
            Ok(tenure_protocol::RawJson::EMPTY_OBJECT)
        })
    });
    let mut flow = flow_of(world.send(&Try::tool().level("debug")).await.unwrap());
    assert_eq!(rest(&mut flow).await, ["one", "two", "three", "complete 1"]);
    let answer = world.ask(&Try::tool().level("debug").json_only()).await;
    assert_eq!(gist(&answer), "complete 1", "the messages are dropped");
}

#[tokio::test(start_paused = true)]
async fn silence_makes_a_stream_when_its_time_is_up_and_not_before() {
    let mut world = World::new();
    let before = Instant::now();
    let (waiting, call) = world.begin(&Try::tool()).await;
    let mut flow = flow_of(waiting.await.unwrap());
    assert_eq!(before.elapsed(), seconds(10));
    assert!(is_quiet(&mut flow).await);
    pass(seconds(60)).await;
    assert!(is_quiet(&mut flow).await, "said once, it is a stream for good");
    call.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["complete 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_streams_waits_however_long_it_takes() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().level("debug").token("p").json_only()).await;
    for count in 0..200 {
        // More than any queue holds: they go nowhere.
        say(&call, "dropped").await;
        call.say(&Method::Progress, &json!({ "progressToken": "p", "progress": count })).await;
        pass(seconds(1)).await;
    }
    assert!(!waiting.is_finished());
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1");
}

#[tokio::test(start_paused = true)]
async fn a_server_waits_while_its_reader_has_not_read() {
    let mut world = World::with(|limits| limits.max_waiting = 2);
    let (waiting, call) = world.begin(&Try::tool().level("info")).await;
    say(&call, "1").await;
    let mut flow = flow_of(waiting.await.unwrap());
    // The first was taken off the queue to see that there is a stream.
    say(&call, "2").await;
    say(&call, "3").await;
    let fourth = saying(&call, "4");
    pass(seconds(100)).await;
    assert!(!fourth.is_finished(), "there is no room");
    assert_eq!(gist(&next(&mut flow).await), "1");
    settle().await;
    assert!(!fourth.is_finished());
    assert_eq!(gist(&next(&mut flow).await), "2");
    settle().await;
    assert!(fourth.is_finished(), "there is room now");
    fourth.await.unwrap().unwrap();
    call.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["3", "4", "complete 1"]);
}

#[tokio::test(start_paused = true)]
async fn few_large_messages_fill_the_queue_as_many_small_ones_do() {
    let mut world = World::with(|limits| limits.max_waiting_bytes = 10_000);
    let (waiting, call) = world.begin(&Try::tool().level("info")).await;
    say(&call, "1").await;
    let mut flow = flow_of(waiting.await.unwrap());
    // One is always taken, however large.
    say(&call, &"x".repeat(20_000)).await;
    let small = saying(&call, "2");
    settle().await;
    assert!(!small.is_finished(), "there is no room");
    assert_eq!(gist(&next(&mut flow).await), "1");
    assert_eq!(gist(&next(&mut flow).await).len(), 20_000);
    settle().await;
    small.await.unwrap().unwrap();
    call.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["2", "complete 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_waits_for_room_is_told_when_the_reader_goes() {
    let mut world = World::with(|limits| limits.max_waiting = 1);
    let (waiting, call) = world.begin(&Try::tool().level("info")).await;
    say(&call, "1").await;
    let flow = flow_of(waiting.await.unwrap());
    say(&call, "2").await;
    let third = saying(&call, "3");
    settle().await;
    assert!(!third.is_finished());
    drop(flow);
    assert_eq!(third.await.unwrap().unwrap_err().reason(), Reason::Cancelled);
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_speaks_or_asks_after_its_call_is_told_that_the_call_is_over() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().level("info")).await;
    let context = call.context.clone();
    call.answer(&json!({}));
    json_of(waiting.await.unwrap());
    let said = context.notify(&Method::LogMessage, None).await;
    assert_eq!(said.unwrap_err().reason(), Reason::Cancelled);
    let asking = context.ask(&Method::ElicitationCreate, None);
    let asked = tokio::time::timeout(seconds(3600), asking).await.expect("an answer, whatever it is");
    assert_eq!(asked.unwrap_err().code(), i64::from(Reason::ClientGone.code()));
    assert!(context.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn messages_and_answers_that_are_too_large_are_not_sent() {
    let mut world = World::with(|limits| limits.max_event_bytes = 1000);
    let (waiting, call) = world.begin(&Try::tool().level("info")).await;
    let large = "x".repeat(2000);
    let error = saying(&call, &large).await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Reason::EventTooLarge);
    call.answer(&json!({ "text": large }));
    let answer = json_of(waiting.await.unwrap());
    assert_eq!(error_of(&answer), (-32603, "event_too_large"));
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn only_what_belongs_to_the_request_and_was_asked_for_comes_on_its_stream() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().level("warning").token(7)).await;
    let log = |level: &str| json!({ "level": level, "data": level });
    call.say(&Method::LogMessage, &log("info")).await;
    call.say(&Method::ToolsListChanged, &json!({})).await;
    call.say(&Method::ResourceUpdated, &json!({ "uri": "a:b" })).await;
    call.say(&Method::new("notifications/of/mine"), &json!({})).await;
    call.say(&Method::Acknowledged, &json!({ "notifications": {} })).await;
    settle().await;
    assert!(!waiting.is_finished(), "none of them makes a stream");
    call.say(&Method::LogMessage, &log("error")).await;
    let mut flow = flow_of(waiting.await.unwrap());
    assert_eq!(gist(&next(&mut flow).await), "error");
    call.say(&Method::Progress, &json!({ "progressToken": "own", "progress": 1 })).await;
    let progress = next(&mut flow).await;
    assert_eq!(progress["params"], json!({ "progressToken": 7, "progress": 1 }), "under the client's token");
    call.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["complete 1"]);

    let (waiting, call) = world.begin(&Try::tool()).await;
    call.say(&Method::LogMessage, &log("emergency")).await;
    call.say(&Method::Progress, &json!({ "progressToken": "own", "progress": 1 })).await;
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1", "it asked for neither");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_level_is_refused_before_the_server_hears_of_it() {
    let world = World::new();
    let refused = world.send(&Try::tool().level("loud")).await.unwrap();
    assert!(matches!(refused, ExchangeAnswer::Refused(error) if error.reason() == Reason::InvalidParams));
    assert!(world.server.is_quiet());
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn discovery_names_the_versions_that_the_endpoint_serves() {
    let all = json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
    for (eras, versions) in [(Eras::Both, all), (Eras::Modern, json!(["2026-07-28"]))] {
        let mut world = World::of(Making { eras, ..Making::default() });
        let (waiting, call) = world.begin(&Try::of("server/discover", json!({}))).await;
        call.answer(&json!({ "supportedVersions": ["1999-01-01"], "capabilities": {} }));
        let result = json_of(waiting.await.unwrap())["result"].clone();
        assert_eq!(result["supportedVersions"], versions);
        assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_server_says_on_caching_is_kept_for_its_caller_unless_it_is_trusted() {
    for (caching, scope) in [(Caching::AsSaid, "public"), (Caching::Private, "private")] {
        let mut world = World::of(Making { caching, ..Making::default() });
        let (waiting, call) = world.begin(&Try::of("tools/list", json!({}))).await;
        call.answer(&json!({ "tools": [], "ttlMs": 5, "cacheScope": "public" }));
        let result = json_of(waiting.await.unwrap())["result"].clone();
        assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(5), &json!(scope)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_of_an_unknown_type_is_an_error_of_the_server() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    call.answer(&json!({ "resultType": "riddle" }));
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-32603, "internal"));
}
