//! Parses the headers of a request, strictly.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use tenure_protocol::{Error, Reason};
use tenure_session::SessionId;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The session that a request names: none, one, or a name that cannot be a session of this server.
pub(super) enum SessionHeader {
    None,
    Session(SessionId),
    Unknown,
}

pub(super) fn session(headers: &HeaderMap) -> SessionHeader {
    let mut values = headers.get_all(SESSION_ID).iter();
    match (values.next(), values.next()) {
        (None, _) => SessionHeader::None,
        (Some(value), None) => {
            SessionId::parse(value.as_bytes()).map_or(SessionHeader::Unknown, SessionHeader::Session)
        }
        // Two headers name no session.
        (Some(_), Some(_)) => SessionHeader::Unknown,
    }
}

pub(super) fn protocol_version(headers: &HeaderMap) -> Option<&str> {
    headers.get(PROTOCOL_VERSION).map(|value| value.to_str().unwrap_or("\u{fffd}").trim())
}

/// What the `Accept` header of a request must list.
#[derive(Clone, Copy)]
pub(super) enum RequiredAccept {
    /// JSON and a stream, because the server chooses: POST.
    JsonAndEvents,
    /// A stream: GET.
    Events,
}

/// Whether the client accepts a stream.
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    accepts(headers).1
}

/// Whether the client accepts JSON, and whether it accepts a stream.
fn accepts(headers: &HeaderMap) -> (bool, bool) {
    let (mut json, mut events) = (false, false);
    for value in headers.get_all(ACCEPT) {
        for range in value.as_bytes().split(|byte| *byte == b',') {
            match media_type(range) {
                Accepts::Everything => (json, events) = (true, true),
                Accepts::Json => json = true,
                Accepts::Events => events = true,
                Accepts::Other => {}
            }
        }
    }
    (json, events)
}

pub(super) fn check_accept(headers: &HeaderMap, required: RequiredAccept) -> Result<(), Error> {
    let (json, events) = accepts(headers);
    match required {
        RequiredAccept::JsonAndEvents if json && events => Ok(()),
        RequiredAccept::JsonAndEvents => Err(Error::new(
            Reason::NotAcceptable,
            "Accept must list both application/json and text/event-stream",
        )),
        RequiredAccept::Events if events => Ok(()),
        RequiredAccept::Events => {
            Err(Error::new(Reason::NotAcceptable, "Accept must list text/event-stream"))
        }
    }
}

enum Accepts {
    Everything,
    Json,
    Events,
    Other,
}

fn media_type(range: &[u8]) -> Accepts {
    let range = range.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if range == b"*/*" {
        Accepts::Everything
    } else if range.eq_ignore_ascii_case(b"application/json") || range.eq_ignore_ascii_case(b"application/*")
    {
        Accepts::Json
    } else if range.eq_ignore_ascii_case(b"text/event-stream") || range.eq_ignore_ascii_case(b"text/*") {
        Accepts::Events
    } else {
        Accepts::Other
    }
}

pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), Error> {
    let media = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let media = media.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if media.eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    Err(Error::new(Reason::UnsupportedMediaType, "Content-Type must be application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str, required: RequiredAccept) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, value.parse().unwrap());
        check_accept(&headers, required).is_ok()
    }

    #[test]
    fn accept_tables() {
        for (value, post, get) in [
            ("application/json, text/event-stream", true, true),
            ("text/event-stream;q=0.5,APPLICATION/JSON", true, true),
            ("*/*", true, true),
            ("application/*, text/*", true, true),
            ("application/json", false, false),
            ("text/event-stream", false, true),
            ("text/html", false, false),
            ("", false, false),
        ] {
            assert_eq!(accept(value, RequiredAccept::JsonAndEvents), post, "{value}");
            assert_eq!(accept(value, RequiredAccept::Events), get, "{value}");
        }
    }

    #[test]
    fn content_type_ignores_case_and_parameters() {
        for (value, good) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("application/jsonx", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(check_content_type(&headers).is_ok(), good, "{value}");
        }
        assert!(check_content_type(&HeaderMap::new()).is_err());
    }
}
