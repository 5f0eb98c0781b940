//! An error of the API, as its callers see it.

use std::time::Duration;

use hyper::StatusCode;
use serde::Serialize;

use crate::failure::Failure;

/// Why a request was not answered. The words are for people, the reason for programs.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct AdminError {
    #[serde(skip)]
    pub(super) status: StatusCode,
    pub(super) reason: &'static str,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
    /// When it may be tried again.
    #[serde(skip)]
    pub(super) retry_after: Option<Duration>,
    /// What was done all the same.
    #[serde(skip)]
    pub(super) done: Option<Box<PartlyDone>>,
}

/// What was done before a change failed, for the audit log.
#[derive(Clone, Debug)]
pub(super) struct PartlyDone {
    pub(super) about: String,
    pub(super) change: String,
}

/// Every reason with its status, as the document has them.
pub(super) const REASONS: [(&str, u16, &str); 11] = [
    ("bad_request", 400, "The request is not as the document says"),
    ("unauthorized", 401, "The caller is not logged in"),
    ("forbidden", 403, "The caller's role does not allow it"),
    ("cross_site", 403, "The request comes from a page of another site, or is for another host"),
    ("not_found", 404, "There is no such thing"),
    ("method_not_allowed", 405, "The path takes other methods"),
    ("conflict", 409, "It is no longer as the caller thinks"),
    ("failed", 422, "It was tried and did not work"),
    ("not_supported", 422, "This server cannot do it"),
    ("rate_limited", 429, "The address of the caller has shown too many bad credentials"),
    ("unavailable", 503, "Try again later"),
];

impl AdminError {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        let known = REASONS.iter().find(|(known, ..)| *known == reason);
        let status = known.and_then(|(_, status, _)| StatusCode::from_u16(*status).ok());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, reason, message: message.into(), hint: None, retry_after: None, done: None }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new("bad_request", message)
    }

    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        let hint =
            "run `tenure admin open` on the server's machine, or send a key: `Authorization: Bearer tnr_…`";
        Self::new("unauthorized", message).hint(hint)
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new("forbidden", message)
    }

    pub(super) fn cross_site(message: impl Into<String>) -> Self {
        Self::new("cross_site", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new("not_found", message)
    }

    pub(super) fn method() -> Self {
        Self::new("method_not_allowed", "This path takes other methods")
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new("conflict", message)
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new("failed", message)
    }

    pub(super) fn not_supported(message: impl Into<String>) -> Self {
        Self::new("not_supported", message)
    }

    pub(super) fn rate_limited(retry_after: Option<Duration>) -> Self {
        let error = Self::new("rate_limited", "Too many credentials from this address were not good");
        Self {
            retry_after,
            ..error.hint("good credentials are let in all the same; `limits.failed_credentials` is the limit")
        }
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new("unavailable", message)
    }

    /// Says what was done before it failed.
    #[must_use]
    pub(super) fn after(self, about: String, change: String) -> Self {
        Self { done: Some(Box::new(PartlyDone { about, change })), ..self }
    }

    #[must_use]
    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// An operation that failed, with its causes in one sentence.
impl From<Failure> for AdminError {
    fn from(failure: Failure) -> Self {
        let (message, hint) = failure.in_one_line();
        Self { hint, ..Self::failed(message) }
    }
}
