//! Tests of annotations, of the headers they require, and of headers that contradict the body.

use crate::modern::header_params::*;

fn params_of(properties: &str) -> Result<HeaderParams, Nonsense> {
    HeaderParams::of_schema(&format!(r#"{{"type":"object","properties":{{{properties}}}}}"#))
}

fn call(arguments: &str) -> RawJson {
    RawJson::parse(format!(r#"{{"name":"t","arguments":{arguments}}}"#)).expect("a test writes JSON")
}

#[test]
fn annotations_that_make_sense() {
    let table = [
        ("", 0),
        (r#""a":{"type":"string"}"#, 0),
        (r#""a":{"type":"string","x-mcp-header":"Region"}"#, 1),
        (
            r#""a":{"type":"integer","x-mcp-header":"a"},"b":{"type":"boolean","x-mcp-header":"b!#$%&'*+-.^_`|~"}"#,
            2,
        ),
        (r#""a":{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"B"}}}"#, 1),
        (r#""a":{"type":"string","x\u002dmcp-header":"Region"}"#, 1),
        // A property named like the annotation, and data that looks like a schema.
        (r#""x-mcp-header":{"type":"string"}"#, 0),
        (
            r#""a":{"default":{"x-mcp-header":"A"},"enum":[{"x-mcp-header":""}],"const":{"x-mcp-header":1}}"#,
            0,
        ),
    ];
    for (properties, count) in table {
        let found = params_of(properties).unwrap_or_else(|error| panic!("{properties}: {error}"));
        assert_eq!((found.0.len(), found.is_empty()), (count, count == 0), "{properties}");
    }
}

#[test]
fn annotations_that_make_none() {
    let table = [
        (r#""a":{"type":"string","x-mcp-header":""}"#, "x-mcp-header at `a` is not a name for a header"),
        (
            r#""a":{"type":"string","x-mcp-header":"My Region"}"#,
            "x-mcp-header at `a` is not a name for a header",
        ),
        (
            r#""a":{"type":"string","x-mcp-header":"Region:Primary"}"#,
            "x-mcp-header at `a` is not a name for a header",
        ),
        (
            r#""a":{"type":"string","x-mcp-header":"Région"}"#,
            "x-mcp-header at `a` is not a name for a header",
        ),
        (
            r#""a":{"type":"string","x-mcp-header":"Region\t1"}"#,
            "x-mcp-header at `a` is not a name for a header",
        ),
        (r#""a":{"type":"string","x-mcp-header":7}"#, "x-mcp-header at `a` is not a name for a header"),
        (r#""a":{"type":"string","x-mcp-header":null}"#, "x-mcp-header at `a` is not a name for a header"),
        (
            r#""a":{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"R"}}},"c":{"type":"string","x-mcp-header":"r"}"#,
            "x-mcp-header at `c` has a name that another one has too",
        ),
    ];
    for (properties, expected) in table {
        assert_eq!(params_of(properties).unwrap_err().to_string(), expected, "{properties}");
    }
    for kind in [r#""number""#, r#""object""#, r#""array""#, r#""null""#, r#"["string","null"]"#, "7"] {
        let error =
            params_of(&format!(r#""a":{{"type":{kind},"x-mcp-header":"A"}}"#)).unwrap_err().to_string();
        assert_eq!(error, "x-mcp-header at `a` is at something other than a string, an integer or a boolean");
    }
    assert!(params_of(r#""a":{"x-mcp-header":"A"}"#).is_err(), "no type at all");
}

#[test]
fn annotations_where_none_may_be() {
    let inner = r#"{"type":"string","x-mcp-header":"A"}"#;
    let named = format!(r#"{{"n":{inner}}}"#);
    let list = format!("[{inner}]");
    let ways = [
        ("items", inner),
        ("prefixItems", &list),
        ("contains", inner),
        ("additionalProperties", inner),
        ("unevaluatedProperties", inner),
        ("propertyNames", inner),
        ("patternProperties", &named),
        ("dependentSchemas", &named),
        ("oneOf", &list),
        ("anyOf", &list),
        ("allOf", &list),
        ("not", inner),
        ("if", inner),
        ("then", inner),
        ("else", inner),
        ("$defs", &named),
        ("definitions", &named),
    ];
    for (keyword, value) in ways {
        for schema in [
            format!(r#"{{"{keyword}":{value}}}"#),
            format!(r#"{{"properties":{{"p":{{"type":"object","{keyword}":{value}}}}}}}"#),
        ] {
            assert!(HeaderParams::of_schema(&schema).is_err(), "{schema}");
        }
    }
    // `properties` below such a step are not allowed either.
    let behind = format!(r#"{{"allOf":[{{"properties":{named}}}]}}"#);
    assert!(HeaderParams::of_schema(&behind).is_err());
    assert!(HeaderParams::of_schema(inner).is_err(), "the root is no property");
}

#[test]
fn tools_and_schemas_that_cannot_be_read() {
    let valid = |tool: &'static str| is_valid(&RawJson::trusted(tool));
    assert!(valid(r#"{"name":"t"}"#));
    assert!(valid(r#"{"name":"t","inputSchema":true}"#));
    assert!(valid(r#"{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}"#));
    assert!(!valid(
        r#"{"name":"t","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}"#
    ));
    let deep = format!(r#"{}{{"x-mcp-header":"A"}}{}"#, r#"{"not":"#.repeat(5000), "}".repeat(5000));
    assert_eq!(HeaderParams::of_schema(&deep), Ok(HeaderParams::default()), "the reader stops at a depth");
}

const ALL: &str = r#""s":{"type":"string","x-mcp-header":"Region"},"i":{"type":"integer","x-mcp-header":"Count"},
    "b":{"type":"boolean","x-mcp-header":"Method"},"o":{"type":"object","properties":{"p":{"type":"string","x-mcp-header":"Deep"}}}"#;

#[test]
fn headers_that_a_client_sends() {
    let params = params_of(ALL).unwrap();
    let table = [
        ("{}", ""),
        (r#"{"s":"us-west1","x":"no"}"#, "Mcp-Param-Region: us-west1"),
        (r#"{"s":""}"#, "Mcp-Param-Region: "),
        (r#"{"s":" a"}"#, "Mcp-Param-Region: =?base64?IGE=?="),
        (r#"{"s":"Z\u00fcrich"}"#, "Mcp-Param-Region: =?base64?WsO8cmljaA==?="),
        (r#"{"i":42}"#, "Mcp-Param-Count: 42"),
        (r#"{"i":-42.0}"#, "Mcp-Param-Count: -42"),
        (r#"{"i":1.5}"#, ""),
        (r#"{"i":9007199254740992}"#, ""),
        (r#"{"b":true,"i":0}"#, "Mcp-Param-Method: true, Mcp-Param-Count: 0"),
        (r#"{"b":false}"#, "Mcp-Param-Method: false"),
        (r#"{"o":{"p":"x"}}"#, "Mcp-Param-Deep: x"),
        (r#"{"s":null,"i":null,"o":null}"#, ""),
        (r#"{"s":[],"o":{"p":{}}}"#, ""),
    ];
    for (arguments, expected) in table {
        let headers = params.headers_for(Some(&call(arguments)));
        let mut headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let mut expected: Vec<_> = expected.split(", ").filter(|header| !header.is_empty()).collect();
        headers.sort_unstable();
        expected.sort_unstable();
        assert_eq!(headers, expected, "{arguments}");
    }
    assert!(params.headers_for(None).is_empty());
    assert!(params.headers_for(Some(&RawJson::EMPTY_OBJECT)).is_empty());
}

#[test]
fn headers_that_a_server_takes() {
    let params = params_of(ALL).unwrap();
    type Case = (&'static str, &'static [(&'static str, &'static str)], bool);
    let table: &[Case] = &[
        ("{}", &[], true),
        (r#"{"s":"us"}"#, &[("region", "us")], true),
        (r#"{"s":"us"}"#, &[("REGION", "us"), ("other", "x"), ("other", "y")], true),
        (r#"{"s":"us"}"#, &[], false),
        (r#"{"s":"us"}"#, &[("Region", "US")], false),
        (r#"{"s":"us"}"#, &[("Region", "us"), ("region", "us")], false),
        (r#"{"s":""}"#, &[("Region", "")], true),
        (r#"{"s":""}"#, &[], false),
        (r#"{"s":"Hello"}"#, &[("Region", "=?base64?SGVsbG8=?=")], true),
        (r#"{"s":"Hello"}"#, &[("Region", "=?base64?SGVsbG8?=")], false),
        (r#"{"s":"Hello"}"#, &[("Region", "=?base64?SGVs!!!bG8=?=")], false),
        (r#"{"s":"SGVsbG8=?="}"#, &[("Region", "SGVsbG8=?=")], true),
        (r#"{"s":"=?base64?SGVsbG8="}"#, &[("Region", "=?base64?SGVsbG8=")], true),
        (r#"{"s":"é"}"#, &[("Region", "\u{fffd}")], false),
        (r#"{"s":"\ufffd"}"#, &[("Region", "\u{fffd}")], false),
        (r#"{"i":42}"#, &[("Count", "42")], true),
        (r#"{"i":42}"#, &[("Count", "42.0")], true),
        (r#"{"i":42.0}"#, &[("Count", "42")], true),
        (r#"{"i":4.2e1}"#, &[("Count", "420E-1")], true),
        (r#"{"i":42}"#, &[("Count", "43")], false),
        (r#"{"i":42}"#, &[("Count", "42.00000000000000000001")], false),
        (r#"{"i":42}"#, &[("Count", "0x2a")], false),
        (r#"{"i":42}"#, &[("Count", "042")], false),
        (r#"{"i":42}"#, &[("Count", "")], false),
        (r#"{"i":9007199254740991}"#, &[("Count", "9007199254740991")], true),
        (r#"{"i":9007199254740992}"#, &[("Count", "9007199254740992")], false),
        (r#"{"i":-9007199254740991}"#, &[("Count", "-9007199254740991")], true),
        (r#"{"i":1.5}"#, &[("Count", "1.5")], false),
        (r#"{"b":true}"#, &[("Method", "true")], true),
        (r#"{"b":true}"#, &[("Method", "True")], false),
        (r#"{"b":false}"#, &[("Method", "0")], false),
        (r#"{"o":{"p":"x"}}"#, &[("Deep", "x")], true),
        (r#"{"o":{"p":"x"}}"#, &[], false),
        // Headers of absent arguments are ignored.
        (r#"{"s":null}"#, &[("Region", "us")], true),
        ("{}", &[("Region", "us"), ("Region", "eu")], true),
        ("null", &[], true),
        // Arguments that no header can hold are refused later, by the tool.
        (r#"{"s":{}}"#, &[], true),
        (r#"{"s":{}}"#, &[("Region", "{}")], false),
        // Servers may read either value of a repeated argument.
        (r#"{"s":"us","s":"eu"}"#, &[("Region", "us")], false),
        (r#"{"s":"us","s":"eu"}"#, &[("Region", "eu")], false),
        (r#"{"o":{"p":"x"},"o":{}}"#, &[], false),
        // Halves of surrogate pairs are not valid text, but some servers accept them.
        (r#"{"\ud800":1,"s":"eu"}"#, &[("Region", "us")], false),
        (r#"{"s":"eu","\ud800":1}"#, &[], false),
        (r#"{"\ud800":1,"s":"eu"}"#, &[("Region", "eu")], true),
        (r#"{"o":{"\udfff":1,"p":"x"}}"#, &[("Deep", "y")], false),
        (r#"{"s":"\ud800"}"#, &[], false),
        (r#"{"s":"\ud800"}"#, &[("Region", "us")], false),
    ];
    for (arguments, headers, fits) in table {
        let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let checked = params.check(Some(&call(arguments)), &headers);
        assert_eq!(checked.is_ok(), *fits, "{arguments} {headers:?}");
        if let Err(error) = checked {
            assert_eq!(error.reason(), crate::error::Reason::HeaderMismatch);
        }
    }
}

#[test]
fn whole_numbers_are_compared_by_value() {
    let table = [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("0.000", Some(0)),
        ("0e99999999999999999999", None),
        ("0e9", Some(0)),
        ("100", Some(100)),
        ("1e2", Some(100)),
        ("1E+2", Some(100)),
        ("12300e-2", Some(123)),
        ("12300e-3", None),
        ("1e400", None),
        ("1e-400", None),
        ("1.50", None),
        ("9007199254740991.0", Some(9_007_199_254_740_991)),
        ("9007199254740992", None),
        ("99999999999999999999999999", None),
        ("+1", None),
        ("1.", None),
        (".5", None),
        ("01", None),
        (" 1", None),
        ("", None),
        ("-", None),
        ("NaN", None),
    ];
    for (text, expected) in table {
        assert_eq!(whole(text), expected, "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn what_a_client_sends_a_server_takes(text in ".*", count in -(1_i64 << 53)..(1 << 53), flag: bool) {
        let arguments = serde_json::json!({ "s": text, "i": count, "b": flag, "o": { "p": text } });
        let call = call(&arguments.to_string());
        let params = params_of(ALL).unwrap();
        let headers: Vec<(Box<str>, Box<str>)> = params
            .headers_for(Some(&call))
            .into_iter()
            .map(|(name, value)| (name[PREFIX.len()..].to_lowercase().into(), value.into()))
            .collect();
        let safe = count != -(1 << 53);
        proptest::prop_assert_eq!(headers.len(), if safe { 4 } else { 3 });
        proptest::prop_assert_eq!(params.check(Some(&call), &headers).is_ok(), safe);
    }
}

#[test]
fn arguments_may_differ_in_case_and_the_member_that_holds_them_may_not() {
    let params = params_of(r#""a":{"type":"string","x-mcp-header":"A"},"A":{"type":"string"}"#).unwrap();
    let sent: [(Box<str>, Box<str>); 1] = [("a".into(), "x".into())];
    for (arguments, headers) in [(r#"{"A":"y"}"#, &[][..]), (r#"{"a":"x","A":"y"}"#, &sent[..])] {
        let call = call(arguments);
        assert!(params.check(Some(&call), headers).is_ok(), "{arguments}");
        assert_eq!(params.headers_for(Some(&call)).len(), headers.len(), "{arguments}");
    }
    let hidden = RawJson::parse(r#"{"name":"t","arguments":{},"Arguments":{"a":"z"}}"#).unwrap();
    assert!(params.check(Some(&hidden), &[]).is_err());
}
