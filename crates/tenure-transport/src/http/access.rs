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
use tenure_auth::{
    AuthRefusal, Authenticator, Identity, Presented, ProtectedResource, TokenFault, UnixSeconds,
    VouchedIdentity, VouchedToken,
};
use tenure_protocol::{Error, Message, Method, Reason, RequestId, params};
use tenure_session::budget::Peer;
use tenure_session::call::Granted;
use tenure_session::port::clock::{Clock, Time};
use tenure_session::{Principal, Session, UsableUntil};

use super::body::Body;
use super::endpoint::{Endpoint, Remote};
use super::reject::{reject, reject_credentials, reject_exchange};
use crate::cluster::{RelayedHead, RequestTry};
use crate::observe::RequestNotes;

/// The longest wait for an expiry before the clock is read again.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// The longest name of an operation that a refusal repeats.
const MAX_OPERATION: usize = 140;

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
    /// Of the authenticator when the credentials were verified. As long as it is the same, no credentials were revoked.
    generation: u64,
    /// Where to note the outcome of the request, if it is observed.
    pub(super) notes: Option<&'a Arc<RequestNotes>>,
    pub(super) hop: Hop,
}

/// Where a request came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hop {
    /// From its client.
    Client,
    /// From another node, which its client has reached.
    Peer(RequestTry),
}

impl Sender<'_> {
    /// Whether another node may have begun the request.
    pub(super) fn attempt(&self) -> RequestTry {
        match self.hop {
            Hop::Client => RequestTry::First,
            Hop::Peer(attempt) => attempt,
        }
    }

    /// Who it is, for the node that has the session.
    pub(super) fn vouched(&self) -> Option<VouchedIdentity> {
        self.identity.as_deref().map(VouchedIdentity::from)
    }

    /// What its credentials grant.
    pub(super) fn scopes(&self) -> Granted {
        match &self.identity {
            Some(identity) => Granted::Scopes(identity.scopes().shared()),
            None => Granted::Unasked,
        }
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
        if let Some(identity) = &self.identity {
            until.extend(expires(identity));
        }
    }
}

/// The sender of a request whose answer comes from another node. It is kept as long as the answer, which may have to be asked for
/// again.
#[derive(Debug)]
pub(super) struct KeptSender {
    remote: Option<Remote>,
    principal: Principal,
    identity: Option<Arc<Identity>>,
    generation: u64,
    notes: Option<Arc<RequestNotes>>,
}

impl KeptSender {
    pub(super) fn of(sender: &Sender<'_>) -> Self {
        Self {
            // Its credentials were verified, and are not needed again.
            remote: sender.remote.cloned().map(|remote| Remote { last_shown: None, ..remote }),
            principal: sender.principal.clone(),
            identity: sender.identity.clone(),
            generation: sender.generation,
            notes: sender.notes.cloned(),
        }
    }

    /// The sender, for the request of the rest of an answer.
    pub(super) fn sender(&self, hop: Hop) -> Sender<'_> {
        Sender {
            remote: self.remote.as_ref(),
            principal: self.principal.clone(),
            identity: self.identity.clone(),
            generation: self.generation,
            notes: self.notes.as_ref(),
            hop,
        }
    }
}

/// The credentials with which something was opened that outlives its request: a stream, a listen, a connection.
#[derive(Clone)]
pub(super) struct Opener {
    authenticator: Authenticator,
    identity: Arc<Identity>,
    expiry: StreamExpiry,
}

impl Opener {
    /// Waits until the opened stream has to end: its credentials were taken back, or have expired with their grace. `until` is
    /// the expiry of the newest credentials that were shown for it, which may be later than its own.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn ended(&self, until: &UsableUntil) {
        tokio::select! {
            () = self.authenticator.taken_back(&self.identity) => {}
            () = expired(until, &self.expiry) => {}
        }
    }

    /// Waits until its credentials were taken back. Their expiry is watched at the node that has the session, which sees newer
    /// ones.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn taken_back(&self) {
        self.authenticator.taken_back(&self.identity).await;
    }

    /// As [`Opener::ended`], for something that newer credentials cannot prolong.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn ended_alone(&self) {
        let until = UsableUntil::default();
        until.extend(expires(&self.identity));
        self.ended(&until).await;
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.identity.fmt(f)
    }
}

/// Until when credentials are accepted; `None` if they do not expire.
fn expires(identity: &Identity) -> Option<Time> {
    let until = identity.accepted_until();
    (until != UnixSeconds::NEVER).then(|| Time(until.0.saturating_mul(1000)))
}

/// Waits until credentials have expired and their grace is over. Newer ones that come meanwhile are waited for too.
async fn expired(until: &UsableUntil, expiry: &StreamExpiry) {
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

/// The form of a refusal: a session's requests and exchanges have different responses.
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
            return Ok(Sender {
                remote,
                principal: Principal::ANONYMOUS,
                identity: None,
                generation: 0,
                notes,
                hop: Hop::Client,
            });
        };
        // Read first, so that a revocation during the verification is noticed later.
        let generation = auth.authenticator.generation();
        let certificate = remote.and_then(|remote| remote.certificate.as_deref());
        let last_shown = remote.and_then(|remote| remote.last_shown.as_deref());
        let verified = match Presented::read(&parts.headers, &parts.uri, parts.method.as_str()) {
            Ok(presented) => {
                let presented = presented.with_certificate(certificate).with_last_shown(last_shown);
                auth.verify(&presented).await
            }
            Err(refusal) => Err(refusal),
        };
        match verified {
            Ok(identity) => {
                let principal = Principal::verified(identity.principal_shared(), identity.client_shared());
                if let Some(notes) = notes {
                    notes.principal(&principal);
                }
                Ok(Sender {
                    remote,
                    principal,
                    identity: Some(identity),
                    generation,
                    notes,
                    hop: Hop::Client,
                })
            }
            Err(refusal) => Err(Box::new(match self.count_failure(&refusal, remote) {
                Err(error) => reject_credentials(&error),
                Ok(()) => auth.refuse(&refusal, None, Answers::Session),
            })),
        }
    }

    /// The sender of a request that another node has verified. Called for requests of the peer port alone.
    ///
    /// # Errors
    /// The response for a sender that this node would not serve: without an identity where one is needed, or with credentials
    /// that were taken back.
    pub(super) fn vouched<'a>(
        &self,
        remote: &'a Remote,
        head: &RelayedHead,
    ) -> Result<Sender<'a>, Box<Response<Body>>> {
        let (vouched, hop) = (head.identity.as_ref(), Hop::Peer(head.attempt));
        let generation = self.auth().map_or(0, |auth| auth.authenticator.generation());
        let identity = vouched.and_then(VouchedIdentity::identity);
        let (identity, auth) = match (identity, self.auth()) {
            (Some(identity), auth) => (identity, auth),
            (None, None) if vouched.is_none() => {
                let principal = Principal::ANONYMOUS;
                return Ok(Sender {
                    remote: Some(remote),
                    principal,
                    identity: None,
                    generation,
                    notes: None,
                    hop,
                });
            }
            // The other node asks for no credentials, or has another version of them.
            (None, Some(auth)) => {
                return Err(Box::new(auth.refuse(&AuthRefusal::Missing, None, Answers::Session)));
            }
            (None, None) => {
                let error = Error::new(Reason::Unauthorized, "The caller's identity cannot be read");
                return Err(Box::new(reject(&error, None)));
            }
        };
        if let Some(auth) = auth
            && auth.authenticator.is_taken_back(&identity)
        {
            let refusal = AuthRefusal::Invalid(TokenFault::Revoked);
            return Err(Box::new(auth.refuse(&refusal, None, Answers::Session)));
        }
        if let (Some(auth), Some(token)) = (auth, &head.token) {
            auth.authenticator.lend_vouched(&identity, token);
        }
        let principal = Principal::verified(identity.principal_shared(), identity.client_shared());
        Ok(Sender {
            remote: Some(remote),
            principal,
            identity: Some(Arc::new(identity)),
            generation,
            notes: None,
            hop,
        })
    }

    /// The token of a sender, for the node that serves its request: `None` unless a server behind gets another one in exchange for
    /// it.
    pub(super) fn vouched_token(&self, sender: &Sender<'_>) -> Option<VouchedToken> {
        let (auth, identity) = (self.auth()?, sender.identity.as_deref()?);
        auth.authenticator.vouched_token(identity, auth.now())
    }

    /// Checks that the credentials of a sender were not taken back while the body of its request arrived.
    pub(super) fn check_not_taken_back(&self, sender: &Sender<'_>) -> Result<(), Box<Response<Body>>> {
        let (Some(auth), Some(identity)) = (self.auth(), &sender.identity) else { return Ok(()) };
        if auth.authenticator.generation() == sender.generation || !auth.authenticator.is_taken_back(identity)
        {
            return Ok(());
        }
        Err(Box::new(auth.refuse(&AuthRefusal::Invalid(TokenFault::Revoked), None, Answers::Session)))
    }

    /// Counts credentials that are not good. Those that are missing or have expired are not counted: clients begin without any,
    /// and renew them when they are refused.
    fn count_failure(&self, refusal: &AuthRefusal, remote: Option<&Remote>) -> Result<(), Error> {
        let is_failure = match refusal {
            AuthRefusal::Malformed(_) => true,
            AuthRefusal::Invalid(fault) => *fault != TokenFault::Expired,
            AuthRefusal::Missing
            | AuthRefusal::InsufficientScope { .. }
            | AuthRefusal::Unavailable { .. } => false,
        };
        match (self.sessions().addresses(), remote) {
            (Some(rates), Some(remote)) if is_failure => rates.fail(Peer::at(remote.address.ip())),
            _ => Ok(()),
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
        let (method, params, id) = match message {
            Message::Request(request) => (&request.method, request.params.as_ref(), Some(&request.id)),
            Message::Notification(told) => (&told.method, told.params.as_ref(), None),
            // It answers a question of a call that was allowed; without the answer, that call would hang.
            Message::Response(_) => return Ok(()),
        };
        auth.allow(identity, method, params).map_err(|mut refusal| {
            if let (AuthRefusal::InsufficientScope { kept, .. }, Answers::Session) = (&mut refusal, answers) {
                *kept = auth.scopes.known(identity.scopes());
            }
            Box::new(auth.refuse(&refusal, id, answers))
        })
    }

    /// The credentials of a sender whose stream or connection outlives this request; `None` if the endpoint asks for none.
    pub(super) fn opener(&self, sender: &Sender<'_>) -> Option<Opener> {
        let (auth, identity) = (self.auth()?, sender.identity.as_ref()?);
        let (authenticator, identity) = (auth.authenticator.clone(), Arc::clone(identity));
        Some(Opener { authenticator, identity, expiry: auth.expiry.clone() })
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
    fn now(&self) -> UnixSeconds {
        UnixSeconds(self.expiry.clock.now().0 / 1000)
    }

    async fn verify(&self, presented: &Presented<'_>) -> Result<Arc<Identity>, AuthRefusal> {
        self.authenticator.verify(presented, &self.resource, self.now()).await
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
            // A client begins with these to learn what the server offers, and may cancel its own requests.
            Method::Initialize | Method::Initialized | Method::Ping | Method::Cancelled => Ok(()),
            Method::ToolsCall => {
                let Some(name) = params::tool_name(request) else {
                    // Servers could read different names there, so the call needs the scopes of all tools.
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
                let mut needed = self.scopes.request(self.backend.as_deref());
                // With several servers the name of a prompt says which one it belongs to. A request that does not say is checked by
                // the layer in front of each server.
                if let (Method::PromptsGet, Some(owner)) = (method, &self.owner)
                    && let Some(name) = params::tool_name(request)
                {
                    needed = needed.and(&self.scopes.request(owner(&name).0.as_deref()));
                }
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
                let (kept, mut operation) = (ScopeSet::default(), String::from(operation()));
                // Clients choose names, of megabytes if they like.
                if let Some((end, _)) = operation.char_indices().nth(MAX_OPERATION) {
                    operation.truncate(end);
                    operation.push_str("...");
                }
                let operation = operation.into();
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

/// A refusal as an error for the client: the parts of RFC 6750, and no more.
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
