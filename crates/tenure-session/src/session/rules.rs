//! Decides what to do with a message of the client in a given phase; pure functions, no async, no I/O.
//!
//! In: the phase and the message. Out: a decision for the runtime.

use tenure_protocol::{Error, Method, Notification, Reason, Request, RequestId, params};

use crate::session::phase::Phase;

/// What to do with a request.
#[derive(Debug)]
pub(crate) enum RequestDecision {
    /// Pass it to the backend.
    Forward,
    /// Answer it here, at once, with an empty result.
    Pong,
}

/// Decides about a request inside a session.
///
/// # Errors
/// When the phase does not allow it.
pub(crate) fn admit_request(phase: Phase, request: &Request) -> Result<RequestDecision, Error> {
    match (&request.method, phase) {
        (_, Phase::Closed) => Err(Error::new(Reason::SessionDeleted, "Session has ended")),
        (Method::Initialize, _) => Err(Error::new(
            Reason::AlreadyInitialized,
            "Session is already initialized; send initialize without a session id to start another",
        )),
        (Method::Ping, _) => Ok(RequestDecision::Pong),
        (_, Phase::Initializing) => Err(Error::new(
            Reason::NotInitialized,
            "Session is not initialized: send notifications/initialized first",
        )),
        (_, Phase::Initialized) => Ok(RequestDecision::Forward),
    }
}

/// What to do with a notification.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotificationDecision {
    /// The handshake is complete; pass the notification to the backend too.
    Initialized,
    /// The client cancels a request; the request's context tells the backend.
    Cancel(RequestId),
    /// Pass it to the backend.
    Forward,
    /// Ignore it, for this reason.
    Ignore(&'static str),
}

/// Decides about a notification inside a session.
pub(crate) fn admit_notification(phase: Phase, notification: &Notification) -> NotificationDecision {
    match (&notification.method, phase) {
        (_, Phase::Closed) => NotificationDecision::Ignore("the session has ended"),
        (Method::Initialized, _) => NotificationDecision::Initialized,
        (Method::Cancelled, _) => match params::cancelled_id(notification.params.as_ref()) {
            Some(id) => NotificationDecision::Cancel(id),
            None => NotificationDecision::Ignore("a cancellation without a request id"),
        },
        (_, Phase::Initialized) => NotificationDecision::Forward,
        (_, Phase::Initializing) => NotificationDecision::Ignore("the session is not initialized"),
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
        let decide = |phase, method: &str, params: Option<&'static str>| {
            let params = params.map(|text| RawJson::trusted(Bytes::from_static(text.as_bytes())));
            admit_notification(phase, &Notification { method: Method::new(method), params })
        };
        assert_eq!(
            decide(Phase::Initializing, "notifications/initialized", None),
            NotificationDecision::Initialized
        );
        let cancel = decide(Phase::Initialized, "notifications/cancelled", Some(r#"{"requestId":"a"}"#));
        assert!(matches!(cancel, NotificationDecision::Cancel(id) if id.raw() == r#""a""#));
        for bad in [None, Some("{}"), Some(r#"{"requestId":null}"#)] {
            let heard = decide(Phase::Initialized, "notifications/cancelled", bad);
            assert!(matches!(heard, NotificationDecision::Ignore(_)), "{bad:?}");
        }
        assert_eq!(
            decide(Phase::Initialized, "notifications/roots/list_changed", None),
            NotificationDecision::Forward
        );
        assert!(matches!(decide(Phase::Closed, "x", None), NotificationDecision::Ignore(_)));
    }
}
