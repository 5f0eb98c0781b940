//! What an answer says about the era that a server is of.
//!
//! Serves the choice of an era for a server that may be of one, of the other or of both. A server is asked in the
//! words of one era, and its answer tells whether it understood. Refused credentials, overload, and faults of
//! networks and machines tell nothing. No single code decides that a server is *not* modern: whatever is no modern
//! answer is none.

use crate::error::{Reason, RpcError};
use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::message::Reply;
use crate::revision::Revision;
use crate::translate::codes::{self, HEADER_MISMATCH, MISSING_CAPABILITY, VERSION_NOT_SERVED};

/// How a server was asked, and with which status it answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Over HTTP; without a status if no answer came.
    Http(Option<u16>),
    /// Over pipes, where silence is an answer: servers wait for `initialize`, or exit.
    Pipes,
}

/// How a server is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// By HTTP.
    Http,
    /// By the pipes of a child process.
    Pipes,
}

/// What a server said.
#[derive(Clone, Copy, Debug)]
pub enum Said<'a> {
    /// A result.
    Result(&'a RawJson),
    /// A JSON-RPC error.
    Error(&'a RpcError),
    /// Nothing, or nothing that is JSON-RPC.
    Nothing,
}

/// Whether a server is of an era.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// The answer does not tell.
    Unknown,
}

/// Reads how a server answered out of the error that one of its halves gives in place of an answer.
///
/// An error that the server wrote passes through the halves as it is. Where there was none, theirs is our own: its
/// `data.status` is the status that the server answered with, if it answered at all. A limit of ours, or our own
/// end, is nothing that the server said.
pub fn heard(over: Over, error: &RpcError) -> (Way, Said<'_>) {
    const BROKEN: [Reason; 2] = [Reason::BackendUnavailable, Reason::TimedOut];
    const OURS: [Reason; 4] =
        [Reason::TooManyProcesses, Reason::Draining, Reason::Interrupted, Reason::Cancelled];
    let is = |reasons: &[Reason]| reasons.iter().any(|reason| error.is(*reason));
    let status = || codes::data(error)?.get("status")?.parse().ok();
    match over {
        Over::Http if is(&BROKEN) => (Way::Http(status()), Said::Nothing),
        Over::Pipes if is(&BROKEN) => (Way::Pipes, Said::Nothing),
        _ if is(&OURS) => (Way::Http(None), Said::Nothing),
        Over::Http => (Way::Http(Some(200)), Said::Error(error)),
        Over::Pipes => (Way::Pipes, Said::Error(error)),
    }
}

/// What the answer to `server/discover` says about the modern era, where `version` is the one that we speak.
///
/// | answer | verdict |
/// |---|---|
/// | a result that names our version among those served | yes |
/// | a result that names others only | no |
/// | -32022 that names our version as served, -32020, -32021 | yes |
/// | -32022 that does not | no |
/// | HTTP 3xx, 401, 403, 408, 429, 5xx or no answer | unknown |
/// | any other error or status, silence on pipes | no |
pub fn of_discover(way: Way, said: Said<'_>, version: &str) -> Verdict {
    match said {
        Said::Result(result) => served(result, version),
        Said::Error(error) => match error.code() {
            HEADER_MISMATCH | MISSING_CAPABILITY => Verdict::Yes,
            VERSION_NOT_SERVED => match offers(error) {
                Some(offered) if offered.iter().any(|offered| offered == version) => Verdict::Yes,
                Some(_) | None => Verdict::No,
            },
            _ if tells_nothing(way) => Verdict::Unknown,
            _ => Verdict::No,
        },
        Said::Nothing if tells_nothing(way) => Verdict::Unknown,
        Said::Nothing => Verdict::No,
    }
}

/// What the answer to `initialize` says about the legacy era.
///
/// | answer | verdict |
/// |---|---|
/// | a result with a `protocolVersion` | yes |
/// | -32022 that names a revision of sessions as served | yes |
/// | any other -32022, -32020, -32021 or -32601 | no |
/// | anything else | unknown |
///
/// Unlike modern servers, those of the legacy era have many ways to say no: an error may mean that this client, this
/// moment or this address is wrong.
pub fn of_initialize(said: Said<'_>) -> Verdict {
    const METHOD_NOT_FOUND: i64 = -32601;
    match said {
        Said::Result(result) => match Object::read(object::text(result)) {
            Some(result) if result.get("protocolVersion").and_then(object::unquoted).is_some() => {
                Verdict::Yes
            }
            Some(_) | None => Verdict::Unknown,
        },
        Said::Error(error) => match error.code() {
            VERSION_NOT_SERVED => match offers(error) {
                Some(offered) if offered.iter().any(|offered| Revision::parse(offered).is_some()) => {
                    Verdict::Yes
                }
                Some(_) | None => Verdict::No,
            },
            HEADER_MISMATCH | MISSING_CAPABILITY | METHOD_NOT_FOUND => Verdict::No,
            _ => Verdict::Unknown,
        },
        Said::Nothing => Verdict::Unknown,
    }
}

/// What an error in answer to any other modern request says about the modern era: a server that was replaced by an
/// older one, or went back to one, no longer serves the version.
pub fn of_exchange(error: &RpcError, version: &str) -> Verdict {
    match error.code() {
        VERSION_NOT_SERVED => of_discover(Way::Pipes, Said::Error(error), version),
        HEADER_MISMATCH | MISSING_CAPABILITY => Verdict::Yes,
        _ => Verdict::Unknown,
    }
}

/// What the reply of a server that was asked by `server/discover` says about the modern era, where nothing is known
/// but the reply. Silence tells nothing then.
pub fn of_reply(reply: &Reply, version: &str) -> Verdict {
    match reply {
        Ok(result) => of_discover(Way::Http(Some(200)), Said::Result(result), version),
        Err(error) => {
            let (way, said) = heard(Over::Http, error);
            of_discover(way, said, version)
        }
    }
}

/// Whether an error in answer to a modern request may come from a server that does not know what that is, so that
/// it is worth asking for its era again: servers with sessions refuse what belongs to none.
pub fn casts_doubt(error: &RpcError) -> bool {
    const USUAL: [i64; 3] = [-32600, -32000, -32001];
    match heard(Over::Http, error) {
        (way @ Way::Http(Some(400..)), Said::Nothing) => !tells_nothing(way),
        (_, Said::Error(error)) => USUAL.contains(&error.code()),
        _ => false,
    }
}

/// Whether what a server said to `initialize` may come from one that does not know what that is, so that it is worth
/// asking in the other words. Where silence is no answer, and for an error of the server's own making, it is not: the
/// client waits.
pub fn may_not_know_initialize(way: Way, said: Said<'_>) -> bool {
    match said {
        Said::Result(_) => false,
        Said::Error(error) => matches!(error.code(), -32602..=-32600 | -32022..=-32020),
        Said::Nothing => matches!(way, Way::Http(Some(400..))) && !tells_nothing(way),
    }
}

fn served(result: &RawJson, version: &str) -> Verdict {
    match crate::translate::handshake::serves(result, version) {
        true => Verdict::Yes,
        false => Verdict::No,
    }
}

fn offers(error: &RpcError) -> Option<Vec<String>> {
    serde_json::from_str(codes::data(error)?.get("supported")?).ok()
}

/// Whether a server that answered in this way said nothing about eras, whatever it said.
pub fn tells_nothing(way: Way) -> bool {
    match way {
        Way::Http(Some(status)) => matches!(status, 300..=399 | 401 | 403 | 408 | 429 | 500..),
        Way::Http(None) => true,
        Way::Pipes => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODERN: &str = "2026-07-28";

    enum Answer {
        Result(&'static str),
        Error(&'static str),
        Nothing,
    }
    use Answer::{Error, Nothing, Result};

    fn verdict(answer: &Answer, judge: impl FnOnce(Said<'_>) -> Verdict) -> Verdict {
        match answer {
            Result(text) => judge(Said::Result(&RawJson::trusted(*text))),
            Error(text) => judge(Said::Error(&RpcError::from_raw(RawJson::trusted(*text)))),
            Nothing => judge(Said::Nothing),
        }
    }

    const ONLY_MODERN: Answer =
        Error(r#"{"code":-32022,"message":"m","data":{"supported":["2026-07-28"],"requested":"x"}}"#);
    const ONLY_LEGACY: Answer =
        Error(r#"{"code":-32022,"message":"m","data":{"supported":["2025-11-25"],"requested":"x"}}"#);
    const UNSAID: Answer = Error(r#"{"code":-32022,"message":"m"}"#);

    #[test]
    fn what_the_answer_to_discover_says() {
        let http = |status| Way::Http(Some(status));
        let table = [
            (http(200), Result(r#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#), Verdict::Yes),
            (Way::Pipes, Result(r#"{"supportedVersions":["2026-07-28"]}"#), Verdict::Yes),
            (http(200), Result(r#"{"supportedVersions":["2025-11-25"]}"#), Verdict::No),
            (http(200), Result("{}"), Verdict::No),
            (http(400), ONLY_MODERN, Verdict::Yes),
            (http(400), ONLY_LEGACY, Verdict::No),
            (http(400), UNSAID, Verdict::No),
            (http(400), Error(r#"{"code":-32020,"message":"m"}"#), Verdict::Yes),
            (http(400), Error(r#"{"code":-32021,"message":"m"}"#), Verdict::Yes),
            // What servers of sessions say to a request without a session.
            (http(400), Error(r#"{"code":-32000,"message":"m"}"#), Verdict::No),
            (http(404), Error(r#"{"code":-32601,"message":"m"}"#), Verdict::No),
            (http(422), Nothing, Verdict::No),
            (http(404), Nothing, Verdict::No),
            (http(405), Nothing, Verdict::No),
            (http(400), Nothing, Verdict::No),
            (http(302), Nothing, Verdict::Unknown),
            (http(401), Nothing, Verdict::Unknown),
            (http(403), Error(r#"{"code":-32600,"message":"m"}"#), Verdict::Unknown),
            (http(429), Nothing, Verdict::Unknown),
            (http(500), Error(r#"{"code":-32603,"message":"m"}"#), Verdict::Unknown),
            (http(503), Nothing, Verdict::Unknown),
            (Way::Http(None), Nothing, Verdict::Unknown),
            (Way::Pipes, Error(r#"{"code":-32601,"message":"m"}"#), Verdict::No),
            (Way::Pipes, Error(r#"{"code":-32603,"message":"m"}"#), Verdict::No),
            (Way::Pipes, Nothing, Verdict::No),
        ];
        for (number, (way, answer, expected)) in table.iter().enumerate() {
            let found = verdict(answer, |said| of_discover(*way, said, MODERN));
            assert_eq!(found, *expected, "row {number}");
        }
    }

    #[test]
    fn what_the_answer_to_initialize_says() {
        let table = [
            (Result(r#"{"protocolVersion":"2025-06-18","capabilities":{}}"#), Verdict::Yes),
            (Result("{}"), Verdict::Unknown),
            (ONLY_MODERN, Verdict::No),
            (ONLY_LEGACY, Verdict::Yes),
            (UNSAID, Verdict::No),
            (Error(r#"{"code":-32601,"message":"m"}"#), Verdict::No),
            (Error(r#"{"code":-32020,"message":"m"}"#), Verdict::No),
            (Error(r#"{"code":-32602,"message":"Unsupported protocol version"}"#), Verdict::Unknown),
            (Nothing, Verdict::Unknown),
        ];
        for (number, (answer, expected)) in table.iter().enumerate() {
            assert_eq!(verdict(answer, of_initialize), *expected, "row {number}");
        }
    }

    #[test]
    fn a_server_that_went_back_is_noticed() {
        let of = |text| of_exchange(&RpcError::from_raw(RawJson::trusted(text)), MODERN);
        let back =
            r#"{"code":-32022,"message":"m","data":{"supported":["2025-11-25"],"requested":"2026-07-28"}}"#;
        assert_eq!(of(back), Verdict::No);
        assert_eq!(of(r#"{"code":-32021,"message":"m"}"#), Verdict::Yes);
        assert_eq!(of(r#"{"code":-32601,"message":"m"}"#), Verdict::Unknown);
    }

    #[test]
    fn what_the_halves_errors_say() {
        let own = |reason| crate::error::Error::new(reason, "m");
        let table = [
            (own(Reason::BackendUnavailable).with("status", 404).to_rpc(), Verdict::No, Verdict::No),
            (own(Reason::BackendUnavailable).with("status", 503).to_rpc(), Verdict::Unknown, Verdict::No),
            (own(Reason::BackendUnavailable).to_rpc(), Verdict::Unknown, Verdict::No),
            (own(Reason::TimedOut).to_rpc(), Verdict::Unknown, Verdict::No),
            (own(Reason::TooManyProcesses).to_rpc(), Verdict::Unknown, Verdict::Unknown),
            (own(Reason::Draining).to_rpc(), Verdict::Unknown, Verdict::Unknown),
            // A server's own words, also those of one like us.
            (own(Reason::MethodNotFound).to_rpc(), Verdict::No, Verdict::No),
            (RpcError::new(-32020, "m"), Verdict::Yes, Verdict::Yes),
        ];
        for (error, by_http, by_pipes) in table {
            for (over, expected) in [(Over::Http, by_http), (Over::Pipes, by_pipes)] {
                let (way, said) = heard(over, &error);
                assert_eq!(of_discover(way, said, "2026-07-28"), expected, "{over:?} {error:?}");
            }
        }
    }
}
