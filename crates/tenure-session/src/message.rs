//! The JSON-RPC envelope: read once, without building a tree of the rest.
//!
//! Params, results, errors and unknown members stay the bytes they were; slices of the received body
//! are lent out without copying. Also the other way: complete messages are put together from raw parts.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::RpcError;
use crate::id::RequestId;
use crate::method::Method;

/// Bytes that are one valid JSON value.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Bytes);

impl RawJson {
    /// `{}`
    pub const EMPTY_OBJECT: Self = Self(Bytes::from_static(b"{}"));

    /// Takes bytes that the caller knows to be one JSON value, e.g. because it just wrote them.
    pub fn trusted(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// Checks that the bytes are one JSON value.
    pub fn parse(bytes: impl Into<Bytes>) -> Option<Self> {
        let bytes = bytes.into();
        serde_json::from_slice::<&RawValue>(&bytes).ok()?;
        Some(Self(bytes))
    }

    /// Writes a value as JSON.
    ///
    /// # Panics
    /// When the value has no JSON form, e.g. a map with keys that are not strings.
    pub fn of(value: &impl serde::Serialize) -> Self {
        Self(serde_json::to_vec(value).expect("the value has a JSON form").into())
    }

    /// The same value in a buffer of its own, for whoever keeps it longer than the message it came in.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// The JSON text.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Reads the value into a type.
    ///
    /// # Errors
    /// When the JSON does not fit the type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        match std::str::from_utf8(&self.0) {
            // Checked once, instead of with every string in it.
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_slice(&self.0),
        }
    }
}

impl std::fmt::Debug for RawJson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// A request: something that wants an answer.
#[derive(Clone, Debug)]
pub struct Request {
    /// The sender's id for it.
    pub id: RequestId,
    /// What is asked.
    pub method: Method,
    /// The arguments, unread.
    pub params: Option<RawJson>,
}

/// A notification: something that wants none.
#[derive(Clone, Debug)]
pub struct Notification {
    /// What is said.
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

/// One JSON-RPC message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Wants an answer.
    Request(Request),
    /// Wants none.
    Notification(Notification),
    /// Is one.
    Response(Response),
}

/// What one body may carry.
#[derive(Clone, Debug)]
pub enum Incoming {
    /// One message.
    One(Message),
    /// An array; revision 2025-03-26 allows it. Its elements are not read yet: most sessions refuse it.
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

#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Tells a member that is `null` from one that is absent: a request with `"id": null` is malformed,
/// one without an id is a notification.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// The most messages one batch may have. Bounded while it is read: a small body can name millions.
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
    /// When it is not JSON, or not one JSON-RPC message, or a batch without end.
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
                let raw = |element: &&RawValue| RawJson(body.slice_ref(element.get().as_bytes()));
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
        // A struct also reads from an array, so anything but an object is turned away first.
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            return match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
                Ok(_) => Err(Malformed::Envelope("a message is a JSON object", None)),
                Err(error) => Err(syntax(&error)),
            };
        }
        let members: Members<'_> = serde_json::from_slice(body).map_err(|error| {
            if error.is_data() { Malformed::Envelope("a member stands twice", None) } else { syntax(&error) }
        })?;
        members.classify(body)
    }
}

impl Members<'_> {
    fn classify(self, body: &Bytes) -> Result<Message, Malformed> {
        let raw = |value: &RawValue| body.slice_ref(value.get().as_bytes());
        let id = self.id.map(|id| RequestId::from_raw(raw(id)));
        let known_id = || id.clone().flatten();
        if self.jsonrpc.map(RawValue::get) != Some(r#""2.0""#) {
            return Err(Malformed::Envelope(r#""jsonrpc" must be "2.0""#, known_id()));
        }
        if matches!(id, Some(None)) {
            return Err(Malformed::Envelope("an id is a string or an integer", None));
        }
        let Some(method) = self.method else {
            return self.answer(body, id.flatten());
        };
        if self.result.is_some() || self.error.is_some() {
            return Err(Malformed::Envelope("a message is a request or a response, not both", known_id()));
        }
        let method = match method.get().as_bytes() {
            [b'"', name @ .., b'"'] if !name.contains(&b'\\') => {
                Method::new(std::str::from_utf8(name).unwrap_or_default())
            }
            [b'"', ..] => Method::new(&serde_json::from_str::<String>(method.get()).unwrap_or_default()),
            _ => return Err(Malformed::Envelope(r#""method" must be a string"#, known_id())),
        };
        let params = match self.params {
            Some(params) if params.get().starts_with('{') => Some(RawJson(raw(params))),
            Some(params) if params.get() == "null" => None,
            Some(_) => return Err(Malformed::Envelope(r#""params" must be an object"#, known_id())),
            None => None,
        };
        Ok(match id.flatten() {
            Some(id) => Message::Request(Request { id, method, params }),
            None => Message::Notification(Notification { method, params }),
        })
    }

    fn answer(self, body: &Bytes, id: Option<RequestId>) -> Result<Message, Malformed> {
        let raw = |value: &RawValue| RawJson(body.slice_ref(value.get().as_bytes()));
        let outcome = match (self.result, self.error) {
            (Some(result), None) => Ok(raw(result)),
            (None, Some(error)) if error.get().starts_with('{') => Err(RpcError::from_raw(raw(error))),
            (None, Some(_)) => return Err(Malformed::Envelope(r#""error" must be an object"#, id)),
            (Some(_), Some(_)) => {
                return Err(Malformed::Envelope("a response has a result or an error, not both", id));
            }
            (None, None) => return Err(Malformed::Envelope(r#""method" is missing"#, id)),
        };
        match id {
            Some(id) => Ok(Message::Response(Response { id, outcome })),
            None => Err(Malformed::Envelope("a response needs an id", None)),
        }
    }
}

fn syntax(error: &serde_json::Error) -> Malformed {
    Malformed::Syntax(error.to_string())
}

/// Writes a response with a result.
pub fn write_result(id: &RequestId, result: &RawJson) -> Bytes {
    join(&[br#"{"jsonrpc":"2.0","id":"#, id.raw(), br#","result":"#, &result.0, b"}"])
}

/// Writes an error response; without an id where none is known (`"id": null` is not legal in MCP).
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
    let method = RawJson::of(&method.as_str());
    let mut parts: Vec<&[u8]> = vec![br#"{"jsonrpc":"2.0""#];
    if let Some(id) = id {
        parts.extend([br#","id":"#.as_slice(), id.raw()]);
    }
    parts.extend([br#","method":"#.as_slice(), &method.0]);
    if let Some(params) = params {
        parts.extend([br#","params":"#.as_slice(), &params.0]);
    }
    parts.push(b"}");
    join(&parts)
}

fn join(parts: &[&[u8]]) -> Bytes {
    let mut joined = BytesMut::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| joined.put_slice(part));
    joined.freeze()
}

#[cfg(test)]
mod tests;
