//! The remote server is away for a while: which requests wait for it, and which are sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use super::{ask, in_front_of, method, soon, through, usual};
use crate::raw::{self, Answer, Asked, Raw};
use tenure_testkit::runtime;

/// Longer than any request takes that does not wait for the server.
const A_WHILE: Duration = Duration::from_millis(300);

/// Lists `safe`, which may be called twice, and `unsafe`, which may not. Answers calls with the name of their tool.
fn serve(asked: &Asked) -> Answer {
    match method(asked) {
        "tools/list" => {
            let safe = json!({ "name": "safe", "inputSchema": {}, "annotations": { "readOnlyHint": true } });
            raw::result(asked, &json!({ "tools": [safe, { "name": "unsafe", "inputSchema": {} }] }))
        }
        "tools/call" => raw::result(asked, &json!({ "called": asked.body["params"]["name"] })),
        "get" => raw::whole("405 Method Not Allowed", "text/plain", ""),
        _ => usual(asked),
    }
}

/// Serves normally, except for the first attempts of a call, which get this answer.
fn failing(times: usize, fail: fn(&Asked) -> Answer) -> (impl Fn(usize, &Asked) -> Answer, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let answer = move |_, asked: &Asked| match method(asked) {
        "tools/call" if counted.fetch_add(1, Ordering::SeqCst) < times => fail(asked),
        _ => serve(asked),
    };
    (answer, calls)
}

fn call(tool: &str) -> Value {
    json!({ "name": tool })
}

#[tokio::test]
async fn requests_wait_for_a_server_that_restarts_also_if_they_are_not_safe_to_repeat() {
    let server = Raw::start(|_, asked| serve(asked)).await;
    let (sessions, session) = through(&server).await;
    let address = server.stop().await;
    let params = [json!({}), call("unsafe"), call("safe")];
    let mut waiting = Box::pin(async {
        tokio::join!(
            ask(&session, 1, "tools/list", &params[0]),
            ask(&session, 2, "tools/call", &params[1]),
            ask(&session, 3, "tools/call", &params[2]),
        )
    });
    assert!(timeout(A_WHILE, &mut waiting).await.is_err(), "they wait");
    let _server = Raw::on(TcpListener::bind(address).await.unwrap(), |_, asked| serve(asked));
    let (list, unsafe_call, safe_call) = soon(waiting).await;
    assert_eq!(list["result"]["tools"][0]["name"], "safe", "{list}");
    assert_eq!(unsafe_call["result"]["called"], "unsafe", "{unsafe_call}");
    assert_eq!(safe_call["result"]["called"], "safe", "{safe_call}");
    sessions.shut_down(Duration::ZERO).await;
}

#[tokio::test]
async fn a_session_can_be_begun_while_its_server_is_away() {
    let server = Raw::start(|_, asked| serve(asked)).await;
    let url = server.url.clone();
    let address = server.stop().await;
    let sessions = in_front_of(&url, Duration::from_secs(60));
    let mut beginning = Box::pin(runtime::session(&sessions, "2025-11-25"));
    assert!(timeout(A_WHILE, &mut beginning).await.is_err(), "it waits");
    let _server = Raw::on(TcpListener::bind(address).await.unwrap(), |_, asked| serve(asked));
    let session = soon(beginning).await;
    assert!(ask(&session, 1, "tools/list", &json!({})).await["result"].is_object());
    sessions.shut_down(Duration::ZERO).await;
}

#[tokio::test]
async fn what_was_lost_in_flight_is_sent_again_if_that_is_safe_and_interrupted_otherwise() {
    let ways: [fn(&Asked) -> Answer; 5] = [
        |_| Answer::Bytes(String::new()),
        |_| {
            Answer::Bytes(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{".into(),
            )
        },
        |_| Answer::Bytes(raw::stream(&[])),
        |_| raw::whole("502 Bad Gateway", "text/html", "<html>"),
        |_| raw::whole("504 Gateway Timeout", "text/plain", ""),
    ];
    for (way, fail) in ways.into_iter().enumerate() {
        let (answer, calls) = failing(2, fail);
        let (sessions, session) = through(&Raw::start(answer).await).await;
        let safe = ask(&session, 1, "tools/call", &call("safe")).await;
        assert_eq!(safe["result"]["called"], "safe", "way {way}: {safe}");
        assert_eq!(calls.load(Ordering::SeqCst), 3, "way {way}");
        sessions.shut_down(Duration::ZERO).await;

        let (answer, calls) = failing(2, fail);
        let (sessions, session) = through(&Raw::start(answer).await).await;
        let lost = ask(&session, 1, "tools/call", &call("unsafe")).await;
        assert_eq!(lost["error"]["data"]["reason"], "interrupted", "way {way}: {lost}");
        assert_eq!(calls.load(Ordering::SeqCst), 1, "way {way}: once");
        sessions.shut_down(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_server_that_says_when_to_come_back_is_left_alone_until_then() {
    let busy: fn(&Asked) -> Answer = |_| {
        let head = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n";
        Answer::Bytes(format!("{head}content-length: 0\r\nconnection: close\r\n\r\n"))
    };
    let (answer, _) = failing(1, busy);
    let (sessions, session) = through(&Raw::start(answer).await).await;
    let began = Instant::now();
    let safe = ask(&session, 1, "tools/call", &call("safe")).await;
    assert_eq!(safe["result"]["called"], "safe", "{safe}");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    sessions.shut_down(Duration::ZERO).await;
}

/// The first request waits as long as the patience lasts; later requests fail at once.
#[tokio::test]
async fn a_server_that_stays_away_is_given_up() {
    let server = Raw::start(|_, asked| serve(asked)).await;
    let sessions = in_front_of(&server.url, 2 * A_WHILE);
    let session = soon(runtime::session(&sessions, "2025-11-25")).await;
    // Before it is away: the patience counts from when that is noticed, which may be before the request.
    let began = Instant::now();
    server.stop().await;
    let refused = ask(&session, 1, "tools/call", &call("unsafe")).await;
    assert_eq!(refused["error"]["data"]["reason"], "backend_unavailable", "never sent: {refused}");
    assert!(began.elapsed() >= 2 * A_WHILE, "{:?}", began.elapsed());
    let refused = timeout(A_WHILE, ask(&session, 2, "tools/list", &json!({}))).await.expect("at once");
    assert_eq!(refused["error"]["code"], -31011, "{refused}");
    sessions.shut_down(Duration::ZERO).await;
}

/// The server restarts during a call and has forgotten the session. The session is opened again, and the lost call ends
/// as with a program that died.
#[tokio::test]
async fn a_server_that_restarts_and_forgets_gets_the_session_and_safe_calls_anew() {
    for (tool, expected) in [("safe", "result"), ("unsafe", "error")] {
        let mut server = Raw::start(|_, asked| match method(asked) {
            "tools/call" => Answer::Held(String::new()),
            _ => serve(asked),
        })
        .await;
        let (sessions, session) = through(&server).await;
        let params = call(tool);
        let mut waiting = Box::pin(ask(&session, 1, "tools/call", &params));
        loop {
            tokio::select! {
                asked = server.asked() => if method(&asked) == "tools/call" { break },
                early = &mut waiting => panic!("{early}"),
            }
        }
        let address = server.stop().await;
        let _server = Raw::on(TcpListener::bind(address).await.unwrap(), |_, asked| {
            match (asked.header("mcp-session-id"), method(asked)) {
                (Some("one"), _) => raw::whole("404 Not Found", "text/plain", ""),
                (None, "initialize") => match usual(asked) {
                    Answer::Bytes(answer) => {
                        Answer::Bytes(answer.replace("mcp-session-id: one", "mcp-session-id: two"))
                    }
                    held @ Answer::Held(_) => held,
                },
                _ => serve(asked),
            }
        });
        let answer = soon(waiting).await;
        assert!(answer[expected].is_object(), "{tool}: {answer}");
        if expected == "error" {
            assert_eq!(answer["error"]["data"]["reason"], "interrupted", "{answer}");
        }
        sessions.shut_down(Duration::ZERO).await;
    }
}
