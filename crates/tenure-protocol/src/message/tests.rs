//! Tests of the envelope: which messages are read, which are refused, and that the bytes stay unchanged.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::Value;

use crate::json::outline::Outline;
use crate::keys::META_VERSION;
use crate::message::*;

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
            expect![[r#"Envelope("an id is a string or an integer of at most 1024 bytes", None)"#]],
        ),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#,
            expect![[r#"Envelope("an id is a string or an integer of at most 1024 bytes", None)"#]],
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

/// Texts that are valid or nearly valid JSON.
fn nearly_json() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        4 => prop_oneof![Just("0"), Just("-0"), Just("10"), Just("-1.5e+3"), Just("1E5"), Just("0.0"), Just("true"), Just("false"), Just("null")]
            .prop_map(str::to_owned),
        1 => prop_oneof![Just("01"), Just("-"), Just("1."), Just(".5"), Just("1e"), Just("+1"), Just("truth"), Just("nul"), Just("")]
            .prop_map(str::to_owned),
        4 => "\"[a-z \u{e9}\u{1f600}]{0,40}\"",
        1 => "\"([a-z]{0,20}(\\\\[\"\\\\/bfnrtx]|\\\\u[0-9a-fA-F]{4}|\\\\u[0-9a-g]{3,4})){0,3}[a-z]{0,3}\"",
        1 => "\"[a-z\\\\\u{1}\n\u{7f}]{0,24}\"?",
    ];
    let name = prop_oneof![
        8 => prop_oneof![Just("name"), Just("arguments"), Just("_meta"), Just("meta"), Just("params"), Just("Name"), Just("argument\u{17f}"), Just(META_VERSION), Just("x")]
            .prop_map(|name| format!("\"{name}\"")),
        1 => Just("\"n\\u0061me\"".to_owned()),
        1 => scalar.clone(),
    ];
    let white = prop_oneof![8 => Just(""), 1 => Just(" "), 1 => Just("\n\t\r "), 1 => Just("\u{c}")];
    scalar.prop_recursive(5, 48, 5, move |inner| {
        let member = (white.clone(), name.clone(), white.clone(), inner.clone(), white.clone())
            .prop_map(|(a, name, b, value, c)| format!("{a}{name}{b}:{value}{c}"));
        let comma = prop_oneof![12 => Just(","), 1 => Just(",,"), 1 => Just(" ")];
        prop_oneof![
            3 => (prop::collection::vec(member, 0..5), comma.clone())
                .prop_map(|(members, comma)| format!("{{{}}}", members.join(comma))),
            1 => (prop::collection::vec(inner, 0..5), comma)
                .prop_map(|(elements, comma)| format!("[{}]", elements.join(comma))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// `quick` accepts only texts that serde accepts, and finds the same members.
    #[test]
    fn what_is_read_quickly_is_read_alike(
        params in nearly_json(),
        other in nearly_json(),
        change in prop::option::of((any::<prop::sample::Index>(), "[\\[\\]{}\",:\\\\ 0-9a-fu\n\u{c}-]?")),
        tail in prop_oneof![8 => Just(""), 1 => Just(" "), 1 => Just("x"), 1 => Just("\u{c}"), 1 => Just("}")],
    ) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","o":{other},"params":{params}}}{tail}"#);
        let text = match change {
            None => text,
            // Replaces or removes one character.
            Some((at, other)) => {
                let at = at.index(text.chars().count());
                let kept = |(place, char): (usize, char)| if place == at { other.clone() } else { char.into() };
                text.chars().enumerate().map(kept).collect()
            }
        };
        let fully = EnvelopeMembers::read_fully(&text);
        if let Some(quick) = quick::read(&text) {
            let fully = fully.expect("it is no JSON");
            let all = |it: &EnvelopeMembers<'_>| {
                [it.jsonrpc, it.id, it.method, it.params, it.result, it.error].map(|it| it.map(str::to_owned))
            };
            prop_assert_eq!(all(&quick), all(&fully));
            if let Some(params) = quick.params
                && let Some(outline) = quick.places.outline(params.as_bytes())
            {
                let read = Outline::read(params.as_bytes()).expect("nothing stands twice");
                prop_assert_eq!(outline, read);
            }
            if let Some(params) = quick.params.filter(|params| params.starts_with('{')) {
                let value: Value = serde_json::from_str(params).unwrap_or_default();
                let says = value["_meta"].get(META_VERSION).is_some();
                prop_assert_eq!(quick.places.may_say_version(params.as_bytes()), says);
            }
        }
    }
}

#[test]
fn messages_as_clients_write_them_are_read_quickly() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"t":"\u00e9\n","n":[1,-2.5e3,[],{}]},"_meta":{"progressToken":7}}}"#,
        "{ \"jsonrpc\": \"2.0\",\r\n\t\"id\": \"a\", \"result\": { \"a\": [ true, false, null ] } }\n",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a text that is longer than what is looked at byte by byte \" \\ é"}}"#,
    ] {
        assert!(quick::read(text).is_some(), "{text}");
    }
}

#[test]
fn members_of_params_are_found_when_a_message_is_read() {
    let params = |text: String| {
        let message = Message::parse(&Bytes::from(text)).unwrap();
        let Message::Request(Request { params: Some(params), .. }) = message else { panic!("{message:?}") };
        params
    };
    let found = |params: &RawJson| {
        let outline = params.outline()?;
        let text = |value: Option<&[u8]>| value.map(|value| String::from_utf8_lossy(value).into_owned());
        Some([outline.name, outline.arguments, outline.meta, outline.misspelt].map(text))
    };
    let some = |text: &str| Some(text.to_owned());
    let written = params(
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params": {"_meta" : {"a":"}"},"x":{"name":7}, "name":"n" ,"arguments":{}}}"#
            .to_owned(),
    );
    let expected = Some([some("\"n\""), some("{}"), some(r#"{"a":"}"}"#), None]);
    assert_eq!(found(&written), expected);
    assert_eq!(found(&written.detached()), expected);
    // The same for params that no parser has looked at.
    assert_eq!(found(&RawJson::trusted(written.bytes().clone())), expected);
    // Escapes in a name need the full parser.
    let escaped =
        params(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"n\u0061me":"n","meta":1}}"#.to_owned());
    assert_eq!(found(&escaped), Some([some("\"n\""), None, None, some("1")]));
    let long = "x".repeat(70_000);
    let cases = [
        (r#""name":"n","name":"o""#.to_owned(), None),
        (format!(r#""x":"{long}","name":"n""#), Some([some("\"n\""), None, None, None])),
        (format!(r#""x":"{long}","name":"n","name":"o""#), None),
        (format!(r#""name":"n","x":"{long}","name":"o""#), None),
        // Names that some servers take for `name` or `arguments`.
        (r#""name":"n","Name":"o""#.to_owned(), None),
        (r#""NAME":"o""#.to_owned(), None),
        ("\"name\":\"n\",\"argument\u{17f}\":{}".to_owned(), None),
        ("\"name\":\"n\",\"\u{e9}\":{}".to_owned(), Some([some("\"n\""), None, None, None])),
    ];
    for (members, expected) in cases {
        let params = params(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{{members}}}}}"#));
        assert_eq!(found(&params), expected, "{members}");
    }
}
