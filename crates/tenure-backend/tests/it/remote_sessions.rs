//! Sessions at remote servers whose behaviour is valid but rare.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod away;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_backend::remote::{RemoteBackend, Upstream};
use tenure_session::call::Caller;
use tenure_session::session::{Answer, Sessions};
use tenure_session::{Limits, Session};
use tenure_store::memory::Memory;
use tenure_testkit::runtime;

use crate::raw::{self, Asked, Raw};
use crate::soon;

/// A runtime in front of this server, and a session.
async fn through(server: &Raw) -> (Sessions, Arc<Session>) {
    let sessions = in_front_of(&server.url, Duration::from_secs(60));
    let session = soon(runtime::session(&sessions, "2025-11-25")).await;
    (sessions, session)
}

/// A runtime in front of a server at this URL, which may start later.
fn in_front_of(url: &str, patience: Duration) -> Sessions {
    let upstream = Upstream { patience, ..Upstream::new(url) };
    let backend = Arc::new(RemoteBackend::new(&upstream).unwrap());
    runtime::start(Arc::new(Memory::new()), backend, Limits::default())
}

/// The answer to a call, whether it comes as JSON or at the end of a stream.
async fn call(session: &Arc<Session>) -> Value {
    ask(session, 1, "tools/call", &json!({ "name": "any" })).await
}

async fn ask(session: &Arc<Session>, id: u64, method: &str, params: &Value) -> Value {
    let request = runtime::request(id, method, params);
    let answer = async {
        match session.request(request, Caller::anonymous("test")).await.unwrap() {
            Answer::Stream(mut reader) => runtime::events(&mut reader).await.pop().unwrap(),
            answer => runtime::json_of(answer),
        }
    };
    soon(answer).await
}

/// The JSON-RPC method of the body, or else the HTTP method.
fn method(asked: &Asked) -> &str {
    asked.body["method"].as_str().unwrap_or_else(|| asked.head[0].0.split(' ').next().unwrap())
}

/// Answers `initialize` with a session id, and everything else with 202.
fn usual(asked: &Asked) -> raw::Answer {
    if method(asked) != "initialize" {
        return raw::whole("202 Accepted", "text/plain", "");
    }
    let result = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "raw", "version": "1" },
    });
    let raw::Answer::Bytes(answer) = raw::result(asked, &result) else { unreachable!() };
    raw::Answer::Bytes(answer.replacen("\r\n", "\r\nmcp-session-id: one\r\n", 1))
}

#[tokio::test]
async fn an_answer_is_found_among_all_that_may_stand_on_a_stream_of_events() {
    for beside in [
        "time: 12:00",
        "no colon",
        ":",
        "retry: soon",
        "retry: 1\nretry: 2",
        "id: 1\nid: 2",
        "id: \0",
        "event: message\nevent: message",
        "event:",
        "event",
        "event: other\ndata: {}\n",
        "data\n",
    ] {
        for end in ["\n", "\r", "\r\n"] {
            let server = Raw::start(move |_, asked| match method(asked) {
                "tools/call" => {
                    let answer =
                        json!({ "jsonrpc": "2.0", "id": asked.body["id"], "result": { "content": [] } });
                    let head =
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                    let events = format!("\u{feff}{beside}\ndata: {answer}\n\n").replace('\n', end);
                    raw::Answer::Bytes(format!("{head}{events}"))
                }
                "get" => raw::whole("405 Method Not Allowed", "text/plain", ""),
                _ => usual(asked),
            });
            let (sessions, session) = through(&server.await).await;
            let answer = call(&session).await;
            assert_eq!(answer["result"], json!({ "content": [] }), "{beside:?} and {end:?}: {answer}");
            sessions.shut_down(Duration::ZERO).await;
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_closed_at_once_is_opened_again_less_and_less_often() {
    let gets = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&gets);
    let server = Raw::start(move |_, asked| match method(asked) {
        "get" => {
            counted.fetch_add(1, Ordering::SeqCst);
            raw::Answer::Bytes(raw::stream(&[]))
        }
        _ => usual(asked),
    });
    let (sessions, _session) = through(&server.await).await;
    // From here on waiting takes no real time. A slow machine only makes the pauses longer.
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(300)).await;
    let gets = gets.load(Ordering::SeqCst);
    // At most 5 while the pauses grow, and then at most one per 15 seconds.
    assert!((3..=25).contains(&gets), "{gets} in five minutes");
    tokio::time::resume();
    sessions.shut_down(Duration::ZERO).await;
}
