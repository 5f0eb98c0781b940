//! Everything passes: what a client could do with the server itself, it can do through the gateway.

use serde_json::{Value, json};

use crate::gateway::running::{Gateway, heard};
use crate::support::events::Events;
use crate::support::session::{Session, notification};

async fn ask(session: &Session, id: u64, method: &str, params: &Value) -> Value {
    session.request(id, method, params).send(session.server).await.json()
}

#[tokio::test]
async fn the_demo_works_as_a_child() {
    let gateway = Gateway::demo(&[]).await;
    let session = gateway.session().await;
    let tools = ask(&session, 1, "tools/list", &json!({})).await;
    assert!(tools["result"]["tools"].as_array().unwrap().len() > 10, "{tools}");
    let echo = session.tool(2, "public_echo", &json!({ "text": "zwölf" })).await.json();
    assert_eq!(echo["result"]["content"][0]["text"], "zwölf");
    let prompt = ask(&session, 3, "prompts/get", &json!({ "name": "summarize_notebook" })).await;
    assert!(
        prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("short"),
        "{prompt}"
    );
    let argument = json!({
        "ref": { "type": "ref/prompt", "name": "summarize_notebook" },
        "argument": { "name": "style", "value": "f" },
    });
    let completion = ask(&session, 4, "completion/complete", &argument).await;
    assert_eq!(completion["result"]["completion"]["values"], json!(["formal", "friendly"]));
    let about = ask(&session, 5, "resources/read", &json!({ "uri": "demo://about" })).await;
    assert!(about["result"]["contents"][0]["text"].as_str().unwrap().contains("Tenure"), "{about}");
    // The server's own state works too: this is the child's own workspace.
    let workspace = session.workspace().await;
    let note = json!({ "workspace_id": workspace, "text": "kept by the child" });
    session.tool(6, "notebook_append", &note).await;
    let notes = session.tool(7, "notebook_read", &json!({ "workspace_id": workspace })).await.json();
    assert_eq!(notes["result"]["structuredContent"]["notes"], json!(["kept by the child"]));
    // Its errors are its own.
    let unknown = ask(&session, 8, "resources/read", &json!({ "uri": "demo://nowhere" })).await;
    assert_eq!(unknown["error"]["code"], -32002);
    assert_eq!(unknown["error"]["data"], json!({ "uri": "demo://nowhere" }));
}

#[tokio::test]
async fn progress_of_several_calls_comes_on_the_right_streams() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("gate");
    let mut streams: Vec<Events> = Vec::new();
    for id in 1..=5_u64 {
        // Tokens of both kinds.
        let token = if id % 2 == 0 { json!(id) } else { json!(format!("token-{id}")) };
        let arguments = json!({ "steps": 4, "gate": gate });
        let params = json!({ "name": "slow", "arguments": arguments, "_meta": { "progressToken": token } });
        streams.push(session.request(id, "tools/call", &params).open(gateway.address).await);
    }
    for stream in &mut streams {
        assert_eq!(stream.message().await.unwrap().1["params"]["progress"], 1, "all have begun");
    }
    std::fs::write(&gate, "").unwrap();
    for (id, stream) in (1..).zip(&mut streams) {
        let token = if id % 2 == 0 { json!(id) } else { json!(format!("token-{id}")) };
        for step in 2..=4 {
            let (_, message) = stream.message().await.unwrap();
            assert_eq!(
                (&message["params"]["progressToken"], &message["params"]["progress"]),
                (&token, &json!(step))
            );
        }
        let (_, answer) = stream.message().await.unwrap();
        assert_eq!(
            (&answer["id"], &answer["result"]["content"][0]["text"]),
            (&json!(id), &json!("did 4 steps"))
        );
        assert_eq!(stream.message().await, None, "nothing after the answer");
    }
}

#[tokio::test]
async fn log_messages_come_with_the_call_or_the_session_and_obey_the_level() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    ask(&session, 1, "logging/setLevel", &json!({ "level": "warning" })).await;
    assert!(heard(&session, 2).await.1.contains(&r#"logging/setLevel {"level":"warning"}"#.to_owned()));
    let log = |id: u64, level: &str, data: &str| {
        let params = json!({ "name": "log", "arguments": { "level": level, "data": data } });
        session.request(id, "tools/call", &params).begin(gateway.address)
    };
    let mut stream = log(3, "error", "loud").await.events().await;
    assert_eq!(stream.rest().await, ["loud", "result 3"]);
    let quiet = log(4, "info", "quiet").await.response().await;
    assert_eq!(quiet.json()["id"], 4, "below the level, so there is nothing to stream");
    // While several calls are in flight the message cannot be matched to one: it belongs to the session.
    let mut listening = session.listen().await;
    let gate = json!({ "gate": gateway.folder.path().join("never") });
    let mut streams = Vec::new();
    for id in 5..7 {
        let params = json!({ "name": "slow", "arguments": gate, "_meta": { "progressToken": id } });
        let mut stream = session.request(id, "tools/call", &params).open(gateway.address).await;
        assert_eq!(stream.message().await.unwrap().1["params"]["progress"], 1);
        streams.push(stream);
    }
    assert_eq!(log(7, "error", "whose?").await.response().await.json()["id"], 7);
    assert_eq!(listening.heard().await, "whose?");
}

#[tokio::test]
async fn subscriptions_and_updates_pass() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let mut listening = session.listen().await;
    let uri = json!({ "uri": "file:///a" });
    assert_eq!(ask(&session, 1, "resources/subscribe", &uri).await["result"], json!({}));
    session.tool(2, "update", &uri).await;
    let (_, update) = listening.message().await.unwrap();
    assert_eq!((&update["method"], &update["params"]), (&json!("notifications/resources/updated"), &uri));
    ask(&session, 3, "resources/unsubscribe", &uri).await;
    let (_, all) = heard(&session, 4).await;
    let about: Vec<_> = all.iter().filter(|line| line.starts_with("resources/")).collect();
    assert_eq!(
        about,
        [r#"resources/subscribe {"uri":"file:///a"}"#, r#"resources/unsubscribe {"uri":"file:///a"}"#]
    );
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_in_the_child() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let arguments = json!({ "gate": gateway.folder.path().join("never") });
    let params = json!({ "name": "slow", "arguments": arguments, "_meta": { "progressToken": "t" } });
    let mut stream = session.request(77, "tools/call", &params).open(gateway.address).await;
    assert_eq!(stream.message().await.unwrap().1["params"]["progress"], 1);
    let mut cancel = notification("notifications/cancelled");
    cancel["params"] = json!({ "requestId": 77, "reason": "changed my mind" });
    assert_eq!(session.post(&cancel).send(gateway.address).await.status(), 202);
    assert_eq!(stream.message().await, None, "a cancelled request has no answer");
    // Its id there is not the client's, but it is that of the call.
    let mut id = 100;
    let cancelled = loop {
        id += 1;
        let (_, all) = heard(&session, id).await;
        if let Some(line) = all.iter().find(|line| line.starts_with("notifications/cancelled")) {
            break line.clone();
        }
    };
    assert!(cancelled.contains("requestId"), "{cancelled}");
    assert_eq!(session.tool(78, "public_echo", &json!({ "text": "on" })).await.status(), 200);
}

#[tokio::test]
async fn two_sessions_do_not_see_each_others_child() {
    let gateway = Gateway::start(&[]).await;
    let (one, two) = (gateway.session().await, gateway.session().await);
    let mut listening = two.listen().await;
    ask(&one, 1, "resources/subscribe", &json!({ "uri": "file:///one" })).await;
    ask(&two, 1, "resources/subscribe", &json!({ "uri": "file:///two" })).await;
    one.tool(2, "update", &json!({ "uri": "file:///one" })).await;
    one.tool(3, "log", &json!({ "level": "error", "data": "of one" })).await;
    two.tool(2, "update", &json!({ "uri": "file:///two" })).await;
    let (_, first) = listening.message().await.unwrap();
    assert_eq!(first["params"]["uri"], "file:///two", "nothing of the other session came before");
    let ((pid_one, heard_one), (pid_two, heard_two)) = (heard(&one, 4).await, heard(&two, 4).await);
    assert_ne!(pid_one, pid_two);
    assert!(heard_one.iter().all(|line| !line.contains("two")), "{heard_one:?}");
    assert!(heard_two.iter().all(|line| !line.contains("one")), "{heard_two:?}");
    // The end of one is not the end of the other.
    crate::gateway::family::signal(pid_one, "KILL").await;
    assert_eq!(heard(&two, 5).await.0, pid_two);
}
