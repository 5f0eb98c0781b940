//! The backend port's clauses as tests; every backend runs all of them.
//!
//! The backend under test serves a server with these tools: `echo` (answers with its `text`), `hang`
//! (never answers until it is cancelled), `panic`, `progress` (reports 1, 2, 3, then answers), `ask`
//! (asks `roots/list` and answers with the number of roots), and hears `notifications/roots/list_changed`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::{Message, Method, Notification, RawJson};
use tenure_session::Limits;
use tenure_session::backend::Backend;
use tenure_session::call::Caller;
use tenure_session::port::store::Store;
use tenure_session::record::EndCause;
use tenure_session::session::{Session, Sessions};

use crate::runtime::{self, event, events, json_of, parse, reader_of, request, send};

/// Runs every clause, each on a new backend.
pub async fn all(open: impl Fn() -> Arc<dyn Backend>, store: impl Fn() -> Arc<dyn Store>) {
    let start = || runtime::start(store(), open(), Limits::default());
    a_result_comes_back(start()).await;
    calls_run_side_by_side(start()).await;
    a_cancelled_call_stops(start()).await;
    a_panic_harms_no_other_caller(start()).await;
    related_messages_come_on_the_calls_stream(start()).await;
    a_question_is_answered_on_the_calls_stream(start()).await;
    two_calls_at_once_keep_their_messages_apart(start()).await;
    links_do_not_see_each_other(start()).await;
    a_closed_link_ends_its_calls(start()).await;
    an_unknown_tool_is_an_error(start()).await;
}

async fn session(sessions: &Sessions) -> Arc<Session> {
    runtime::session(sessions, "2025-11-25").await
}

fn tool(id: u64, name: &str, arguments: &Value) -> tenure_protocol::Request {
    let meta = json!({ "progressToken": format!("token-{id}") });
    request(id, "tools/call", &json!({ "name": name, "arguments": arguments, "_meta": meta }))
}

async fn call(session: &Arc<Session>, id: u64, name: &str, arguments: &Value) -> Value {
    let answer = session.request(tool(id, name, arguments), Caller::anonymous("test")).await;
    json_of(answer.expect("admitted"))
}

fn text(message: &Value) -> &str {
    message["result"]["content"][0]["text"].as_str().unwrap_or_default()
}

async fn a_result_comes_back(sessions: Sessions) {
    let session = session(&sessions).await;
    for id in 1..4 {
        let answer = call(&session, id, "echo", &json!({ "text": format!("hello {id}") })).await;
        assert_eq!((answer["id"].as_u64(), text(&answer)), (Some(id), format!("hello {id}").as_str()));
    }
}

async fn calls_run_side_by_side(sessions: Sessions) {
    let session = session(&sessions).await;
    let hanging = send(&session, tool(1, "hang", &json!({})));
    tokio::task::yield_now().await;
    for id in 2..6 {
        let answer = call(&session, id, "echo", &json!({ "text": "still here" })).await;
        assert_eq!(text(&answer), "still here");
    }
    hanging.abort();
}

async fn a_cancelled_call_stops(sessions: Sessions) {
    let session = session(&sessions).await;
    let hanging = send(&session, tool(1, "hang", &json!({})));
    while session.info().calls.is_empty() {
        tokio::task::yield_now().await;
    }
    let params = Some(RawJson::trusted(r#"{"requestId":1}"#));
    session.notification(Notification { method: Method::Cancelled, params }).expect("heard");
    let answer = hanging.await.expect("no panic");
    assert!(
        matches!(answer, tenure_session::Answer::Withdrawn | tenure_session::Answer::Stream(_)),
        "{answer:?}"
    );
    // Only a call that has really stopped lets the runtime shut down without interrupting anything.
    assert_eq!(sessions.shut_down(Duration::from_secs(5)).await, 0);
}

async fn a_panic_harms_no_other_caller(sessions: Sessions) {
    let (one, two) = (session(&sessions).await, session(&sessions).await);
    let answer = call(&one, 1, "panic", &json!({})).await;
    assert_eq!(answer["error"]["data"]["reason"], "internal", "{answer}");
    assert_eq!(text(&call(&one, 2, "echo", &json!({ "text": "a" })).await), "a");
    let hanging = send(&one, tool(3, "hang", &json!({})));
    tokio::task::yield_now().await;
    let answer = call(&one, 4, "panic", &json!({})).await;
    assert_eq!(answer["error"]["data"]["reason"], "internal", "{answer}");
    hanging.abort();
    assert_eq!(text(&call(&two, 1, "echo", &json!({ "text": "b" })).await), "b");
}

async fn related_messages_come_on_the_calls_stream(sessions: Sessions) {
    let session = session(&sessions).await;
    let answer = session.request(tool(7, "progress", &json!({})), Caller::anonymous("test")).await;
    let all = events(&mut reader_of(answer.expect("admitted"))).await;
    assert_eq!(all.len(), 4, "{all:?}");
    for (n, message) in all[..3].iter().enumerate() {
        assert_eq!(message["method"], "notifications/progress");
        assert_eq!(message["params"]["progressToken"], "token-7");
        assert_eq!(message["params"]["progress"].as_f64(), Some(n as f64 + 1.0));
    }
    assert_eq!(all[3]["id"], 7);
}

async fn answer_roots(session: &Arc<Session>, question: &Value, roots: usize) {
    assert_eq!(question["method"], "roots/list", "{question}");
    let list: Vec<Value> = (0..roots).map(|n| json!({ "uri": format!("file:///{n}") })).collect();
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": list } });
    let body = serde_json::to_vec(&answer).expect("JSON").into();
    let Ok(Message::Response(response)) = Message::parse(&body) else { panic!("a response") };
    session.response(response).expect("taken");
}

async fn a_question_is_answered_on_the_calls_stream(sessions: Sessions) {
    let session = session(&sessions).await;
    let answer = session.request(tool(1, "ask", &json!({})), Caller::anonymous("test")).await;
    let mut reader = reader_of(answer.expect("admitted"));
    let (_, question) = event(&mut reader).await.expect("a question");
    answer_roots(&session, &question, 3).await;
    let (_, result) = event(&mut reader).await.expect("a result");
    assert_eq!(text(&result), "3 roots", "{result}");
}

async fn two_calls_at_once_keep_their_messages_apart(sessions: Sessions) {
    let session = session(&sessions).await;
    let mut readers = Vec::new();
    for id in [1, 2] {
        let answer = session.request(tool(id, "ask", &json!({})), Caller::anonymous("test")).await;
        readers.push(reader_of(answer.expect("admitted")));
    }
    // Answered in reverse order, each with a different number.
    for (reader, id, roots) in [(1, 2, 5), (0, 1, 2)] {
        let (_, question) = event(&mut readers[reader]).await.expect("a question");
        answer_roots(&session, &question, roots).await;
        let (_, result) = event(&mut readers[reader]).await.expect("a result");
        assert_eq!((result["id"].as_u64(), text(&result)), (Some(id), format!("{roots} roots").as_str()));
    }
}

async fn links_do_not_see_each_other(sessions: Sessions) {
    let (one, two) = (session(&sessions).await, session(&sessions).await);
    // The same id in both sessions, at the same time.
    let first = send(&one, tool(1, "progress", &json!({})));
    let second = send(&two, tool(1, "echo", &json!({ "text": "two" })));
    let second = json_of(second.await.expect("no panic"));
    assert_eq!(text(&second), "two");
    assert_eq!(events(&mut reader_of(first.await.expect("no panic"))).await.len(), 4);
}

async fn a_closed_link_ends_its_calls(sessions: Sessions) {
    let session = session(&sessions).await;
    let hanging = send(&session, tool(1, "hang", &json!({})));
    while session.info().calls.is_empty() {
        tokio::task::yield_now().await;
    }
    sessions.end(&session, EndCause::Deleted).await.expect("ends");
    let answer = match hanging.await.expect("no panic") {
        tenure_session::Answer::Json(body) | tenure_session::Answer::TryLater { body, .. } => parse(&body),
        tenure_session::Answer::Stream(mut reader) => event(&mut reader).await.expect("an answer").1,
        tenure_session::Answer::Withdrawn => panic!("an answer"),
    };
    assert_eq!(answer["error"]["data"]["reason"], "session_deleted", "{answer}");
}

async fn an_unknown_tool_is_an_error(sessions: Sessions) {
    let session = session(&sessions).await;
    let answer = call(&session, 1, "no_such_tool", &json!({})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let answer = session.request(request(2, "no/such/method", &json!({})), Caller::anonymous("test")).await;
    let answer = json_of(answer.expect("admitted"));
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}
