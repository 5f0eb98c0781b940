//! Servers that are lost in the middle of a call: safe calls go to the next server, the others say `interrupted`.

use serde_json::{Value, json};
use tenure_protocol::{Method, Reason, RpcError};
use tenure_testkit::fake_responder::FakeRequest;
use tokio::time::Instant;

use super::support::{
    Try, World, accepted, error_of, flow_of, gist, json_of, keys_of, next, pass, question, rest, seconds,
};

const INTERRUPTED: (i64, &str) = (-31010, "interrupted");

fn lost() -> RpcError {
    RpcError::of(Reason::BackendUnavailable, "The server has ended")
}

/// A list with the tool `t` and these hints.
fn tools(annotations: &Value) -> Value {
    json!({ "tools": [{ "name": "s" }, { "name": "t", "annotations": annotations }] })
}

/// Lets the server of a call be lost, and answers what is asked next: which hints the tool has.
async fn lose(world: &mut World, call: FakeRequest, annotations: &Value) {
    call.fail(lost());
    world.server.expect("tools/list").await.answer(&tools(annotations));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_only_reads_is_called_again() {
    for (hint, error) in [("readOnlyHint", lost()), ("idempotentHint", RpcError::server_lost())] {
        let mut world = World::new();
        let (waiting, call) = world.begin(&Try::tool().by("ann")).await;
        let before = call.params();
        call.fail(error);
        world.server.expect("tools/list").await.answer(&tools(&json!({ hint: true })));
        let again = world.server.expect("tools/call").await;
        assert_eq!(again.params(), before);
        assert_eq!(again.context.caller().principal.name(), Some("ann"));
        again.answer(&json!({ "content": [] }));
        assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1");
        world.assert_idle();
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_says_nothing_may_have_done_its_work() {
    for hints in [json!({}), json!({ "readOnlyHint": false, "idempotentHint": false })] {
        let mut world = World::new();
        let (waiting, call) = world.begin(&Try::tool()).await;
        lose(&mut world, call, &hints).await;
        assert_eq!(error_of(&json_of(waiting.await.unwrap())), INTERRUPTED);
        assert!(world.server.is_quiet(), "it is not called again");
        world.assert_idle();
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_a_server_that_does_not_list_it_is_not_called_again() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    call.fail(lost());
    for _ in 0..3 {
        world.server.expect("tools/list").await.fail(lost());
    }
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), INTERRUPTED);

    let (waiting, call) = world.begin(&Try::tool().json_only()).await;
    let before = Instant::now();
    call.fail(lost());
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(world.server.expect("tools/list").await);
        pass(seconds(29)).await;
    }
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), INTERRUPTED);
    assert_eq!(before.elapsed(), seconds(90), "a silent server is not waited for for ever");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_lost_while_it_lists_its_tools_has_said_nothing() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    call.fail(lost());
    world.server.expect("tools/list").await.fail(lost());
    world.server.expect("tools/list").await.answer(&tools(&json!({ "readOnlyHint": true })));
    world.server.expect("tools/call").await.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1");
}

#[tokio::test(start_paused = true)]
async fn every_page_of_the_list_is_looked_at_on_behalf_of_the_caller() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().token("p").by("ann")).await;
    call.fail(lost());
    let first = world.server.expect("tools/list").await;
    assert_eq!(first.context.caller().principal.name(), Some("ann"));
    assert_eq!(first.meta("protocolVersion"), "2026-07-28");
    assert_eq!(first.params()["_meta"].get("progressToken"), None);
    first.answer(&json!({ "tools": [], "nextCursor": "two" }));
    let second = world.server.expect("tools/list").await;
    assert_eq!(second.params()["cursor"], "two");
    second.answer(&tools(&json!({ "readOnlyHint": true })));
    world.server.expect("tools/call").await.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1");
}

#[tokio::test(start_paused = true)]
async fn requests_that_only_read_are_sent_again_without_a_question() {
    for (method, params) in [
        ("tools/list", json!({})),
        ("resources/read", json!({ "uri": "x:/" })),
        ("prompts/get", json!({ "name": "p" })),
        ("completion/complete", json!({})),
    ] {
        let mut world = World::new();
        let (waiting, call) = world.begin(&Try::of(method, params)).await;
        call.fail(lost());
        world.server.expect(method).await.answer(&json!({}));
        assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1", "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_no_server_took_is_sent_again_whatever_it_does() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    call.fail(lost().not_taken());
    world.server.expect("tools/call").await.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_being_lost_is_given_up() {
    let mut world = World::new();
    let (waiting, mut call) = world.begin(&Try::tool()).await;
    for _ in 0..3 {
        lose(&mut world, call, &json!({ "readOnlyHint": true })).await;
        call = world.server.expect("tools/call").await;
    }
    call.fail(lost());
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), INTERRUPTED);
    let (waiting, mut call) = world.begin(&Try::tool()).await;
    for _ in 0..3 {
        call.fail(lost().not_taken());
        call = world.server.expect("tools/call").await;
    }
    call.fail(lost().not_taken());
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-31011, "backend_unavailable"), "never taken");
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn progress_of_which_the_client_has_heard_is_not_reported_again() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().token("p")).await;
    let report = async |call: &FakeRequest, progress: f64| {
        call.say(&Method::Progress, &json!({ "progressToken": "p", "progress": progress })).await;
    };
    report(&call, 1.0).await;
    report(&call, 2.5).await;
    let mut flow = flow_of(waiting.await.unwrap());
    assert_eq!(next(&mut flow).await["params"]["progress"], 1.0);
    assert_eq!(next(&mut flow).await["params"]["progress"], 2.5);
    call.fail(lost());
    // The stream is what polls the call, so both sides go on together.
    let rest = tokio::spawn(async move { rest(&mut flow).await });
    world.server.expect("tools/list").await.answer(&tools(&json!({ "readOnlyHint": true })));
    let again = world.server.expect("tools/call").await;
    for progress in [1.0, 2.5, 3.0] {
        report(&again, progress).await;
    }
    again.answer(&json!({}));
    let told = rest.await.unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains(r#""progress":3.0"#), "{told:?}");
    assert_eq!(told[1], "complete 1");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_for_its_client_is_run_again_too() {
    let mut world = World::new();
    let first = Try::tool();
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    answered.abort();
    lose(&mut world, call, &json!({ "readOnlyHint": true })).await;
    let again = world.server.expect("tools/call").await;
    let _answered = question(&again, "elicitation/create", json!({ "message": "who?" }));
    let second = first.again(&asked, &json!({ "q1": accepted("Ann") }));
    let asked = json_of(world.send(&second).await.unwrap());
    assert_eq!(keys_of(&asked).len(), 1, "the server that is there now asks anew");
    let third = world.send(&second.again(&asked, &json!({})));
    pass(seconds(0)).await;
    again.answer(&json!({}));
    assert_eq!(gist(&json_of(third.await.unwrap())), "complete 3");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_hangs_up_is_not_sent_again() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    call.fail(lost());
    let listing = world.server.expect("tools/list").await;
    super::support::hang_up(waiting).await;
    listing.dropped().await;
    assert!(world.server.is_quiet());
    world.assert_idle();
}
