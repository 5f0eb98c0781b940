//! Traces as a collector gets them, and what servers behind get of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_testkit::fake_backend::FakeCall;
use tenure_testkit::span_sink::{ArrivedSpan, SinkManner, SpanSink};

use super::sum;
use crate::support::node::Steered;
use crate::support::session::Session;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// What a server was told about the span that its call belongs to.
fn told(call: &FakeCall) -> Option<String> {
    let params: Value = serde_json::from_slice(call.request.params.as_ref()?.bytes()).expect("JSON");
    params["_meta"]["traceparent"].as_str().map(str::to_owned)
}

fn of_kind(spans: &[ArrivedSpan], kind: u64) -> &ArrivedSpan {
    spans.iter().find(|span| span.kind == kind).unwrap_or_else(|| panic!("no span of kind {kind}: {spans:?}"))
}

/// A node that sends its spans there, and a session at it.
async fn traced(sink: &SpanSink, share: &str) -> (Steered, Session) {
    let url = sink.url();
    let mut steered = Steered::with(&[("traces.endpoint", &url), ("traces.sample", share)]).await;
    let (session, _link) = steered.session().await;
    (steered, session)
}

/// Calls a tool with these params, and answers. Returns what the server was told.
async fn call(
    steered: &mut Steered,
    session: &Session,
    id: u64,
    params: &Value,
    answer: &Value,
) -> Option<String> {
    let ask = session.request(id, "tools/call", params);
    let (response, told) = tokio::join!(ask.send(steered.address()), async {
        let call = steered.script.call().await;
        let told = told(&call);
        call.answer(answer);
        told
    });
    assert_eq!(response.status(), 200);
    told
}

/// OB2: the client's span, ours for it and ours for the server behind are one trace, each under the one before.
#[tokio::test]
async fn ob2_a_call_with_a_parent_is_one_trace_through_to_the_server() {
    let mut sink = SpanSink::start(SinkManner::Takes).await;
    let (mut steered, session) = traced(&sink, "0%").await;
    let params =
        json!({ "name": "echo", "arguments": {}, "_meta": { "traceparent": traceparent("01"), "own": 1 } });
    let told = call(&mut steered, &session, 7, &params, &json!({ "content": [], "isError": true })).await;
    steered.node.stop().await;
    let spans = sink.spans(2).await;
    let (server, client) = (of_kind(&spans, 2), of_kind(&spans, 3));
    assert_eq!((server.trace.as_str(), client.trace.as_str()), (TRACE, TRACE));
    assert_eq!((server.parent.as_str(), &client.parent), (PARENT, &server.span));
    assert_eq!(told, Some(format!("00-{TRACE}-{}-01", client.span)), "the server is under our span for it");
    let label = tenure_session::SessionId::parse(session.id.as_bytes()).expect("an id").key().label();
    for span in [server, client] {
        assert_eq!(span.name, "tools/call echo");
        let of = |name: &str| span.attributes.get(name).map(String::as_str);
        assert_eq!(of("mcp.method.name"), Some("tools/call"));
        assert_eq!(of("gen_ai.tool.name"), Some("echo"));
        assert_eq!(of("gen_ai.operation.name"), Some("execute_tool"));
        assert_eq!(of("jsonrpc.request.id"), Some("7"));
        assert_eq!(of("mcp.protocol.version"), Some("2025-11-25"));
        assert_eq!(of("mcp.session.id"), Some(label.as_str()), "never the id");
        assert_eq!((of("error.type"), span.status), (Some("tool_error"), 2));
        assert_eq!(span.resource.get("service.name").map(String::as_str), Some("tenure"));
    }
    assert_eq!(server.attributes.get("network.transport").map(String::as_str), Some("tcp"));
    assert!(
        server.attributes.contains_key("client.address") && client.attributes.contains_key("server.address")
    );
}

/// OB3: without traces, and for a request whose client does not trace it, the server gets the bytes that the client sent.
#[tokio::test]
async fn ob3_a_request_that_is_not_traced_passes_byte_for_byte() {
    let sink = SpanSink::start(SinkManner::Takes).await;
    let url = sink.url();
    let all = [("traces.endpoint", url.as_str()), ("traces.sample", "100%")];
    for (settings, flags) in [(&[][..], "01"), (&all[..], "00")] {
        let mut steered = Steered::with(settings).await;
        let (session, _link) = steered.session().await;
        let parent = traceparent(flags);
        let params = format!(
            r#"{{ "name" :"echo",  "arguments":{{"a":1.50}},"_meta":{{ "x":[ ], "traceparent":"{parent}"}} }}"#
        );
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let (_, ()) = tokio::join!(session.post_raw(body).send(steered.address()), async {
            let call = steered.script.call().await;
            assert_eq!(call.request.params.as_ref().expect("params").bytes(), &params);
            call.answer(&json!({ "content": [] }));
        });
        steered.node.stop().await;
    }
}

/// Without a parent our own share decides, and the header of HTTP is a link.
#[tokio::test]
async fn a_request_without_a_parent_begins_a_trace_and_links_to_the_header() {
    let mut sink = SpanSink::start(SinkManner::Takes).await;
    let (mut steered, session) = traced(&sink, "100%").await;
    let ask = session.request(1, "resources/read", &json!({ "uri": "https://user:secret@host/a?key=1" }));
    let ask = ask.header("traceparent", &traceparent("01"));
    let (_, told) = tokio::join!(ask.send(steered.address()), async {
        let call = steered.script.call().await;
        let told = told(&call);
        call.fail(-32002, "no such resource");
        told
    });
    steered.node.stop().await;
    let spans: Vec<_> =
        sink.spans(2).await.into_iter().filter(|span| span.name == "resources/read").collect();
    let (server, client) = (of_kind(&spans, 2), of_kind(&spans, 3));
    assert!(server.parent.is_empty() && server.trace != TRACE);
    assert_eq!(server.links, [(TRACE.to_owned(), PARENT.to_owned())]);
    assert_eq!(told, Some(format!("00-{}-{}-01", server.trace, client.span)));
    assert_eq!(server.attributes["mcp.resource.uri"], "https://host/a");
    assert_eq!(server.attributes["rpc.response.status_code"], "-32002");
    assert_eq!((server.status, client.status), (0, 2), "for the server a missing one is not an error");
}

/// OB4: a collector that never answers costs spans, which are counted, and no call waits for it.
#[tokio::test]
async fn ob4_a_collector_that_hangs_costs_spans_and_no_time() {
    let sink = SpanSink::start(SinkManner::Hangs).await;
    let (mut steered, session) = traced(&sink, "100%").await;
    let mut slowest = Duration::ZERO;
    for id in 1..=1_500 {
        let began = Instant::now();
        call(&mut steered, &session, id, &json!({ "name": "any" }), &json!({ "content": [] })).await;
        slowest = slowest.max(began.elapsed());
    }
    let text = steered.node.metrics_text();
    // 3,000 spans: 2,048 wait, and up to 512 are on their way.
    assert!(sum(&text, "tenure_spans_dropped_total", &[]) >= 440.0, "{text}");
    assert_eq!(sum(&text, "tenure_spans_exported_total", &[]), 0.0);
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    let began = Instant::now();
    steered.node.stop().await;
    assert!(began.elapsed() < Duration::from_secs(10), "a stop does not wait for the collector either");
}

/// A request that a kill left open runs again as a span of its own, which links to that of the first run.
#[tokio::test]
async fn a_request_that_runs_again_links_to_its_first_run() {
    let mut sink = SpanSink::start(SinkManner::Takes).await;
    let url = sink.url();
    let folder = tempfile::tempdir().unwrap();
    let store = format!("disk:{}", folder.path().join("store").display());
    let settings = [("traces.endpoint", url.as_str()), ("traces.sample", "100%"), ("store", &store)];
    let mut steered = Steered::with(&settings).await;
    let (session, _link) = steered.session().await;
    let asking =
        session.request(1, "resources/read", &json!({ "uri": "test://a" })).begin(steered.address()).await;
    let first = steered.script.call().await;
    let began = told(&first).expect("it is traced");
    crate::support::node::say(&first, "hello").await;
    let mut events = asking.events().await;
    let (id, _) = events.message().await.expect("an event");
    steered.node.stop().await;
    drop((events, first));
    let mut steered = Steered::with(&settings).await;
    let session = session.moved_to(steered.address());
    let resuming = tokio::spawn(async move { session.resume(&id).await });
    let again = steered.script.call().await;
    let told = told(&again).expect("it is traced again");
    again.answer(&json!({ "contents": [] }));
    drop(resuming.await);
    steered.node.stop().await;
    let trace = began.split('-').nth(1).expect("a trace");
    assert_eq!(told.split('-').nth(1), Some(trace), "the same trace");
    let spans: Vec<_> = sink.spans(4).await.into_iter().filter(|span| span.trace == trace).collect();
    let linked: Vec<_> = spans.iter().filter(|span| span.kind == 2 && !span.links.is_empty()).collect();
    let firsts: Vec<_> = spans.iter().filter(|span| span.kind == 2 && span.links.is_empty()).collect();
    assert_eq!((linked.len(), firsts.len()), (1, 1), "{spans:?}");
    assert_eq!(linked[0].links, [(trace.to_owned(), firsts[0].span.clone())]);
}
