//! The exceptions that are made for clients of earlier designs.
//!
//! The endpoint's rules contain one set of leniencies. Without them, nothing on the wire differs from MCP; the switch
//! `compat` of the configuration turns on all of [`Leniencies::SOURCES`]. `unnamed` answers requests that name no
//! session.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::ACCEPT;
use tenure_protocol::Error;
use tenure_session::id::{Position, StreamId};
use tenure_session::{EventId, EventNames, SessionId};

use super::headers::{self, RequiredAccept};
use super::sse::{Ids, Wording};

/// The exceptions that are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leniencies {
    /// A request that names no session gets a new one. At `/mcp` and GET `/mcp/sse` the answer names the session; at
    /// `/rpc` and POST `/sse` the session ends with the request.
    pub mint: bool,
    /// `initialize` may have no params.
    pub bare_initialize: bool,
    /// A request without `Accept` accepts everything.
    pub no_accept: bool,
    /// An error about an unknown session repeats the name that the client sent.
    pub echo_session: bool,
    /// The events of the standalone stream have numbers for ids: `42`, or `SESSION_42` at GET `/mcp/sse`.
    pub plain_event_ids: bool,
    /// A stream that the server closes ends with an event `close`.
    pub close_event: bool,
}

impl Leniencies {
    /// No exception.
    pub const NONE: Self = Self {
        mint: false,
        bare_initialize: false,
        no_accept: false,
        echo_session: false,
        plain_event_ids: false,
        close_event: false,
    };

    /// For clients of the two designs that Tenure began with: an HTTP transport with `/rpc` and `/sse` beside `/mcp`,
    /// and the resumption of streams at `/mcp/sse`.
    pub const SOURCES: Self = Self {
        mint: true,
        bare_initialize: true,
        no_accept: true,
        echo_session: true,
        plain_event_ids: true,
        close_event: true,
    };

    /// Checks that `Accept` allows the answers that may come.
    pub(super) fn check_accept(self, headers: &HeaderMap, required: RequiredAccept) -> Result<(), Error> {
        if self.no_accept && !headers.contains_key(ACCEPT) {
            return Ok(());
        }
        headers::check_accept(headers, required)
    }

    /// Adds the client's name for the session to an error about an unknown session.
    pub(super) fn not_found(self, error: Error, headers: &HeaderMap) -> Error {
        match headers.get(headers::SESSION_ID).and_then(|name| name.to_str().ok()) {
            Some(name) if self.echo_session => error.with("sessionId", name),
            _ => error,
        }
    }

    /// The id of an event as its session knows it, from the id that the client sends.
    pub(super) fn event_id(self, sent: &[u8], names: EventNames) -> Cow<'_, [u8]> {
        let number = if self.plain_event_ids { std::str::from_utf8(sent).ok() } else { None };
        let number = number.map(|text| named_event(text).map_or(text, |(_, number)| number));
        match number.and_then(|number| number.parse().ok()) {
            Some(position) => {
                let id = EventId::new(&names, StreamId::STANDALONE, Position(position));
                Cow::Owned(id.to_string().into_bytes())
            }
            None => Cow::Borrowed(sent),
        }
    }

    /// The wording of streams.
    pub(super) fn wording(self) -> Wording {
        let ids = if self.plain_event_ids { Ids::Plain } else { Ids::Whole };
        Wording { ids, close_event: self.close_event }
    }
}

/// The session and the number in `SESSION_42`.
pub(super) fn named_event(text: &str) -> Option<(SessionId, &str)> {
    let (session, number) = text.rsplit_once('_')?;
    Some((SessionId::parse(session.as_bytes())?, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_session::EventSecret;

    #[test]
    fn c38_a_number_is_an_event_of_the_standalone_stream() {
        let session = SessionId::random();
        let names = EventNames::new(&session.key(), Some(EventSecret::random()));
        let of = |position| EventId::new(&names, StreamId::STANDALONE, Position(position)).to_string();
        let named = format!("{}_42", session.expose());
        let read = |text: &str| {
            let id = Leniencies::SOURCES.event_id(text.as_bytes(), names);
            String::from_utf8(id.into_owned()).unwrap()
        };
        assert_eq!(read("42"), of(42));
        assert_eq!(read(&named), of(42));
        for other in ["0-2a-01020304", "", "-1", "4 2", "x_42", "18446744073709551616"] {
            assert_eq!(read(other), other);
        }
        // Without the leniency nothing is read at all.
        assert_eq!(Leniencies::NONE.event_id(b"42", names), &b"42"[..]);
    }
}
