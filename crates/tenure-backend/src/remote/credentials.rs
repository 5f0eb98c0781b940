//! What proves to a server who we are, and for whom a request is.
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
    /// The scopes of the client's request. `None` for what belongs to a whole session, and where no credentials are needed.
    pub scopes: Option<Scopes>,
}

impl OnBehalf {
    /// What belongs to the client of an outlet, and to none of its requests.
    pub(super) fn client_of(outlet: &Outlet) -> Self {
        Self { principal: outlet.principal(), scopes: None }
    }

    /// A request of this caller.
    pub(super) fn caller(caller: &Caller) -> Self {
        Self { principal: caller.principal.clone(), scopes: caller.scopes.scopes().cloned() }
    }
}

impl Default for OnBehalf {
    fn default() -> Self {
        Self { principal: Principal::ANONYMOUS, scopes: None }
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
/// 4. Dropping a future loses nothing.
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
