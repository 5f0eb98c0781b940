//! Questions of the server to the client, and the client's answers.

use serde_json::{Value, json};

use crate::gateway::family::signal;
use crate::gateway::running::{Gateway, echo, heard};
use crate::support::client::Ask;
use crate::support::session::{Session, initialize_params, notification, request};

async fn answer(session: &Session, question: &Value, result: &Value) {
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
    assert_eq!(session.post(&answer).send(session.server).await.status(), 202);
}

#[tokio::test]
async fn an_elicitation_of_the_demo_is_answered() {
    let gateway = Gateway::demo(&[]).await;
    let session = gateway.session().await;
    let params = json!({ "name": "ask_name" });
    let mut stream = session.request(1, "tools/call", &params).open(gateway.address).await;
    let (_, question) = stream.message().await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "What is your name?");
    answer(&session, &question, &json!({ "action": "accept", "content": { "name": "Ada" } })).await;
    let (_, greeting) = stream.message().await.unwrap();
    assert_eq!(greeting["result"]["content"][0]["text"], "Hello, Ada!");
}

#[tokio::test]
async fn roots_and_sampling_are_asked_on_the_stream_of_the_call() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let told = [
        ("roots/list", json!({}), json!({ "roots": [{ "uri": "file:///home" }] })),
        (
            "sampling/createMessage",
            json!({ "messages": [], "maxTokens": 5 }),
            json!({ "role": "assistant", "model": "m" }),
        ),
    ];
    for (id, (method, params, result)) in (1..).zip(told) {
        let call = json!({ "name": "ask", "arguments": { "method": method, "params": params } });
        let mut stream = session.request(id, "tools/call", &call).open(gateway.address).await;
        let (_, question) = stream.message().await.unwrap();
        assert_eq!((&question["method"], &question["params"]), (&json!(method), &params));
        answer(&session, &question, &result).await;
        assert_eq!(stream.message().await.unwrap().1["result"]["answer"], result);
    }
}

#[tokio::test]
async fn what_the_client_cannot_do_is_refused_without_asking_it() {
    let gateway = Gateway::start(&[]).await;
    let mut params = initialize_params("2025-11-25");
    params["capabilities"] = json!({ "elicitation": {} });
    let begun = Ask::post(request(0, "initialize", &params).to_string()).send(gateway.address).await;
    let session = Session::of(gateway.address, "/mcp", &begun);
    session.post(&notification("notifications/initialized")).send(gateway.address).await;
    for (id, method) in [(1, "roots/list"), (2, "sampling/createMessage")] {
        let said = session.tool(id, "ask", &json!({ "method": method, "params": {} })).await.json();
        assert_eq!(said["result"]["answer"]["code"], -32601, "{method}: {said}");
    }
}

/// Many servers ask for the roots as soon as they hear that the client is ready. A server that takes the place of one
/// that died asks anew, while the gateway itself still tells it the log level and the subscriptions.
#[tokio::test]
async fn a_server_that_asks_for_roots_when_it_begins_is_answered_also_when_it_begins_again() {
    let gateway = Gateway::before(&[], &["env", "ASK_ROOTS=1", &echo()]).await;
    let session = gateway.session().await;
    let mut listening = session.listen().await;
    let roots = json!({ "roots": [{ "uri": "file:///work" }] });
    let mut question = None;
    for round in 0..5 {
        let asked = match question.take() {
            Some(asked) => asked,
            None => listening.message().await.unwrap().1,
        };
        assert_eq!(asked["method"], "roots/list", "round {round}: {asked}");
        answer(&session, &asked, &roots).await;
        let pid = until_heard(&session, round * 1000, "roots {").await;
        for (id, method, params) in [
            (1, "logging/setLevel", json!({ "level": "info" })),
            (2, "resources/subscribe", json!({ "uri": "file:///a" })),
            (3, "resources/subscribe", json!({ "uri": "file:///b" })),
        ] {
            let said = session.request(round * 1000 + 900 + id, method, &params).send(gateway.address).await;
            assert_eq!(said.status(), 200);
        }
        signal(pid, "KILL").await;
        let lost = "the server behind the session is gone";
        let times = usize::try_from(round).unwrap() + 1;
        gateway.logged_again("the loss", times, |line| line["message"] == lost).await;
        // Any request brings the next server up. The question may come with it, or to the session.
        let said = session.tool(round * 1000 + 950, "public_echo", &json!({ "text": "up" })).await;
        question = asked_in(&said.text());
    }
}

/// A question on the stream of a response.
fn asked_in(text: &str) -> Option<Value> {
    let messages =
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    messages.into_iter().find(|message| message["method"] == "roots/list")
}

/// Waits until the example server has heard something, and tells its process id.
async fn until_heard(session: &Session, first: u64, what: &str) -> u32 {
    let mut id = first;
    loop {
        id += 1;
        let (pid, all) = heard(session, id).await;
        if all.iter().any(|line| line.starts_with(what)) {
            return pid;
        }
        assert!(id < first + 800, "not heard: {what}: {all:?}");
    }
}
