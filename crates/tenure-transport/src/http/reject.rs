//! The only place that turns an error into an HTTP status.
//!
//! The client gets a JSON-RPC error object with `data.reason`; the log gets the whole chain of causes,
//! once, here.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Response, StatusCode};
use tenure_protocol::message::{self, Malformed};
use tenure_protocol::{Error, Kind, Message, Reason, RequestId};

use super::body::Body;

/// The default time after which to try again.
const SOON: Duration = Duration::from_secs(1);

const ALLOWED: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");

/// The response for a method that the path does not allow.
pub(super) fn reject_method(allowed: &'static str) -> Response<Body> {
    let mut response = reject(&Error::new(Reason::MethodNotAllowed, format!("Use {allowed}")), None);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// The response for an error about a session that was not opened; its client should try elsewhere or later.
pub(super) fn reject_new(error: &Error, id: &RequestId) -> Response<Body> {
    respond(error, Some(id), status(error.reason()))
}

/// The response for credentials that were refused too often.
pub(super) fn reject_credentials(error: &Error) -> Response<Body> {
    respond(error, None, status(error.reason()))
}

/// The response for an error, with the id of the request if it could be read.
pub(super) fn reject(error: &Error, id: Option<&RequestId>) -> Response<Body> {
    let status = match (status(error.reason()), error.reason(), id) {
        // About one request of a working session: an answer to it, not a failure of HTTP. Some clients end all their calls when
        // they get one of these statuses, and others ignore the error that comes with it.
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _, Some(_)) => StatusCode::OK,
        // Not about a request, so there is no JSON-RPC answer that could carry it.
        (_, Reason::BackendUnavailable | Reason::Internal | Reason::Interrupted, None) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        (status, ..) => status,
    };
    respond(error, id, status)
}

fn respond(error: &Error, id: Option<&RequestId>, status: StatusCode) -> Response<Body> {
    log(error, status);
    let mut response = json(status, message::write_error(id, &error.to_rpc()));
    because(&mut response, error.reason());
    match error.reason() {
        Reason::MethodNotAllowed => {
            response.headers_mut().insert(ALLOW, ALLOWED);
        }
        Reason::UpgradeRequired => {
            response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
            response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        Reason::Draining
        | Reason::TooManySessions
        | Reason::TooManyProcesses
        | Reason::TooManySessionsOfPrincipal
        | Reason::TooManyRequests
        | Reason::TooManyStreams
        | Reason::TooMuchHeld
        | Reason::RateLimited
        | Reason::QuotaExceeded
        | Reason::StoreUnavailable
        | Reason::SlowReader => response = with_retry(response, error.retry_after().unwrap_or(SOON)),
        _ => {}
    }
    response
}

fn retry_after(body: &Bytes) -> Option<Duration> {
    match Message::parse(body) {
        Ok(Message::Response(response)) => response.outcome.err()?.retry_after(),
        _ => None,
    }
}

/// Says when the request can be sent again.
pub(super) fn with_retry(mut response: Response<Body>, after: Duration) -> Response<Body> {
    let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    response
}

/// Notes why a request was refused, for observers.
fn because(response: &mut Response<Body>, reason: Reason) {
    let body = std::mem::replace(response.body_mut(), Body::EMPTY);
    *response.body_mut() = body.because(reason);
}

/// The response for an error about a request without a session.
pub(super) fn reject_exchange(error: &Error, id: Option<&RequestId>) -> Response<Body> {
    let status = match error.reason() {
        Reason::InvalidMeta => StatusCode::BAD_REQUEST,
        Reason::Forbidden => StatusCode::FORBIDDEN,
        Reason::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
        reason => modern_status(Some(reason.code().into())),
    };
    log(error, status);
    let mut response = json(status, message::write_error(id, &error.to_rpc()));
    because(&mut response, error.reason());
    match error.kind() {
        Kind::Full => with_retry(response, error.retry_after().unwrap_or(SOON)),
        _ if error.reason() == Reason::Draining => with_retry(response, SOON),
        _ => response,
    }
}

/// The same for a client that only sends `server/discover`: the status can end nothing, and another server may have
/// room for it.
pub(super) fn reject_discover(error: &Error, id: Option<&RequestId>) -> Response<Body> {
    match status(error.reason()) {
        status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
            respond(error, id, status)
        }
        _ => reject_exchange(error, id),
    }
}

/// The response for the answer to a request without a session.
pub(super) fn answered(body: Bytes, code: Option<i64>) -> Response<Body> {
    let retry_after = match code {
        Some(code) if code == i64::from(Reason::RateLimited.code()) => retry_after(&body),
        _ => None,
    };
    let response = json(modern_status(code), body);
    match retry_after {
        Some(after) => with_retry(response, after),
        None => response,
    }
}

/// The status of an answer without a session, by the code of its error: as the revision fixes it, and 200 otherwise.
fn modern_status(code: Option<i64>) -> StatusCode {
    match code {
        Some(-32700 | -32600 | -32022..=-32020) => StatusCode::BAD_REQUEST,
        Some(-32601) => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

/// The response for a body that is not JSON-RPC.
pub(super) fn malformed(fault: &Malformed) -> Response<Body> {
    match fault {
        Malformed::Syntax(detail) => {
            reject(&Error::new(Reason::ParseError, format!("The body is not valid JSON: {detail}")), None)
        }
        Malformed::Envelope(detail, id) => {
            let error =
                Error::new(Reason::InvalidRequest, format!("The body is not a JSON-RPC message: {detail}"));
            reject(&error, id.as_ref())
        }
    }
}

fn status(reason: Reason) -> StatusCode {
    match reason {
        Reason::ParseError
        | Reason::InvalidRequest
        | Reason::BatchNotAllowed
        | Reason::UnsupportedVersion
        | Reason::AlreadyInitialized
        | Reason::InvalidParams
        | Reason::InvalidMeta
        | Reason::HeaderMismatch
        | Reason::MissingCapability
        | Reason::VersionNotServed
        | Reason::SessionRequired
        | Reason::MalformedCredentials
        | Reason::UnknownEventId
        | Reason::StreamForgotten => StatusCode::BAD_REQUEST,
        Reason::Unauthorized => StatusCode::UNAUTHORIZED,
        Reason::SessionNotFound
        | Reason::SessionExpired
        | Reason::SessionDeleted
        | Reason::SessionRevoked
        | Reason::SessionOfOtherServer => StatusCode::NOT_FOUND,
        Reason::TooManySessionsOfPrincipal
        | Reason::TooManyStreams
        | Reason::TooManyRequests
        | Reason::TooMuchHeld
        | Reason::RateLimited
        | Reason::QuotaExceeded
        | Reason::SlowReader => StatusCode::TOO_MANY_REQUESTS,
        Reason::TooManySessions
        | Reason::TooManyProcesses
        | Reason::Draining
        | Reason::StoreUnavailable
        | Reason::AuthUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        Reason::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Reason::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
        Reason::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Reason::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
        Reason::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
        Reason::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Reason::OriginNotAllowed | Reason::HostNotAllowed | Reason::Forbidden => StatusCode::FORBIDDEN,
        // Errors about a request inside a working session are answers, not failures of HTTP: a 404 would
        // make clients give up their session, and some SDKs give up on any other 4xx as well.
        _ => StatusCode::OK,
    }
}

/// Logs a refusal. A client's mistake, such as a body that breaks off, is logged at `debug`, because a client can
/// repeat it without limit and an operator cannot act on it.
fn log(error: &Error, status: StatusCode) {
    let reason = error.reason().as_str();
    if !matches!(error.kind(), Kind::Unavailable | Kind::Bug) {
        tracing::debug!(
            reason, status = status.as_u16(), %error, cause = std::error::Error::source(error), "request refused"
        );
    } else if let Some(cause) = std::error::Error::source(error) {
        let mut chain = cause.to_string();
        let mut next = cause.source();
        while let Some(cause) = next {
            chain = format!("{chain}: {cause}");
            next = cause.source();
        }
        tracing::warn!(reason, status = status.as_u16(), %error, cause = chain, "request refused");
    } else {
        tracing::debug!(reason, status = status.as_u16(), %error, "request refused");
    }
}

pub(super) fn json(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::EMPTY);
    *response.status_mut() = status;
    // 204 has no body by definition and must not carry the header.
    if status != StatusCode::NO_CONTENT {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    // A18.41: the docs tell clients the statuses, codes and reasons that they get.
    #[test]
    fn a18_41_the_docs_have_every_reason_with_its_status_and_code() {
        let docs = include_str!("../../../../docs/wire.md");
        let rows = docs.lines().filter(|line| {
            line.strip_prefix("| ")
                .is_some_and(|line| line.starts_with(|letter: char| letter.is_ascii_digit()))
        });
        let written: Vec<String> =
            rows.map(|row| row.splitn(5, '|').take(4).collect::<Vec<_>>().join("|")).collect();
        let expected: Vec<String> = Reason::ALL
            .iter()
            .map(|reason| {
                format!("| {} | {} | `{}` ", status(*reason).as_u16(), reason.code(), reason.as_str())
            })
            .collect();
        assert_eq!(written, expected);
    }

    #[test]
    fn every_reason_has_a_status_and_only_dead_sessions_are_404() {
        let table: Vec<String> = Reason::ALL
            .iter()
            .map(|reason| format!("{} {} {}", status(*reason).as_u16(), reason.code(), reason.as_str()))
            .collect();
        expect_test::expect_file!["statuses.txt"].assert_eq(&(table.join("\n") + "\n"));
        for reason in Reason::ALL {
            let dead = reason.as_str().starts_with("session_") && *reason != Reason::SessionRequired;
            assert_eq!(status(*reason) == StatusCode::NOT_FOUND, dead, "{reason:?}");
        }
    }
}
