//! Tests of the members that are added to results, and that nothing else changes.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::modern::result::*;

const SERVER_INFO: &str = r#"{"name":"s","version":"1"}"#;

fn completed(method: &str, result: &str, caching: Caching) -> String {
    let server = RawJson::trusted(SERVER_INFO);
    let result = RawJson::parse(result.to_owned()).expect("a test writes JSON");
    let completed = complete(&Method::new(method), &result, Some(&server), caching);
    let text = String::from_utf8(completed.bytes().to_vec()).unwrap();
    assert!(RawJson::parse(text.clone()).is_some(), "{text}");
    text.replace(&format!(r#""{SERVER}":{SERVER_INFO}"#), "$S")
}

#[test]
fn every_result_has_a_type_and_a_server() {
    let table = [
        ("{}", r#"{"resultType":"complete","_meta":{$S}}"#),
        ("{ }", r#"{"resultType":"complete","_meta":{$S} }"#),
        (r#" {"a": 1 } "#, r#" {"resultType":"complete","_meta":{$S},"a": 1 } "#),
        (r#"{"resultType":"complete"}"#, r#"{"_meta":{$S},"resultType":"complete"}"#),
        (r#"{"a":1,"resultType":null}"#, r#"{"_meta":{$S},"a":1,"resultType":"complete"}"#),
        (
            r#"{"resultType":"input_required","inputRequests":{}}"#,
            r#"{"_meta":{$S},"resultType":"input_required","inputRequests":{}}"#,
        ),
        (r#"{"resultType":"task","ttlMs":5}"#, r#"{"_meta":{$S},"resultType":"task","ttlMs":5}"#),
        (r#"{"resultType":"other"}"#, r#"{"_meta":{$S},"resultType":"other"}"#),
        (r#"{"result\u0054ype":"task"}"#, r#"{"_meta":{$S},"result\u0054ype":"task"}"#),
        (
            r#"{"x":{"resultType":"task"}}"#,
            r#"{"resultType":"complete","_meta":{$S},"x":{"resultType":"task"}}"#,
        ),
        (
            r#"{"x":"\u0022resultType\u0022"}"#,
            r#"{"resultType":"complete","_meta":{$S},"x":"\u0022resultType\u0022"}"#,
        ),
        (r#"{"_meta":{}}"#, r#"{"resultType":"complete","_meta":{$S}}"#),
        (r#"{"_meta":null,"b":2}"#, r#"{"resultType":"complete","_meta":{$S},"b":2}"#),
        (r#"{"_meta": { "k": 1 },"b":2}"#, r#"{"resultType":"complete","_meta": {$S, "k": 1 },"b":2}"#),
        (r#"{"_meta":7}"#, r#"{"resultType":"complete","_meta":7}"#),
        // The server's own `serverInfo` stays.
        (
            r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up"}}}"#,
            r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up"}}}"#,
        ),
        // Half of a surrogate pair is valid JSON, but not a valid name.
        (r#"{"\ud800":1}"#, r#"{"\ud800":1}"#),
        ("[]", "[]"),
        ("null", "null"),
    ];
    for (result, expected) in table {
        assert_eq!(completed("tools/call", result, Caching::AsSaid), expected, "{result}");
    }
    let without = complete(&Method::ToolsCall, &RawJson::EMPTY_OBJECT, None, Caching::AsSaid);
    assert_eq!(without.bytes(), r#"{"resultType":"complete"}"#);
}

#[test]
fn acknowledgements_about_tasks_stay_empty() {
    for method in ["tasks/update", "tasks/cancel"] {
        assert_eq!(completed(method, "{}", Caching::AsSaid), r#"{"resultType":"complete"}"#);
        let said = r#"{"resultType":"complete","_meta":{"k":1}}"#;
        assert_eq!(completed(method, said, Caching::AsSaid), said, "what a server says stays");
    }
    assert_eq!(completed("tasks/get", "{}", Caching::AsSaid), r#"{"resultType":"complete","_meta":{$S}}"#);
}

#[test]
fn what_may_be_cached_says_how() {
    use Caching::{AsSaid, Never, Private};
    let none = r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{$S},"tools":[]}"#;
    let table = [
        (r#"{"tools":[]}"#, AsSaid, none),
        (r#"{"tools":[]}"#, Never, none),
        (
            r#"{"ttlMs":5,"tools":[],"cacheScope":"public"}"#,
            AsSaid,
            r#"{"resultType":"complete","_meta":{$S},"ttlMs":5,"tools":[],"cacheScope":"public"}"#,
        ),
        (
            r#"{"ttlMs":5,"tools":[],"cacheScope":"public"}"#,
            Private,
            r#"{"resultType":"complete","_meta":{$S},"ttlMs":5,"tools":[],"cacheScope":"private"}"#,
        ),
        (
            r#"{"ttlMs":5,"tools":[],"cacheScope":"public"}"#,
            Never,
            r#"{"resultType":"complete","_meta":{$S},"ttlMs":0,"tools":[],"cacheScope":"private"}"#,
        ),
        // A `ttlMs` without a scope allows caching only for the caller.
        (
            r#"{"tools":[],"ttlMs":5}"#,
            AsSaid,
            r#"{"resultType":"complete","cacheScope":"private","_meta":{$S},"tools":[],"ttlMs":5}"#,
        ),
        (
            r#"{"ttlMs":-5,"cacheScope":"everyone"}"#,
            AsSaid,
            r#"{"resultType":"complete","_meta":{$S},"ttlMs":0,"cacheScope":"private"}"#,
        ),
        (
            r#"{"ttlMs":"5","cacheScope":null}"#,
            AsSaid,
            r#"{"resultType":"complete","_meta":{$S},"ttlMs":0,"cacheScope":"private"}"#,
        ),
        (
            r#"{"ttlMs":5,"ttlMs":6,"cacheScope":"public","cacheScope":"private"}"#,
            Never,
            r#"{"resultType":"complete","_meta":{$S},"ttlMs":0,"ttlMs":0,"cacheScope":"private","cacheScope":"private"}"#,
        ),
        (
            r#"{"resultType":"task","resultType":null}"#,
            AsSaid,
            r#"{"ttlMs":0,"cacheScope":"private","_meta":{$S},"resultType":"task","resultType":"complete"}"#,
        ),
        (
            r#"{"resultType":"input_required","requestState":"s"}"#,
            AsSaid,
            r#"{"_meta":{$S},"resultType":"input_required","requestState":"s"}"#,
        ),
    ];
    for (result, caching, expected) in table {
        assert_eq!(completed("tools/list", result, caching), expected, "{result} {caching:?}");
    }
    let cacheable = [
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    ];
    for method in cacheable {
        assert!(completed(method, "{}", AsSaid).contains(r#""ttlMs":0,"cacheScope":"private""#), "{method}");
    }
    for method in
        ["tools/call", "prompts/get", "completion/complete", "subscriptions/listen", "tasks/get", "x/y"]
    {
        assert!(!completed(method, "{}", AsSaid).contains("ttlMs"), "{method}");
    }
}

#[test]
fn attempts_with_answers_are_not_cached() {
    let of = |params: &'static str| Caching::AsSaid.of_request(Some(&RawJson::trusted(params)));
    assert_eq!(of(r#"{"uri":"a:b"}"#), Caching::AsSaid);
    assert_eq!(of(r#"{"uri":"a:b","inputResponses":{}}"#), Caching::Never);
    assert_eq!(of(r#"{"uri":"a:b","requestState":"s"}"#), Caching::Never);
    assert_eq!(of(r#"{"uri":"a:b","request\u0053tate":null}"#), Caching::Never);
    assert_eq!(Caching::Private.of_request(None), Caching::Private);
}

#[test]
fn types_of_results() {
    let table = [
        ("{}", ResultType::Complete),
        (r#"{"resultType":"complete"}"#, ResultType::Complete),
        (r#"{"resultType":"input_required"}"#, ResultType::InputRequired),
        (r#"{"resultType":"\u0074ask"}"#, ResultType::Task),
        (r#"{"result\u0054ype":"task"}"#, ResultType::Task),
        (r#"{"x":{"resultType":"task"}}"#, ResultType::Complete),
        (r#"{"resultType":"Complete"}"#, ResultType::Unknown),
        (r#"{"resultType":null}"#, ResultType::Unknown),
        (r#"{"resultType":"complete","resultType":"task"}"#, ResultType::Unknown),
    ];
    for (result, expected) in table {
        assert_eq!(ResultType::of(&RawJson::trusted(result)), expected, "{result}");
    }
}

/// Names that we add, names that look like them, and any others.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec!["resultType", "_meta", "ttlMs", "cacheScope", SERVER, "content"])
            .prop_map(str::to_owned),
        any::<String>(),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        name().prop_map(Value::from),
        prop::sample::select(vec![json!("complete"), json!("task"), json!("public"), json!(0)]),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..4)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// An object with any order, white space, escapes and repeated members.
fn written(count: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let member = (name(), value(), any::<bool>(), any::<bool>());
    prop::collection::vec(member, count).prop_map(|members| {
        let members: Vec<_> = members
            .into_iter()
            .map(|(name, value, pretty, escaped)| {
                let name = if escaped { escape(&name) } else { json!(name).to_string() };
                let value =
                    if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
                format!("{name}{}:{}", if pretty { " " } else { "" }, value.unwrap())
            })
            .collect();
        format!("{{{}}}", members.join(", "))
    })
}

fn escape(name: &str) -> String {
    let units: String = name.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
}

/// The members that are not ours, as they were written.
fn others(object: &str) -> Vec<(String, String)> {
    let members = members::read(object.as_bytes()).unwrap();
    members
        .into_iter()
        .filter(|(name, _)| ![TYPE, TTL, SCOPE, META].contains(&&**name))
        .map(|(name, value)| (name.into_owned(), value.get().to_owned()))
        .collect()
}

/// The members of the `_meta`s that are not ours, as they were written.
fn of_meta(object: &str) -> Vec<(String, String)> {
    let members = members::read(object.as_bytes()).unwrap();
    let metas = members.into_iter().filter(|(name, _)| name == META);
    let inner = metas.filter_map(|(_, value)| members::read(value.get().as_bytes())).flatten();
    inner
        .filter(|(name, _)| name != SERVER)
        .map(|(name, value)| (name.into_owned(), value.get().to_owned()))
        .collect()
}

proptest! {
    #[test]
    fn other_members_stay_the_bytes_they_were(
        result in written(0..6),
        method in prop::sample::select(vec![Method::ToolsCall, Method::ToolsList]),
        caching in prop::sample::select(vec![Caching::AsSaid, Caching::Private, Caching::Never]),
        introduces: bool,
    ) {
        let server = introduces.then(|| RawJson::trusted(SERVER_INFO));
        let once = complete(&method, &RawJson::trusted(result.clone()), server.as_ref(), caching);
        let text = String::from_utf8(once.bytes().to_vec()).unwrap();
        prop_assert_eq!(others(&text), others(&result));
        prop_assert_eq!(of_meta(&text), of_meta(&result));
        // All bytes that are not replaced are still there, in one piece after the new members.
        let (had, has) = (members::read(result.as_bytes()).unwrap(), members::read(text.as_bytes()).unwrap());
        prop_assert!(has.iter().any(|(name, value)| name == TYPE && value.get() != "null"));
        let changed = has.iter().rev().zip(had.iter().rev()).any(|((_, new), (_, old))| new.get() != old.get());
        if !changed {
            prop_assert!(text.ends_with(&result[1..]), "{} from {}", text, result);
        }
        // A second run changes nothing.
        prop_assert_eq!(complete(&method, &once, server.as_ref(), caching), once);
    }

    #[test]
    fn it_makes_no_difference_whether_a_result_is_read(result in written(1..6)) {
        // An escape anywhere forces the full scan.
        let escaped = |text: &str| format!(r#"{},"\u0079":1}}"#, text.strip_suffix('}').unwrap());
        let completed = |text: String| {
            let completed = complete(&Method::ToolsList, &RawJson::trusted(text), None, Caching::AsSaid);
            String::from_utf8(completed.bytes().to_vec()).unwrap()
        };
        prop_assert_eq!(completed(escaped(&result)), escaped(&completed(result)));
    }
}
