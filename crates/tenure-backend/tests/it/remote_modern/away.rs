//! A remote server without sessions is away for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::Reason;
use tenure_session::backend::Responder;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::{ask, client, patient, soon, value};
use crate::raw::{self, Answer, Asked, Raw};

const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any request takes that does not wait for the server.
const A_WHILE: Duration = Duration::from_millis(300);

fn serve(asked: &Asked) -> Answer {
    match asked.body["method"].as_str() {
        Some("tools/list") => {
            let safe =
                json!({ "name": "safe", "inputSchema": {}, "annotations": { "idempotentHint": true } });
            raw::result(asked, &json!({ "tools": [safe, { "name": "unsafe", "inputSchema": {} }] }))
        }
        _ => raw::result(asked, &json!({ "called": asked.body["params"]["name"] })),
    }
}

#[tokio::test]
async fn requests_wait_for_a_server_that_restarts_also_if_they_are_not_safe_to_repeat() {
    let server = Raw::start(|_, asked| serve(asked)).await;
    let responder = patient(&server.url, PATIENCE);
    let address = server.stop().await;
    let mut waiting = Box::pin(async {
        tokio::join!(
            responder.respond(client().call(1, "server/discover", json!({}))),
            responder.respond(client().call(2, "tools/list", json!({}))),
            responder.respond(client().call(3, "tools/call", json!({ "name": "unsafe" }))),
        )
    });
    assert!(timeout(A_WHILE, &mut waiting).await.is_err(), "they wait");
    let _server = Raw::on(TcpListener::bind(address).await.unwrap(), |_, asked| serve(asked));
    let (discovered, list, called) = soon(waiting).await;
    assert!(discovered.is_ok(), "{discovered:?}");
    assert_eq!(value(list)["tools"][0]["name"], "safe");
    assert_eq!(value(called)["called"], "unsafe");
}

#[tokio::test]
async fn what_was_lost_in_flight_is_sent_again_if_that_is_safe_and_interrupted_otherwise() {
    let ways: [fn(&Asked) -> Answer; 3] = [
        |_| Answer::Bytes(String::new()),
        |_| Answer::Bytes(raw::stream(&[])),
        |_| raw::whole("503 Service Unavailable", "text/plain", ""),
    ];
    for (way, fail) in ways.into_iter().enumerate() {
        for (method, params, is_safe) in [
            ("resources/read", json!({ "uri": "a:b" }), true),
            ("tools/call", json!({ "name": "safe" }), true),
            ("tools/call", json!({ "name": "unsafe" }), false),
        ] {
            let asks = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&asks);
            let server = Raw::start(move |_, asked| match asked.body["method"].as_str() {
                Some("tools/list") => serve(asked),
                _ if counted.fetch_add(1, Ordering::SeqCst) == 0 => fail(asked),
                _ => serve(asked),
            })
            .await;
            let reply = ask(&patient(&server.url, PATIENCE), &client(), method, params).await;
            let asks = asks.load(Ordering::SeqCst);
            match reply {
                Ok(result) => assert!(is_safe && asks == 2, "way {way}: {asks} {:?}", result.read::<Value>()),
                Err(error) => {
                    assert!(!is_safe && asks == 1 && error.is(Reason::Interrupted), "way {way}: {error:?}");
                }
            }
        }
    }
}
