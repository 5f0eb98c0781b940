//! Bodies that are not what a POST may carry.

use serde_json::json;

use crate::support::client::Ask;
use crate::support::node::demo;
use crate::support::session::{Session, request};

#[tokio::test]
async fn a_body_that_is_not_json_is_400_with_a_parse_error_and_no_id() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let broken: [&[u8]; 8] = [
        b"",
        b" ",
        b"{",
        b"hello",
        br#"{"jsonrpc":"2.0","id":1,"method":"ping"} trailing"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"ping",}"#,
        b"[{]",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}",
    ];
    for body in broken {
        let response = session.post_raw(body).send(node.address()).await;
        assert_eq!(
            response.fault(),
            (400, -32700, "parse_error".to_owned()),
            "{}",
            String::from_utf8_lossy(body)
        );
        assert_eq!(response.json().get("id"), None);
    }
}

#[tokio::test]
async fn json_that_is_not_json_rpc_is_400_with_the_id_if_it_has_one() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let table = [
        ("{}", None),
        ("1", None),
        (r#""ping""#, None),
        ("null", None),
        ("[]", None),
        (r#"{"id":1,"method":"ping"}"#, Some(1)),
        (r#"{"jsonrpc":"1.0","id":2,"method":"ping"}"#, Some(2)),
        (r#"{"jsonrpc":"2.0","id":3}"#, Some(3)),
        (r#"{"jsonrpc":"2.0","id":4,"method":7}"#, Some(4)),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}"#, Some(5)),
        (r#"{"jsonrpc":"2.0","id":6,"method":"ping","params":"x"}"#, Some(6)),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}"#, Some(7)),
        (r#"{"jsonrpc":"2.0","id":8,"result":{},"error":{}}"#, Some(8)),
        (r#"{"jsonrpc":"2.0","id":9,"error":"x"}"#, Some(9)),
        (r#"{"jsonrpc":"2.0","result":{}}"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, None),
    ];
    for (body, id) in table {
        let response = session.post_raw(body).send(node.address()).await;
        assert_eq!(response.fault(), (400, -32600, "invalid_request".to_owned()), "{body}");
        assert_eq!(response.json().get("id").cloned(), id.map(|id| json!(id)), "{body}");
    }
}

#[tokio::test]
async fn a_message_nested_beyond_reason_is_refused_and_the_server_lives() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let deep = "[".repeat(100_000);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"x":{deep}"#);
    assert_eq!(session.post_raw(&body).send(node.address()).await.status(), 400);
    let closed = format!("{body}{}}}}}", "]".repeat(100_000));
    // Whether it is refused or taken as it is does not matter; only that the next one is answered.
    session.post_raw(&closed).send(node.address()).await;
    assert_eq!(session.post(&request(2, "ping", &json!({}))).send(node.address()).await.status(), 200);
}

#[tokio::test]
async fn an_answer_to_no_question_is_accepted_and_dropped() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    for body in [
        r#"{"jsonrpc":"2.0","id":77,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"seventy-seven","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#,
    ] {
        let response = session.post_raw(body).send(node.address()).await;
        assert_eq!((response.status(), response.text()), (202, String::new()), "{body}");
        assert_eq!(Ask::post(body).send(node.address()).await.fault().2, "session_required");
    }
}
