//! Questions of a server that knows only sessions, to clients that know none.

use serde_json::{Value, json};
use tenure_protocol::{Method, RawJson, RpcError};
use tenure_testkit::fake_client::FakeClient;

use crate::bridge::support::{World, tool, value};

fn raw(value: &Value) -> Option<RawJson> {
    Some(RawJson::of(value))
}

#[tokio::test]
async fn a_question_during_a_call_is_the_clients_with_the_key_that_the_server_gave_it() {
    let mut world = World::new();
    let client = FakeClient::new(json!({ "elicitation": {}, "roots": {} }));
    client.answer(|method, params| match method {
        Method::ElicitationCreate => {
            assert_eq!(params["_meta"]["dev.tenure/inputKey"], "user_name");
            Ok(RawJson::of(&json!({ "action": "accept", "content": { "name": "Ann" } })))
        }
        _ => Ok(RawJson::of(&json!({ "roots": [] }))),
    });
    let answer = world.start(tool(&client, "t"));
    let (call, opened) = world.asked().await;
    let form =
        json!({ "message": "m", "requestedSchema": {}, "_meta": { "dev.tenure/inputKey": "user_name" } });
    let said = call.context.ask(&Method::ElicitationCreate, raw(&form).as_ref()).await.unwrap();
    assert_eq!(said.read::<Value>().unwrap()["content"]["name"], "Ann");
    // A question outside of any request works too: the session is leased to this request only.
    let said = opened.unwrap().outlet.ask(&Method::RootsList, None).await.unwrap();
    assert_eq!(said.read::<Value>().unwrap(), json!({ "roots": [] }));
    call.answer(&json!({}));
    answer.await.unwrap().unwrap();
}

#[tokio::test]
async fn no_client_is_asked_outside_of_a_call_or_during_a_list() {
    let mut world = World::new();
    let client = FakeClient::new(json!({ "elicitation": {}, "sampling": {} }));
    client.answer(|_, _| panic!("no client may be asked"));
    let answer = world.start(client.call(1, "tools/list", json!({})));
    let (call, opened) = world.asked().await;
    let form = raw(&json!({ "message": "m", "requestedSchema": {} }));
    let declined = call.context.ask(&Method::ElicitationCreate, form.as_ref()).await.unwrap();
    assert_eq!(declined.read::<Value>().unwrap(), json!({ "action": "decline" }));
    call.answer(&json!({ "tools": [] }));
    answer.await.unwrap().unwrap();
    let outlet = opened.unwrap().outlet;
    let declined = outlet.ask(&Method::ElicitationCreate, form.as_ref()).await.unwrap();
    assert_eq!(declined.read::<Value>().unwrap(), json!({ "action": "decline" }));
    let refused = outlet.ask(&Method::SamplingCreateMessage, raw(&json!({ "messages": [] })).as_ref()).await;
    assert_eq!(refused.unwrap_err().code(), -32601);
    assert_eq!(outlet.ask(&Method::Ping, None).await.unwrap(), RawJson::EMPTY_OBJECT);
}

#[tokio::test]
async fn a_question_that_the_client_did_not_declare_fails_the_call_if_the_server_cannot_do_without() {
    let failed = json!({ "content": [], "isError": true });
    for (end, code) in [(json!({ "content": [] }), json!(null)), (failed, json!(-32021))] {
        let mut world = World::new();
        let client = FakeClient::new(json!({ "elicitation": {} }));
        client.answer(|_, _| panic!("no client may be asked"));
        let answer = world.start(tool(&client, "t"));
        let (call, _) = world.asked().await;
        let url = raw(&json!({ "mode": "url", "message": "m", "url": "https://x", "elicitationId": "e" }));
        let refused = call.context.ask(&Method::ElicitationCreate, url.as_ref()).await.unwrap_err();
        assert_eq!(refused.code(), -32602, "what -32021 is to a session");
        call.answer(&end);
        let answer = value(answer.await.unwrap());
        assert_eq!(answer["error"]["code"], code);
        if !code.is_null() {
            let required = &answer["error"]["data"]["requiredCapabilities"];
            assert_eq!(*required, json!({ "elicitation": { "url": {} } }));
        }
    }
}

#[tokio::test]
async fn what_only_the_exchange_knows_to_be_missing_counts_as_well() {
    let mut world = World::new();
    let client = FakeClient::new(json!({ "sampling": {} }));
    client.answer(|_, _| {
        let data = json!({ "requiredCapabilities": { "sampling": {} } });
        Err(RpcError::with_data(-32021, "not declared", &data))
    });
    let answer = world.start(tool(&client, "t"));
    let (call, _) = world.asked().await;
    let asked = raw(&json!({ "messages": [] }));
    assert_eq!(
        call.context.ask(&Method::SamplingCreateMessage, asked.as_ref()).await.unwrap_err().code(),
        -32602
    );
    call.fail(-32603, "cannot go on");
    assert_eq!(value(answer.await.unwrap())["error"]["code"], -32021);
}

#[tokio::test]
async fn urls_that_have_to_be_visited_are_asked_for_and_the_request_is_sent_again() {
    let mut world = World::new();
    let needed = json!({ "elicitations": [{ "mode": "url", "message": "sign in", "url": "https://x", "elicitationId": "e" }] });
    let needed = RpcError::with_data(-32042, "visit", &needed);
    let client = FakeClient::new(json!({ "elicitation": { "url": {} } }));
    let answer = world.start(tool(&client, "t"));
    world.asked().await.0.end(Err(needed.clone()));
    assert_eq!(
        value(answer.await.unwrap()),
        json!({
            "resultType": "input_required",
            "inputRequests": { "q1": {
                "method": "elicitation/create",
                "params": { "mode": "url", "message": "sign in", "url": "https://x" },
            } },
        })
    );
    let retry =
        json!({ "name": "t", "arguments": { "a": 1 }, "inputResponses": { "q1": { "action": "accept" } } });
    let answer = world.start(client.call(2, "tools/call", retry));
    let (call, _) = world.asked().await;
    assert_eq!(crate::bridge::support::params(&call), json!({ "name": "t", "arguments": { "a": 1 } }));
    call.answer(&json!({ "content": [] }));
    answer.await.unwrap().unwrap();
    // A user who does not want to is not asked over and over.
    for action in ["decline", "cancel"] {
        let retry =
            json!({ "name": "t", "arguments": { "a": 1 }, "inputResponses": { "q1": { "action": action } } });
        let answer = world.start(client.call(3, "tools/call", retry));
        world.script.call().await.end(Err(needed.clone()));
        let answer = value(answer.await.unwrap());
        assert_eq!(answer["isError"], true, "{answer}");
    }
    // A client that cannot open a page for its user.
    let answer = world.call("t");
    world.script.call().await.end(Err(needed));
    let answer = value(answer.await.unwrap());
    assert_eq!(answer["error"]["code"], -32021);
    assert_eq!(answer["error"]["data"]["requiredCapabilities"], json!({ "elicitation": { "url": {} } }));
}

#[tokio::test]
async fn an_unknown_state_never_begins_a_call_anew() {
    let mut world = World::new();
    let client = FakeClient::new(json!({ "elicitation": {} }));
    let answers = json!({ "q1": { "action": "accept", "content": {} } });
    let retry = json!({ "name": "t", "requestState": "of another process", "inputResponses": answers });
    let answer = value(world.start(client.call(2, "tools/call", retry)).await.unwrap());
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(world.done(tool(&client, "t")).await, 1, "nothing came before this");
}

#[tokio::test]
async fn the_end_of_an_elicitation_is_told_to_no_client() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    let answer = world.start(tool(&client, "t"));
    let (call, opened) = world.asked().await;
    let params = raw(&json!({ "elicitationId": "e" }));
    call.context.notify(&Method::ElicitationComplete, params.as_ref()).await.unwrap();
    opened.unwrap().outlet.notify(&Method::ElicitationComplete, params.as_ref()).await.unwrap();
    call.answer(&json!({}));
    answer.await.unwrap().unwrap();
    assert_eq!(client.heard(), []);
}
