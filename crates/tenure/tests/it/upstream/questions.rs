//! A server upstream that asks more than a client could answer, and takes no answers.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::odd::{answer, calling, news, through};
use super::server::Asked;

fn question(id: u64, method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method })
}

/// Asks many things in one go.
async fn ask(stream: &mut Asked, ids: impl Iterator<Item = u64>, method: &str) {
    let events: Vec<_> = ids.map(|id| format!("data: {}\n\n", question(id, method))).collect();
    stream.write(&events.concat()).await;
}

#[tokio::test]
async fn answers_take_few_connections_however_many_are_due() {
    for on_the_calls_own_stream in [false, true] {
        let (mut server, _front, session) = through(&[]).await;
        let listening = server.get().await.stream().await;
        let (asked, call) = calling(&mut server, &session).await;
        let called = asked.stream().await;
        let (mut stream, other) =
            if on_the_calls_own_stream { (called, listening) } else { (listening, called) };
        ask(&mut stream, 0..100, "ping").await;
        stream.event(&news("all asked")).await;
        let mut events = if on_the_calls_own_stream { call.events().await } else { session.listen().await };
        assert_eq!(events.heard().await, "all asked");

        let mut held = Vec::new();
        while held.len() < 4 {
            held.push(server.posted_answer().await);
        }
        // A request that comes later is served meanwhile. Answers that need not wait would have come before it.
        let later = session.request(8, "prompts/list", &json!({})).begin(session.server).await;
        server.post("prompts/list").await.answer(&json!({ "result": { "prompts": [] } })).await;
        assert_eq!(answer(later).await["result"], json!({ "prompts": [] }));
        assert_eq!(server.count_of_answers(), 0, "those that are held, and no more");

        let mut answered = HashSet::new();
        while answered.len() < 100 {
            let answer = match held.pop() {
                Some(answer) => answer,
                None => server.posted_answer().await,
            };
            assert!(
                answered.insert(answer.body["id"].as_u64().unwrap()),
                "{:?} is answered twice",
                answer.body
            );
            answer.accept().await;
        }
        drop(other);
    }
}

#[tokio::test]
async fn questions_beyond_the_bound_are_refused_until_others_are_answered() {
    let (mut server, _front, session) = through(&[("session.max_pending", "1000")]).await;
    let mut stream = server.get().await.stream().await;
    ask(&mut stream, 0..129, "roots/list").await;
    let refused = server.posted_error().await;
    assert_eq!(refused.body["id"], 128);
    assert_eq!(refused.body["error"]["data"]["reason"], "too_many_requests", "{}", refused.body);
    refused.accept().await;

    let mut events = session.listen().await;
    let mut asked = Vec::new();
    while asked.len() < 128 {
        let (_, question) = events.message().await.unwrap();
        assert_eq!(question["method"], "roots/list");
        asked.push(question["id"].clone());
    }
    let roots = json!({ "jsonrpc": "2.0", "id": asked[0], "result": { "roots": [] } });
    assert_eq!(session.post(&roots).send(session.server).await.status(), 202);
    let answered = server.posted_answer().await;
    // The server may use the id again at once.
    let id = answered.body["id"].as_u64().unwrap();
    ask(&mut stream, [id].into_iter(), "roots/list").await;
    let (_, question) = events.message().await.unwrap();
    assert!(!asked.contains(&question["id"]), "another question: {question}");

    // A question that is withdrawn makes room too.
    let back =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    stream.event(&back).await;
    let (_, withdrawn) = events.message().await.unwrap();
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    ask(&mut stream, [1000].into_iter(), "roots/list").await;
    let (_, question) = events.message().await.unwrap();
    assert_eq!(question["method"], "roots/list");
}
