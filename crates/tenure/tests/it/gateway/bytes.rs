//! Params, results and errors pass as the bytes they are, whatever valid JSON that is.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use crate::gateway::running::Gateway;
use crate::support::session::Session;

/// Blanks between tokens. Line breaks aside: they have to become spaces on a line.
fn blank() -> impl Strategy<Value = String> {
    prop_oneof![8 => Just(""), 1 => Just(" "), 1 => Just("\t  ")].prop_map(str::to_owned)
}

/// Numbers that do not survive being read and written again.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("1.50"),
        Just("1e400"),
        Just("-0"),
        Just("-0.0"),
        Just("0.10E+05"),
        Just("1E-400"),
        Just("123456789012345678901234567890"),
        Just("0.1000000000000000055511151231257827"),
        Just("7"),
    ]
    .prop_map(str::to_owned)
}

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z _/-]{0,6}",
        Just("\\u0041".to_owned()),
        Just("\\/".to_owned()),
        Just("\\n".to_owned()),
        Just("\\ud83d\\ude00".to_owned()),
        Just("ü😀".to_owned()),
        Just("\u{2028}".to_owned()),
        Just("\\\"".to_owned()),
        Just("\u{7f}".to_owned()),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn key() -> impl Strategy<Value = String> {
    // Also names that mean something elsewhere in the envelope.
    prop_oneof![
        4 => text(), 1 => Just("\"_meta\"".to_owned()), 1 => Just("\"id\"".to_owned()),
        1 => Just("\"jsonrpc\"".to_owned()), 1 => Just("\"result\"".to_owned()),
    ]
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![number(), text(), Just("null".to_owned()), Just("true".to_owned())];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec((blank(), inner.clone(), blank()), 0..4).prop_map(|items| {
                let items: Vec<_> = items.iter().map(|(a, item, b)| format!("{a}{item}{b}")).collect();
                format!("[{}]", items.join(","))
            }),
            object_of(inner),
        ]
    })
}

fn object_of(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec((blank(), key(), blank(), inner, blank()), 0..5).prop_map(|members| {
        let members: Vec<_> =
            members.iter().map(|(a, key, b, value, c)| format!("{a}{key}{b}:{value}{c}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

/// Params with a `_meta` as clients send it, and anything beside.
fn params() -> impl Strategy<Value = String> {
    let meta = prop::option::of((blank(), object_of(value())));
    (object_of(value()), meta).prop_map(|(object, meta)| match meta {
        Some((blank, meta)) if object.len() > 2 => format!("{{\"_meta\":{blank}{meta},{}", &object[1..]),
        Some((blank, meta)) => format!("{{\"_meta\":{blank}{meta}}}"),
        None => object,
    })
}

#[test]
fn params_results_and_errors_pass_unchanged() {
    pass_unchanged(&[]);
}

#[test]
fn params_results_and_errors_of_a_shared_child_pass_unchanged() {
    pass_unchanged(&["child.share=true"]);
}

fn pass_unchanged(settings: &[&str]) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (gateway, session) = runtime.block_on(async {
        let gateway = Gateway::start(settings).await;
        let session = gateway.session().await;
        (gateway, session)
    });
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    let passed = runner.run(&params(), |raw| {
        let said = runtime.block_on(exchange(&session, "any/method", &raw));
        let wanted =
            format!(r#"{{"jsonrpc":"2.0","id":"q","result":{{"method":"any/method","params":{raw}}}}}"#);
        prop_assert_eq!(said, wanted);
        let said = runtime.block_on(exchange(&session, "echo/result", &raw));
        prop_assert_eq!(said, format!(r#"{{"jsonrpc":"2.0","id":"q","result":{raw}}}"#));
        let error = format!(r#"{{"code":-32050,"message":"no","data":{raw}}}"#);
        let said = runtime.block_on(exchange(&session, "echo/error", &error));
        prop_assert_eq!(said, format!(r#"{{"jsonrpc":"2.0","id":"q","error":{error}}}"#));
        Ok(())
    });
    let _inside = runtime.enter();
    drop(gateway);
    passed.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Params with a progress token somewhere in their `_meta`: before the token, the token, and after it.
fn marked() -> impl Strategy<Value = (String, String, String)> {
    let token = prop_oneof![text(), number()];
    let member = || (text(), value()).prop_map(|(name, value)| format!("{name}:{value}"));
    let some = || prop::collection::vec(member(), 0..3);
    (some(), blank(), token, blank(), some(), some()).prop_map(|(first, a, token, b, second, third)| {
        let before = first.iter().fold("{\"_meta\":{".to_owned(), |all, one| all + one + ",");
        let rest = |members: &[String]| members.iter().fold(String::new(), |all, one| all + "," + one);
        let after = format!("{b}{}}}{}}}", rest(&second), rest(&third));
        (format!("{before}\"progressToken\":{a}"), token, after)
    })
}

/// To a shared child goes a token of ours, and nothing else is touched; to the client comes its own.
#[test]
fn only_the_progress_token_differs_for_a_shared_child_and_the_client_gets_its_own() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (gateway, session) = runtime.block_on(async {
        let gateway = Gateway::start(&["child.share=true"]).await;
        let session = gateway.session().await;
        (gateway, session)
    });
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let passed = runner.run(&marked(), |(before, token, after)| {
        let said = runtime.block_on(exchange(&session, "any/method", &format!("{before}{token}{after}")));
        let start =
            format!(r#"{{"jsonrpc":"2.0","id":"q","result":{{"method":"any/method","params":{before}"#);
        let ours = said.strip_prefix(&start).and_then(|rest| rest.strip_suffix(&format!("{after}}}}}")));
        prop_assert!(ours.is_some_and(is_ours), "{} of {}", said, before);
        let raw = runtime.block_on(async {
            let name = r#""name":"slow","arguments":{"steps":1}"#;
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{{{name},{}{token}{after}}}"#,
                &before[1..]
            );
            let mut stream = session.post_raw(call).open(session.server).await;
            // Not read as JSON: some numbers are too large for that.
            while stream.event().await.is_some() {}
            stream.raw()
        });
        let wanted = format!(r#""progress":1,"progressToken":{token},"total":1"#);
        prop_assert!(raw.contains(&wanted), "{} in {}", wanted, raw);
        Ok(())
    });
    let _inside = runtime.enter();
    drop(gateway);
    passed.unwrap_or_else(|failure| panic!("{failure}"));
}

/// A number, and a part that cannot be guessed.
fn is_ours(token: &str) -> bool {
    let halves = token.trim_matches('"').split_once('-');
    halves.is_some_and(|(number, chance)| {
        number.parse::<u64>().is_ok() && chance.len() == 32 && u128::from_str_radix(chance, 16).is_ok()
    })
}

async fn exchange(session: &Session, method: &str, params: &str) -> String {
    let body = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{params}}}"#);
    session.post_raw(body).send(session.server).await.text()
}

#[tokio::test]
async fn line_breaks_between_tokens_become_spaces_and_those_in_texts_stay() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let said = exchange(&session, "any/method", "{\r\n  \"a\": \"b\\r\\nc\",\n\"n\": 1.50\n}").await;
    let wanted = r#"{"jsonrpc":"2.0","id":"q","result":{"method":"any/method","params":{    "a": "b\r\nc", "n": 1.50 }}}"#;
    assert_eq!(said, wanted);
}

#[tokio::test]
async fn a_megabyte_passes_both_ways() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let text = "x".repeat(1 << 20);
    let said = session.tool(1, "public_echo", &json!({ "text": text })).await.json();
    assert_eq!(said["result"]["content"][0]["text"].as_str().map(str::len), Some(1 << 20));
}
