//! States that servers write themselves, in results that want input.

use serde_json::{Value, json};

use super::support::{Making, Try, World, accepted, error_of, gist, json_of, keys_of, pass, seconds};

fn wanted(state: &str) -> Value {
    json!({
        "resultType": "input_required",
        "inputRequests": { "user": { "method": "elicitation/create", "params": { "message": "who?" } } },
        "requestState": state,
    })
}

#[tokio::test(start_paused = true)]
async fn a_servers_state_is_sealed_and_comes_back_to_it_as_it_was() {
    let mut world = World::new();
    let first = Try::tool();
    let (waiting, call) = world.begin(&first).await;
    call.answer(&wanted("step \"2\" \u{1f600}"));
    let asked = json_of(waiting.await.unwrap());
    assert_eq!(keys_of(&asked), ["user"]);
    let state = asked["result"]["requestState"].as_str().unwrap();
    assert!(!state.contains("step"), "it cannot be read: {state}");
    world.assert_idle();
    let again = first.again(&asked, &json!({ "user": accepted("Ann") }));
    // Such a server keeps nothing, so the same attempt may come twice.
    for _ in 0..2 {
        let (waiting, call) = world.begin(&again).await;
        let params = call.params();
        assert_eq!(params["requestState"], "step \"2\" \u{1f600}");
        assert_eq!(params["inputResponses"]["user"], accepted("Ann"));
        call.answer(&json!({ "content": [] }));
        assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 2");
    }
    for other in [again.clone().by("bob"), again.clone().with("arguments", json!({}))] {
        assert_eq!(world.ask(&other).await["refused"], "invalid_request_state");
    }
    pass(seconds(600)).await;
    assert_eq!(world.ask(&again).await["refused"], "invalid_request_state", "too old");
}

#[tokio::test(start_paused = true)]
async fn a_servers_wish_without_a_state_passes_as_it_is() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    let mut wish = wanted("");
    wish.as_object_mut().unwrap().remove("requestState");
    call.answer(&wish);
    let asked = json_of(waiting.await.unwrap());
    assert_eq!(keys_of(&asked), ["user"]);
    assert_eq!(asked["result"].get("requestState"), None);
    // And a state without questions: the client is to send the request once more.
    let (waiting, call) = world.begin(&Try::tool()).await;
    call.answer(&json!({ "resultType": "input_required", "requestState": "later" }));
    let asked = json_of(waiting.await.unwrap());
    let (waiting, call) = world.begin(&Try::tool().again(&asked, &Value::Null)).await;
    assert_eq!(call.params()["requestState"], "later");
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 2");
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_the_client_cannot_fulfil_names_what_it_lacks() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().can(json!({ "sampling": {} }))).await;
    call.answer(&wanted("x"));
    let answer = json_of(waiting.await.unwrap());
    assert_eq!(answer["error"]["code"], -32021);
    assert_eq!(answer["error"]["data"]["requiredCapabilities"], json!({ "elicitation": { "form": {} } }));
}

#[tokio::test(start_paused = true)]
async fn a_wish_where_none_may_be_or_that_is_none_is_an_error_of_the_server() {
    let mut world = World::new();
    for method in ["tools/list", "resources/list", "completion/complete"] {
        let (waiting, call) = world.begin(&Try::of(method, json!({}))).await;
        call.answer(&wanted("x"));
        assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-32603, "internal"), "{method}");
    }
    for broken in [
        json!({ "resultType": "input_required" }),
        json!({ "resultType": "input_required", "inputRequests": {} }),
        json!({ "resultType": "input_required", "inputRequests": 7 }),
        json!({ "resultType": "input_required", "inputRequests": { "a": { "method": "tools/call" } } }),
        json!({ "resultType": "input_required", "requestState": 7 }),
    ] {
        let (waiting, call) = world.begin(&Try::tool()).await;
        call.answer(&broken);
        let code = json_of(waiting.await.unwrap())["error"]["code"].as_i64();
        assert!(code.is_some(), "{broken}");
    }
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_seals_its_states_itself_gets_them_byte_for_byte() {
    let mut world = World::of(Making { keeps_states: true, ..Making::default() });
    let first = Try::tool();
    let (waiting, call) = world.begin(&first).await;
    call.answer(&wanted("theirs"));
    let asked = json_of(waiting.await.unwrap());
    assert_eq!(asked["result"]["requestState"], "theirs");
    let (waiting, call) = world.begin(&first.again(&asked, &json!({ "user": accepted("Ann") }))).await;
    assert_eq!(call.params()["requestState"], "theirs");
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 2");
}

#[tokio::test(start_paused = true)]
async fn a_state_of_ours_that_is_too_old_is_not_taken_for_one_of_the_servers() {
    let mut world = World::of(Making { keeps_states: true, ..Making::default() });
    let first = Try::tool();
    let (asked, call, _answered) = world.asking(&first, "elicitation/create").await;
    pass(seconds(700)).await;
    assert!(call.is_dropped());
    let late = world.ask(&first.again(&asked, &json!({ "q1": accepted("Ann") }))).await;
    assert_eq!(late["refused"], "invalid_request_state", "it would be carried out a second time");
    assert!(world.server.is_quiet());
}
