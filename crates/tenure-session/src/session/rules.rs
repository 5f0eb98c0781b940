//! What a message from the client means in a given phase; pure decisions, no async, no I/O.
//!
//! In: the phase, the message, what is in flight. Out: what the runtime has to do about it.

use tenure_protocol::{Error, Method, Notification, Reason, Request, RequestId, params};

use crate::session::phase::Phase;

/// What to do with a request.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Pass it to the backend.
    Forward,
    /// Answer it here, at once, with an empty result.
    Pong,
}

/// Decides about a request inside a session.
///
/// # Errors
/// When the phase does not allow it.
pub(crate) fn admit_request(phase: Phase, request: &Request) -> Result<Admission, Error> {
    match (&request.method, phase) {
        (_, Phase::Closed) => Err(Error::new(Reason::SessionDeleted, "Session has ended")),
        (_, Phase::Error) => {
            Err(Error::new(Reason::BackendUnavailable, "Session is broken; start a new one"))
        }
        (Method::Initialize, _) => Err(Error::new(
            Reason::AlreadyInitialized,
            "Session is already initialized; send initialize without a session id to start another",
        )),
        (Method::Ping, _) => Ok(Admission::Pong),
        (_, Phase::PreInitialization | Phase::Initializing) => Err(Error::new(
            Reason::NotInitialized,
            "Session is not initialized: send notifications/initialized first",
        )),
        (_, Phase::Initialized) => Ok(Admission::Forward),
    }
}

/// What to do with a notification.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The handshake is complete; the backend hears of it too.
    Initialized,
    /// The client withdraws a request; the backend hears of it through the request's own context.
    Cancel(RequestId),
    /// Pass it to the backend.
    Forward,
    /// Nothing to do, for this reason.
    Ignore(&'static str),
}

/// Decides about a notification inside a session.
pub(crate) fn hear(phase: Phase, notification: &Notification) -> Heard {
    match (&notification.method, phase) {
        (_, Phase::Closed | Phase::Error) => Heard::Ignore("the session is over"),
        (Method::Initialized, _) => Heard::Initialized,
        (Method::Cancelled, _) => match params::cancelled_id(notification.params.as_ref()) {
            Some(id) => Heard::Cancel(id),
            None => Heard::Ignore("a cancellation without a request id"),
        },
        (_, Phase::Initialized) => Heard::Forward,
        (_, Phase::PreInitialization | Phase::Initializing) => {
            Heard::Ignore("the session is not initialized")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use tenure_protocol::RawJson;

    fn request(method: &str) -> Request {
        Request { id: RequestId::from_number(1), method: Method::new(method), params: None }
    }

    #[test]
    fn requests_by_phase() {
        let table = [
            (Phase::Initializing, "ping", Ok("Pong")),
            (Phase::Initializing, "tools/list", Err(Reason::NotInitialized)),
            (Phase::Initialized, "tools/list", Ok("Forward")),
            (Phase::Initialized, "initialize", Err(Reason::AlreadyInitialized)),
            (Phase::Initializing, "initialize", Err(Reason::AlreadyInitialized)),
            (Phase::Error, "ping", Err(Reason::BackendUnavailable)),
            (Phase::Closed, "ping", Err(Reason::SessionDeleted)),
        ];
        for (phase, method, expected) in table {
            let decided = admit_request(phase, &request(method));
            let decided = decided.map(|admission| format!("{admission:?}")).map_err(|error| error.reason());
            assert_eq!(decided.as_deref(), expected.as_ref().map(|text| *text), "{phase:?} {method}");
        }
    }

    #[test]
    fn notifications_by_phase() {
        let hear_text = |phase, method: &str, params: Option<&'static str>| {
            let params = params.map(|text| RawJson::trusted(Bytes::from_static(text.as_bytes())));
            hear(phase, &Notification { method: Method::new(method), params })
        };
        assert_eq!(hear_text(Phase::Initializing, "notifications/initialized", None), Heard::Initialized);
        let cancel = hear_text(Phase::Initialized, "notifications/cancelled", Some(r#"{"requestId":"a"}"#));
        assert!(matches!(cancel, Heard::Cancel(id) if id.raw() == r#""a""#));
        for bad in [None, Some("{}"), Some(r#"{"requestId":null}"#)] {
            let heard = hear_text(Phase::Initialized, "notifications/cancelled", bad);
            assert!(matches!(heard, Heard::Ignore(_)), "{bad:?}");
        }
        assert_eq!(hear_text(Phase::Initialized, "notifications/roots/list_changed", None), Heard::Forward);
        assert!(matches!(hear_text(Phase::Closed, "x", None), Heard::Ignore(_)));
    }
}
