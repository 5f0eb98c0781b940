//! The event id of a call without a session: a secret with which the client can come back for the outcome.
//!
//! On the wire: `call-`, 32 hex digits, `-`, and the id of the request in base64. The event id
//! contains the request's id, so that we can answer a lost call even if the store has no record of it.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use tenure_protocol::RequestId;

use crate::id::{Principal, Route, SessionId, SessionKey, StreamId};
use crate::limits::Jitter;

const PREFIX: &str = "call-";

/// The longest request id that an event id can contain.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The secret name of a call, and the id of the request that made it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CallId {
    secret: SessionId,
    pub(crate) request: RequestId,
}

impl CallId {
    /// A fresh event id for the call of a request. `None` if the request's id is too long to be part of it.
    pub(crate) fn random(request: &RequestId) -> Option<Self> {
        let fits = request.raw().len() <= MAX_REQUEST_ID_BYTES;
        fits.then(|| Self { secret: SessionId::random(), request: request.clone() })
    }

    /// Reads the wire form. `None` for any other text.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX.as_bytes())?;
        let (secret, request) = rest.split_at_checked(32)?;
        let request = URL_SAFE_NO_PAD.decode(request.strip_prefix(b"-")?).ok()?;
        // A client sent this text, and it is copied into the answer: it must be exactly one JSON value.
        let is_value = serde_json::from_slice::<&serde_json::value::RawValue>(&request).is_ok();
        if !is_value || request.len() > MAX_REQUEST_ID_BYTES {
            return None;
        }
        Some(Self { secret: SessionId::parse(secret)?, request: RequestId::from_raw(Bytes::from(request))? })
    }

    /// The wire form. Only the owner of the call may get it.
    pub(crate) fn expose(&self) -> String {
        format!("{PREFIX}{}-{}", self.secret.expose(), URL_SAFE_NO_PAD.encode(self.request.raw()))
    }

    /// Adds the jitter of this call to a time, so that clients do not all come back at once. It is the same on every
    /// call.
    pub(crate) fn spread(&self, jitter: Jitter, time: Duration) -> Duration {
        jitter.of(time, SessionKey::from_bytes(self.secret.to_bytes()), StreamId::new(0))
    }

    /// The call's key in stores. Like a session, a call belongs to a user and the client that acts for it.
    pub(crate) fn key(&self, owner: &Principal, route: &Route) -> SessionKey {
        match owner.client() {
            None => self.secret.key_of_owner(b"tenure call\0", owner, route),
            Some(client) => {
                let kind = [
                    &b"tenure call of client\0"[..],
                    &(client.len() as u64).to_be_bytes(),
                    client.as_bytes(),
                ];
                self.secret.key_of_owner(&kind.concat(), owner, route)
            }
        }
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallId(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_id_names_the_call_and_the_request() {
        for request in [
            RequestId::from_number(7),
            RequestId::from_raw(Bytes::from_static(br#""a\u00e9 \"b\"""#)).unwrap(),
        ] {
            let id = CallId::random(&request).unwrap();
            assert_eq!(CallId::parse(id.expose().as_bytes()), Some(id.clone()));
            assert_eq!(id.request, request);
            assert!(id.expose().bytes().all(|byte| byte.is_ascii_graphic()), "it stands in a header");
        }
        assert_eq!(CallId::random(&RequestId::from_text(&"x".repeat(200))), None);
    }

    #[test]
    fn other_texts_are_no_event_ids_of_calls_and_names_are_not_shown() {
        let good = CallId::random(&RequestId::from_number(1)).unwrap();
        let text = good.expose();
        let cut = &text[..text.len() - 1];
        let forged = URL_SAFE_NO_PAD.encode(br#""a","result":"b""#);
        let forged = format!("{}{forged}", &text[..38]);
        for text in
            ["", "call-", "2-a-01010101", "c-a-01010101", cut, &text[5..], &format!("{text}!"), &forged]
        {
            assert_eq!(CallId::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(format!("{good:?}"), "CallId(…)");
    }

    #[test]
    fn a_name_leads_elsewhere_for_another_owner_or_endpoint() {
        let id = CallId::random(&RequestId::from_number(1)).unwrap();
        let (ann, main) = (Principal::named("ann"), Route::MAIN);
        let key = id.key(&ann, &main);
        assert_eq!(id.key(&ann, &main), key);
        assert_ne!(id.key(&Principal::ANONYMOUS, &main), key);
        assert_ne!(id.key(&ann, &Route::named("b")), key);
        assert_ne!(id.secret.key_of_owner(b"tenure task\0", &ann, &main), key, "another kind of thing");
    }
}
