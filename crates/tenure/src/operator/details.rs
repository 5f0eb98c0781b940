//! Fills the views from the records in the store and the sessions in memory.
//!
//! The session in memory wins over its record, which may be slightly older. A session past its deadline counts as ended
//! even if no sweep has written that down yet, because its client gets that answer too.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tenure_protocol::{Method, Request, RequestId, params};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Record, Survey};
use tenure_session::record::{EndCause, SessionRecord, StoredSession};
use tenure_session::session::{CallInfo, ReaderInfo, SessionInfo, noted_requests};
use tenure_session::settings::{IdleTtl, Settings};
use tenure_session::{SessionKey, StreamId};

use super::key::key_text;
use super::problems::problems;
use super::view::{
    CallView, Detail, EventTotals, ListedSession, Party, ReaderView, SessionRow, ShownState, StreamView,
};

/// A row from a record, and from the session in memory if it is there.
pub(super) fn row(key: &SessionKey, record: &Record, live: Option<&SessionInfo>, now: Time) -> SessionRow {
    let mut row = SessionRow {
        key: key_text(key),
        label: key.label(),
        deadline: record.deadline.map(|deadline| deadline.0),
        ..SessionRow::default()
    };
    match StoredSession::decode(&record.value) {
        Ok(StoredSession::Session(session)) => {
            from_record(&mut row, &session);
            if record.deadline.is_some_and(|deadline| deadline <= now) {
                (row.state, row.end, row.ended) = (ShownState::Ended, Some(EndCause::Expired), row.deadline);
            }
        }
        Ok(StoredSession::Tombstone(tombstone)) => {
            (row.state, row.end, row.ended) = (ShownState::Ended, Some(tombstone.end), Some(tombstone.at));
            row.owner = tombstone.owner;
        }
        Err(_) => {}
    }
    if let Some(live) = live {
        from_memory(&mut row, live);
    }
    row
}

/// A row of a session in memory, without a look at its record.
pub(super) fn live_row(live: &SessionInfo) -> SessionRow {
    let mut row = SessionRow { key: key_text(&live.key), label: live.key.label(), ..SessionRow::default() };
    row.client = live.client.as_deref().map(str::to_owned);
    from_memory(&mut row, live);
    row
}

/// A row with what looks wrong, as far as that is known without a look at its streams.
pub(super) fn listed(row: SessionRow, live: Option<&SessionInfo>, now: Time) -> ListedSession {
    let mut detail = empty_detail(row);
    if let Some(live) = live {
        add_live(&mut detail, live);
    }
    let problems = problems(&detail, None, Vec::new(), now);
    let waiting_for_client = detail.in_flight.iter().map(|call| call.asking).sum();
    let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    ListedSession {
        row: detail.row,
        waiting_for_client,
        problems,
        last_tool: live.and_then(|live| text(&live.last_tool)),
        remote: live.and_then(|live| live.remote).map(|remote| remote.to_string()),
        transport: live.and_then(|live| text(&live.transport)),
    }
}

/// Puts what another node has in its memory over a row from the record.
pub(super) fn put_live(row: &mut SessionRow, live: SessionRow) {
    *row = SessionRow { client: row.client.take(), deadline: row.deadline, ..live };
}

fn from_record(row: &mut SessionRow, session: &SessionRecord) {
    row.state = ShownState::Dormant;
    row.owner.clone_from(&session.owner);
    row.client = party(&session.initialize, "clientInfo").map(|client| client.name);
    row.backend.clone_from(&session.route);
    row.revision = Some(session.revision.clone());
    row.phase = Some(session.phase.clone());
    row.created = Some(session.created);
    row.last_used = Some(session.last_used);
}

fn from_memory(row: &mut SessionRow, live: &SessionInfo) {
    (row.state, row.end, row.ended) = (ShownState::Awake, None, None);
    row.owner = live.owner.name().map(str::to_owned);
    row.backend = live.route.name().map(str::to_owned);
    row.revision = Some(live.revision.to_string());
    row.phase = Some(live.phase.as_str().to_owned());
    row.created = Some(live.created.0);
    row.last_used = Some(live.last_used.0);
    row.calls = Some(live.calls.len());
    row.oldest_call = live.calls.iter().map(|call| call.started.0).min();
    row.readers = Some(live.readers);
    row.events = Some(live.events);
}

/// Everything about one session. `trouble` lists what is wrong with the store and the server.
pub(super) fn detail(
    key: &SessionKey,
    record: &Record,
    live: Option<&SessionInfo>,
    survey: &Survey,
    trouble: Vec<String>,
    now: Time,
) -> Detail {
    let kept = StoredSession::decode(&record.value);
    let mut detail = Detail {
        streams: survey.streams.iter().map(stream).collect(),
        kept: EventTotals {
            events: survey.kept.events,
            bytes: survey.kept.bytes,
            oldest: survey.kept.oldest.map(|oldest| oldest.0),
        },
        version: record.version.0,
        record: serde_json::from_slice(&record.value).unwrap_or(Value::Null),
        ..empty_detail(row(key, record, live, now))
    };
    if let Ok(StoredSession::Session(session)) = &kept {
        detail.client = party(&session.initialize, "clientInfo");
        detail.server = party(&session.initialize_result, "serverInfo");
        detail.configured = session.server.as_ref().map(|server| match server.short() {
            "" => server.shown.clone(),
            short => format!("{} ({short})", server.shown),
        });
        detail.log_level.clone_from(&session.log_level);
        detail.subscriptions.clone_from(&session.subscriptions);
        detail.settings =
            Settings { metadata: session.metadata.clone(), ttl: IdleTtl::of_ms(session.ttl_ms) };
        detail.row.events = Some(survey.kept.events);
        if live.is_none() {
            detail.row.calls = Some(detail.streams.iter().map(|stream| stream.requests.len()).sum());
        }
    }
    if let Some(live) = live {
        add_live(&mut detail, live);
    }
    detail.problems = problems(&detail, kept.err().map(|error| error.to_string()), trouble, now);
    detail
}

fn empty_detail(row: SessionRow) -> Detail {
    Detail {
        row,
        problems: Vec::new(),
        client: None,
        server: None,
        configured: None,
        log_level: None,
        subscriptions: Vec::new(),
        settings: Settings::default(),
        requests: None,
        errors: None,
        in_flight: Vec::new(),
        streams: Vec::new(),
        reader_rows: Vec::new(),
        kept: EventTotals::default(),
        version: 0,
        record: Value::Null,
    }
}

fn add_live(detail: &mut Detail, live: &SessionInfo) {
    detail.log_level = live.log_level.map(|level| level.as_str().to_owned());
    detail.subscriptions.clone_from(&live.subscriptions);
    detail.settings.clone_from(&live.settings);
    (detail.requests, detail.errors) = (Some(live.requests), Some(live.errors));
    detail.in_flight = live.calls.iter().map(call).collect();
    detail.reader_rows = live.attached.iter().map(reader).collect();
    detail.reader_rows.sort_by_key(|reader| reader.stream);
    // The oldest first: it is the most likely to be stuck.
    detail.in_flight.sort_by_key(|call| call.started);
}

fn reader(reader: &ReaderInfo) -> ReaderView {
    ReaderView { stream: reader.stream.number(), position: reader.position.0, lag: reader.waiting }
}

fn stream(known: &tenure_session::port::store::Surveyed) -> StreamView {
    let requests = known.note.as_ref().map(noted_requests).unwrap_or_default();
    StreamView {
        number: known.stream.number(),
        // The standalone stream stays open as long as its session.
        open: !known.ended || known.stream == StreamId::STANDALONE,
        last: known.last.0,
        requests: requests.iter().map(|request| noted(request, known.stream)).collect(),
    }
}

fn call(call: &CallInfo) -> CallView {
    CallView {
        id: id(&call.id),
        method: call.method.as_str().to_owned(),
        tool: call.tool.clone(),
        started: Some(call.started.0),
        progressed: call.progressed.map(|progressed| progressed.0),
        asking: call.asking,
        stream: call.stream.map(StreamId::number),
        is_read: call.is_read,
    }
}

fn noted(request: &Request, stream: StreamId) -> CallView {
    CallView {
        id: id(&request.id),
        method: request.method.as_str().to_owned(),
        tool: match request.method {
            Method::ToolsCall => params::tool_name(request.params.as_ref()),
            _ => None,
        },
        started: None,
        progressed: None,
        asking: 0,
        stream: Some(stream.number()),
        is_read: false,
    }
}

fn id(id: &RequestId) -> Value {
    serde_json::from_slice(id.raw()).unwrap_or(Value::Null)
}

/// What one side called itself in the handshake.
fn party(handshake: &RawValue, member: &str) -> Option<Party> {
    let mut handshake: serde_json::Map<String, Value> = serde_json::from_str(handshake.get()).ok()?;
    Party::deserialize(handshake.remove(member)?).ok()
}
