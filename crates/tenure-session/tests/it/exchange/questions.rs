//! What a server asks its client: questions that end an attempt, and answers that come with the next one.

use serde_json::{Value, json};
use tenure_protocol::{Method, RawJson};

use super::support::{
    Try, World, accepted, error_of, flow_of, gist, json_of, keys_of, pass, question, rest, say, seconds,
    settle, value,
};

#[tokio::test(start_paused = true)]
async fn a_question_ends_the_attempt_and_its_answer_comes_with_the_next() {
    let mut world = World::new();
    let first = Try::tool();
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    assert_eq!(
        asked["result"]["inputRequests"],
        json!({ "q1": { "method": "elicitation/create", "params": { "message": "who?" } } })
    );
    assert_eq!((world.tallies().running, world.tallies().parked), (0, 1));
    let second = world.send(&first.again(&asked, &json!({ "q1": accepted("Ann") })));
    assert_eq!(value(answered.await.unwrap()), accepted("Ann"));
    call.answer(&json!({ "content": [] }));
    assert_eq!(gist(&json_of(second.await.unwrap())), "complete 2");
    settle().await;
    world.assert_idle();
    assert!(world.server.is_quiet(), "the server was asked once");
}

#[tokio::test(start_paused = true)]
async fn a_question_after_messages_is_the_last_message_of_the_stream() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool().level("info")).await;
    say(&call, "hello").await;
    let mut flow = flow_of(waiting.await.unwrap());
    let _answered = question(&call, "elicitation/create", json!({}));
    assert_eq!(rest(&mut flow).await, ["hello", "input_required 1"]);
}

#[tokio::test(start_paused = true)]
async fn questions_of_one_moment_are_asked_together() {
    let mut world = World::new();
    let first = Try::tool();
    let (waiting, call) = world.begin(&first).await;
    let mut answered = Vec::new();
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        answered.push(question(&call, method, json!({})));
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let asked = json_of(waiting.await.unwrap());
    assert_eq!(keys_of(&asked), ["q1", "q2", "q3"]);
    assert_eq!(asked["result"]["inputRequests"]["q3"]["method"], "roots/list");
    let answers = json!({ "q1": accepted("Ann"), "q2": { "role": "assistant" }, "q3": { "roots": [] } });
    let second = world.send(&first.again(&asked, &answers));
    for (one, key) in answered.into_iter().zip(["q1", "q2", "q3"]) {
        assert_eq!(value(one.await.unwrap()), answers[key]);
    }
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(second.await.unwrap())), "complete 2");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_stops_asking_is_heard_in_time() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    let context = call.context.clone();
    let asking = tokio::spawn(async move {
        loop {
            let (context, params) = (context.clone(), RawJson::EMPTY_OBJECT);
            tokio::spawn(async move { context.ask(&Method::ElicitationCreate, Some(&params)).await });
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    let before = tokio::time::Instant::now();
    let asked = json_of(waiting.await.unwrap());
    assert_eq!(before.elapsed().as_millis(), 200);
    assert!(keys_of(&asked).len() >= 20);
    asking.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_not_answered_or_not_well_is_asked_again_and_what_is_too_much_is_ignored() {
    let mut world = World::new();
    let first = Try::tool();
    let (waiting, call) = world.begin(&first).await;
    let one = question(&call, "elicitation/create", json!({ "message": "one" }));
    let two = question(&call, "elicitation/create", json!({ "message": "two" }));
    let mut asked = json_of(waiting.await.unwrap());
    let mut attempt = first;
    let nothing = [
        json!({}),
        json!({ "q1": 7, "q2": null }),
        json!({ "q1": [accepted("Ann")], "q2": "accept" }),
        json!({ "q3": accepted("Ann"), "elicitation/create": accepted("Bob") }),
        json!([accepted("Ann")]),
        json!("q1"),
        Value::Null,
    ];
    for answers in nothing {
        attempt = attempt.again(&asked, &answers);
        asked = world.ask(&attempt).await;
        assert_eq!(keys_of(&asked), ["q1", "q2"], "{answers}");
        assert_eq!(asked["result"]["inputRequests"]["q2"]["params"]["message"], "two");
    }
    attempt = attempt.again(&asked, &json!({ "q2": accepted("Bob"), "more": accepted("Eve") }));
    asked = world.ask(&attempt).await;
    assert_eq!(keys_of(&asked), ["q1"], "only what is missing");
    assert_eq!(value(two.await.unwrap()), accepted("Bob"));
    let last = world.send(&attempt.again(&asked, &json!({ "q1": accepted("Ann"), "q2": accepted("Eve") })));
    assert_eq!(value(one.await.unwrap()), accepted("Ann"));
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(last.await.unwrap())), "complete 10");
    assert!(world.server.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn answers_are_found_however_their_name_is_written() {
    let mut world = World::new();
    let first = Try::tool();
    let (asked, call, answered) = world.asking(&first, "elicitation/create").await;
    let written = first.again(&asked, &json!({ "q1": accepted("Ann") }));
    let mut checked = written.checked();
    let params = checked.request.params.as_ref().unwrap();
    let text = String::from_utf8(params.bytes().to_vec()).unwrap();
    let text = text.replace(r#""inputResponses""#, r#""input\u0052esponses""#);
    checked.request.params = RawJson::parse(text);
    let exchanges = world.exchanges.clone();
    let second = tokio::spawn(async move { exchanges.request(checked, written.caller()).await });
    assert_eq!(value(answered.await.unwrap()), accepted("Ann"));
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(second.await.unwrap())), "complete 2");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_cannot_be_asked_is_told_what_it_lacks() {
    let mut world = World::new();
    let nothing = json!({});
    for (method, capability) in [
        ("elicitation/create", json!({ "elicitation": { "form": {} } })),
        ("sampling/createMessage", json!({ "sampling": {} })),
        ("roots/list", json!({ "roots": {} })),
    ] {
        for is_error in [true, false] {
            let (waiting, call) = world.begin(&Try::tool().can(nothing.clone())).await;
            let answered = question(&call, method, json!({})).await.unwrap();
            let error = answered.unwrap_err();
            assert_eq!(error.code(), -32021, "the server is told too");
            if is_error {
                call.fail(error)
            } else {
                call.answer(&json!({ "isError": true, "content": [] }))
            }
            let answer = json_of(waiting.await.unwrap());
            assert_eq!(answer["error"]["code"], -32021);
            assert_eq!(answer["error"]["data"]["requiredCapabilities"], capability, "{method}");
        }
        let (waiting, call) = world.begin(&Try::tool().can(nothing.clone())).await;
        question(&call, method, json!({})).await.unwrap().unwrap_err();
        call.answer(&json!({ "content": [] }));
        assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1", "a server may do without");
    }
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn each_attempt_can_what_it_declares() {
    let mut world = World::new();
    let first = Try::tool().can(json!({ "elicitation": {} }));
    let (waiting, call) = world.begin(&first).await;
    question(&call, "roots/list", json!({})).await.unwrap().unwrap_err();
    let answered = question(&call, "elicitation/create", json!({}));
    let asked = json_of(waiting.await.unwrap());
    let second = first.again(&asked, &json!({ "q1": accepted("Ann") })).can(json!({ "roots": {} }));
    let second = world.send(&second);
    answered.await.unwrap().unwrap();
    assert_eq!(call.context.capabilities().read::<Value>().unwrap(), json!({ "roots": {} }));
    question(&call, "elicitation/create", json!({})).await.unwrap().unwrap_err();
    call.fail(super::support::failure(tenure_protocol::Reason::InvalidParams));
    let answer = json_of(second.await.unwrap());
    let lacking = &answer["error"]["data"]["requiredCapabilities"];
    assert_eq!(*lacking, json!({ "elicitation": { "form": {} } }), "roots it has by now");
}

#[tokio::test(start_paused = true)]
async fn no_client_is_asked_during_a_request_that_has_no_place_for_it() {
    let mut world = World::new();
    for method in ["tools/list", "resources/list", "completion/complete"] {
        let (waiting, call) = world.begin(&Try::of(method, json!({}))).await;
        let declined = question(&call, "elicitation/create", json!({})).await.unwrap();
        assert_eq!(value(declined), json!({ "action": "decline" }));
        question(&call, "sampling/createMessage", json!({})).await.unwrap().unwrap_err();
        call.answer(&json!({}));
        assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1");
    }
    // Kept, because a server that hangs up is one that was lost.
    let mut calls = Vec::new();
    for method in ["prompts/get", "resources/read"] {
        let (waiting, call) = world.begin(&Try::of(method, json!({ "name": "x", "uri": "x:y" }))).await;
        let _answered = question(&call, "elicitation/create", json!({}));
        assert_eq!(keys_of(&json_of(waiting.await.unwrap())), ["q1"], "{method}");
        calls.push(call);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_server_took_back_is_not_asked() {
    let mut world = World::new();
    let first = Try::tool();
    let (waiting, call) = world.begin(&first).await;
    question(&call, "elicitation/create", json!({})).abort();
    pass(seconds(1)).await;
    assert!(!waiting.is_finished(), "there is nothing to ask");
    let one = question(&call, "elicitation/create", json!({}));
    let two = question(&call, "elicitation/create", json!({}));
    let asked = json_of(waiting.await.unwrap());
    let keys = keys_of(&asked).into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(keys.len(), 2);
    one.abort();
    settle().await;
    let asked = world.ask(&first.again(&asked, &json!({}))).await;
    assert_eq!(keys_of(&asked), [&keys[1]], "nor asked again");
    two.abort();
    settle().await;
    let last = world.send(&first.again(&asked, &json!({})));
    pass(seconds(1)).await;
    assert!(!last.is_finished());
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(last.await.unwrap())), "complete 2");
}

/// A question whose key the server chose.
fn named(key: &str) -> Value {
    json!({ "message": "who?", "_meta": { "dev.tenure/inputKey": key } })
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_named_question_may_come_before_it_was_asked() {
    let mut world = World::new();
    let attempt =
        Try::tool().with("inputResponses", json!({ "user": accepted("Ann"), "q2": accepted("Eve") }));
    let (waiting, call) = world.begin(&attempt).await;
    let answered = question(&call, "elicitation/create", named("user")).await.unwrap();
    assert_eq!(value(answered), accepted("Ann"));
    let _unnamed = question(&call, "elicitation/create", json!({}));
    let asked = json_of(waiting.await.unwrap());
    assert_eq!(keys_of(&asked), ["q2"], "a key of ours means nothing without its state");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_used_once_and_then_asked_for_again() {
    let mut world = World::new();
    let first = Try::tool().with("inputResponses", json!({ "user": accepted("") }));
    let (waiting, call) = world.begin(&first).await;
    question(&call, "elicitation/create", named("user")).await.unwrap().unwrap();
    // The answer was no good, so the server asks again.
    let answered = question(&call, "elicitation/create", named("user"));
    let asked = json_of(waiting.await.unwrap());
    assert_eq!(keys_of(&asked), ["user"]);
    let second = first.again(&asked, &json!({ "user": accepted("also no good") }));
    let waiting = world.send(&second);
    assert_eq!(value(answered.await.unwrap()), accepted("also no good"));
    let answered = question(&call, "elicitation/create", named("user"));
    let asked = json_of(waiting.await.unwrap());
    assert_eq!(keys_of(&asked), ["user"]);
    let waiting = world.send(&second.again(&asked, &json!({ "user": accepted("Ann") })));
    assert_eq!(value(answered.await.unwrap()), accepted("Ann"));
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 3");
}

#[tokio::test(start_paused = true)]
async fn questions_that_are_too_large_end_the_call() {
    let mut world = World::with(|limits| limits.max_event_bytes = 1000);
    let (waiting, call) = world.begin(&Try::tool()).await;
    let _answered = question(&call, "elicitation/create", json!({ "message": "x".repeat(2000) }));
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-32603, "event_too_large"));
    settle().await;
    assert!(call.is_dropped(), "its client cannot come back for it");
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_what_no_client_knows_is_at_fault_and_not_unknown() {
    let mut world = World::new();
    let (waiting, call) = world.begin(&Try::tool()).await;
    let odd = json!({ "method": "elicitation/create", "params": { "mode": "voice", "message": "who?" } });
    call.answer(&json!({ "resultType": "input_required", "inputRequests": { "odd": odd } }));
    assert_eq!(error_of(&json_of(waiting.await.unwrap())), (-32603, "internal"));
}
