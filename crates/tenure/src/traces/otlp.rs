//! The messages of OTLP, as far as we send them: `opentelemetry/proto/trace/v1` and `collector/trace/v1`.

use std::time::SystemTime;

use prost::Message;

use super::context::SpanContext;
use super::span::{Span, SpanKind, Value};

#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<WireSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct WireSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<WireLink>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct WireLink {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3")]
    value: Option<AnyValueKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum AnyValueKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

/// Codes of the protocol.
const SERVER: i32 = 2;
const CLIENT: i32 = 3;
const ERROR: i32 = 2;
const SAMPLED: u32 = 1;

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(AnyValueKind::Text(value.to_owned())) }),
    }
}

fn ids(context: &SpanContext) -> (Vec<u8>, Vec<u8>) {
    (context.trace.to_be_bytes().to_vec(), context.span.to_be_bytes().to_vec())
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl From<Span> for WireSpan {
    fn from(span: Span) -> Self {
        let (trace_id, span_id) = ids(&span.context);
        let attribute = |(key, value): (&'static str, Value)| {
            let value = match value {
                Value::Text(text) => AnyValueKind::Text(text),
                Value::Number(number) => AnyValueKind::Number(number),
            };
            KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
        };
        let link = |context: &SpanContext| {
            let (trace_id, span_id) = ids(context);
            WireLink { trace_id, span_id }
        };
        Self {
            trace_id,
            span_id,
            parent_span_id: if span.parent == 0 { Vec::new() } else { span.parent.to_be_bytes().to_vec() },
            name: span.name,
            kind: match span.kind {
                SpanKind::Server => SERVER,
                SpanKind::Client => CLIENT,
            },
            start_time_unix_nano: nanos(span.began),
            end_time_unix_nano: nanos(span.ended),
            attributes: span.attributes.into_iter().map(attribute).collect(),
            links: span.links.iter().map(link).collect(),
            status: span.error.map(|message| Status { message, code: ERROR }),
            flags: SAMPLED,
        }
    }
}

/// The body of a post.
pub(super) fn body(resource: &[(String, String)], spans: Vec<Span>) -> Vec<u8> {
    let scope = Scope { name: "tenure".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let spans = ScopeSpans { scope: Some(scope), spans: spans.into_iter().map(WireSpan::from).collect() };
    let attributes = resource.iter().map(|(key, value)| text(key, value)).collect();
    let resource = Some(Resource { attributes });
    Export { resource_spans: vec![ResourceSpans { resource, scope_spans: vec![spans] }] }.encode_to_vec()
}
