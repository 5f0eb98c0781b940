//! Tests of the translation of questions.

use crate::translate::questions::*;

fn json(text: &'static str) -> RawJson {
    RawJson::trusted(text)
}

fn question(method: Method, params: &'static str) -> Question {
    Question { key: "k".to_owned(), method, params: Some(json(params)) }
}

#[test]
fn a_modern_servers_wishes_are_read() {
    let result = json(
        r#"{"resultType":"input_required","inputRequests":{"n\u0061me":{"method":"elicitation/create","params":{ "message": "m" }},"r":{"method":"roots/list"}},"requestState":"a\u00e9\/"}"#,
    );
    let wanted = wanted(&result).unwrap();
    let expected = [
        Question {
            key: "name".to_owned(),
            method: Method::ElicitationCreate,
            params: Some(json(r#"{ "message": "m" }"#)),
        },
        Question { key: "r".to_owned(), method: Method::RootsList, params: None },
    ];
    assert_eq!(wanted.questions, expected);
    assert_eq!(wanted.state, Some(json(r#""a\u00e9\/""#)), "byte for byte");
}

#[test]
fn a_state_alone_is_a_wish_too() {
    let wanted = wanted(&json(r#"{"requestState":""}"#)).unwrap();
    assert_eq!(wanted, InputWanted { questions: Vec::new(), state: Some(json(r#""""#)) });
}

#[test]
fn malformed_input_requests_are_faults_of_the_server() {
    let table = [
        "{}",
        "[]",
        r#"{"inputRequests":{}}"#,
        r#"{"inputRequests":null,"requestState":"s"}"#,
        r#"{"inputRequests":{"k":7},"requestState":"s"}"#,
        r#"{"inputRequests":{"k":{"method":"tools/call","params":{}}}}"#,
        r#"{"inputRequests":{"k":{"method":"roots/list","params":7}}}"#,
        r#"{"inputRequests":{"k":{"params":{}}}}"#,
        r#"{"inputRequests":{"k":{"method":"roots/list"},"\u006b":{"method":"roots/list"}}}"#,
        r#"{"requestState":7}"#,
    ];
    for result in table {
        assert_eq!(wanted(&json(result)).map_err(|error| error.code()), Err(-32603), "{result}");
    }
}

#[test]
fn a_retry_is_the_same_request_with_answers_and_state() {
    let answers = |answers: &[(&str, &'static str)]| -> Vec<(String, RawJson)> {
        answers.iter().map(|(key, answer)| ((*key).to_owned(), json(answer))).collect()
    };
    let state = json(r#""s\u00e9""#);
    let table = [
        (
            r#"{"name":"t","arguments":{ "x":1.50 }}"#,
            answers(&[("a", r#"{ "action":"accept"}"#), ("b\"", r#"{"roots":[]}"#)]),
            Some(&state),
            r#"{"name":"t","arguments":{ "x":1.50 },"inputResponses":{"a":{ "action":"accept"},"b\"":{"roots":[]}},"requestState":"s\u00e9"}"#,
        ),
        (r#"{"name":"t"}"#, answers(&[]), Some(&state), r#"{"name":"t","requestState":"s\u00e9"}"#),
        (
            r#"{"inputResponses":{"old":{}},"requestState":"old","name":"t"}"#,
            answers(&[("a", "{}")]),
            None,
            r#"{"inputResponses":{"a":{}},"name":"t"}"#,
        ),
        (r#"{"inputResponses":{},"name":"t"}"#, answers(&[]), None, r#"{"name":"t"}"#),
    ];
    for (params, answers, state, expected) in table {
        assert_eq!(object::text(&retry(&json(params), &answers, state).unwrap()), expected);
    }
    assert!(retry(&json("[]"), &[], None).unwrap_err().is(Reason::InvalidParams));
}

#[test]
fn a_call_without_an_answer_is_abandoned_and_nothing_made_up() {
    let question = question(Method::SamplingCreateMessage, "{}");
    let told = abandoned(&Method::ToolsCall, &question, "no \"model\"").unwrap();
    assert_eq!(
        object::text(&told),
        r#"{"content":[{"type":"text","text":"The server needed an answer to sampling/createMessage and got none: no \"model\""}],"isError":true}"#
    );
    let failed = abandoned(&Method::PromptsGet, &question, "x").unwrap_err();
    assert_eq!(failed.code(), -32603);
}

#[test]
fn a_sessions_servers_requests_as_questions() {
    use KeyedBy::{Server, Us};
    let table = [
        (Method::RootsList, None, Some(("q3", Us, None))),
        (
            Method::ElicitationCreate,
            Some(r#"{ "message": "m", "requestedSchema": {"enumNames":[]} }"#),
            Some(("q3", Us, Some(r#"{ "message": "m", "requestedSchema": {"enumNames":[]} }"#))),
        ),
        (
            Method::ElicitationCreate,
            Some(r#"{"mode":"url","elicitationId":"e","url":"u","message":"m"}"#),
            Some(("q3", Us, Some(r#"{"mode":"url","url":"u","message":"m"}"#))),
        ),
        (
            Method::SamplingCreateMessage,
            Some(
                r#"{"task":{"ttl":1},"messages":[],"_meta":{"progressToken":1,"io.modelcontextprotocol/related-task":{},"x":1}}"#,
            ),
            Some(("q3", Us, Some(r#"{"messages":[],"_meta":{"x":1}}"#))),
        ),
        (
            Method::ElicitationCreate,
            Some(r#"{"message":"m","_meta":{"dev.tenure/inputKey":"user_name"}}"#),
            Some(("user_name", Server, Some(r#"{"message":"m"}"#))),
        ),
        (
            Method::ElicitationCreate,
            Some(r#"{"_meta":{"dev.tenure/inputKey":""}}"#),
            Some(("q3", Us, Some("{}"))),
        ),
        (Method::Ping, None, None),
        (Method::ToolsCall, Some("{}"), None),
    ];
    for (method, params, expected) in table {
        let found = of_server(&method, params.map(json).as_ref(), 3);
        let found = found.map(|(question, keyed)| (question.key, keyed, question.params));
        let expected = expected.map(|(key, keyed, params)| (key.to_owned(), keyed, params.map(json)));
        assert_eq!(found, expected);
    }
}

#[test]
fn urls_that_a_server_wants_visited() {
    let error = |text: &'static str| RpcError::from_raw(json(text));
    let questions = url_elicitations(&error(
        r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"1","url":"u:1","message":"a"},{"mode":"url","url":"u:2","message":"b"}]}}"#,
    ));
    let expected = [
        ("q1", r#"{"mode":"url","url":"u:1","message":"a"}"#),
        ("q2", r#"{"mode":"url","url":"u:2","message":"b"}"#),
    ]
    .map(|(key, params)| Question {
        key: key.to_owned(),
        method: Method::ElicitationCreate,
        params: Some(json(params)),
    });
    assert_eq!(questions.as_deref(), Some(&expected[..]));
    let none = [
        r#"{"code":-32042,"message":"m"}"#,
        r#"{"code":-32042,"message":"m","data":{"elicitations":[]}}"#,
        r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"form"}]}}"#,
        r#"{"code":-32042,"message":"m","data":{"elicitations":[7]}}"#,
        r#"{"code":-32602,"message":"m","data":{"elicitations":[{"mode":"url","url":"u"}]}}"#,
    ];
    for text in none {
        assert_eq!(url_elicitations(&error(text)), None, "{text}");
    }
}

#[test]
fn an_interim_result_is_written_and_read_again() {
    let questions = [
        question(Method::ElicitationCreate, r#"{ "message":"m" }"#),
        Question { key: "\"2".to_owned(), method: Method::RootsList, params: None },
    ];
    let result = input_required(&questions, Some("s\"é"));
    assert_eq!(
        object::text(&result),
        r#"{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{ "message":"m" }},"\"2":{"method":"roots/list","params":{}}},"requestState":"s\"é"}"#
    );
    let read = wanted(&result).unwrap();
    assert_eq!(read.questions[0], questions[0]);
    assert_eq!(read.state, Some(json(r#""s\"é""#)));
    let later = input_required(&[], Some("s"));
    assert_eq!(object::text(&later), r#"{"resultType":"input_required","requestState":"s"}"#);
}

#[test]
fn only_an_object_is_an_answer() {
    let responses = json(r#"{"a": {"action":"accept"} ,"b":12345,"c":null}"#);
    assert_eq!(answer(&responses, "a"), Some(json(r#"{"action":"accept"}"#)));
    for key in ["b", "c", "d"] {
        assert_eq!(answer(&responses, key), None, "{key}");
    }
    assert_eq!(answer(&json("null"), "a"), None);
}

#[test]
fn an_answer_for_a_server_of_a_revision() {
    let sampled = r#"{"role":"assistant","content":[ {"type":"text","text":"a"} ],"model":"m"}"#;
    let single = r#"{"role":"assistant","content":{"type":"text","text":"a"},"model":"m"}"#;
    let several = r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#;
    let sampling = Method::SamplingCreateMessage;
    for (method, given, expected) in [
        (&sampling, sampled, [single, single, single, sampled]),
        (&sampling, single, [single; 4]),
        (&sampling, several, [several; 4]),
        (&Method::ElicitationCreate, r#"{"content":["a"]}"#, [r#"{"content":["a"]}"#; 4]),
    ] {
        let found = Revision::ALL.map(|revision| answer_for(method, &json(given), revision));
        assert_eq!(found.each_ref().map(object::text), expected);
    }
}

#[test]
fn questions_that_cannot_be_asked_or_were_not_answered() {
    let sampling = Method::SamplingCreateMessage;
    assert_eq!(refusal(&Method::Ping), Ok(json("{}")));
    assert_eq!(refusal(&Method::ElicitationCreate), Ok(json(r#"{"action":"decline"}"#)));
    assert_eq!(refusal(&sampling).unwrap_err().code(), -32601);
    assert_eq!(refusal(&Method::RootsList).unwrap_err().code(), -32601);
    assert_eq!(expiry(&Method::ElicitationCreate), Ok(json(r#"{"action":"cancel"}"#)));
    assert!(expiry(&sampling).unwrap_err().is(Reason::TimedOut));
}
