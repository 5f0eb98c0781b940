//! Property tests: for any input, no rule panics, writes invalid JSON, or loses members that it does not name.

use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::error::RpcError;
use crate::json::{RawJson, object};
use crate::keys;
use crate::method::Method;
use crate::request_id::RequestId;
use crate::revision::Revision;
use crate::translate::evidence::{self, AnsweredOver, ServerAnswer};
use crate::translate::questions::{self, Question};
use crate::translate::request::{self, Sender};
use crate::translate::{
    capabilities, codes, downgrade, elicitation, handshake, notifications, progress, result, tasks,
};

const NAMES: &str = "_meta action annotations arguments cacheScope capabilities code const content contents data \
    elicitation elicitations error execution inputRequests isError level message messages method mode name \
    notifications oneOf outputSchema params progress progressToken properties requestState requestedSchema resources \
    result resultType role status structuredContent task taskId tools ttlMs type uri";
const TEXTS: &str = "complete input_required task working completed failed audio resource_link text url form array \
    object elicitation/create roots/list \"\\é";
const METHODS: &str =
    "tools/call tools/list prompts/get resources/read completion/complete tasks/get server/discover";

fn one_of(words: &'static str) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(words.split(' ').collect::<Vec<_>>())
}

/// JSON that looks like messages: the names and values that the rules look for, also in wrong places.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (-32110..-31990_i64).prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        one_of(TEXTS).prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        let name = one_of(NAMES).prop_map(str::to_owned);
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => proptest::collection::vec((name, inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn method() -> impl Strategy<Value = Method> {
    one_of(METHODS).prop_map(Method::new)
}

fn revision() -> impl Strategy<Value = Revision> {
    proptest::sample::select(&Revision::ALL[..])
}

/// Written with white space, because the rules must keep it.
fn raw(value: &Value) -> RawJson {
    RawJson::trusted(serde_json::to_vec_pretty(value).unwrap())
}

fn read(json: &RawJson) -> Value {
    json.read().unwrap_or_else(|error| panic!("{error}: {json:?}"))
}

fn without(value: &Value, names: &[&str]) -> Value {
    let mut value = value.clone();
    if let Value::Object(members) = &mut value {
        members.retain(|name, _| !names.contains(&name.as_str()));
    }
    value
}

proptest! {
    #[test]
    fn results(value in anything(), method in method(), revision in revision()) {
        let given = raw(&value);
        let value = read(&given);
        let legacy = result::to_legacy(&method, &given, revision);
        prop_assert!(!value.is_object() || read(&legacy).get("resultType").is_none());
        let modern = result::to_modern(&method, &given);
        prop_assert!(!value.is_object() || result::kind(&method, &modern) == Ok(result::ResultKind::Complete));
        let changed = ["resultType", "ttlMs", "cacheScope", "_meta", "tools", "content", "messages", "structuredContent"];
        prop_assert_eq!(without(&read(&legacy), &changed), without(&value, &changed));
        prop_assert_eq!(without(&read(&modern), &changed), without(&value, &changed));
        read(&downgrade::result_for(&method, &given, revision));
        prop_assert_eq!(
            downgrade::result_for(&method, &legacy, revision), legacy, "what is shaped for a revision stays so");
    }

    #[test]
    fn errors(value in anything(), params in anything(), method in method()) {
        let error = RpcError::from_raw(raw(&value));
        let legacy = codes::to_legacy(&method, &error);
        let modern = codes::to_modern(Some(&raw(&params)), &error);
        for error in [&legacy, &modern] {
            prop_assert!(read(error.raw())["code"].is_i64());
            prop_assert!(!(-32099..=-32020).contains(&error.code()));
        }
        prop_assert!(modern.code() != codes::RESOURCE_NOT_FOUND);
        questions::url_elicitations(&error);
        for way in [AnsweredOver::Pipes, AnsweredOver::Http(None), AnsweredOver::Http(Some(400))] {
            evidence::of_discover(way, ServerAnswer::Error(&error), "v");
            evidence::of_discover(way, ServerAnswer::Result(error.raw()), "v");
        }
        evidence::of_initialize(ServerAnswer::Error(&error));
        evidence::of_initialize(ServerAnswer::Result(error.raw()));
    }

    #[test]
    fn requests(value in anything(), method in method()) {
        let given = raw(&value);
        let value = read(&given);
        let capabilities = RawJson::EMPTY_OBJECT;
        let sender = Sender { version: "v", capabilities: &capabilities, client: None, level: None, token: None };
        let Ok(modern) = request::to_modern(&method, Some(&given), &sender) else {
            prop_assert!(!value.is_object() || !matches!(value.get("_meta"), None | Some(Value::Object(_) | Value::Null)));
            return Ok(());
        };
        let meta = &read(&modern)["_meta"];
        prop_assert_eq!(&meta[keys::META_VERSION], "v");
        let (legacy, _) = request::to_legacy(&method, Some(&modern), None).unwrap();
        let changed = ["_meta", "task", "requestState", "inputResponses"];
        prop_assert_eq!(without(&read(&legacy), &changed), without(&value, &changed));
        let retried = questions::retry(&modern, &[("k".to_owned(), given.clone())], Some(&raw(&"s".into()))).unwrap();
        prop_assert_eq!(&read(&retried)["inputResponses"]["k"], &value);
        let _ = request::level(Some(&given));
    }

    #[test]
    fn introductions(value in anything(), revision in revision()) {
        let given = raw(&value);
        for feeds in [handshake::Feeds::Open, handshake::Feeds::Closed] {
            if let Ok(result) = handshake::initialize_result(&given, revision, feeds, "n") {
                prop_assert!(read(&result)["serverInfo"]["name"].is_string());
            }
            if let Ok(result) = handshake::discover_result(&given, &["v"], feeds) {
                prop_assert!(handshake::serves(&result, "v"));
            }
        }
        handshake::introduced(&given, revision);
        let relayed = capabilities::Relayed::of_session(&given, revision);
        read(&handshake::initialize_params(relayed, &given));
        prop_assert_eq!(capabilities::Relayed::of_session(&relayed.object(), revision), relayed);
    }

    #[test]
    fn asking(value in anything(), method in method(), revision in revision()) {
        let given = raw(&value);
        let all = RawJson::trusted(r#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}"#);
        let all = capabilities::Relayed::of_exchange(&all);
        for asked in [Method::ElicitationCreate, Method::SamplingCreateMessage, Method::RootsList] {
            let (question, _) = questions::of_server(&asked, Some(&given), 1).unwrap();
            read(question.params.as_ref().unwrap());
            if let Ok(Some(params)) = elicitation::params_for(&question, all, revision, "i") {
                read(&params);
            }
            read(&questions::input_required(&[question], Some("s")));
            read(&questions::answer_for(&asked, &given, revision));
        }
        if let Ok(wanted) = questions::wanted(&given) {
            for Question { params, .. } in wanted.questions {
                params.as_ref().map(read);
            }
        }
        questions::answer(&given, "message");
        prop_assert!(questions::of_server(&method, Some(&given), 1).is_none());
    }

    #[test]
    fn tasks_and_news(value in anything()) {
        let given = raw(&value);
        let value = read(&given);
        if let Ok(params) = tasks::augmented(&given, std::time::Duration::MAX) {
            prop_assert_eq!(without(&read(&params), &["task"]), without(&value, &["task"]));
        }
        if let Some(Ok(result)) = tasks::outcome(&given) {
            prop_assert!(read(&result).is_object());
        }
        if let Some(seen) = tasks::seen(&given) {
            prop_assert_eq!(&read(&tasks::named(&seen.id))["taskId"], &Value::from(seen.id));
        }
        tasks::created(&given);
        tasks::listed(&given);
        tasks::asked(&given).ok();
        tasks::served(&given);
        tasks::advertised(&given);
        read(&tasks::declared(&given));
        read(&tasks::update("t", "k", &given));
        read(&tasks::related(&given, Some(&given)));
        let tagged = notifications::to_modern(Some(&given), &RequestId::from_number(1));
        prop_assert_eq!(&read(&tagged)["_meta"][keys::SUBSCRIPTION], 1);
        notifications::to_legacy(Some(&given)).as_ref().map(read);
        if let Ok(filter) = notifications::Filter::read(Some(&given)) {
            read(&filter.listen());
            read(&filter.of_session(&given).listen());
            filter.hears(&Method::ResourceUpdated, Some(&given));
        }
        if let Some(told) = progress::Series::default().tell(&given, &RawJson::trusted("1")) {
            prop_assert_eq!(without(&read(&told), &["progressToken"]), without(&value, &["progressToken"]));
        }
        prop_assert_eq!(object::kept(&given, object::text(&given).into()), given);
    }
}
