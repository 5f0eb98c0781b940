//! The JSON-RPC envelope: reads and writes messages without building a tree of their content.
//!
//! In: the bytes of a body. Out: a [`Message`] whose params, result or error are slices of that body, not copied.
//! `quick` reads nearly all messages in one pass and notes where the members of params are that later code needs
//! (`json::outline`); `envelope` decides from the members whether it is a request, a notification or a response. The
//! `write_…` functions join raw parts into complete messages, and `written` tells what such a message says.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::RpcError;
use crate::json::RawJson;
use crate::json::object::quoted;
use crate::method::Method;
use crate::request_id::RequestId;

mod envelope;
mod quick;
mod written;

use envelope::EnvelopeMembers;

pub use written::{REFUSED, WrittenAnswer, refusal_in, says_it_failed, written_answer};

/// A request, which needs an answer.
#[derive(Clone, Debug)]
pub struct Request {
    /// The sender's id for it.
    pub id: RequestId,
    /// The method.
    pub method: Method,
    /// The arguments, unread.
    pub params: Option<RawJson>,
}

/// A notification, which gets no answer.
#[derive(Clone, Debug)]
pub struct Notification {
    /// The method.
    pub method: Method,
    /// The arguments, unread.
    pub params: Option<RawJson>,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Response {
    /// The id of the request.
    pub id: RequestId,
    /// Its result, or the error object that was sent.
    pub outcome: Result<RawJson, RpcError>,
}

/// The answer to a request: its result, or the error object.
pub type Reply = Result<RawJson, RpcError>;

/// One JSON-RPC message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Needs an answer.
    Request(Request),
    /// Gets no answer.
    Notification(Notification),
    /// Answers a request.
    Response(Response),
}

/// The content of one body.
#[derive(Clone, Debug)]
pub enum Incoming {
    /// One message.
    One(Message),
    /// An array; only revision 2025-03-26 allows it. Its elements are not parsed yet, because most sessions refuse it.
    Batch(Vec<RawJson>),
}

/// Why a body or message could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Not JSON at all (-32700).
    Syntax(String),
    /// JSON, but not JSON-RPC (-32600), with the id if one could be read.
    Envelope(&'static str, Option<RequestId>),
}

/// The most messages in one batch. Checked while the array is read, because a small body can hold millions of elements.
const MAX_BATCH: usize = 1000;

struct Elements<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Elements<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Bounded;
        impl<'de> serde::de::Visitor<'de> for Bounded {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "at most {MAX_BATCH} messages")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = from.next_element()? {
                    if elements.len() == MAX_BATCH {
                        return Err(serde::de::Error::invalid_length(MAX_BATCH + 1, &self));
                    }
                    elements.push(element);
                }
                Ok(elements)
            }
        }
        from.deserialize_seq(Bounded).map(Elements)
    }
}

impl Incoming {
    /// Reads a body.
    ///
    /// # Errors
    /// When it is not JSON, not one JSON-RPC message, or a batch that is empty or too long.
    pub fn parse(body: &Bytes) -> Result<Self, Malformed> {
        match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'[') => {
                let elements: Elements<'_> =
                    serde_json::from_slice(body).map_err(|error| match error.is_data() {
                        true => Malformed::Envelope("too many messages in a batch", None),
                        false => syntax(&error),
                    })?;
                if elements.0.is_empty() {
                    return Err(Malformed::Envelope("an empty batch", None));
                }
                let raw = |element: &&RawValue| RawJson::trusted(body.slice_ref(element.get().as_bytes()));
                Ok(Self::Batch(elements.0.iter().map(raw).collect()))
            }
            _ => Message::parse(body).map(Self::One),
        }
    }
}

impl Message {
    /// Reads one message.
    ///
    /// # Errors
    /// When it is not JSON, or not JSON-RPC 2.0.
    pub fn parse(body: &Bytes) -> Result<Self, Malformed> {
        // serde also reads a struct from an array, so everything but an object is refused first.
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            return match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
                Ok(_) => Err(Malformed::Envelope("a message is a JSON object", None)),
                Err(error) => Err(syntax(&error)),
            };
        }
        let text = std::str::from_utf8(body).map_err(|error| Malformed::Syntax(error.to_string()))?;
        EnvelopeMembers::read(text)?.classify(body)
    }
}

fn syntax(error: &serde_json::Error) -> Malformed {
    Malformed::Syntax(error.to_string())
}

/// Writes a response with a result.
pub fn write_result(id: &RequestId, result: &RawJson) -> Bytes {
    join(&[br#"{"jsonrpc":"2.0","id":"#, id.raw(), br#","result":"#, result.bytes(), b"}"])
}

/// Writes an error response. Without an id it has no `id` member, because MCP does not allow `"id": null`.
pub fn write_error(id: Option<&RequestId>, error: &RpcError) -> Bytes {
    match id {
        Some(id) => {
            join(&[br#"{"jsonrpc":"2.0","id":"#, id.raw(), br#","error":"#, error.raw().bytes(), b"}"])
        }
        None => join(&[br#"{"jsonrpc":"2.0","error":"#, error.raw().bytes(), b"}"]),
    }
}

/// Writes the answer to a request.
pub fn write_response(id: &RequestId, outcome: &Result<RawJson, RpcError>) -> Bytes {
    match outcome {
        Ok(result) => write_result(id, result),
        Err(error) => write_error(Some(id), error),
    }
}

/// Writes a request.
pub fn write_request(id: &RequestId, method: &Method, params: Option<&RawJson>) -> Bytes {
    write_call(Some(id), method, params)
}

/// Writes a cancellation of a request.
pub fn write_cancelled(id: &RequestId, reason: &str) -> Bytes {
    let reason = serde_json::Value::from(reason).to_string();
    let params = [b"{\"requestId\":", &id.raw()[..], b",\"reason\":", reason.as_bytes(), b"}"].concat();
    write_notification(&Method::Cancelled, Some(&RawJson::trusted(params)))
}

/// Writes a notification.
pub fn write_notification(method: &Method, params: Option<&RawJson>) -> Bytes {
    write_call(None, method, params)
}

fn write_call(id: Option<&RequestId>, method: &Method, params: Option<&RawJson>) -> Bytes {
    let method = quoted(method.as_str());
    let (id_name, id): (&[u8], &[u8]) = id.map_or((b"", b""), |id| (br#","id":"#, id.raw()));
    let (params_name, params): (&[u8], &[u8]) =
        params.map_or((b"", b""), |params| (br#","params":"#, params.bytes()));
    let start = br#"{"jsonrpc":"2.0""#;
    join(&[start, id_name, id, br#","method":"#, method.as_bytes(), params_name, params, b"}"])
}

fn join(parts: &[&[u8]]) -> Bytes {
    let mut joined = BytesMut::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| joined.put_slice(part));
    joined.freeze()
}

#[cfg(test)]
mod tests;
