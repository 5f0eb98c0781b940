//! Traces: spans of requests as OpenTelemetry describes them for MCP, sent to a collector over OTLP.
//!
//! A request of a client is a SERVER span, and what goes to a server behind for it a CLIENT span under it, whose `traceparent` that server
//! gets. Whether a request is traced is decided before anything is allocated for it; one that is not traced passes byte for byte. A
//! collector that is slow or away costs spans, which are counted, and never a request.
//!
//! Read in this order: `context` (ids, and the decision), `span`, `layer` (where spans begin and end), `settings` (`[traces]` and
//! `OTEL_*`), `otlp` (the messages), `export` (the queue and the collector).

mod context;
mod span;
mod layer;
mod settings;
mod otlp;
mod export;

pub(crate) use export::{SpanCounts, Tracer};
pub(crate) use settings::TraceSettings;
