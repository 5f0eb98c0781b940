//! A server upstream that speaks HTTP+SSE of 2024-11-05: how it is found out, what passes, what a broken stream means.

use std::io::ErrorKind;

use serde_json::{Value, json};
use tenure::Node;
use tokio::net::{TcpListener, TcpStream};

use super::gateway_with;
use super::odd::{answer, news};
use super::server::{Asked, Server, begun};
use crate::support::client::Connection;
use crate::support::session::{Session, initialize};
use crate::support::wait::within;

const ENDPOINT: &str = "event: endpoint\ndata: /messages?session=1\n\n";
const ENDPOINT_HEAD: &str = "post /messages?session=1 ";

/// A server, a node in front of it, a session through both, and the server's stream.
async fn through(settings: &[(&str, &str)]) -> (Server, Node, Session, Asked) {
    let mut server = Server::start().await;
    let front = gateway_with(server.url(), settings).await;
    let there = async {
        server.post("initialize").await.refuse("405 Method Not Allowed").await;
        shake_hands(&mut server).await
    };
    let (session, stream) = tokio::join!(Session::start(front.address()), there);
    (server, front, session, stream)
}

/// Does the server's part of the handshake, and returns its stream.
async fn shake_hands(server: &mut Server) -> Asked {
    let mut stream = server.get().await.stream().await;
    stream.write(ENDPOINT).await;
    reply(&mut stream, server.post("initialize").await, &begun()).await;
    server.post("notifications/initialized").await.accept().await;
    stream
}

/// Takes a request, and answers it on the stream.
async fn reply(stream: &mut Asked, asked: Asked, outcome: &Value) {
    assert!(asked.head.starts_with(ENDPOINT_HEAD), "{}", asked.head);
    let response = asked.response(outcome);
    asked.accept().await;
    stream.write(&format!("event: message\ndata: {response}\n\n")).await;
}

/// Sends a request; the server has it, and the client waits.
async fn asking(server: &mut Server, session: &Session, id: u64, method: &str) -> (Asked, Connection) {
    let params = json!({ "name": "any", "_meta": { "progressToken": format!("p{id}") } });
    let call = session.request(id, method, &params).begin(session.server).await;
    (server.post(method).await, call)
}

fn progress(token: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": token, "progress": 1 } })
}

#[tokio::test]
async fn messages_go_where_they_belong() {
    let (mut server, _front, session, mut stream) = through(&[]).await;
    let (one, first) = asking(&mut server, &session, 1, "tools/call").await;
    stream.event(&news("of the only request")).await;
    let mut first = first.events().await;
    assert_eq!(first.heard().await, "of the only request");

    // A question, while its request has not even been accepted.
    stream.event(&json!({ "jsonrpc": "2.0", "id": "theirs", "method": "roots/list" })).await;
    let (_, question) = first.message().await.unwrap();
    assert_eq!(question["method"], "roots/list");
    let roots = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } });
    assert_eq!(session.post(&roots).send(session.server).await.status(), 202);
    let answered = server.posted_answer().await;
    assert!(answered.head.starts_with(ENDPOINT_HEAD), "{}", answered.head);
    assert_eq!((&answered.body["id"], &answered.body["result"]), (&json!("theirs"), &json!({ "roots": [] })));
    answered.accept().await;

    let (two, second) = asking(&mut server, &session, 2, "tools/call").await;
    stream.event(&news("of two requests")).await;
    stream.event(&progress("p2")).await;
    stream.event(&progress("p1")).await;
    let mut second = second.events().await;
    let token = |message: (String, Value)| message.1["params"]["progressToken"].clone();
    assert_eq!(token(second.message().await.unwrap()), "p2");
    assert_eq!(token(first.message().await.unwrap()), "p1");
    assert_eq!(session.listen().await.heard().await, "of two requests");

    reply(&mut stream, two, &json!({ "result": {} })).await;
    assert_eq!(second.rest().await, ["result 2"]);
    // Its POST is still open: some servers end it after the answer.
    let response = one.response(&json!({ "result": {} }));
    stream.write(&format!("data: {response}\n\n")).await;
    assert_eq!(first.rest().await, ["result 1"]);
}

#[tokio::test]
async fn what_a_server_speaks_is_remembered_and_looked_at_again() {
    let (mut server, front, _session, _stream) = through(&[]).await;
    let (_session, _second) =
        tokio::join!(Session::start(front.address()), async { shake_hands(&mut server).await });
    assert!(!server.has_post_to("/mcp"), "the second session begins with the stream");

    // Now it speaks Streamable HTTP.
    let there = async {
        server.get().await.refuse("400 Bad Request").await;
        server.shake_hands().await;
    };
    let (session, ()) = tokio::join!(Session::start(front.address()), there);
    let (asked, call) = asking(&mut server, &session, 1, "tools/call").await;
    assert!(asked.head.starts_with("post /mcp "), "{}", asked.head);
    asked.answer(&json!({ "result": {} })).await;
    assert_eq!(answer(call).await["result"], json!({}));
}

#[tokio::test]
async fn a_refusal_is_the_servers_own_if_it_does_not_speak_like_this_either() {
    for status in ["400 Bad Request", "404 Not Found", "405 Method Not Allowed"] {
        let mut server = Server::start().await;
        let front = gateway_with(server.url(), &[]).await;
        let there = async {
            server.post("initialize").await.refuse(status).await;
            // A stream, but not one that begins as it should.
            server.get().await.stream().await.event(&news("hello")).await;
            // Nor is it a server without sessions.
            server.post("server/discover").await.refuse(status).await;
        };
        let (refused, ()) = tokio::join!(initialize("2025-11-25").send(front.address()), there);
        let error = refused.json()["error"].clone();
        assert_eq!(error["code"], -31011);
        assert!(error["message"].as_str().unwrap().contains(status), "{error}");
    }
}

#[tokio::test]
async fn other_refusals_say_nothing_of_the_transport() {
    for status in ["401 Unauthorized", "403 Forbidden", "500 Internal Server Error"] {
        let mut server = Server::start().await;
        let front = gateway_with(server.url(), &[]).await;
        let there = async { server.post("initialize").await.refuse(status).await };
        // The server does not answer a GET.
        let (refused, ()) = tokio::join!(initialize("2025-11-25").send(front.address()), there);
        // A server's words about credentials are not for clients.
        let expected = if status.starts_with('4') { "backend_unauthorized" } else { status };
        assert!(refused.text().contains(expected), "{refused:?}");
    }
}

#[tokio::test]
async fn an_endpoint_elsewhere_gets_nothing() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = Server::start().await;
    let front = gateway_with(server.url(), &[("upstream.headers", "Authorization: Bearer ours")]).await;
    let there = async {
        server.post("initialize").await.refuse("404 Not Found").await;
        let mut stream = server.get().await.stream().await;
        let address = elsewhere.local_addr().unwrap();
        stream.write(&format!("event: endpoint\ndata: http://{address}/messages\n\n")).await;
        stream.closed().await;
    };
    let (refused, ()) = tokio::join!(initialize("2025-11-25").send(front.address()), there);
    let error = refused.json()["error"].clone();
    assert!(error["message"].as_str().unwrap().contains("another origin"), "{error}");
    let elsewhere = elsewhere.into_std().unwrap();
    assert_eq!(elsewhere.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nothing connected");
}

#[tokio::test]
async fn when_the_stream_breaks_requests_are_settled_and_the_session_goes_on() {
    let (mut server, front, session, stream) = through(&[]).await;
    let (_, unsafe_call) = asking(&mut server, &session, 1, "tools/call").await;
    let (_, safe_call) = asking(&mut server, &session, 2, "prompts/list").await;
    drop(stream);
    let mut stream = shake_hands(&mut server).await;
    // Whether the tool may be called twice only the server can say.
    reply(&mut stream, server.post("tools/list").await, &json!({ "result": { "tools": [] } })).await;
    reply(&mut stream, server.post("prompts/list").await, &json!({ "result": { "prompts": [] } })).await;
    assert_eq!(answer(unsafe_call).await["error"]["data"]["reason"], "interrupted");
    assert_eq!(answer(safe_call).await["result"], json!({ "prompts": [] }));

    // Without requests in flight nothing happens until the next one.
    drop(stream);
    let call = session.request(3, "prompts/list", &json!({})).begin(session.server).await;
    let mut stream = shake_hands(&mut server).await;
    reply(&mut stream, server.post("prompts/list").await, &json!({ "result": { "prompts": [] } })).await;
    assert_eq!(answer(call).await["result"], json!({ "prompts": [] }));
    assert_eq!(front.sessions().tallies().created, 1, "the client noticed nothing");
}

#[tokio::test]
async fn a_request_that_the_server_did_not_take_is_sent_again_on_another_stream() {
    let (mut server, _front, session, stream) = through(&[]).await;
    let (asked, call) = asking(&mut server, &session, 1, "tools/call").await;
    asked.refuse("404 Not Found").await;
    let mut next = shake_hands(&mut server).await;
    reply(&mut next, server.post("tools/call").await, &json!({ "result": {} })).await;
    assert_eq!(answer(call).await["result"], json!({}), "though a tool may not be called twice");
    stream.closed().await;
}

#[tokio::test]
async fn requests_fail_at_once_while_the_server_is_down() {
    let (server, _front, session, stream) = through(&[]).await;
    let address = server.address();
    drop((server, stream));
    within("the port is closed", async { while TcpStream::connect(address).await.is_ok() {} }).await;
    for id in 1..4 {
        let error = within("an answer", session.tool(id, "any", &json!({}))).await.json()["error"].clone();
        assert_eq!(error["code"], -31011, "{error}");
    }
}

#[tokio::test]
async fn the_server_hears_of_cancellations_and_of_the_end() {
    let (mut server, _front, session, stream) = through(&[]).await;
    let (asked, _call) = asking(&mut server, &session, 7, "tools/call").await;
    let number = asked.body["id"].clone();
    asked.accept().await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    assert_eq!(session.post(&cancel).send(session.server).await.status(), 202);
    let cancelled = server.post("notifications/cancelled").await;
    assert_eq!(cancelled.body["params"]["requestId"], number);
    cancelled.accept().await;
    assert_eq!(session.delete().send(session.server).await.status(), 204);
    stream.closed().await;
}

#[tokio::test]
async fn an_answer_that_is_too_long_costs_its_own_request_only() {
    let (mut server, _front, session, mut stream) = through(&[("upstream.max_message", "1KiB")]).await;
    let (one, first) = asking(&mut server, &session, 1, "tools/call").await;
    let (two, second) = asking(&mut server, &session, 2, "tools/call").await;
    reply(&mut stream, one, &json!({ "result": { "long": "x".repeat(100_000) } })).await;
    reply(&mut stream, two, &json!({ "result": {} })).await;
    assert_eq!(answer(first).await["error"]["data"]["reason"], "event_too_large");
    assert_eq!(answer(second).await["result"], json!({}));
}
