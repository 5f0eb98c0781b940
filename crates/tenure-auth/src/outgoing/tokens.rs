//! The tokens for one server behind: got once for all who wait, renewed before they expire, and again if the server refuses one.
//!
//! A request waits only if there is no token, or an expired one. Four fifths into its life a token is renewed in the background.
//! After a failure no request is sent for ten seconds. All this is kept for each caller, if tokens are of callers. The newest token
//! of each caller is kept longer than the caller's own, for messages that ask for nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use reqwest::{ClientBuilder, Url};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::oauth_client::OAuthClient;
use super::subjects::{CallerName, OfSubjects};
use super::token_request::{OutgoingGrant, OutgoingRefusal, OutgoingToken, Wanted};
use super::token_server::{KnownTokenServer, TokenServer};
use crate::fetch::{Fetcher, Reach, TIMEOUT};
use crate::observer::CredentialEvent;
use crate::time::UnixSeconds;

/// How many callers have a token for one server at once.
const CAPACITY: usize = 4096;

/// How long no request is sent after a failure, and how long a renewed token that is refused again is not renewed once more.
const PAUSE: Duration = Duration::from_secs(10);

/// How long one attempt may take: discovery and the request for the token together.
const ATTEMPT: Duration = TIMEOUT.saturating_mul(2);

/// The HTTP clients for token servers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OutgoingClients {
    /// For URLs of the configuration, and of servers that it names.
    pub(super) configured: Fetcher,
    /// For URLs that servers behind name.
    pub(super) named_by_servers: Fetcher,
}

impl OutgoingClients {
    /// Clients that trust what these builders trust.
    pub fn new(builder: impl Fn() -> ClientBuilder) -> Result<Self, reqwest::Error> {
        let configured = Fetcher::with_reach(builder(), Reach::Anywhere)?;
        Ok(Self { configured, named_by_servers: Fetcher::with_reach(builder(), Reach::Public)? })
    }

    /// Clients that trust what the operating system trusts.
    pub fn with_system_trust() -> Result<Self, reqwest::Error> {
        Self::new(reqwest::Client::builder)
    }
}

/// How tokens for a server behind are got.
#[derive(Clone)]
pub struct OutgoingSettings {
    /// The URL of the server behind. It may hold a secret, so it stays in here.
    pub upstream: String,
    /// What tokens are asked for with.
    pub grant: OutgoingGrant,
    /// Where.
    pub server: TokenServer,
    /// Who we are there.
    pub client: OAuthClient,
    /// What the tokens are for; without it the URL of the server, without what may be secret in it.
    pub resource: Option<String>,
    /// The scope to ask for.
    pub scope: Option<String>,
}

/// It would show the URL.
impl std::fmt::Debug for OutgoingSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("OutgoingSettings");
        shown.field("grant", &self.grant).field("client", &self.client).finish_non_exhaustive()
    }
}

/// The tokens for one server behind. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OutgoingTokens(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    grant: OutgoingGrant,
    server: KnownTokenServer,
    wanted: Wanted,
    /// The one slot of a token for all callers.
    own: Arc<Slot>,
    slots: Cache<CallerName, Arc<Slot>>,
    /// The newest token of each principal and client, with its own end.
    last: Cache<CallerName, (OutgoingToken, UnixSeconds)>,
    numbers: AtomicU64,
}

/// The token for one caller, or for all.
#[derive(Debug)]
struct Slot {
    state: Mutex<SlotState>,
    one_at_a_time: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct SlotState {
    kept: Option<Kept>,
    /// Why the last attempt failed, and until when no other is made.
    failed: Option<(OutgoingRefusal, UnixSeconds)>,
}

#[derive(Clone, Debug)]
struct Kept {
    token: OutgoingToken,
    got: UnixSeconds,
    renew_from: UnixSeconds,
    expires: UnixSeconds,
    /// When the server behind takes it no longer; the caller's own token may have ended before.
    last: UnixSeconds,
    /// It was got because the server had refused the one before.
    is_second: bool,
}

/// What a slot has.
enum Look {
    Good(OutgoingToken),
    /// Good for now, and to be renewed.
    Aging(OutgoingToken),
    Failed(OutgoingRefusal),
    Nothing,
}

/// An attempt to get a token.
struct Attempt {
    slot: Arc<Slot>,
    caller: Option<CallerName>,
    /// One attempt runs at a time for each slot.
    permit: OwnedSemaphorePermit,
    /// The server has refused the token before.
    is_second: bool,
    now: UnixSeconds,
}

impl Default for Slot {
    fn default() -> Self {
        Self { state: Mutex::default(), one_at_a_time: Arc::new(Semaphore::new(1)) }
    }
}

impl Slot {
    fn look(&self, now: UnixSeconds) -> Look {
        let state = self.state.lock();
        let failed = state.failed.filter(|(_, until)| now < *until && *until <= now.plus(PAUSE));
        match (&state.kept, failed) {
            // A token from the future came before the clock was set back.
            (Some(kept), failed) if kept.got <= now && now < kept.expires => {
                match kept.renew_from <= now && failed.is_none() {
                    true => Look::Aging(kept.token.clone()),
                    false => Look::Good(kept.token.clone()),
                }
            }
            (_, Some((refusal, _))) => Look::Failed(refusal),
            (_, None) => Look::Nothing,
        }
    }
}

impl OutgoingTokens {
    /// Tokens with these settings. `None` if the URL of the server makes no sense.
    pub fn new(settings: OutgoingSettings, clients: &OutgoingClients) -> Option<Self> {
        let OutgoingSettings { upstream, grant, server, client, resource, scope } = settings;
        let mut upstream = Url::parse(&upstream).ok().filter(Url::has_host)?;
        upstream.set_query(None);
        upstream.set_fragment(None);
        upstream.set_username("").ok()?;
        upstream.set_password(None).ok()?;
        let name = upstream.to_string();
        let is_chosen = resource.is_some();
        let resource = resource.unwrap_or_else(|| name.clone());
        let audience = match &grant {
            OutgoingGrant::ClientCredentials => None,
            OutgoingGrant::TokenExchange { audience, .. } => audience.clone(),
        };
        let inner = Arc::new(Inner {
            name,
            grant,
            server: KnownTokenServer::new(server, upstream, clients.clone()),
            wanted: Wanted { client, resource, is_chosen, audience, scope },
            own: Arc::default(),
            slots: Cache::new(CAPACITY),
            last: Cache::new(CAPACITY),
            numbers: AtomicU64::new(0),
        });
        if let OutgoingGrant::TokenExchange { subjects, .. } = &inner.grant {
            let of_subjects: Weak<Inner> = Arc::downgrade(&inner);
            subjects.tell(of_subjects);
        }
        Some(Self(inner))
    }

    /// A token for a request of this caller.
    ///
    /// # Cancel safety
    /// An attempt to get one goes on.
    pub async fn token(
        &self,
        caller: Option<&CallerName>,
        now: UnixSeconds,
    ) -> Result<OutgoingToken, OutgoingRefusal> {
        let (slot, caller) = self.slot(caller, now)?;
        match slot.look(now) {
            Look::Good(token) => return Ok(token),
            Look::Aging(token) => {
                if let Ok(permit) = Arc::clone(&slot.one_at_a_time).try_acquire_owned() {
                    drop(self.begin(Attempt { slot, caller, permit, is_second: false, now }));
                }
                return Ok(token);
            }
            Look::Failed(refusal) => return Err(refusal),
            Look::Nothing => {}
        }
        // A request that waited here finds the attempt of another one done.
        let permit = Self::permit(&slot).await?;
        match slot.look(now) {
            Look::Good(token) | Look::Aging(token) => Ok(token),
            Look::Failed(refusal) => Err(refusal),
            Look::Nothing => self.attempt(Attempt { slot, caller, permit, is_second: false, now }).await,
        }
    }

    /// The newest token that there was for this caller, as long as the server behind takes it, also if the caller's own is no
    /// longer good. For messages that ask for nothing: they take back what was begun with such a token, or end it.
    pub fn last_token(&self, caller: &CallerName, now: UnixSeconds) -> Option<OutgoingToken> {
        let caller = CallerName { scopes: None, ..caller.clone() };
        let (token, until) = self.0.last.get(&caller)?;
        if until <= now {
            self.0.last.remove(&caller);
            return None;
        }
        Some(token)
    }

    /// Another token in place of the one with this number, which the server has refused. `None` if there is no use in another: the one that was
    /// refused is itself the second within a moment.
    ///
    /// # Cancel safety
    /// An attempt to get one goes on.
    pub async fn renewed(
        &self,
        caller: Option<&CallerName>,
        refused: u64,
        now: UnixSeconds,
    ) -> Result<Option<OutgoingToken>, OutgoingRefusal> {
        let (slot, caller) = self.slot(caller, now)?;
        let permit = Self::permit(&slot).await?;
        let kept = slot.state.lock().kept.clone();
        match kept {
            Some(kept) if kept.token.number() > refused => return Ok(Some(kept.token)),
            Some(kept) if kept.is_second && now < kept.got.plus(PAUSE) => return Ok(None),
            Some(_) | None => {}
        }
        if let Look::Failed(refusal) = slot.look(now) {
            return Err(refusal);
        }
        self.attempt(Attempt { slot, caller, permit, is_second: true, now }).await.map(Some)
    }

    async fn permit(slot: &Slot) -> Result<OwnedSemaphorePermit, OutgoingRefusal> {
        let permit = tokio::time::timeout(ATTEMPT, Arc::clone(&slot.one_at_a_time).acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or(OutgoingRefusal::Unavailable)
    }

    /// The slot of a caller, with the name that its token goes by.
    fn slot(
        &self,
        caller: Option<&CallerName>,
        now: UnixSeconds,
    ) -> Result<(Arc<Slot>, Option<CallerName>), OutgoingRefusal> {
        let OutgoingGrant::TokenExchange { subjects, .. } = &self.0.grant else {
            return Ok((Arc::clone(&self.0.own), None));
        };
        let caller = caller.and_then(|caller| subjects.named(caller, now));
        let caller = caller.ok_or(OutgoingRefusal::NoSubject)?;
        let made = self.0.slots.get_or_insert_with(&caller, || Ok::<_, ()>(Arc::default()));
        Ok((made.map_err(|()| OutgoingRefusal::Unavailable)?, Some(caller)))
    }

    async fn attempt(&self, attempt: Attempt) -> Result<OutgoingToken, OutgoingRefusal> {
        self.begin(attempt).await.unwrap_or(Err(OutgoingRefusal::Unavailable))
    }

    /// Begins an attempt in a task of its own: the callers that wait for it may hang up.
    fn begin(&self, attempt: Attempt) -> tokio::task::JoinHandle<Result<OutgoingToken, OutgoingRefusal>> {
        let Attempt { slot, caller, permit, is_second, now } = attempt;
        let tokens = self.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends by its own timeout, and one runs at a time")]
        tokio::spawn(async move {
            let got = tokens.0.get(caller.as_ref(), now).await;
            if let Some(caller) = caller {
                tokens.0.tell(&caller, &got);
                if let Ok(kept) = &got {
                    let of_client = CallerName { scopes: None, ..caller };
                    tokens.0.last.insert(of_client, (kept.token.clone(), kept.last));
                }
            }
            let mut state = slot.state.lock();
            let outcome = match got {
                Ok(kept) => {
                    let token = kept.token.clone();
                    *state = SlotState { kept: Some(Kept { is_second, ..kept }), failed: None };
                    Ok(token)
                }
                // A caller without a token may come with one at any moment, and asking costs nothing.
                Err(OutgoingRefusal::NoSubject) => Err(OutgoingRefusal::NoSubject),
                Err(refusal) => {
                    state.failed = Some((refusal, now.plus(PAUSE)));
                    Err(refusal)
                }
            };
            drop(state);
            drop(permit);
            outcome
        })
    }
}

impl OfSubjects for Inner {
    /// The last token stays, since sessions and calls of the principal end after this.
    fn forget(&self, principal: &str) {
        self.slots.retain(|name, _| *name.principal != *principal);
    }
}

impl Inner {
    /// Tells of an exchange. A caller whose token is not at hand has exchanged nothing.
    fn tell(&self, caller: &CallerName, got: &Result<Kept, OutgoingRefusal>) {
        let OutgoingGrant::TokenExchange { subjects, .. } = &self.grant else { return };
        let refusal = match got {
            Ok(_) => None,
            Err(OutgoingRefusal::NoSubject) => return,
            Err(OutgoingRefusal::Refused) => Some("refused"),
            Err(OutgoingRefusal::Unavailable) => Some("unavailable"),
        };
        let (principal, client, server) = (&*caller.principal, caller.client.as_deref(), &*self.name);
        subjects.observer().tell(CredentialEvent::TokenExchanged { principal, client, server, refusal });
    }

    async fn get(&self, caller: Option<&CallerName>, now: UnixSeconds) -> Result<Kept, OutgoingRefusal> {
        let subject = match (&self.grant, caller) {
            (OutgoingGrant::ClientCredentials, _) => None,
            (OutgoingGrant::TokenExchange { subjects, .. }, Some(caller)) => {
                Some(subjects.of(caller, now).ok_or(OutgoingRefusal::NoSubject)?)
            }
            (OutgoingGrant::TokenExchange { .. }, None) => return Err(OutgoingRefusal::NoSubject),
        };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let asking = async {
            let endpoint = self.server.endpoint(now).await?;
            self.wanted.request(&endpoint, subject.as_deref(), number, now).await
        };
        let granted = match tokio::time::timeout(ATTEMPT, asking).await {
            Ok(Ok(granted)) => granted,
            Ok(Err(failure)) => {
                // Its server may have moved.
                self.server.forget();
                tracing::warn!(
                    url = self.name,
                    error = &failure as &dyn std::error::Error,
                    "could not get a token for the server upstream"
                );
                return Err(failure.refusal());
            }
            Err(_) => {
                tracing::warn!(url = self.name, "did not get a token for the server upstream in time");
                return Err(OutgoingRefusal::Unavailable);
            }
        };
        let last = now.plus(granted.life);
        let expires = subject.map_or(last, |subject| last.min(subject.expires));
        let life = Duration::from_secs(expires.0.saturating_sub(now.0));
        let (renew_from, token) = (now.plus(life * 4 / 5), granted.token);
        Ok(Kept { token, got: now, renew_from, expires, last, is_second: false })
    }
}
