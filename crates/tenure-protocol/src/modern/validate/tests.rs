//! Tests of each check of a modern request, and of their order.

use crate::json::RawJson;
use crate::keys::{CAPABILITIES, META_VERSION};
use crate::modern::validate::*;
use crate::request_id::RequestId;
use crate::revision::MODERN;

fn request(method: &str, params: &str) -> Request {
    let params = params.replace("$v", META_VERSION).replace("$c", CAPABILITIES);
    let params = Some(RawJson::parse(params).expect("a test writes JSON"));
    Request { id: RequestId::from_number(1), method: Method::new(method), params }
}

fn heads<'a>(version: Header<'a>, method: Header<'a>, name: Header<'a>) -> Option<Heads<'a>> {
    Some(Heads { version, method, name, params: Vec::new() })
}

fn outcome(request: Request, heads: Option<Heads<'_>>, eras: Eras) -> Result<Checked, (i32, &'static str)> {
    check(request, heads, eras).map_err(|error| (error.reason().code(), error.reason().as_str()))
}

const META: &str = r#""_meta":{"$v":"2026-07-28","$c":{}}"#;
const MISMATCH: (i32, &str) = (-32020, "header_mismatch");
const NO_META: (i32, &str) = (-32602, "invalid_meta");
const NOT_SERVED: (i32, &str) = (-32022, "version_not_served");
const NO_METHOD: (i32, &str) = (-32601, "method_not_found");

fn params(more: &str) -> String {
    format!("{{{META}{more}}}")
}

#[test]
fn the_order_of_meta_header_and_version() {
    use Header::{Absent, One, Twice, Unreadable};
    let with = |version: &str| format!(r#"{{"_meta":{{"$v":{version},"$c":{{}}}}}}"#);
    let table = [
        (with(r#""2026-07-28""#), One(MODERN), None),
        (with(r#""2026-07-28""#), One(" 2026-07-28\t"), None),
        (with(r#""2026-07-28""#), Absent, Some(MISMATCH)),
        (with(r#""2026-07-28""#), One(""), Some(MISMATCH)),
        (with(r#""2026-07-28""#), One("2025-11-25"), Some(MISMATCH)),
        (with(r#""2026-07-28""#), Twice, Some(MISMATCH)),
        (with(r#""2026-07-28""#), Unreadable, Some(MISMATCH)),
        (with(r#""v999""#), One(MODERN), Some(MISMATCH)),
        (with(r#""v999""#), One("v999"), Some(NOT_SERVED)),
        (with(r#""2027-01-01""#), One("2027-01-01"), Some(NOT_SERVED)),
        (with(r#""2025-11-25""#), One("2025-11-25"), Some(NOT_SERVED)),
        (with("1"), One(MODERN), Some(NO_META)),
        (with("1"), Absent, Some(NO_META)),
        ("{}".to_owned(), One(MODERN), Some(NO_META)),
        (r#"{"_meta":{"$v":"2026-07-28"}}"#.to_owned(), One(MODERN), Some(NO_META)),
        (r#"{"_meta":{"$v":"2026-07-28"}}"#.to_owned(), Absent, Some(NO_META)),
    ];
    for (params, version, expected) in table {
        let heads = heads(version, One("tools/list"), Absent);
        let found = outcome(request("tools/list", &params), heads, Eras::Both);
        assert_eq!(found.err(), expected, "{params} {version:?}");
    }
}

#[test]
fn version_before_method_before_name_before_what_is_gone() {
    use Header::{Absent, One};
    let wrong = heads(One("v1"), One("x"), One("x"));
    assert_eq!(outcome(request("ping", &params("")), wrong, Eras::Both).err(), Some(MISMATCH));
    let old = params("").replace(MODERN, "v1");
    let unserved = heads(One("v1"), One("x"), One("x"));
    assert_eq!(outcome(request("ping", &old), unserved, Eras::Both).err(), Some(NOT_SERVED));
    let other = heads(One(MODERN), One("x"), Absent);
    assert_eq!(outcome(request("ping", &params("")), other, Eras::Both).err(), Some(MISMATCH));
    let right = heads(One(MODERN), One("ping"), Absent);
    assert_eq!(outcome(request("ping", &params("")), right, Eras::Both).err(), Some(NO_METHOD));
}

#[test]
fn the_method_is_repeated_byte_for_byte() {
    use Header::{Absent, One, Twice, Unreadable};
    let table = [
        (One("tools/list"), None),
        (One("\ttools/list "), None),
        (One("TOOLS/LIST"), Some(MISMATCH)),
        (One("tools/call"), Some(MISMATCH)),
        (One("=?base64?dG9vbHMvbGlzdA==?="), Some(MISMATCH)),
        (Absent, Some(MISMATCH)),
        (Twice, Some(MISMATCH)),
        (Unreadable, Some(MISMATCH)),
    ];
    for (method, expected) in table {
        let found =
            outcome(request("tools/list", &params("")), heads(One(MODERN), method, Absent), Eras::Both);
        assert_eq!(found.err(), expected, "{method:?}");
    }
}

#[test]
fn the_name_is_repeated_for_methods_that_have_one() {
    use Header::{Absent, One, Twice, Unreadable};
    let table = [
        ("tools/call", r#","name":"a b""#, One("a b"), None),
        ("tools/call", r#","name":"a""#, One(" a"), None),
        ("tools/call", r#","name":"a""#, One("A"), Some(MISMATCH)),
        ("tools/call", r#","name":"a""#, Absent, Some(MISMATCH)),
        ("tools/call", r#","name":"a""#, Twice, Some(MISMATCH)),
        ("tools/call", r#","name":"a""#, Unreadable, Some(MISMATCH)),
        ("tools/call", r#","name":"""#, One(""), None),
        ("tools/call", r#","name":"Z\u00fcrich""#, One("=?base64?WsO8cmljaA==?="), None),
        ("tools/call", r#","name":"Hello""#, One("=?base64?SGVsbG8=?="), None),
        ("tools/call", r#","name":"Hello""#, One("=?base64?SGVsbG8?="), Some(MISMATCH)),
        ("tools/call", r#","name":"SGVsbG8=?=""#, One("SGVsbG8=?="), None),
        ("tools/call", r#","name":"a","name":"a""#, One("a"), Some(MISMATCH)),
        ("tools/call", r#","name":"a","name":"a""#, Absent, Some(MISMATCH)),
        // A body without a name is refused later, for its params.
        ("tools/call", "", Absent, None),
        ("tools/call", r#","name":7"#, Absent, None),
        ("tools/call", "", One("a"), Some(MISMATCH)),
        ("tools/call", r#","name":7"#, One("7"), Some(MISMATCH)),
        ("tools/call", "", Twice, Some(MISMATCH)),
        ("prompts/get", r#","name":"p""#, One("p"), None),
        ("prompts/get", r#","name":"p""#, Absent, Some(MISMATCH)),
        ("resources/read", r#","uri":"file:///a%20b""#, One("file:///a%20b"), None),
        ("resources/read", r#","uri":"a:b","name":"x""#, One("x"), Some(MISMATCH)),
        ("tasks/get", r#","taskId":"t""#, One("t"), None),
        ("tasks/update", r#","taskId":"t""#, Absent, Some(MISMATCH)),
        ("tasks/cancel", r#","taskId":"t""#, One("u"), Some(MISMATCH)),
        // Other methods have no name, so nothing is compared.
        ("tools/list", r#","name":"a""#, One("x"), None),
        ("completion/complete", "", Twice, None),
    ];
    for (method, more, name, expected) in table {
        let heads = heads(One(MODERN), One(method), name);
        let found = outcome(request(method, &params(more)), heads, Eras::Both);
        assert_eq!(found.err(), expected, "{method} {more} {name:?}");
    }
}

#[test]
fn methods_that_are_gone() {
    let gone = [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/result",
        "tasks/list",
    ];
    for method in gone {
        assert_eq!(
            outcome(request(method, &params("")), None, Eras::Both).err(),
            Some(NO_METHOD),
            "{method}"
        );
    }
    // All other methods are left to the server.
    for method in ["server/discover", "subscriptions/listen", "tools/call", "tasks/get", "x/y"] {
        assert!(outcome(request(method, &params("")), None, Eras::Both).is_ok(), "{method}");
    }
}

#[test]
fn the_versions_that_are_served_are_said() {
    let error = |eras| {
        let error =
            check(request("tools/list", &params("").replace(MODERN, "v999")), None, eras).unwrap_err();
        format!("{:?}", error.to_rpc())
    };
    expect_test::expect![[r#"RpcError({"code":-32022,"data":{"reason":"version_not_served","requested":"v999","supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]},"message":"Unsupported protocol version: v999"})"#]]
        .assert_eq(&error(Eras::Both));
    expect_test::expect![[r#"RpcError({"code":-32022,"data":{"reason":"version_not_served","requested":"v999","supported":["2026-07-28"]},"message":"Unsupported protocol version: v999"})"#]]
        .assert_eq(&error(Eras::Modern));
    let legacy = outcome(request("tools/list", &params("")), None, Eras::Legacy);
    assert_eq!(legacy.err(), Some(NOT_SERVED), "an endpoint without exchanges");
}

#[test]
fn a_mismatch_names_its_header() {
    let heads = heads(Header::One(MODERN), Header::Absent, Header::Absent);
    let error = check(request("tools/list", &params("")), heads, Eras::Both).unwrap_err();
    expect_test::expect![[r#"RpcError({"code":-32020,"data":{"header":"Mcp-Method","reason":"header_mismatch"},"message":"The header Mcp-Method is missing"})"#]]
        .assert_eq(&format!("{:?}", error.to_rpc()));
}

#[test]
fn the_headers_of_params_pass_in_their_order() {
    let params_heads: Vec<(&str, &[u8])> =
        vec![("region", b" us "), ("x", b"\xff"), ("region", "é".as_bytes())];
    let heads = Heads {
        version: Header::One(MODERN),
        method: Header::One("tools/list"),
        name: Header::Absent,
        params: params_heads,
    };
    let checked = check(request("tools/list", &params("")), Some(heads), Eras::Both).unwrap();
    let found: Vec<_> = checked
        .params
        .as_deref()
        .unwrap_or_default()
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    assert_eq!(found, [("region", "us"), ("x", "\u{fffd}"), ("region", "é")]);
    assert_eq!((checked.streams, checked.meta.version.as_str()), (StreamSupport::Allowed, MODERN));
    assert_eq!(checked.request.id, RequestId::from_number(1));
}
