//! The members of an envelope, and the decision which kind of message they form.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::RpcError;
use crate::json::RawJson;
use crate::json::outline::Places;
use crate::message::{Malformed, Message, Notification, Request, Response, quick, syntax};
use crate::method::Method;
use crate::request_id::RequestId;

/// The members of an envelope as raw text. A member that is `null` counts as present: a request with `"id": null` is
/// malformed, one without an id is a notification.
#[derive(Debug, Default)]
pub(super) struct EnvelopeMembers<'a> {
    pub(super) jsonrpc: Option<&'a str>,
    pub(super) id: Option<&'a str>,
    pub(super) method: Option<&'a str>,
    pub(super) params: Option<&'a str>,
    pub(super) result: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    /// The positions of members of the params.
    pub(super) places: Places,
}

impl<'a> EnvelopeMembers<'a> {
    /// Reads an object.
    pub(super) fn read(text: &'a str) -> Result<Self, Malformed> {
        quick::read(text).map_or_else(|| Self::read_fully(text), Ok)
    }

    pub(super) fn read_fully(text: &'a str) -> Result<Self, Malformed> {
        #[derive(Deserialize)]
        struct EnvelopeFields<'a> {
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
        fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
            from: D,
        ) -> Result<Option<&'a RawValue>, D::Error> {
            <&RawValue>::deserialize(from).map(Some)
        }
        let read: EnvelopeFields<'_> = serde_json::from_str(text).map_err(|error| {
            if error.is_data() { Malformed::Envelope("a member stands twice", None) } else { syntax(&error) }
        })?;
        Ok(Self {
            jsonrpc: read.jsonrpc.map(RawValue::get),
            id: read.id.map(RawValue::get),
            method: read.method.map(RawValue::get),
            params: read.params.map(RawValue::get),
            result: read.result.map(RawValue::get),
            error: read.error.map(RawValue::get),
            places: Places::UNKNOWN,
        })
    }

    /// The message that these members form. `body` is the text that they are slices of.
    pub(super) fn classify(self, body: &Bytes) -> Result<Message, Malformed> {
        let raw = |value: &str| body.slice_ref(value.as_bytes());
        let id = self.id.map(|id| RequestId::from_raw(raw(id)));
        let known_id = || id.clone().flatten();
        if self.jsonrpc != Some(r#""2.0""#) {
            return Err(Malformed::Envelope(r#""jsonrpc" must be "2.0""#, known_id()));
        }
        if matches!(id, Some(None)) {
            return Err(Malformed::Envelope("an id is a string or an integer of at most 1024 bytes", None));
        }
        let Some(method) = self.method else {
            return self.answer(body, id.flatten());
        };
        if self.result.is_some() || self.error.is_some() {
            return Err(Malformed::Envelope("a message is a request or a response, not both", known_id()));
        }
        let method = match method.strip_prefix('"').and_then(|method| method.strip_suffix('"')) {
            Some(name) if !name.contains('\\') => Method::new(name),
            Some(_) => Method::new(&serde_json::from_str::<String>(method).unwrap_or_default()),
            None => return Err(Malformed::Envelope(r#""method" must be a string"#, known_id())),
        };
        let params = match self.params {
            Some(params) if params.starts_with('{') => Some(RawJson::with_places(raw(params), self.places)),
            Some("null") | None => None,
            Some(_) => return Err(Malformed::Envelope(r#""params" must be an object"#, known_id())),
        };
        Ok(match id.flatten() {
            Some(id) => Message::Request(Request { id, method, params }),
            None => Message::Notification(Notification { method, params }),
        })
    }

    fn answer(self, body: &Bytes, id: Option<RequestId>) -> Result<Message, Malformed> {
        let raw = |value: &str| RawJson::trusted(body.slice_ref(value.as_bytes()));
        let outcome = match (self.result, self.error) {
            (Some(result), None) => Ok(raw(result)),
            (None, Some(error)) if error.starts_with('{') => Err(RpcError::from_raw(raw(error))),
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
