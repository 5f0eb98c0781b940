//! Credentials of ours for a server, and the caller that a request is for.
//!
//! Fixed headers are part of an [`Upstream`](super::Upstream). Headers that change, such as tokens, come from an
//! [`UpstreamCredentials`], which the binary implements: where tokens are got is no business of this crate. The client's own
//! credentials are not known here at all.

use std::fmt;

use http::HeaderMap;
use tenure_protocol::{Reason, RpcError};
use tenure_session::call::{Caller, Outlet, Scopes};
use tenure_session::id::Principal;
use tenure_session::port::BoxFuture;

/// Whom a request to a server is for.
#[derive(Clone, Debug)]
pub struct OnBehalf {
    /// The principal, and the client that acts for it.
    pub principal: Principal,
    /// The scopes of the client's request. `None` for messages of a whole session, and where no credentials are needed.
    pub scopes: Option<Scopes>,
    /// The kind of the request.
    pub purpose: Purpose,
}

/// The kind of a request to a server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Purpose {
    /// An answer, or a stream.
    #[default]
    Ask,
    /// Nothing: a cancellation, an answer to a question of the server, another notification, or the end of a session. Such a
    /// message may come after the client's credentials have ended.
    Tell,
}

impl OnBehalf {
    /// For messages of an outlet's client that belong to none of its requests.
    pub(super) fn client_of(outlet: &Outlet) -> Self {
        Self { principal: outlet.principal(), ..Self::default() }
    }

    /// A request of this caller.
    pub(super) fn caller(caller: &Caller) -> Self {
        let (principal, scopes) = (caller.principal.clone(), caller.scopes.scopes().cloned());
        Self { principal, scopes, purpose: Purpose::Ask }
    }

    /// The same, for a message that asks for nothing.
    pub(super) fn telling(&self) -> Self {
        Self { purpose: Purpose::Tell, ..self.clone() }
    }
}

impl Default for OnBehalf {
    fn default() -> Self {
        Self { principal: Principal::ANONYMOUS, scopes: None, purpose: Purpose::Ask }
    }
}

/// Headers that prove something. They are secrets.
#[derive(Clone, Default)]
pub struct CredentialHeaders {
    /// The headers. Values are marked as sensitive.
    pub headers: HeaderMap,
    /// Which of several values this is, for [`UpstreamCredentials::renewed`].
    pub number: u64,
}

/// It would show secrets.
impl fmt::Debug for CredentialHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialHeaders").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Why there are no credentials for a request, as a sentence for its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoCredentials(pub &'static str);

impl NoCredentials {
    pub(super) fn error(self) -> RpcError {
        RpcError::of(Reason::BackendUnauthorized, self.0)
    }
}

/// Credentials of a server that change.
///
/// 1. `headers` returns what goes with the next request, at once if it is at hand, and in bounded time otherwise.
/// 2. `renewed` returns other ones in place of those that the server has refused with 401, or `None` if there is no use in
///    others. Many requests that were refused with the same ones cause one renewal.
/// 3. Neither ever returns what the client itself has sent.
/// 4. For a [`Purpose::Tell`] they may be those of an earlier request for the same principal and client, if there are no others.
/// 5. Dropping a future loses nothing.
pub trait UpstreamCredentials: Send + Sync + 'static {
    /// The headers of a request.
    fn headers(&self, whom: &OnBehalf) -> BoxFuture<Result<CredentialHeaders, NoCredentials>>;
    /// Other headers, in place of refused ones.
    fn renewed(
        &self,
        whom: &OnBehalf,
        refused: &CredentialHeaders,
    ) -> BoxFuture<Result<Option<CredentialHeaders>, NoCredentials>>;
}
