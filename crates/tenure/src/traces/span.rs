//! A span that has ended, as it waits for the collector.

use std::time::SystemTime;

use super::context::SpanContext;

/// Whose end of a call a span is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SpanKind {
    Server,
    Client,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Text(String),
    Number(i64),
}

/// A span that has ended.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Span {
    pub(super) context: SpanContext,
    /// The span that this one is under; 0 without one.
    pub(super) parent: u64,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) began: SystemTime,
    pub(super) ended: SystemTime,
    pub(super) attributes: Vec<(&'static str, Value)>,
    /// Spans that it has to do with and is not under.
    pub(super) links: Vec<SpanContext>,
    /// What went wrong, if something did.
    pub(super) error: Option<String>,
}

impl Span {
    pub(super) fn text(&mut self, name: &'static str, value: impl Into<String>) {
        self.attributes.push((name, Value::Text(value.into())));
    }

    pub(super) fn number(&mut self, name: &'static str, value: i64) {
        self.attributes.push((name, Value::Number(value)));
    }
}
