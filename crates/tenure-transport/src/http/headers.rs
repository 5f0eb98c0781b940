//! What the headers of a request say, read strictly.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use tenure_protocol::{Error, Reason};
use tenure_session::SessionId;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The session a request names: none, one, or something that cannot be one of ours.
pub(super) enum Named {
    None,
    Session(SessionId),
    Unknown,
}

pub(super) fn session(headers: &HeaderMap) -> Named {
    let mut values = headers.get_all(SESSION_ID).iter();
    match (values.next(), values.next()) {
        (None, _) => Named::None,
        (Some(value), None) => SessionId::parse(value.as_bytes()).map_or(Named::Unknown, Named::Session),
        // Two different names at once are no name at all.
        (Some(_), Some(_)) => Named::Unknown,
    }
}

pub(super) fn protocol_version(headers: &HeaderMap) -> Option<&str> {
    headers.get(PROTOCOL_VERSION).map(|value| value.to_str().unwrap_or("\u{fffd}").trim())
}

/// What a client must accept to be answered.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// Either kind of answer, as the server chooses: POST.
    JsonAndEvents,
    /// A stream: GET.
    Events,
}

/// Whether the client takes a stream.
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    accepts(headers).1
}

/// Whether the client takes JSON, and whether it takes a stream.
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

pub(super) fn check_accept(headers: &HeaderMap, wanted: Wanted) -> Result<(), Error> {
    let (json, events) = accepts(headers);
    match wanted {
        Wanted::JsonAndEvents if json && events => Ok(()),
        Wanted::JsonAndEvents => Err(Error::new(
            Reason::NotAcceptable,
            "Accept must list both application/json and text/event-stream",
        )),
        Wanted::Events if events => Ok(()),
        Wanted::Events => Err(Error::new(Reason::NotAcceptable, "Accept must list text/event-stream")),
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

    fn accept(value: &str, wanted: Wanted) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, value.parse().unwrap());
        check_accept(&headers, wanted).is_ok()
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
            assert_eq!(accept(value, Wanted::JsonAndEvents), post, "{value}");
            assert_eq!(accept(value, Wanted::Events), get, "{value}");
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
