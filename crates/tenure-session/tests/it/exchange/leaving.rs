//! A process that leaves its calls to the next one: what is finished, what comes back, and what its clients notice.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_testkit::fake_responder::FakeRequest;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::support::{
    Making, Try, World, accepted, error_of, flow_of, gist, json_of, key, keys_of, next, pass, question, rest,
    say, seconds, settle, value,
};

/// Two processes, the next of which reads what the first sealed.
fn processes() -> (World, World) {
    let seal = key();
    let world = || World::of(Making { seal: Arc::clone(&seal), ..Making::default() });
    (world(), world())
}

fn leave(world: &World, within: u64) -> JoinHandle<usize> {
    let (exchanges, until) = (world.exchanges.clone(), Instant::now() + seconds(within));
    exchanges.are_followed();
    tokio::spawn(async move {
        exchanges.finish(until).await;
        exchanges.leave(until).await
    })
}

/// Answers the question which of the tools may be called twice.
async fn hint(world: &mut World, annotations: &Value) {
    let listed = json!({ "tools": [{ "name": "t", "annotations": annotations }] });
    world.server.expect("tools/list").await.answer(&listed);
}

async fn safe(world: &mut World) {
    hint(world, &json!({ "readOnlyHint": true })).await;
}

async fn not_safe(world: &mut World) {
    hint(world, &json!({})).await;
}

/// That a client is told to come back, and is asked nothing.
fn comes_back(answer: &Value) {
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    assert!(answer["result"]["requestState"].is_string(), "{answer}");
    assert_eq!(answer["result"].get("inputRequests"), None, "{answer}");
}

/// Carries an attempt out at a process, whose server gets these params.
async fn carried_out(world: &mut World, attempt: &Try) -> (Value, Value) {
    let (waiting, call) = world.begin(attempt).await;
    let params = call.params();
    call.answer(&json!({ "content": [] }));
    (params, json_of(waiting.await.unwrap()))
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_be_carried_out_twice_comes_back_to_the_next_process() {
    let (mut old, mut new) = processes();
    let first = Try::tool();
    let (waiting, call) = old.begin(&first).await;
    let before = (call.params(), Instant::now());
    let leaving = leave(&old, 30);
    safe(&mut old).await;
    let told = json_of(waiting.await.unwrap());
    comes_back(&told);
    call.dropped().await;
    assert_eq!(leaving.await.unwrap(), 0);
    assert_eq!(before.1.elapsed(), seconds(0), "there is nothing to wait for");
    let (params, answer) = carried_out(&mut new, &first.again(&told, &json!({}))).await;
    assert_eq!(params.get("requestState"), None, "the server knows nothing of it");
    assert_eq!(params["arguments"], before.0["arguments"]);
    assert_eq!(gist(&answer), "complete 2");
    old.assert_idle();
    new.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn requests_for_prompts_and_resources_come_back_without_a_question_to_the_server() {
    for (method, params) in
        [("prompts/get", json!({ "name": "p" })), ("resources/read", json!({ "uri": "x:" }))]
    {
        let (mut old, mut new) = processes();
        let first = Try::of(method, params);
        let (waiting, _call) = old.begin(&first).await;
        assert_eq!(leave(&old, 30).await.unwrap(), 0);
        let told = json_of(waiting.await.unwrap());
        comes_back(&told);
        let (_, answer) = carried_out(&mut new, &first.again(&told, &json!({}))).await;
        assert_eq!(gist(&answer), "complete 2", "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn any_other_call_is_finished() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    let (listing, list) = world.begin(&Try::of("resources/list", json!({}))).await;
    let leaving = leave(&world, 30);
    not_safe(&mut world).await;
    pass(seconds(5)).await;
    assert!(!leaving.is_finished());
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1");
    pass(seconds(1)).await;
    assert!(!leaving.is_finished(), "a client that asked for a list cannot be told to come back");
    list.answer(&json!({}));
    assert_eq!(gist(&json_of(listing.await.unwrap())), "complete 1");
    assert_eq!(leaving.await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_is_interrupted_in_the_end() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().json_only()).await;
    let before = Instant::now();
    let leaving = leave(&world, 30);
    not_safe(&mut world).await;
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-31010, "interrupted"));
    assert_eq!(before.elapsed(), seconds(30));
    assert_eq!(leaving.await.unwrap(), 1);
    call.dropped().await;
}

#[tokio::test(start_paused = true)]
async fn calls_are_begun_as_long_as_an_earlier_one_is_finished_if_they_may_be_carried_out_twice() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::of("tools/call", json!({ "name": "pay" }))).await;
    let leaving = leave(&world, 30);
    safe(&mut world).await;
    for _ in 0..3 {
        let (_, answer) = carried_out(&mut world, &Try::tool()).await;
        assert_eq!(gist(&answer), "complete 1");
    }
    // One that may not could be cut off.
    let held = world.send(&Try::of("tools/call", json!({ "name": "pay" })));
    settle().await;
    assert!(world.server.is_quiet() && !held.is_finished());
    // One that began meanwhile is not waited for.
    let (second, later) = world.begin(&Try::tool()).await;
    assert!(!leaving.is_finished());
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1");
    comes_back(&json_of(second.await.unwrap()));
    later.dropped().await;
    comes_back(&json_of(held.await.unwrap()));
    assert_eq!(leaving.await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_has_left_sends_everybody_on() {
    let (old, mut new) = processes();
    assert_eq!(leave(&old, 30).await.unwrap(), 0);
    let mut attempt = Try::tool();
    for _ in 0..3 {
        let told = old.ask(&attempt).await;
        comes_back(&told);
        attempt = attempt.again(&told, &json!({}));
    }
    assert_eq!(gist(&carried_out(&mut new, &attempt).await.1), "complete 4");
    assert_eq!(old.ask(&Try::of("tools/list", json!({}))).await["refused"], "draining");
    old.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_state_too() {
    let (mut old, mut new) = processes();
    let first = Try::tool().level("info");
    let (waiting, call) = old.begin(&first).await;
    say(&call, "hello").await;
    let mut flow = flow_of(waiting.await.unwrap());
    assert_eq!(gist(&next(&mut flow).await), "hello");
    let reading = tokio::spawn(async move { next(&mut flow).await });
    let leaving = leave(&old, 30);
    safe(&mut old).await;
    let told = reading.await.unwrap();
    comes_back(&told);
    assert_eq!(leaving.await.unwrap(), 0);
    assert_eq!(gist(&carried_out(&mut new, &first.again(&told, &json!({}))).await.1), "complete 2");
}

#[tokio::test(start_paused = true)]
async fn a_listen_stays_until_the_end() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    let (listening, listen) = world.begin(&Try::listen(&json!({ "toolsListChanged": true }))).await;
    listen.acknowledge(&[]).await;
    let mut flow = flow_of(listening.await.unwrap());
    next(&mut flow).await;
    let listening = tokio::spawn(async move { rest(&mut flow).await });
    let leaving = leave(&world, 30);
    not_safe(&mut world).await;
    pass(seconds(3)).await;
    assert!(!listening.is_finished(), "it would only come back");
    call.answer(&json!({}));
    waiting.await.unwrap();
    assert_eq!(listening.await.unwrap(), ["complete 1"]);
    assert_eq!(leaving.await.unwrap(), 0);
}

/// A call that waits for its client, at a process that leaves.
async fn parked(old: &mut World, first: &Try) -> (Value, FakeRequest, JoinHandle<tenure_protocol::Reply>) {
    old.asking(first, "elicitation/create").await
}

#[tokio::test(start_paused = true)]
async fn questions_are_answered_while_the_process_leaves() {
    let (mut old, _) = processes();
    let first = Try::tool();
    let (asked, call, answered) = parked(&mut old, &first).await;
    let leaving = leave(&old, 30);
    not_safe(&mut old).await;
    pass(seconds(2)).await;
    assert!(!leaving.is_finished());
    let second = old.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })));
    assert_eq!(value(answered.await.unwrap()), accepted("Ann"));
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(second.await.unwrap())), "complete 2");
    assert_eq!(leaving.await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_for_answers_begins_anew_at_the_next_process_if_that_is_safe() {
    let (mut old, mut new) = processes();
    let first = Try::tool();
    let (asked, call, _answered) = parked(&mut old, &first).await;
    let leaving = leave(&old, 30);
    safe(&mut old).await;
    assert_eq!(leaving.await.unwrap(), 0);
    call.dropped().await;
    let again = first.again(&asked, &json!({ "q1": accepted("Ann") }));
    // At the process that has left it is only sent on.
    let told = old.ask(&again).await;
    comes_back(&told);
    let waiting = new.send(&again.again(&told, &json!({ "q1": accepted("Ann") })));
    safe(&mut new).await;
    let call = new.server.expect("tools/call").await;
    assert_eq!(call.params().get("requestState"), None);
    let _answered = question(&call, "elicitation/create", json!({ "message": "who?" }));
    assert_eq!(keys_of(&json_of(waiting.await.unwrap())).len(), 1, "it is asked again");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_for_answers_and_may_have_done_something_is_interrupted() {
    let (mut old, mut new) = processes();
    let first = Try::tool();
    let (asked, _call, _answered) = parked(&mut old, &first).await;
    // Killed, without a word.
    drop(old);
    let waiting = new.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })));
    not_safe(&mut new).await;
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-31010, "interrupted"));
    assert!(new.server.is_quiet(), "it is not carried out");
}

#[tokio::test(start_paused = true)]
async fn states_and_answers_that_an_attempt_had_brought_are_not_lost() {
    let (mut old, mut new) = processes();
    let first = Try::tool();
    let (waiting, call) = old.begin(&first).await;
    let wanted = json!({ "e": { "method": "elicitation/create", "params": { "message": "who?", "requestedSchema": {} } } });
    call.answer(
        &json!({ "resultType": "input_required", "inputRequests": wanted, "requestState": "step 2" }),
    );
    let asked = json_of(waiting.await.unwrap());
    let second = first.again(&asked, &json!({ "e": accepted("Ann") }));
    let (waiting, _call) = old.begin(&second).await;
    let leaving = leave(&old, 30);
    safe(&mut old).await;
    let told = json_of(waiting.await.unwrap());
    comes_back(&told);
    leaving.await.unwrap();
    // A client keeps no answers of earlier rounds.
    let (params, answer) = carried_out(&mut new, &second.again(&told, &json!({}))).await;
    assert_eq!(params["requestState"], "step 2");
    assert_eq!(params["inputResponses"], json!({ "e": accepted("Ann") }));
    assert_eq!(gist(&answer), "complete 3");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_say_which_tools_are_safe_is_not_waited_for_for_long() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    let leaving = leave(&world, 30);
    let _silent = world.server.expect("tools/list").await;
    pass(seconds(7)).await;
    assert!(!leaving.is_finished(), "the call counts as one that cannot be carried out twice");
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1");
    assert_eq!(leaving.await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn many_calls_of_one_caller_cost_one_question() {
    let (mut old, _) = processes();
    let mut calls = Vec::new();
    for _ in 0..100 {
        calls.push(old.begin(&Try::tool()).await);
    }
    let leaving = leave(&old, 30);
    safe(&mut old).await;
    for (waiting, _call) in calls {
        comes_back(&json_of(waiting.await.unwrap()));
    }
    assert_eq!(leaving.await.unwrap(), 0);
    assert!(old.server.is_quiet());
}
