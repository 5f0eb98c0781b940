//! Tells from a server's answers which era it serves.
//!
//! A server may serve one era or both. The gateway sends a request of one era, and the answer shows whether the server
//! understood it. Refused credentials, overload, and faults of the network or the machine prove nothing. No single code
//! proves that a server is *not* modern: every answer that is not a modern one counts as "not modern".
//!
//! In: how the server was reached and its answer. Out: a [`Verdict`].

use crate::error::{Reason, RpcError};
use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::message::Reply;
use crate::revision::Revision;
use crate::translate::codes::{self, HEADER_MISMATCH, MISSING_CAPABILITY, VERSION_NOT_SERVED};

/// The transport of an answer, with its HTTP status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnsweredOver {
    /// HTTP; no status if no answer came.
    Http(Option<u16>),
    /// Pipes, where silence counts as an answer: legacy servers wait for `initialize`, or exit.
    Pipes,
}

/// How a server is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerTransport {
    /// By HTTP.
    Http,
    /// By the pipes of a child process.
    Pipes,
}

/// The answer of a server.
#[derive(Clone, Copy, Debug)]
pub enum ServerAnswer<'a> {
    /// A result.
    Result(&'a RawJson),
    /// A JSON-RPC error.
    Error(&'a RpcError),
    /// No answer, or none that is JSON-RPC.
    Nothing,
}

/// Whether a server serves an era.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// The answer proves nothing.
    Unknown,
}

/// The server's answer behind an error of a backend.
///
/// A backend passes the server's own errors on unchanged. If there was no JSON-RPC answer, the error is our own, and
/// its `data.status` is the HTTP status, if there was one. An error for a limit of ours, or for our own shutdown, is
/// no answer of the server.
pub fn heard(transport: ServerTransport, error: &RpcError) -> (AnsweredOver, ServerAnswer<'_>) {
    const BROKEN: [Reason; 3] = [Reason::BackendUnavailable, Reason::BackendUnauthorized, Reason::TimedOut];
    const OURS: [Reason; 4] =
        [Reason::TooManyProcesses, Reason::Draining, Reason::Interrupted, Reason::Cancelled];
    let is = |reasons: &[Reason]| reasons.iter().any(|reason| error.is(*reason));
    let status = || codes::data(error)?.get("status")?.parse().ok();
    match transport {
        ServerTransport::Http if is(&BROKEN) => (AnsweredOver::Http(status()), ServerAnswer::Nothing),
        ServerTransport::Pipes if is(&BROKEN) => (AnsweredOver::Pipes, ServerAnswer::Nothing),
        _ if is(&OURS) => (AnsweredOver::Http(None), ServerAnswer::Nothing),
        ServerTransport::Http => (AnsweredOver::Http(Some(200)), ServerAnswer::Error(error)),
        ServerTransport::Pipes => (AnsweredOver::Pipes, ServerAnswer::Error(error)),
    }
}

/// The verdict on the modern era from the answer to `server/discover`; `version` is the one that we speak.
///
/// | answer | verdict |
/// |---|---|
/// | a result that names our version among those served | yes |
/// | a result that names others only | no |
/// | -32022 that names our version as served, -32020, -32021 | yes |
/// | -32022 that does not | no |
/// | HTTP 3xx, 401, 403, 408, 429, 5xx or no answer | unknown |
/// | any other error or status, silence on pipes | no |
pub fn of_discover(over: AnsweredOver, answer: ServerAnswer<'_>, version: &str) -> Verdict {
    match answer {
        ServerAnswer::Result(result) => served(result, version),
        ServerAnswer::Error(error) => match error.code() {
            HEADER_MISMATCH | MISSING_CAPABILITY => Verdict::Yes,
            VERSION_NOT_SERVED => match offers(error) {
                Some(offered) if offered.iter().any(|offered| offered == version) => Verdict::Yes,
                Some(_) | None => Verdict::No,
            },
            _ if tells_nothing(over) => Verdict::Unknown,
            _ => Verdict::No,
        },
        ServerAnswer::Nothing if tells_nothing(over) => Verdict::Unknown,
        ServerAnswer::Nothing => Verdict::No,
    }
}

/// The verdict on the legacy era from the answer to `initialize`.
///
/// | answer | verdict |
/// |---|---|
/// | a result with a `protocolVersion` | yes |
/// | -32022 that names a revision of sessions as served | yes |
/// | any other -32022, -32020, -32021 or -32601 | no |
/// | anything else | unknown |
///
/// Legacy servers refuse for many reasons, so an unknown error proves nothing: this client, this moment or this
/// address may be the cause.
pub fn of_initialize(answer: ServerAnswer<'_>) -> Verdict {
    const METHOD_NOT_FOUND: i64 = -32601;
    match answer {
        ServerAnswer::Result(result) => match Object::read(object::text(result)) {
            Some(result) if result.get("protocolVersion").and_then(object::unquoted).is_some() => {
                Verdict::Yes
            }
            Some(_) | None => Verdict::Unknown,
        },
        ServerAnswer::Error(error) => match error.code() {
            VERSION_NOT_SERVED => match offers(error) {
                Some(offered) if offered.iter().any(|offered| Revision::parse(offered).is_some()) => {
                    Verdict::Yes
                }
                Some(_) | None => Verdict::No,
            },
            HEADER_MISMATCH | MISSING_CAPABILITY | METHOD_NOT_FOUND => Verdict::No,
            _ => Verdict::Unknown,
        },
        ServerAnswer::Nothing => Verdict::Unknown,
    }
}

/// The verdict on the modern era from an error to any other modern request. A server that was replaced by an older
/// version no longer serves ours.
pub fn of_exchange(error: &RpcError, version: &str) -> Verdict {
    match error.code() {
        VERSION_NOT_SERVED => of_discover(AnsweredOver::Pipes, ServerAnswer::Error(error), version),
        HEADER_MISMATCH | MISSING_CAPABILITY => Verdict::Yes,
        _ => Verdict::Unknown,
    }
}

/// The verdict on the modern era from a reply to `server/discover` whose transport is unknown. Silence proves nothing
/// then.
pub fn of_reply(reply: &Reply, version: &str) -> Verdict {
    match reply {
        Ok(result) => of_discover(AnsweredOver::Http(Some(200)), ServerAnswer::Result(result), version),
        Err(error) => {
            let (over, answer) = heard(ServerTransport::Http, error);
            of_discover(over, answer, version)
        }
    }
}

/// Whether an error to a modern request may come from a legacy server, which refuses requests without a session. Then
/// the era is worth another probe.
pub fn casts_doubt(error: &RpcError) -> bool {
    const USUAL: [i64; 3] = [-32600, -32000, -32001];
    match heard(ServerTransport::Http, error) {
        (over @ AnsweredOver::Http(Some(400..)), ServerAnswer::Nothing) => !tells_nothing(over),
        (_, ServerAnswer::Error(error)) => USUAL.contains(&error.code()),
        _ => false,
    }
}

/// Whether the answer to `initialize` may come from a modern server that does not know the method. Then
/// `server/discover` is worth a try. No answer at all, and the server's other errors, are no reason for
/// one, because the client is waiting.
pub fn may_not_know_initialize(over: AnsweredOver, answer: ServerAnswer<'_>) -> bool {
    match answer {
        ServerAnswer::Result(_) => false,
        ServerAnswer::Error(error) => matches!(error.code(), -32602..=-32600 | -32022..=-32020),
        ServerAnswer::Nothing => matches!(over, AnsweredOver::Http(Some(400..))) && !tells_nothing(over),
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

/// Whether an answer with this status proves nothing about eras, whatever its content.
pub fn tells_nothing(over: AnsweredOver) -> bool {
    match over {
        AnsweredOver::Http(Some(status)) => matches!(status, 300..=399 | 401 | 403 | 408 | 429 | 500..),
        AnsweredOver::Http(None) => true,
        AnsweredOver::Pipes => false,
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

    fn verdict(answer: &Answer, judge: impl FnOnce(ServerAnswer<'_>) -> Verdict) -> Verdict {
        match answer {
            Result(text) => judge(ServerAnswer::Result(&RawJson::trusted(*text))),
            Error(text) => judge(ServerAnswer::Error(&RpcError::from_raw(RawJson::trusted(*text)))),
            Nothing => judge(ServerAnswer::Nothing),
        }
    }

    const ONLY_MODERN: Answer =
        Error(r#"{"code":-32022,"message":"m","data":{"supported":["2026-07-28"],"requested":"x"}}"#);
    const ONLY_LEGACY: Answer =
        Error(r#"{"code":-32022,"message":"m","data":{"supported":["2025-11-25"],"requested":"x"}}"#);
    const UNSAID: Answer = Error(r#"{"code":-32022,"message":"m"}"#);

    #[test]
    fn what_the_answer_to_discover_says() {
        let http = |status| AnsweredOver::Http(Some(status));
        let table = [
            (http(200), Result(r#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#), Verdict::Yes),
            (AnsweredOver::Pipes, Result(r#"{"supportedVersions":["2026-07-28"]}"#), Verdict::Yes),
            (http(200), Result(r#"{"supportedVersions":["2025-11-25"]}"#), Verdict::No),
            (http(200), Result("{}"), Verdict::No),
            (http(400), ONLY_MODERN, Verdict::Yes),
            (http(400), ONLY_LEGACY, Verdict::No),
            (http(400), UNSAID, Verdict::No),
            (http(400), Error(r#"{"code":-32020,"message":"m"}"#), Verdict::Yes),
            (http(400), Error(r#"{"code":-32021,"message":"m"}"#), Verdict::Yes),
            // Answers of legacy servers to a request without a session.
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
            (AnsweredOver::Http(None), Nothing, Verdict::Unknown),
            (AnsweredOver::Pipes, Error(r#"{"code":-32601,"message":"m"}"#), Verdict::No),
            (AnsweredOver::Pipes, Error(r#"{"code":-32603,"message":"m"}"#), Verdict::No),
            (AnsweredOver::Pipes, Nothing, Verdict::No),
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
            // Errors of the server itself, which may be another Tenure.
            (own(Reason::MethodNotFound).to_rpc(), Verdict::No, Verdict::No),
            (RpcError::new(-32020, "m"), Verdict::Yes, Verdict::Yes),
        ];
        for (error, by_http, by_pipes) in table {
            for (over, expected) in [(ServerTransport::Http, by_http), (ServerTransport::Pipes, by_pipes)] {
                let (way, said) = heard(over, &error);
                assert_eq!(of_discover(way, said, "2026-07-28"), expected, "{over:?} {error:?}");
            }
        }
    }
}
