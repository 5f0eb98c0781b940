//! Who sends a request, and what they may do: verifies credentials first, and scopes before anything is looked up.
//!
//! In: the head of a request, and its message once that is read. Out: a [`Sender`], which only this file makes, or the
//! response that tells the client which credentials are missing. Nothing about sessions, tools or servers may differ before
//! the credentials are good.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use tenure_auth::scope::{ScopeRules, ScopeSet};
use tenure_auth::{AuthRefusal, Authenticator, Identity, Presented, ProtectedResource, UnixSeconds};
use tenure_protocol::{Error, Message, Method, Reason, RequestId, params};
use tenure_session::port::clock::{Clock, Time};
use tenure_session::{Principal, Session, UsableUntil};

use super::body::Body;
use super::endpoint::{Endpoint, Remote};
use super::reject::{reject, reject_exchange};
use crate::observe::RequestNotes;

/// The longest wait for an expiry before the clock is looked at again.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// Finds the server that a tool belongs to, and the name that it has there.
pub type ToolOwner = Arc<dyn Fn(&str) -> (Option<String>, String) + Send + Sync>;

/// Who may use an endpoint.
#[derive(Clone)]
pub struct EndpointAuth {
    /// Verifies credentials.
    pub authenticator: Authenticator,
    /// The endpoint as tokens name it.
    pub resource: ProtectedResource,
    /// The scopes that operations need.
    pub scopes: Arc<ScopeRules>,
    /// The server behind the endpoint, if rules can name it.
    pub backend: Option<String>,
    /// The server of each tool, where several are behind the endpoint.
    pub owner: Option<ToolOwner>,
    /// How streams end when their owners' credentials expire.
    pub expiry: StreamExpiry,
}

/// How streams end when their owners' credentials expire.
#[derive(Clone)]
pub struct StreamExpiry {
    /// The time by which tokens expire.
    pub clock: Arc<dyn Clock>,
    /// How long a stream goes on after the newest token of its session has expired: the client may be about to renew it.
    pub grace: Duration,
}

impl fmt::Debug for StreamExpiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamExpiry").field("grace", &self.grace).finish_non_exhaustive()
    }
}

impl fmt::Debug for EndpointAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointAuth").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// The sender of a request, whose credentials were verified if the endpoint asks for any.
#[derive(Debug)]
pub(super) struct Sender<'a> {
    pub(super) remote: Option<&'a Remote>,
    pub(super) principal: Principal,
    identity: Option<Arc<Identity>>,
    /// Where to note what becomes of the request, if it is observed.
    pub(super) notes: Option<&'a Arc<RequestNotes>>,
}

impl Sender<'_> {
    /// The scopes of its credentials; `None` if the endpoint asks for no credentials.
    pub(super) fn scopes(&self) -> Option<Arc<[Box<str>]>> {
        self.identity.as_ref().map(|identity| identity.scopes().shared())
    }

    /// Until when its credentials are accepted; `None` if they do not expire.
    fn expires(&self) -> Option<Time> {
        let until = self.identity.as_ref()?.accepted_until();
        (until != UnixSeconds::NEVER).then(|| Time(until.0.saturating_mul(1000)))
    }

    /// Tells a session until when its owner may use it. Streams of the session follow the newest credentials.
    pub(super) fn uses(&self, session: &Arc<Session>) {
        self.extends(session.usable_until());
        if let Some(notes) = self.notes {
            notes.session(session);
        }
    }

    /// Notes the expiry of its credentials.
    pub(super) fn extends(&self, until: &UsableUntil) {
        if self.identity.is_some() {
            until.extend(self.expires());
        }
    }
}

/// Waits until credentials have expired and their grace is over. Newer ones that come meanwhile are waited for too.
///
/// # Cancel safety
/// May be dropped at any time.
pub(super) async fn expired(until: &UsableUntil, expiry: &StreamExpiry) {
    loop {
        // Either no credentials are needed, or some were shown that do not expire; neither ends.
        let Some(end) = until.get() else { return std::future::pending().await };
        let left = end.after(expiry.grace).since(expiry.clock.now());
        if left.is_zero() {
            return;
        }
        // The clock may be set, so a long wait is taken in parts.
        tokio::time::sleep(left.min(CLOCK_CHECK)).await;
    }
}

/// What becomes of a refusal: a session's requests and exchanges have different responses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    Session,
    Exchange,
}

impl Endpoint {
    /// Verifies the sender of a request.
    ///
    /// # Errors
    /// The response for a sender without good credentials.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn identify<'a>(
        &self,
        parts: &Parts,
        remote: Option<&'a Remote>,
        notes: Option<&'a Arc<RequestNotes>>,
    ) -> Result<Sender<'a>, Box<Response<Body>>> {
        let Some(auth) = self.auth() else {
            return Ok(Sender { remote, principal: Principal::ANONYMOUS, identity: None, notes });
        };
        let certificate = remote.and_then(|remote| remote.certificate.as_deref());
        let verified = match Presented::read(&parts.headers, &parts.uri, parts.method.as_str()) {
            Ok(presented) => auth.verify(&presented.with_certificate(certificate)).await,
            Err(refusal) => Err(refusal),
        };
        match verified {
            Ok(identity) => {
                let principal = Principal::verified(identity.principal_shared(), identity.client_shared());
                if let Some(notes) = notes {
                    notes.principal(&principal);
                }
                Ok(Sender { remote, principal, identity: Some(identity), notes })
            }
            Err(refusal) => Err(Box::new(auth.refuse(&refusal, None, Answers::Session))),
        }
    }

    /// Checks that the sender may do what a message asks for. Its response is the challenge by which a client gets more
    /// scopes.
    pub(super) fn check_scopes(
        &self,
        sender: &Sender<'_>,
        message: &Message,
        answers: Answers,
    ) -> Result<(), Box<Response<Body>>> {
        let (Some(auth), Some(identity)) = (self.auth(), &sender.identity) else { return Ok(()) };
        let Message::Request(request) = message else { return Ok(()) };
        auth.allow(identity, &request.method, request.params.as_ref()).map_err(|mut refusal| {
            if let (AuthRefusal::InsufficientScope { kept, .. }, Answers::Session) = (&mut refusal, answers) {
                *kept = auth.scopes.known(identity.scopes());
            }
            Box::new(auth.refuse(&refusal, Some(&request.id), answers))
        })
    }

    /// Checks that the sender may use the endpoint at all, for requests that have no message.
    pub(super) fn check_base_scopes(&self, sender: &Sender<'_>) -> Result<(), Box<Response<Body>>> {
        let (Some(auth), Some(identity)) = (self.auth(), &sender.identity) else { return Ok(()) };
        let needed = auth.scopes.request(auth.backend.as_deref());
        auth.need(identity, needed, || "this endpoint".into())
            .map_err(|refusal| Box::new(auth.refuse(&refusal, None, Answers::Session)))
    }
}

impl EndpointAuth {
    async fn verify(&self, presented: &Presented<'_>) -> Result<Arc<Identity>, AuthRefusal> {
        let now = UnixSeconds(self.expiry.clock.now().0 / 1000);
        self.authenticator.verify(presented, &self.resource, now).await
    }

    fn allow(
        &self,
        identity: &Identity,
        method: &Method,
        request: Option<&tenure_protocol::RawJson>,
    ) -> Result<(), AuthRefusal> {
        if self.scopes.is_empty() {
            return Ok(());
        }
        match method {
            // A client begins with these, to learn what there is to ask for.
            Method::Initialize | Method::Ping => Ok(()),
            Method::ToolsCall => {
                let Some(name) = params::tool_name(request) else {
                    // Servers could read different names there, so it needs what any tool may need.
                    return self.need(identity, self.scopes.all(), || "tools/call".into());
                };
                let (backend, tool) = match &self.owner {
                    Some(owner) => owner(&name),
                    None => (self.backend.clone(), name.clone()),
                };
                let needed = self.scopes.tool(backend.as_deref(), &tool);
                self.need(identity, needed, || format!("tools/call {name}").into())
            }
            method => {
                let needed = self.scopes.request(self.backend.as_deref());
                self.need(identity, needed, || method.as_str().into())
            }
        }
    }

    fn need(
        &self,
        identity: &Identity,
        needed: ScopeSet,
        operation: impl FnOnce() -> Box<str>,
    ) -> Result<(), AuthRefusal> {
        match self.scopes.allow(identity.scopes(), &needed) {
            true => Ok(()),
            false => {
                let (kept, operation) = (ScopeSet::default(), operation());
                Err(AuthRefusal::InsufficientScope { needed, kept, operation })
            }
        }
    }

    /// The response for a refusal, with the challenge.
    fn refuse(&self, refusal: &AuthRefusal, id: Option<&RequestId>, answers: Answers) -> Response<Body> {
        tracing::debug!(why = refusal.reason(), endpoint = self.resource.uri(), "credentials refused");
        let error = error_of(refusal);
        let mut response = match answers {
            Answers::Session => reject(&error, id),
            Answers::Exchange => reject_exchange(&error, id),
        };
        let headers = response.headers_mut();
        if let Some(challenge) = refusal.challenge(&self.resource) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if let AuthRefusal::Unavailable { retry_after } = refusal {
            headers.insert(RETRY_AFTER, HeaderValue::from(retry_after.as_secs().max(1)));
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// The path and the text of the metadata of RFC 9728, if tokens are accepted.
    pub(super) fn metadata(&self) -> Option<(String, Bytes)> {
        let path = self.resource.metadata_path()?.to_owned();
        let (issuers, proofs) = (self.authenticator.issuer_urls(), self.authenticator.proof_algorithms());
        let name = self.backend.as_deref().unwrap_or("mcp");
        Some((path, self.resource.metadata(name, &issuers, &proofs)?.into()))
    }
}

/// A refusal as an error for the client: what RFC 6750 says, and no more.
fn error_of(refusal: &AuthRefusal) -> Error {
    let reason = match refusal {
        AuthRefusal::Missing | AuthRefusal::Invalid(_) => Reason::Unauthorized,
        AuthRefusal::Malformed(_) => Reason::MalformedCredentials,
        AuthRefusal::InsufficientScope { .. } => Reason::Forbidden,
        AuthRefusal::Unavailable { .. } => Reason::AuthUnavailable,
    };
    let error = Error::new(reason, refusal.message());
    match refusal {
        AuthRefusal::InsufficientScope { needed, .. } => {
            error.with("requiredScopes", needed.iter().map(str::to_owned).collect::<Vec<_>>())
        }
        _ => error,
    }
}
