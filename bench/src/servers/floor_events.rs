//! Floor of a replay: ready-made events in a list, sent one by one.
//!
//! Knows only the last emission, which is all the harness asks for.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde::Deserialize;

#[derive(Debug, Default)]
pub(super) struct Events {
    last: Mutex<Arc<[Bytes]>>,
}

#[derive(Deserialize)]
struct Params {
    arguments: Arguments,
}

#[derive(Deserialize)]
struct Arguments {
    count: usize,
}

impl Events {
    /// Makes the events of a call and sends them.
    pub(super) fn emit(&self, params: &str) -> Response {
        let Ok(params) = serde_json::from_str::<Params>(params) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        let count = params.arguments.count;
        let event = |place: usize| {
            let data = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"bench","progress":{place}.0,"message":"event"}}}}"#
            );
            Bytes::from(format!("id: {place}\ndata: {data}\n\n"))
        };
        let response = r#"{"jsonrpc":"2.0","id":2,"result":{"content":[],"isError":false}}"#;
        let last = Bytes::from(format!("id: {}\ndata: {response}\n\n", count + 1));
        let events: Arc<[Bytes]> = (1..=count).map(event).chain([last]).collect();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&events);
        send(events, 0)
    }

    /// Sends the events after this one.
    pub(super) fn replay(&self, id: &HeaderValue) -> Response {
        let Some(id) = id.to_str().ok().and_then(|text| text.parse().ok()) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        send(Arc::clone(&self.last.lock().unwrap_or_else(PoisonError::into_inner)), id)
    }
}

/// Sends all events but the first `skipped`; their ids count from 1.
fn send(events: Arc<[Bytes]>, skipped: usize) -> Response {
    let events =
        stream::iter(skipped..events.len()).map(move |place| Ok::<_, Infallible>(events[place].clone()));
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}
