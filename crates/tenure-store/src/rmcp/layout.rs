//! The bytes of records and events for rmcp; only this file writes and reads them.
//!
//! A record starts with a byte for its kind; `copy.rs` knows the kinds that are followed by the key of a log. An
//! event is JSON with rmcp's message inside.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rmcp::model::{
    CustomNotification, CustomRequest, CustomResult, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
    ServerNotification, ServerRequest, ServerResult,
};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_session::id::SessionKey;

const SESSION: u8 = 1;
const STREAM: u8 = 2;
const DROPPING: u8 = 3;

/// The content of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RmcpRecord {
    /// A session, with its state as JSON.
    Session(Bytes),
    /// A stream, with the log of its events.
    Stream(SessionKey),
    /// An expired stream. Its log is being dropped; the record is removed after that.
    Dropping(SessionKey),
}

impl RmcpRecord {
    pub(super) fn write(&self) -> Bytes {
        let (kind, rest): (u8, &[u8]) = match self {
            Self::Session(state) => (SESSION, state),
            Self::Stream(log) => (STREAM, log.as_bytes()),
            Self::Dropping(log) => (DROPPING, log.as_bytes()),
        };
        [&[kind], rest].concat().into()
    }

    pub(super) fn read(value: &Bytes) -> Option<Self> {
        let rest = value.get(1..)?;
        let log = || Some(SessionKey::from_bytes(rest.try_into().ok()?));
        match *value.first()? {
            SESSION => Some(Self::Session(value.slice(1..))),
            STREAM => log().map(Self::Stream),
            DROPPING => log().map(Self::Dropping),
            _ => None,
        }
    }
}

#[derive(Serialize)]
struct WrittenEvent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a ServerJsonRpcMessage>,
}

#[derive(Deserialize)]
struct ReadEvent {
    retry_ms: Option<u64>,
    message: Option<Value>,
}

/// The body of an event.
pub(super) fn write_event(event: &ServerSseMessage) -> Result<Bytes, serde_json::Error> {
    // SSE counts retries in milliseconds.
    let retry_ms = event.retry.map(|retry| u64::try_from(retry.as_millis()).unwrap_or(u64::MAX));
    Ok(serde_json::to_vec(&WrittenEvent { retry_ms, message: event.message.as_deref() })?.into())
}

/// The event in a body, without its id.
pub(super) fn read_event(body: &[u8]) -> Result<ServerSseMessage, serde_json::Error> {
    let read: ReadEvent = serde_json::from_slice(body)?;
    let mut event = ServerSseMessage::default();
    event.retry = read.retry_ms.map(Duration::from_millis);
    event.message = read.message.map(read_message).transpose()?.map(Arc::new);
    Ok(event)
}

/// The message in rmcp's own types if they hold all of it, otherwise in rmcp's custom types, which hold any JSON.
///
/// rmcp finds the type of a result by trying one type after the other. The first that fits may not be the type that was
/// written, and then drops members that it has no field for.
fn read_message(value: Value) -> Result<ServerJsonRpcMessage, serde_json::Error> {
    let typed = ServerJsonRpcMessage::deserialize(&value)?;
    if serde_json::to_value(&typed)? == value {
        return Ok(typed);
    }
    Ok(untyped(value).unwrap_or(typed))
}

fn untyped(mut value: Value) -> Option<ServerJsonRpcMessage> {
    let id: Option<RequestId> = value.get("id").and_then(|id| RequestId::deserialize(id).ok());
    let method = value.get("method").and_then(Value::as_str).map(str::to_owned);
    let mut take = |name| value.get_mut(name).map(Value::take);
    match (method, id) {
        (Some(method), Some(id)) => {
            let request = CustomRequest::new(method, take("params"));
            Some(JsonRpcMessage::request(ServerRequest::CustomRequest(request), id))
        }
        (Some(method), None) => {
            let notification = CustomNotification::new(method, take("params"));
            Some(JsonRpcMessage::notification(ServerNotification::CustomNotification(notification)))
        }
        (None, Some(id)) => {
            let result = CustomResult::new(take("result")?);
            Some(JsonRpcMessage::response(ServerResult::CustomResult(result), id))
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_is_read_back_and_nothing_else_is() {
        let log = SessionKey::from_bytes([7; 16]);
        for entry in [
            RmcpRecord::Session(Bytes::from_static(b"{}")),
            RmcpRecord::Stream(log),
            RmcpRecord::Dropping(log),
        ] {
            assert_eq!(RmcpRecord::read(&entry.write()), Some(entry));
        }
        for bad in [&b""[..], b"\x00", b"\x04{}", b"\x02short", b"\x020123456789abcdef-"] {
            assert_eq!(RmcpRecord::read(&Bytes::copy_from_slice(bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn a_message_comes_back_as_it_was_whatever_its_type() {
        for message in [
            json!({ "jsonrpc": "2.0", "id": 7, "result": {} }),
            json!({ "jsonrpc": "2.0", "id": "a", "result": { "content": [{ "type": "text", "text": "hi" }] } }),
            json!({ "jsonrpc": "2.0", "id": 8, "result": { "tools": [], "more": [1, 2.5, null] } }),
            json!({ "jsonrpc": "2.0", "id": 9, "result": { "contents": [], "of": { "a": "box" } } }),
            json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32000, "message": "no", "data": 1 } }),
            json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }),
            json!({ "jsonrpc": "2.0", "id": 3, "method": "x/ask", "params": { "_meta": { "a": 1 }, "b": 2 } }),
            json!({ "jsonrpc": "2.0", "id": 4, "method": "roots/list", "params": { "unheard": "of" } }),
            json!({ "jsonrpc": "2.0", "method": "x/said", "params": { "b": [true] } }),
            json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                "params": { "progressToken": 1, "progress": 1.0, "unheard": "of" } }),
        ] {
            let body = serde_json::to_vec(&json!({ "message": message })).unwrap();
            let event = read_event(&body).unwrap();
            assert_eq!(serde_json::to_value(event.message.as_deref()).unwrap(), message);
            let again = read_event(&write_event(&event).unwrap()).unwrap();
            assert_eq!(serde_json::to_value(again.message.as_deref()).unwrap(), message);
        }
    }

    #[test]
    fn a_priming_event_keeps_its_retry_and_has_no_message() {
        let event = ServerSseMessage::retry(Duration::from_millis(1500));
        let read = read_event(&write_event(&event).unwrap()).unwrap();
        assert_eq!((read.retry, read.message.is_none()), (Some(Duration::from_millis(1500)), true));
        assert!(read_event(b"not JSON").is_err());
    }
}
