//! Floor: what an MCP answer costs without sessions. axum routes, serde reads the JSON-RPC envelope
//! (id and params stay raw), the answer is fixed.
//!
//! Also the floor of an open stream (an SSE response that never sends) and of a replay.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::request::Parts;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::servers::answer;
use crate::servers::floor_events::Events;

pub(super) fn router() -> Router {
    Router::new().route("/mcp", post(answer_post).get(answer_get)).with_state(Arc::default())
}

#[derive(Debug, Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// The answer to a call, as its era has it. Headers are looked at where they are: axum's own way to them is a copy.
struct Answer(fn(&[u8]) -> Bytes);

impl<S: Sync> FromRequestParts<S> for Answer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Answer, Infallible> {
        let modern = parts.headers.contains_key(answer::MODERN);
        Ok(Answer(if modern { answer::modern_echo } else { answer::echo }))
    }
}

async fn answer_post(State(events): State<Arc<Events>>, Answer(echo): Answer, body: Bytes) -> Response {
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    if envelope.jsonrpc != "2.0" {
        return StatusCode::BAD_REQUEST.into_response();
    }
    let Some(id) = envelope.id else {
        return StatusCode::ACCEPTED.into_response();
    };
    let id = id.get().as_bytes();
    let text = match &*envelope.method {
        "initialize" => answer::initialize(id),
        "tools/call" => {
            let params = envelope.params.map_or("", RawValue::get);
            if params.starts_with(r#"{"name":"bench_emit""#) {
                return events.emit(params);
            }
            echo(id)
        }
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

async fn answer_get(State(events): State<Arc<Events>>, headers: HeaderMap) -> Response {
    match headers.get("last-event-id") {
        Some(id) => events.replay(id),
        None => Sse::new(futures_util::stream::pending::<Result<Event, Infallible>>()).into_response(),
    }
}
