//! Callers that are not let in: counted for each address, limited, and recorded.
//!
//! Only credentials that were shown and are not good count, and only such are refused for their number: good ones are let in
//! however many bad ones came from the same address, so a stranger cannot lock operators out. The limit is that of clients
//! (`limits.failed_credentials`), but counted by itself, and it holds on loopback too: clients are left alone there because all
//! programs of a machine share the address and begin sessions, while a program that guesses here asks for the rights of an operator.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::StatusCode;
use tenure_auth::{AuthRefusal, TokenFault};
use tenure_session::budget::Peer;
use tenure_session::rate::{AddressRate, AddressRates};

use super::error::AdminError;
use crate::audit::{Audit, RefusedOperator};
use crate::config::Config;

/// Why a caller is not let in.
#[derive(Debug)]
pub(super) struct NotLetIn {
    error: AdminError,
    /// What was shown; `None` if nothing was.
    shown: Option<&'static str>,
    fault: CredentialFault,
    /// Whose the credentials are, if they are good for something else.
    principal: Option<String>,
}

/// Whether credentials count as failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CredentialFault {
    /// They are missing or no longer good, or cannot be checked, or the request is refused for another reason.
    None,
    Bad,
}

/// What a code is called in records, and a cookie, and what scripts send.
const CODE: &str = "code";
const COOKIE: &str = "cookie";
const KEY: &str = "key or token";

impl NotLetIn {
    fn new(error: AdminError, shown: &'static str, fault: CredentialFault) -> Self {
        Self { error, shown: Some(shown), fault, principal: None }
    }

    pub(super) fn by_code() -> Self {
        let error = AdminError::unauthorized("This link was used, or its minute is over")
            .hint("run `tenure admin open` once more");
        Self::new(error, CODE, CredentialFault::Bad)
    }

    pub(super) fn by_cookie() -> Self {
        Self::new(AdminError::unauthorized("Your login is over"), COOKIE, CredentialFault::Bad)
    }

    pub(super) fn by_credentials(refusal: &AuthRefusal) -> Self {
        let (error, fault) = match refusal {
            AuthRefusal::Unavailable { .. } => {
                let error = AdminError::unavailable("The credentials cannot be checked at present");
                (error, CredentialFault::None)
            }
            // As at the port of clients: scripts renew what has expired when it is refused.
            AuthRefusal::Invalid(TokenFault::Expired) | AuthRefusal::Missing => {
                (not_good(), CredentialFault::None)
            }
            _ => (not_good(), CredentialFault::Bad),
        };
        Self::new(error, KEY, fault)
    }

    /// The credentials are good, and have no role here.
    pub(super) fn without_role(principal: &str) -> Self {
        let error = AdminError::forbidden(format!("{principal} has no scope for operators"))
            .hint("make one with `tenure keys new NAME --scope admin:viewer`");
        Self { principal: Some(principal.to_owned()), ..Self::new(error, KEY, CredentialFault::None) }
    }
}

fn not_good() -> AdminError {
    AdminError::unauthorized("The credentials are not good")
}

impl From<AdminError> for NotLetIn {
    fn from(error: AdminError) -> Self {
        Self { error, shown: None, fault: CredentialFault::None, principal: None }
    }
}

/// Counts and records callers that are not let in.
#[derive(Debug)]
pub(super) struct FailedCallers {
    rates: AddressRates,
    audit: Option<Arc<Audit>>,
}

impl FailedCallers {
    pub(super) fn new(config: &Config, audit: Option<Arc<Audit>>) -> Self {
        let rate = match config.rates.failed_credentials {
            None => Some(AddressRate::of_failures().rate),
            Some(written) => written,
        };
        let failures = rate.map(|rate| AddressRate { rate, on_loopback: true });
        Self { rates: AddressRates::new(None, failures), audit }
    }

    /// The error for a caller that is not let in.
    pub(super) fn refuse(&self, remote: SocketAddr, refused: NotLetIn) -> AdminError {
        let NotLetIn { error, shown, fault, principal } = refused;
        let counted = match fault {
            CredentialFault::Bad => self.rates.fail(Peer::at(remote.ip())),
            CredentialFault::None => Ok(()),
        };
        let error = match counted {
            Ok(()) => error,
            Err(limit) => AdminError::rate_limited(limit.retry_after()),
        };
        let is_refusal = matches!(
            error.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
        );
        if let Some(audit) = self.audit.as_ref().filter(|_| is_refusal) {
            audit.refused_operator(&RefusedOperator {
                principal: principal.as_deref(),
                shown,
                code: error.status.as_u16(),
                reason: error.reason,
                remote: remote.ip(),
            });
        }
        error
    }

    /// Forgets addresses of which there is nothing to remember.
    pub(super) fn forget(&self) {
        self.rates.sweep();
    }
}
