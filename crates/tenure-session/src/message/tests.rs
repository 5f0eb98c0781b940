//! Tables for the envelope: what is read, what is refused, and that bytes come back as they were.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

fn check(body: &str, expected: &Expect) {
    let text = match Incoming::parse(&Bytes::copy_from_slice(body.as_bytes())) {
        Ok(Incoming::One(message)) => format!("{message:?}"),
        Ok(Incoming::Batch(elements)) => {
            let messages: Vec<_> = elements.iter().map(|element| Message::parse(element.bytes())).collect();
            format!("{messages:?}")
        }
        Err(malformed) => format!("{malformed:?}"),
    };
    expected.assert_eq(&text);
}

#[test]
fn a_request_keeps_its_params_and_id_as_bytes() {
    check(
        r#" {"jsonrpc":"2.0","id":"x-1","method":"tools/call","params":{"n": 1.50,"_meta":{}},"extra":[1]}"#,
        &expect![[
            r#"Request(Request { id: "x-1", method: tools/call, params: Some({"n": 1.50,"_meta":{}}) })"#
        ]],
    );
    check(
        r#"{"jsonrpc":"2.0","id":-7,"method":"x\/y"}"#,
        &expect!["Request(Request { id: -7, method: x/y, params: None })"],
    );
}

#[test]
fn notifications_and_answers_are_told_apart() {
    check(
        r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":null}"#,
        &expect!["Notification(Notification { method: notifications/initialized, params: None })"],
    );
    check(
        r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#,
        &expect![[r#"Response(Response { id: 1, outcome: Ok({"a":1}) })"#]],
    );
    check(
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#,
        &expect![[r#"Response(Response { id: 1, outcome: Err(RpcError({"code":-1,"message":"no"})) })"#]],
    );
}

#[test]
fn what_is_not_json_rpc_is_refused_with_its_id_where_there_is_one() {
    for (body, expected) in [
        ("", expect![[r#"Syntax("EOF while parsing a value at line 1 column 0")"#]]),
        ("{", expect![[r#"Syntax("EOF while parsing an object at line 1 column 1")"#]]),
        ("nonsense", expect![[r#"Syntax("expected ident at line 1 column 2")"#]]),
        ("42", expect![[r#"Envelope("a message is a JSON object", None)"#]]),
        ("[]", expect![[r#"Envelope("an empty batch", None)"#]]),
        (r#"{"id":1,"method":"a"}"#, expect![[r#"Envelope("\"jsonrpc\" must be \"2.0\"", Some(1))"#]]),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#,
            expect![[r#"Envelope("an id is a string or an integer", None)"#]],
        ),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#,
            expect![[r#"Envelope("an id is a string or an integer", None)"#]],
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            expect![[r#"Envelope("\"method\" must be a string", Some(1))"#]],
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":5}"#,
            expect![[r#"Envelope("\"params\" must be an object", Some(1))"#]],
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[1]}"#,
            expect![[r#"Envelope("\"params\" must be an object", Some(1))"#]],
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#,
            expect![[r#"Envelope("a member stands twice", None)"#]],
        ),
        (r#"{"jsonrpc":"2.0","id":1}"#, expect![[r#"Envelope("\"method\" is missing", Some(1))"#]]),
        (r#"{"jsonrpc":"2.0","result":{}}"#, expect![[r#"Envelope("a response needs an id", None)"#]]),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            expect![[r#"Envelope("a response has a result or an error, not both", Some(1))"#]],
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#,
            expect![[r#"Envelope("a message is a request or a response, not both", Some(1))"#]],
        ),
    ] {
        check(body, &expected);
    }
}

#[test]
fn a_fault_in_a_batch_stays_with_its_element() {
    check(
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},7]"#,
        &expect![[
            r#"[Ok(Request(Request { id: 1, method: ping, params: None })), Err(Envelope("a message is a JSON object", None))]"#
        ]],
    );
}

#[test]
fn a_batch_is_bounded_while_it_is_read() {
    check(
        &format!("[{}1]", "1,".repeat(100_000)),
        &expect![[r#"Envelope("too many messages in a batch", None)"#]],
    );
    check("[1,2", &expect![[r#"Syntax("EOF while parsing a list at line 1 column 4")"#]]);
}

#[test]
fn written_messages_read_back_the_same() {
    let id = RequestId::from_raw(Bytes::from_static(br#""\u0061""#)).unwrap();
    let result = write_result(&id, &RawJson::EMPTY_OBJECT);
    assert_eq!(result, r#"{"jsonrpc":"2.0","id":"\u0061","result":{}}"#);
    let params = RawJson::trusted(&b"{\"level\":1e2}"[..]);
    let notification = write_notification(&Method::new("notifications/message"), Some(&params));
    assert_eq!(notification, r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":1e2}}"#);
    let request = write_request(&RequestId::from_number(3), &Method::RootsList, None);
    assert_eq!(request, r#"{"jsonrpc":"2.0","id":3,"method":"roots/list"}"#);
}

proptest! {
    #[test]
    fn reading_foreign_bytes_never_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Incoming::parse(&Bytes::from(body));
    }

    #[test]
    fn reading_broken_messages_never_panics(cut in 0usize..90, flip in 0usize..90, to in any::<u8>()) {
        let mut body = br#"{"jsonrpc":"2.0","id":"\u0061b","method":"tools/call","params":{"a":[1,{"b":"c"}]}}"#.to_vec();
        if let Some(byte) = body.get_mut(flip) { *byte = to; }
        body.truncate(cut.min(body.len()));
        let _ = Incoming::parse(&Bytes::from(body));
    }
}
