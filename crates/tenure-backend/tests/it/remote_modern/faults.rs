//! Invalid answers, and valid answers in all their forms.

use serde_json::{Value, json};
use tenure_protocol::{Method, Reason};
use tenure_session::backend::Responder;
use tokio::net::TcpListener;

use super::{ask, client, responder, soon, value};
use crate::raw::{self, Answer, Asked, Raw};

fn progress(at: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "p", "progress": at}})
}

#[tokio::test]
async fn an_answer_is_passed_on_as_it_is_whatever_its_shape() {
    let refusal = json!({"code": -32021, "message": "m", "data": {"requiredCapabilities": {"sampling": {}}}});
    let unknown = json!({"code": -32601, "message": "no"});
    type Row = (fn(usize, &Asked) -> Answer, Result<Value, Value>);
    let table: Vec<Row> = vec![
        (
            |_, asked| raw::result(asked, &json!({"resultType": "complete", "x": 1})),
            Ok(json!({"resultType": "complete", "x": 1})),
        ),
        // The result type may be missing.
        (|_, asked| raw::result(asked, &json!({"x": 1})), Ok(json!({"x": 1}))),
        (
            |_, asked| raw::result(asked, &json!({"resultType": "input_required", "requestState": "s"})),
            Ok(json!({"resultType": "input_required", "requestState": "s"})),
        ),
        (
            |_, asked| {
                let error = json!({"code": -32021, "message": "m", "data": {"requiredCapabilities": {"sampling": {}}}});
                raw::error("400 Bad Request", asked, &error)
            },
            Err(refusal),
        ),
        (
            |_, asked| raw::error("404 Not Found", asked, &json!({"code": -32601, "message": "no"})),
            Err(unknown.clone()),
        ),
        (
            |_, asked| raw::error("200 OK", asked, &json!({"code": -32601, "message": "no"})),
            Err(unknown.clone()),
        ),
        (
            |_, asked| {
                raw::error("500 Internal Server Error", asked, &json!({"code": -32601, "message": "no"}))
            },
            Err(unknown.clone()),
        ),
        // Without an id, as from a server that could not parse the request.
        (
            |_, _| {
                raw::json(
                    "400 Bad Request",
                    &json!({"jsonrpc": "2.0", "error": {"code": -32601, "message": "no"}}),
                )
            },
            Err(unknown.clone()),
        ),
        (
            |_, asked| {
                let error = json!({"jsonrpc": "2.0", "id": asked.body["id"], "error": {"code": -32601, "message": "no"}});
                Answer::Bytes(raw::stream(&[error]))
            },
            Err(unknown),
        ),
    ];
    for (number, (answer, expected)) in table.into_iter().enumerate() {
        let mut server = Raw::start(answer).await;
        let reply = ask(&responder(&server.url), &client(), "tools/call", json!({"name": "t"})).await;
        let reply = reply.map(|result| result.read::<Value>().unwrap());
        assert_eq!(reply.map_err(|error| error.raw().read::<Value>().unwrap()), expected, "row {number}");
        server.asked().await;
        assert_eq!(server.left(), 0, "row {number} was asked once");
    }
}

#[tokio::test]
async fn what_is_no_answer_says_so() {
    let long = "x".repeat(10_000);
    type Server = Box<dyn Fn(usize, &Asked) -> Answer + Send + Sync>;
    let table: Vec<(Server, Reason, &str)> = vec![
        (
            Box::new(|_, _| raw::whole("503 Service Unavailable", "text/plain", "")),
            Reason::Interrupted,
            "may or may not",
        ),
        (
            Box::new(|_, _| raw::whole("502 Bad Gateway", "text/html", "<html>")),
            Reason::Interrupted,
            "may or may not",
        ),
        (Box::new(|_, _| raw::whole("404 Not Found", "text/plain", "no")), Reason::BackendUnavailable, "404"),
        (Box::new(|_, _| raw::whole("302 Found", "text/plain", "")), Reason::BackendUnavailable, "302"),
        (
            Box::new(|_, _| raw::whole("202 Accepted", "text/plain", "")),
            Reason::BackendUnavailable,
            "no answer",
        ),
        (
            Box::new(|_, _| raw::whole("200 OK", "text/html", "<html>")),
            Reason::BackendUnavailable,
            "not a response to the request",
        ),
        (
            Box::new(|_, _| raw::json("200 OK", &json!({"jsonrpc": "2.0", "id": 99, "result": {}}))),
            Reason::BackendUnavailable,
            "not a response to the request",
        ),
        // Broken off: before the head, within the body, within a stream.
        (Box::new(|_, _| Answer::Bytes(String::new())), Reason::Interrupted, "may or may not"),
        (
            Box::new(|_, _| {
                Answer::Bytes(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{".into(),
                )
            }),
            Reason::Interrupted,
            "may or may not",
        ),
        (Box::new(|_, _| Answer::Bytes(raw::stream(&[progress(1)]))), Reason::Interrupted, "may or may not"),
        (
            Box::new(|_, asked| raw::result(asked, &json!({"resultType": "riddle"}))),
            Reason::Internal,
            "unknown type",
        ),
        // Too long: as a whole, and as an event.
        (
            Box::new({
                let long = long.clone();
                move |_, asked| raw::result(asked, &json!({"text": long}))
            }),
            Reason::BackendUnavailable,
            "longer than 4096 bytes",
        ),
        (
            Box::new(move |_, asked| {
                let answer = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": {"text": long}});
                Answer::Bytes(raw::stream(&[answer]))
            }),
            Reason::EventTooLarge,
            "longer than a message may be",
        ),
    ];
    for (number, (answer, reason, words)) in table.into_iter().enumerate() {
        let server = Raw::start(answer).await;
        let error =
            ask(&responder(&server.url), &client(), "tools/call", json!({"name": "t"})).await.unwrap_err();
        assert_eq!(error.code(), i64::from(reason.code()), "row {number}: {error:?}");
        assert!(error.message().contains(words), "row {number}: {error:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_not_to_have_been_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let error = ask(&responder(&url), &client(), "tools/list", json!({})).await.unwrap_err();
    assert!(error.is(Reason::BackendUnavailable) && error.is_refused(), "{error:?}");
    assert_eq!(error.code(), -31011);
}

#[tokio::test]
async fn what_comes_before_the_answer_is_heard_in_order() {
    let server = Raw::start(|_, asked| {
        let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
        let other = json!({"jsonrpc": "2.0", "id": "other", "result": {}});
        let asks = json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"});
        let answer = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": {"resultType": "complete"}});
        // Messages after the answer are ignored.
        Answer::Bytes(raw::stream(&[progress(1), log, other, asks, progress(2), answer, progress(3)]))
    })
    .await;
    let client = client();
    let params = json!({"name": "t", "_meta": {"progressToken": "p"}});
    let reply = ask(&responder(&server.url), &client, "tools/call", params).await;
    assert_eq!(value(reply), json!({"resultType": "complete"}));
    let heard: Vec<_> =
        client.heard().into_iter().map(|(method, params)| (method, params["progress"].clone())).collect();
    let expected =
        [(Method::Progress, json!(1)), (Method::LogMessage, json!(null)), (Method::Progress, json!(2))];
    assert_eq!(heard, expected);
}

#[tokio::test]
async fn a_listen_speaks_before_it_ends() {
    let server = Raw::start(|_, asked| {
        let id = &asked.body["id"];
        let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
        Answer::Bytes(raw::stream(&[
            json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                "params": {"notifications": {"toolsListChanged": true}, "_meta": meta}}),
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": meta}}),
            json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", "_meta": meta}}),
        ]))
    })
    .await;
    let client = client();
    let params = json!({"notifications": {"toolsListChanged": true}});
    let reply = value(ask(&responder(&server.url), &client, "subscriptions/listen", params).await);
    assert_eq!(reply["_meta"]["io.modelcontextprotocol/subscriptionId"], 7, "the client's own id");
    let heard = client.heard();
    assert_eq!(heard[0].0, Method::Acknowledged);
    assert_eq!(heard[1].0, Method::ToolsListChanged);
    assert!(heard.iter().all(|(_, params)| params["_meta"]["io.modelcontextprotocol/subscriptionId"] == 7));
}

#[tokio::test]
async fn a_request_that_is_dropped_or_withdrawn_closes_its_connection() {
    for held in [String::new(), raw::stream(&[progress(1)])] {
        let streams = !held.is_empty();
        let mut server = Raw::start(move |_, _| Answer::Held(held.clone())).await;
        let (responder, client) = (responder(&server.url), client());
        let call = || client.call(7, "tools/call", json!({"name": "t"}));
        let mut dropped = responder.respond(call());
        // The future only moves while it is polled.
        tokio::select! {
            reply = &mut dropped => panic!("{reply:?}"),
            _ = server.asked() => {}
        }
        if streams {
            tokio::select! {
                reply = &mut dropped => panic!("{reply:?}"),
                _ = client.hear() => {}
            }
        }
        drop(dropped);
        server.gone().await;

        let mut withdrawn = responder.respond(call());
        tokio::select! {
            reply = &mut withdrawn => panic!("{reply:?}"),
            _ = server.asked() => {}
        }
        client.cancel();
        assert!(soon(withdrawn).await.unwrap_err().is(Reason::Cancelled));
        server.gone().await;
    }
}
