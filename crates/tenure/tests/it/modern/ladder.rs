//! In which order a request is refused for what is wrong with it: the order can be seen from outside.

use serde_json::{Value, json};

use super::support::{CAPABILITIES, LEVEL, MODERN, Steered, VERSION, message, post};
use crate::support::client::Ask;

/// A request, and the headers that go with it.
struct Wrong {
    message: Value,
    headers: Vec<(&'static str, Option<&'static str>)>,
    body: Option<&'static str>,
}

impl Wrong {
    fn ask(&self) -> Ask {
        let ask = match self.body {
            Some(body) => Ask::post(body).header("MCP-Protocol-Version", MODERN),
            None => post(&self.message),
        };
        self.headers.iter().fold(ask, |ask, (name, value)| match value {
            Some(value) => ask.header(name, value),
            None => ask.without(name),
        })
    }
}

/// A step of the ladder: how a request is made wrong on it, and what comes of that.
type Step = (&'static str, fn(&mut Wrong), (u16, i64, &'static str));

/// From the first to the last. Each step's fault can be made together with those of all later steps.
const STEPS: &[Step] = &[
    ("host", |it| it.headers.push(("Host", Some("evil.example.com"))), (403, -32600, "host_not_allowed")),
    (
        "origin",
        |it| it.headers.push(("Origin", Some("http://evil.com"))),
        (403, -32600, "origin_not_allowed"),
    ),
    (
        "content type",
        |it| it.headers.push(("Content-Type", Some("text/plain"))),
        (415, -32600, "unsupported_media_type"),
    ),
    ("JSON", |it| it.body = Some("{"), (400, -32700, "parse_error")),
    ("envelope", |it| it.message["id"] = json!(null), (400, -32600, "invalid_request")),
    (
        "meta",
        |it| {
            it.message["params"]["_meta"].as_object_mut().unwrap().remove(CAPABILITIES);
        },
        (400, -32602, "invalid_meta"),
    ),
    (
        "version header",
        |it| it.headers.push(("MCP-Protocol-Version", Some("2026-07-29"))),
        (400, -32020, "header_mismatch"),
    ),
    (
        "version",
        |it| {
            it.message["params"]["_meta"][VERSION] = json!("2099-01-01");
            it.headers.push(("MCP-Protocol-Version", Some("2099-01-01")));
        },
        (400, -32022, "version_not_served"),
    ),
    ("method header", |it| it.headers.push(("Mcp-Method", None)), (400, -32020, "header_mismatch")),
    ("name header", |it| it.headers.push(("Mcp-Name", Some("other"))), (400, -32020, "header_mismatch")),
];

/// A request that is wrong on this step and on all later ones.
fn wrong_from(step: usize) -> Ask {
    let params = json!({ "name": "t", "arguments": {}, "_meta": { LEVEL: "loud" } });
    let mut wrong = Wrong { message: message("tools/call", params), headers: Vec::new(), body: None };
    // From the last to this one, so that where two want the same header the earlier step has its way.
    for (_, spoil, _) in STEPS[step..].iter().rev() {
        spoil(&mut wrong);
    }
    wrong.ask()
}

#[tokio::test]
async fn the_first_fault_of_a_request_is_the_one_that_is_told() {
    let steered = Steered::start().await;
    for (number, (name, _, (status, code, reason))) in STEPS.iter().enumerate() {
        let response = wrong_from(number).send(steered.address()).await;
        assert_eq!(response.fault(), (*status, *code, (*reason).to_owned()), "{name}");
        let knows_id = number > 4;
        assert_eq!(response.json().get("id"), knows_id.then(|| json!(1)).as_ref(), "{name}");
        assert_eq!(response.header("mcp-session-id"), None, "{name}");
    }
    assert!(steered.server.is_quiet(), "the server behind heard of none of them");
    assert_eq!(steered.node.exchanges().tallies().begun, 0);
}

#[tokio::test]
async fn a_version_that_is_not_served_names_those_that_are() {
    let steered = Steered::start().await;
    for version in ["2099-01-01", "v999", "2025-11-25", ""] {
        let mut request = message("tools/list", json!({}));
        request["params"]["_meta"][VERSION] = json!(version);
        let response = post(&request).header("MCP-Protocol-Version", version).send(steered.address()).await;
        assert_eq!(response.fault(), (400, -32022, "version_not_served".to_owned()), "{version}");
        let data = response.json()["error"]["data"].clone();
        assert_eq!(data["requested"], version);
        assert_eq!(
            data["supported"],
            json!([MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
        );
    }
}

#[tokio::test]
async fn methods_that_are_gone_or_unknown_are_404() {
    let mut steered = Steered::start().await;
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/result",
        "tasks/list",
    ] {
        let response = post(&message(method, json!({}))).send(steered.address()).await;
        assert_eq!(response.fault(), (404, -32601, "method_not_found".to_owned()), "{method}");
        assert_eq!(response.json()["id"], 1);
    }
    assert!(steered.server.is_quiet());
    let mut waiting = post(&message("no/such", json!({}))).begin(steered.address()).await;
    let asked = steered.server.expect("no/such").await;
    asked.fail(tenure_protocol::RpcError::of(tenure_protocol::Reason::MethodNotFound, "no"));
    assert_eq!(waiting.response().await.fault().0, 404);
}

#[tokio::test]
async fn what_a_client_lacks_is_400_and_named() {
    let mut steered = Steered::start().await;
    let response = post(&message("tasks/get", json!({ "taskId": "x" }))).send(steered.address()).await;
    assert_eq!(response.fault(), (400, -32021, "missing_client_capability".to_owned()));
    let needed = &response.json()["error"]["data"]["requiredCapabilities"];
    assert_eq!(*needed, json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }));
    // And the same when a server finds out.
    let mut waiting = post(&super::support::call()).begin(steered.address()).await;
    let asked = steered.server.next().await;
    let error = asked.context.ask(&tenure_protocol::Method::RootsList, None).await.unwrap_err();
    asked.fail(error);
    let response = waiting.response().await;
    assert_eq!(response.fault(), (400, -32021, "missing_client_capability".to_owned()));
}

#[tokio::test]
async fn arguments_that_stand_in_headers_are_compared_before_the_server_is_asked() {
    let mut steered = Steered::start().await;
    let mut waiting = post(&message("tools/list", json!({}))).begin(steered.address()).await;
    let schema = json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } });
    let list = json!({ "tools": [{ "name": "t", "inputSchema": schema }] });
    steered.server.expect("tools/list").await.answer(&list);
    assert_eq!(waiting.response().await.status(), 200);
    let call = message("tools/call", json!({ "name": "t", "arguments": { "region": "eu" } }));
    for ask in [
        post(&call),
        post(&call).header("Mcp-Param-Region", "us"),
        post(&call).header("Mcp-Param-Region", "EU"),
        post(&call).header("Mcp-Param-Region", "eu").another("mcp-param-region", "eu"),
    ] {
        let response = ask.send(steered.address()).await;
        assert_eq!(response.fault(), (400, -32020, "header_mismatch".to_owned()));
    }
    assert!(steered.server.is_quiet());
    for value in ["eu", " eu ", "=?base64?ZXU=?="] {
        let mut waiting = post(&call).header("mcp-PARAM-region", value).begin(steered.address()).await;
        steered.server.expect("tools/call").await.answer(&json!({ "content": [] }));
        assert_eq!(waiting.response().await.status(), 200, "{value}");
    }
}

#[tokio::test]
async fn faults_of_params_and_of_handlers_are_answers() {
    let mut steered = Steered::start().await;
    let mut loud = super::support::call();
    loud["params"]["_meta"][LEVEL] = json!("loud");
    let response = post(&loud).send(steered.address()).await;
    assert_eq!(response.fault(), (200, -32602, "invalid_params".to_owned()));
    let mut stale = super::support::call();
    stale["params"]["requestState"] = json!(7);
    assert_eq!(post(&stale).send(steered.address()).await.fault().0, 200);
    for (reason, code) in [
        (tenure_protocol::Reason::InvalidParams, -32602),
        (tenure_protocol::Reason::Internal, -32603),
        (tenure_protocol::Reason::TimedOut, -31012),
    ] {
        let mut waiting = post(&super::support::call()).begin(steered.address()).await;
        steered.server.next().await.fail(tenure_protocol::RpcError::of(reason, "no"));
        let response = waiting.response().await;
        assert_eq!((response.status(), response.fault().1), (200, code));
    }
}

#[tokio::test]
async fn ids_of_requests_are_texts_or_whole_numbers_and_come_back_as_they_were() {
    let mut steered = Steered::start().await;
    for id in [json!("a"), json!(""), json!(0), json!(-7), json!(9_007_199_254_740_993_u64)] {
        let mut request = super::support::call();
        request["id"] = id.clone();
        let mut waiting = post(&request).begin(steered.address()).await;
        steered.server.next().await.answer(&json!({}));
        assert_eq!(waiting.response().await.json()["id"], id);
    }
    for id in [json!(1.5), json!(true), json!({}), json!([1])] {
        let mut request = super::support::call();
        request["id"] = id.clone();
        let response = post(&request).send(steered.address()).await;
        assert_eq!(response.fault(), (400, -32600, "invalid_request".to_owned()), "{id}");
        assert_eq!(response.json().get("id"), None);
    }
}
