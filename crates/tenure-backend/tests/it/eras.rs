//! An SDK that knows both eras can read what our translation between the eras writes.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, DiscoverResult, ElicitRequestParams,
    ElicitationSchema, EnumSchema, GetTaskResult, Implementation, InitializeResult, InputRequest,
    InputRequiredResult, PrimitiveSchemaDefinition, ProtocolVersion, ServerCapabilities,
    SubscriptionsAcknowledgedNotificationParams, SubscriptionsListenRequestParams, UpdateTaskParams,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_protocol::translate::capabilities::Relayed;
use tenure_protocol::translate::handshake::{self, Feeds};
use tenure_protocol::translate::questions::{self, Question};
use tenure_protocol::translate::request::{self, Sender};
use tenure_protocol::translate::{elicitation, notifications, result, tasks};
use tenure_protocol::{Method, RawJson, RequestId, Revision};

const MODERN: &str = "2026-07-28";
const SECOND: Duration = Duration::from_secs(1);

fn read<T: DeserializeOwned>(written: &RawJson) -> T {
    written.read().unwrap_or_else(|error| panic!("{error}: {written:?}"))
}

/// Adds the members that every modern result has; at run time the exchange adds them.
fn answered(result: &RawJson) -> RawJson {
    let mut result: Value = read(result);
    let all = result.as_object_mut().expect("an object");
    for (name, value) in
        [("resultType", json!("complete")), ("ttlMs", json!(0)), ("cacheScope", json!("private"))]
    {
        all.entry(name).or_insert(value);
    }
    RawJson::of(&result)
}

#[test]
fn introductions_both_ways() {
    let mut capabilities = ServerCapabilities::default();
    capabilities.tools = Some(serde_json::from_value(json!({"listChanged": true})).unwrap());
    capabilities.experimental = Some(Default::default());
    let said = InitializeResult::new(capabilities)
        .with_server_info(Implementation::new("behind", "3"))
        .with_instructions("mind the gap");
    let discovered =
        handshake::discover_result(&RawJson::of(&said), &[MODERN, "2025-11-25"], Feeds::Open).unwrap();
    let discovered = answered(&discovered);
    let read_by_client: DiscoverResult = read(&discovered);
    assert_eq!(
        read_by_client.supported_versions,
        [ProtocolVersion::V_2026_07_28, ProtocolVersion::V_2025_11_25]
    );
    assert_eq!(read_by_client.server_info().unwrap().name, "behind");
    assert_eq!(read_by_client.capabilities.tools.unwrap().list_changed, Some(true));
    assert_eq!(read_by_client.capabilities.experimental, None);

    let back = handshake::initialize_result(&discovered, Revision::V2025_06_18, Feeds::Closed, "n").unwrap();
    let back: InitializeResult = read(&back);
    assert_eq!(back.protocol_version, ProtocolVersion::V_2025_06_18);
    assert_eq!(back.server_info, said.server_info);
    assert_eq!(back.instructions, said.instructions);
    assert_eq!(back.capabilities.tools.unwrap().list_changed, None);
}

#[test]
fn a_sessions_request_is_a_modern_one() {
    let declared = json!({"roots": {"listChanged": true}, "elicitation": {"form": {}, "url": {}}});
    let capabilities = Relayed::of_session(&RawJson::of(&declared), Revision::LATEST).object();
    let client = RawJson::of(&Implementation::new("c", "1"));
    let sender = Sender {
        version: MODERN,
        capabilities: &capabilities,
        client: Some(&client),
        level: Some("warning"),
        token: Some(&RawJson::trusted("5")),
    };
    let params = RawJson::of(&CallToolRequestParams::new("t"));
    let modern = request::to_modern(&Method::ToolsCall, Some(&params), &sender).unwrap();
    let answers = [("k".to_owned(), RawJson::trusted(r#"{"action":"decline"}"#))];
    let modern = questions::retry(&modern, &answers, Some(&RawJson::trusted(r#""s""#))).unwrap();
    let seen: CallToolRequestParams = read(&modern);
    let meta = seen.meta.unwrap();
    assert_eq!(meta.missing_required_keys(&ProtocolVersion::V_2026_07_28), [""; 0]);
    assert_eq!(meta.protocol_version(), Some(ProtocolVersion::V_2026_07_28));
    assert_eq!(serde_json::to_value(meta.log_level()).unwrap(), "warning");
    let capabilities: ClientCapabilities = meta.client_capabilities().unwrap();
    assert!(capabilities.roots.is_some() && capabilities.elicitation.unwrap().url.is_some());
    assert_eq!(seen.request_state.as_deref(), Some("s"));
    assert_eq!(seen.input_responses.unwrap()["k"]["action"], "decline");
}

#[test]
fn questions_both_ways() {
    let schema = ElicitationSchema::builder().required_email("email").build().unwrap();
    let asked = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "who".to_owned(),
        requested_schema: schema,
    };
    let params = RawJson::of(&asked);
    let (question, _) = questions::of_server(&Method::ElicitationCreate, Some(&params), 1).unwrap();
    let roots = questions::of_server(&Method::RootsList, None, 2).unwrap().0;
    let written = questions::input_required(&[question, roots], Some("sealed"));
    let seen: InputRequiredResult = read(&written);
    assert_eq!(seen.request_state.as_deref(), Some("sealed"));
    let requests = seen.input_requests.as_ref().unwrap();
    assert!(matches!(&requests["q1"], InputRequest::Elicitation(request) if request.params == asked));
    assert!(matches!(&requests["q2"], InputRequest::ListRoots(_)));
    // The other direction: our translation reads what the SDK writes.
    let wanted = questions::wanted(&RawJson::of(&seen)).unwrap();
    assert_eq!(wanted.questions.iter().map(|question| &*question.key).collect::<Vec<_>>(), ["q1", "q2"]);
}

#[test]
fn a_choice_with_titles_is_one_in_older_revisions_too() {
    let params = json!({"mode": "form", "message": "m", "requestedSchema": {"type": "object", "properties":
        {"colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]}}}});
    let question = Question {
        key: "k".to_owned(),
        method: Method::ElicitationCreate,
        params: Some(RawJson::of(&params)),
    };
    let all = Relayed::of_exchange(&RawJson::trusted(r#"{"elicitation":{}}"#));
    let asked = elicitation::params_for(&question, all, Revision::V2025_06_18, "i").unwrap().unwrap();
    let asked: ElicitRequestParams = read(&asked);
    let ElicitRequestParams::FormElicitationParams { requested_schema, .. } = asked else {
        panic!("a form: {asked:?}");
    };
    let colour = &requested_schema.properties["colour"];
    assert!(matches!(colour, PrimitiveSchemaDefinition::Enum(EnumSchema::Legacy(_))), "{colour:?}");
}

#[test]
fn results_for_sessions_lack_what_only_exchanges_have() {
    let modern = json!({"resultType": "complete", "content": [{"type": "audio", "data": "AAAA", "mimeType": "a/b"}],
        "structuredContent": [1], "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}});
    let legacy = result::to_legacy(&Method::ToolsCall, &RawJson::of(&modern), Revision::V2024_11_05);
    let seen: CallToolResult = read(&legacy);
    assert!(seen.content[0].as_text().is_some());
    assert_eq!((seen.structured_content, seen.meta), (None, None));
}

#[test]
fn tasks_of_the_extension_are_read_as_the_sdk_writes_them() {
    let task = json!({"resultType": "complete", "taskId": "t", "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:01Z", "ttlMs": 60000, "pollIntervalMs": 100});
    let written = |status: &str, name: &str, holds: Value| {
        let mut task = task.clone();
        task["status"] = status.into();
        task[name] = holds;
        let seen: GetTaskResult = read(&RawJson::of(&task));
        RawJson::of(&seen)
    };
    let asks = written("input_required", "inputRequests", json!({"q": {"method": "roots/list"}}));
    let seen = tasks::seen(&asks).unwrap();
    assert_eq!((&*seen.id, seen.ttl, seen.poll), ("t", Some(60 * SECOND), Some(SECOND / 10)));
    let questions = tasks::asked(&asks).unwrap();
    assert_eq!(questions[0].key, "q");
    let update: UpdateTaskParams = read(&tasks::update("t", "q", &RawJson::trusted(r#"{"roots":[]}"#)));
    assert!(update.input_responses.contains_key("q"));
    let done = written("completed", "result", json!({"content": [], "isError": true}));
    assert!(tasks::outcome(&done).unwrap().is_ok());
    let failed = written("failed", "error", json!({"code": -32000, "message": "m"}));
    assert_eq!(tasks::outcome(&failed).unwrap().unwrap_err().code(), -32000);
    let declared: ClientCapabilities = read(&tasks::declared(&RawJson::EMPTY_OBJECT));
    assert!(declared.extensions.unwrap().contains_key(tasks::EXTENSION));
}

#[test]
fn listens_both_ways() {
    let wanted = notifications::Filter {
        tools: true,
        uris: vec!["a:b".to_owned()],
        ..notifications::Filter::default()
    };
    let seen: SubscriptionsListenRequestParams = read(&wanted.listen());
    assert_eq!(seen.notifications.tools_list_changed, Some(true));
    assert_eq!(notifications::Filter::read(Some(&RawJson::of(&seen))).unwrap(), wanted);
    let acknowledged: SubscriptionsAcknowledgedNotificationParams =
        read(&wanted.acknowledgement(&RequestId::from_number(7)));
    assert_eq!(acknowledged.notifications.resource_subscriptions.unwrap(), ["a:b"]);
    let meta = serde_json::to_value(acknowledged.meta).unwrap();
    assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], 7);
}
