//! Attempts that come back with a state: which of them go on, and which are refused.

use serde_json::{Value, json};
use tenure_protocol::RawJson;

use super::support::{
    Making, Try, World, accepted, error_of, flow_of, gist, json_of, key, keys_of, next, question, rest, say,
    saying, settle, value,
};

const INVALID: (i64, &str) = (-32602, "invalid_request_state");

/// The reason for which an attempt was refused before anybody saw it.
fn refusal(answer: &Value) -> &str {
    answer["refused"].as_str().unwrap_or_else(|| panic!("refused, not {answer}"))
}

#[tokio::test(start_paused = true)]
async fn a_state_is_good_for_the_same_request_of_the_same_caller_alone() {
    let mut world = World::new();
    let first = Try::tool().by("ann");
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    let again = first.again(&asked, &json!({ "q1": accepted("Ann") }));
    let others = [
        ("another caller", again.clone().by("bob")),
        ("another endpoint", again.clone().at("other")),
        ("other arguments", again.clone().with("arguments", json!({ "a": 2 }))),
        ("another tool", again.clone().with("name", json!("u"))),
        ("one more member", again.clone().with("more", json!(1))),
        ("another state", again.clone().with("requestState", json!("AAAA"))),
        ("no state of anybody's", again.clone().with("requestState", json!("not base64 !"))),
        ("an empty one", again.clone().with("requestState", json!(""))),
    ];
    for (what, attempt) in others {
        assert_eq!(refusal(&world.ask(&attempt).await), "invalid_request_state", "{what}");
    }
    let state = asked["result"]["requestState"].clone();
    let params = json!({ "name": "t", "arguments": { "a": 1 }, "requestState": state });
    let prompt = Try::of("prompts/get", params).by("ann");
    assert_eq!(refusal(&world.ask(&prompt).await), "invalid_request_state", "another method");
    assert!(world.server.is_quiet(), "none of them was carried out anew");
    assert_eq!((world.tallies().running, world.tallies().parked), (0, 1));
    let second = world.send(&again);
    assert_eq!(value(answered.await.unwrap()), accepted("Ann"));
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(second.await.unwrap())), "complete 2", "it is good still");
    assert_eq!(refusal(&world.ask(&again).await), "invalid_request_state", "and never again");
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_no_text_or_stands_twice_is_refused() {
    let mut world = World::new();
    let first = Try::tool();
    let (asked, _call, _answered) = world.asking(&first, "elicitation/create").await;
    let number = first.clone().with("requestState", json!(7));
    assert_eq!(refusal(&world.ask(&number).await), "invalid_params");
    let again = first.again(&asked, &json!({}));
    let mut checked = again.checked();
    let text = String::from_utf8(checked.request.params.as_ref().unwrap().bytes().to_vec()).unwrap();
    checked.request.params = RawJson::parse(text.replacen('{', r#"{"requestState":"a","#, 1));
    let answer = json_of(world.exchanges.request(checked, again.caller()).await);
    assert_eq!(refusal(&answer), "invalid_params", "a proxy that reads the header must not be misled");
    assert!(world.server.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn a_state_of_another_key_is_refused() {
    let mut world = World::new();
    let first = Try::tool();
    let (asked, _call, _answered) = world.asking(&first, "elicitation/create").await;
    let again = first.again(&asked, &json!({ "q1": accepted("Ann") }));
    let other = World::of(Making { seal: key(), ..Making::default() });
    assert_eq!(refusal(&other.ask(&again).await), "invalid_request_state");
    assert!(other.server.is_quiet(), "no second run without a request");
}

#[tokio::test(start_paused = true)]
async fn of_two_attempts_with_one_state_the_newer_goes_on() {
    let mut world = World::new();
    let first = Try::tool().level("info");
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    let older = world.send(&first.again(&asked, &json!({})).json_only());
    let newer = world.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })).id(20));
    assert_eq!(error_of(&json_of(older.await.unwrap())), INVALID);
    answered.await.unwrap().unwrap();
    say(&call, "hello").await;
    let mut flow = flow_of(newer.await.unwrap());
    assert_eq!(gist(&next(&mut flow).await), "hello");
    let newest = world.send(&first.again(&asked, &json!({})).id(30));
    assert_eq!(rest(&mut flow).await, ["error 20 invalid_request_state"], "in a stream too");
    drop(flow);
    settle().await;
    assert!(!call.is_dropped(), "the call is another's now");
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(newest.await.unwrap())), "complete 30");
    settle().await;
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_overtaken_may_go_without_taking_the_call_along() {
    let mut world = World::new();
    let first = Try::tool();
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    let older = world.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })));
    answered.await.unwrap().unwrap();
    let newer = world.send(&first.again(&asked, &json!({})));
    older.abort();
    settle().await;
    assert!(!call.is_dropped());
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(newer.await.unwrap())), "complete 2");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_waits_for_room_goes_on_with_the_attempt_that_takes_over() {
    let mut world = World::with(|limits| limits.max_waiting = 1);
    let first = Try::tool().level("info");
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    let older = world.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })));
    answered.await.unwrap().unwrap();
    say(&call, "1").await;
    let flow = flow_of(older.await.unwrap());
    say(&call, "2").await;
    let third = saying(&call, "3");
    settle().await;
    assert!(!third.is_finished(), "its stream is not read");
    let newer = world.send(&first.again(&asked, &json!({})).id(20));
    let mut newer = flow_of(newer.await.unwrap());
    third.await.unwrap().unwrap();
    call.answer(&json!({}));
    assert_eq!(rest(&mut newer).await, ["3", "complete 20"]);
    drop(flow);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_goes_to_the_attempt_of_the_moment_as_it_asked_for_it() {
    let mut world = World::new();
    let first = Try::tool().level("error").token("first");
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    let progress = |count: u64| json!({ "progressToken": "first", "progress": count });
    // No client is there.
    say(&call, "lost").await;
    call.say(&tenure_protocol::Method::Progress, &progress(1)).await;
    let second = first.again(&asked, &json!({ "q1": accepted("Ann") })).level("info").token(2);
    let second = world.send(&second);
    answered.await.unwrap().unwrap();
    call.say(&tenure_protocol::Method::Progress, &progress(2)).await;
    let mut flow = flow_of(second.await.unwrap());
    let heard = next(&mut flow).await;
    assert_eq!(heard["params"], json!({ "progressToken": 2, "progress": 2 }));
    say(&call, "info").await;
    assert_eq!(gist(&next(&mut flow).await), "info", "the level of this attempt");
    let answered = question(&call, "elicitation/create", json!({}));
    let asked = next(&mut flow).await;
    assert_eq!(keys_of(&asked), ["q2"]);
    let third = Try::tool().again(&asked, &json!({ "q2": accepted("Bob") })).id(3);
    let third = world.send(&third);
    answered.await.unwrap().unwrap();
    say(&call, "unwanted").await;
    call.say(&tenure_protocol::Method::Progress, &progress(3)).await;
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(third.await.unwrap())), "complete 3", "it asked for neither");
}

#[tokio::test(start_paused = true)]
async fn results_of_later_attempts_are_not_to_be_cached() {
    let mut world = World::new();
    let first = Try::of("resources/read", json!({ "uri": "a:b" }));
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    assert_eq!(asked["result"].get("ttlMs"), None);
    let second = world.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })));
    answered.await.unwrap().unwrap();
    call.answer(&json!({ "contents": [], "ttlMs": 5000, "cacheScope": "public" }));
    let result = json_of(second.await.unwrap())["result"].clone();
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")));
}
