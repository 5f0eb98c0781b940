//! Clients that hang up: that is how a request is withdrawn, at whatever moment.

use serde_json::json;

use super::support::{Steered, call, listen, post, say};
use crate::http2_and_tls::client::{Http2, read_until};
use crate::support::client;
use crate::support::wait::until;

const HEADERS: [(&str, &str); 3] =
    [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "t")];
const BOTH: &str = "application/json, text/event-stream";

#[tokio::test]
async fn hanging_up_over_http1_before_there_is_an_answer_cancels_the_call() {
    let mut steered = Steered::start().await;
    for accept in [BOTH, "application/json"] {
        let connection = post(&call()).header("Accept", accept).begin(steered.address()).await;
        let asked = steered.server.next().await;
        assert!(!asked.is_dropped());
        let context = asked.context.clone();
        drop(connection);
        asked.dropped().await;
        assert!(context.is_cancelled());
        steered.idle().await;
    }
}

#[tokio::test]
async fn hanging_up_over_http1_in_a_stream_cancels_the_call() {
    let mut steered = Steered::start().await;
    let connection = post(&call()).begin(steered.address()).await;
    let asked = steered.server.next().await;
    say(&asked, "hello").await;
    let mut events = connection.events().await;
    assert_eq!(events.heard().await, "hello");
    assert!(!asked.is_dropped());
    drop(events);
    // Nothing is said any more: the end of the connection alone tells.
    asked.dropped().await;
    steered.idle().await;
}

#[tokio::test]
async fn hanging_up_a_listen_ends_it() {
    let mut steered = Steered::start().await;
    let connection = post(&listen()).begin(steered.address()).await;
    let asked = steered.server.next().await;
    asked.acknowledge(&[]).await;
    let mut events = connection.events().await;
    events.message().await.unwrap();
    assert_eq!(steered.node.exchanges().tallies().running, 1);
    drop(events);
    asked.dropped().await;
    steered.idle().await;
}

#[tokio::test]
async fn hanging_up_in_a_later_attempt_cancels_the_call() {
    let mut steered = Steered::start().await;
    let mut first = post(&call()).begin(steered.address()).await;
    let asked = steered.server.next().await;
    let context = asked.context.clone();
    let question = tokio::spawn(async move {
        context
            .ask(&tenure_protocol::Method::ElicitationCreate, Some(&tenure_protocol::RawJson::EMPTY_OBJECT))
            .await
    });
    let answer = first.response().await.json();
    assert_eq!(answer["result"]["resultType"], "input_required");
    let mut again = call();
    again["params"]["requestState"] = answer["result"]["requestState"].clone();
    again["params"]["inputResponses"] = json!({ "q1": { "action": "accept", "content": {} } });
    let second = post(&again).begin(steered.address()).await;
    question.await.unwrap().unwrap();
    drop(second);
    asked.dropped().await;
    steered.idle().await;
}

#[tokio::test]
async fn resetting_a_stream_of_http2_cancels_its_call_and_no_other() {
    let mut steered = Steered::start().await;
    let origin = format!("http://{}", steered.address());
    let mut client = Http2::over(client::connect(steered.address()).await, &origin).await;
    // One waits for its answer, one is a stream, and one is to go on.
    let (response, streaming) =
        tokio::join!(client.send("POST", BOTH, &HEADERS, call().to_string()), async {
            let asked = steered.server.next().await;
            say(&asked, "hello").await;
            asked
        });
    let mut body = response.into_body();
    read_until(&mut body, "hello").await;
    let waiting = {
        let send = client.send("POST", BOTH, &HEADERS, call().to_string());
        let mut send = Box::pin(send);
        tokio::select! {
            _ = &mut send => panic!("the server did not answer"),
            asked = steered.server.next() => asked,
        }
        // Dropped here.
    };
    waiting.dropped().await;
    assert!(!streaming.is_dropped());
    assert_eq!(steered.node.exchanges().tallies().running, 1);
    drop(body);
    streaming.dropped().await;
    steered.idle().await;
    let (response, ()) = tokio::join!(client.send("POST", BOTH, &HEADERS, call().to_string()), async {
        steered.server.next().await.answer(&json!({}));
    });
    assert_eq!(response.status(), 200, "the connection is as good as before");
}

#[tokio::test]
async fn losing_a_connection_of_http2_cancels_all_its_calls() {
    let mut steered = Steered::start().await;
    let origin = format!("http://{}", steered.address());
    let socket = client::connect(steered.address()).await.into_std().unwrap();
    let line = socket.try_clone().unwrap();
    let mut client = Http2::over(tokio::net::TcpStream::from_std(socket).unwrap(), &origin).await;
    let mut calls = Vec::new();
    for _ in 0..10 {
        let (response, asked) =
            tokio::join!(client.send("POST", BOTH, &HEADERS, call().to_string()), async {
                let asked = steered.server.next().await;
                say(&asked, "hello").await;
                asked
            });
        calls.push((response, asked));
    }
    line.shutdown(std::net::Shutdown::Both).unwrap();
    for (_, asked) in calls {
        asked.dropped().await;
    }
    steered.idle().await;
}

#[tokio::test]
async fn a_thousand_clients_that_hang_up_leave_nothing_behind() {
    let mut steered = Steered::start().await;
    for _ in 0..1000 {
        let connection = post(&call()).begin(steered.address()).await;
        let asked = steered.server.next().await;
        drop(connection);
        asked.dropped().await;
    }
    steered.idle().await;
    until("all is counted", || steered.node.exchanges().tallies().begun == 1000).await;
}
