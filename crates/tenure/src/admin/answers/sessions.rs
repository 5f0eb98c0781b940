//! Sessions: which are meant, everything about one, and its events.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tenure_session::id::Position;
use tenure_session::port::store::{EntryPlace, Event, ReadLimit};
use tenure_session::{SessionKey, StreamId};

use crate::admin::api::{AdminApi, Outcome, Shows};
use crate::admin::caller::AdminCaller;
use crate::admin::error::AdminError;
use crate::admin::request::Asked;
use crate::admin::role::AdminRole;
use crate::operator::{Prefix, SessionFilter, ShownState};
use crate::url_text::public_name;

/// The most bytes of messages in one answer.
const MOST_BYTES: usize = 4 << 20;

/// The sessions that a query means.
pub(in crate::admin) fn filter_of(asked: &Asked) -> Result<SessionFilter, AdminError> {
    let text = |name: &str| asked.query(name).map(str::to_owned);
    let bad =
        || AdminError::bad("`prefix` has to be the first digits of a key, or of a label such as s-4f3a");
    Ok(SessionFilter {
        state: asked.query("state").map(|state| match state {
            "awake" => ShownState::Awake,
            "dormant" => ShownState::Dormant,
            _ => ShownState::Ended,
        }),
        owner: text("principal"),
        client: text("client"),
        backend: text("backend"),
        revision: text("revision"),
        waits_for_client: asked.query("waiting").is_some(),
        older_than: asked.count("older_than_s").map(Duration::from_secs),
        prefix: asked.query("prefix").map(|prefix| Prefix::parse(prefix).ok_or_else(bad)).transpose()?,
    })
}

/// Everything about one session. Viewers do not see its record, which holds what was said in the handshake.
pub(super) async fn session(
    api: &AdminApi,
    caller: &AdminCaller,
    key: SessionKey,
) -> Result<Outcome, AdminError> {
    let found = api.0.operator.show(key).await?;
    let detail = found.ok_or_else(|| AdminError::not_found("There is no such session"))?;
    let label = detail.row.label.clone();
    let waiting: usize = detail.in_flight.iter().map(|call| call.asking).sum();
    let story = api.0.runtimes.figures.of_session(&key).await;
    let limits = match &detail.row.owner {
        Some(owner) => api.0.operator.limits_left(Some(owner)).await,
        None => Vec::new(),
    };
    let mut shown = serde_json::to_value(&detail).expect("a detail has a JSON form");
    if let Some(shown) = shown.as_object_mut() {
        let problems = shown.remove("signs").unwrap_or_default();
        shown.insert("problems".to_owned(), problems);
        shown.insert("waiting_for_client".to_owned(), waiting.into());
        if let Some(capabilities) = detail.record.pointer("/session/initialize/capabilities") {
            shown.insert("capabilities".to_owned(), capabilities.clone());
        }
        if let Some(Ok(Value::Object(story))) = story.as_ref().map(serde_json::to_value) {
            shown.extend(story);
        }
        if let Some(of_owner) = limits.first() {
            shown.insert("limits".to_owned(), json!(of_owner.limits));
        }
        if let Some(record) = shown.get_mut("record").and_then(|record| record.get_mut("session")) {
            // Only the process has a use for it.
            record.as_object_mut().map(|record| record.remove("event_secret"));
        }
        if caller.role < AdminRole::Payloads {
            shown.remove("record");
            shown.remove("metadata");
            let names = detail.subscriptions.iter().map(|uri| public_name(None, uri));
            shown.insert("subscriptions".to_owned(), names.collect::<Vec<_>>().into());
        }
    }
    let shows = Shows::contents_if(caller.role >= AdminRole::Payloads);
    Ok(Outcome::of(&shown).about(label).shows(shows))
}

/// An event in a list.
#[derive(Serialize, Debug)]
struct EventRow {
    stream: u32,
    position: u64,
    at: u64,
    bytes: usize,
    /// The method, or `response`.
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Value>,
    /// `gap` if events are missing here, `end` if the stream ends without a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct EventRows {
    rows: Vec<EventRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// Everything at or before this position may be gone.
    trimmed: u64,
}

/// The head of a message.
#[derive(Deserialize, Default)]
struct MessageHead {
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    id: Option<Value>,
}

/// Kept events of one stream.
pub(super) async fn events(api: &AdminApi, asked: &Asked) -> Result<Outcome, AdminError> {
    let key = asked.key()?;
    let stream = u32::try_from(asked.count("stream").unwrap_or_default());
    let stream = stream.map_err(|_| AdminError::bad("`stream` is no number of a stream"))?;
    let after = Position(asked.count("after").unwrap_or_default());
    let limit = ReadLimit { events: asked.limit(), bytes: MOST_BYTES };
    let found = api.0.operator.events(key, StreamId::new(stream), after, limit).await?;
    let next = found.events.last().filter(|_| found.events.len() == limit.events).map(|last| last.position.0);
    let with_bodies = asked.flag("bodies");
    let rows = found.events.into_iter().map(|event| row(stream, &event, with_bodies)).collect();
    Ok(Outcome::of(&EventRows { rows, next, trimmed: found.trimmed.0 }).about(key.label()))
}

fn row(stream: u32, event: &Event, with_body: bool) -> EventRow {
    let head: MessageHead = serde_json::from_slice(&event.body).unwrap_or_default();
    let mark = match event.place {
        _ if !event.body.is_empty() => None,
        EntryPlace::End => Some("end"),
        EntryPlace::Middle | EntryPlace::Note => Some("gap"),
    };
    let is_response = head.method.is_none() && head.id.is_some();
    EventRow {
        stream,
        position: event.position.0,
        at: event.at.0,
        bytes: event.body.len(),
        method: if is_response { Some("response".to_owned()) } else { head.method },
        id: head.id,
        mark,
        body: with_body.then(|| serde_json::from_slice(&event.body).ok()).flatten(),
    }
}
