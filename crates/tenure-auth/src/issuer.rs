//! Issuers of tokens: where their keys are, and the keys at hand.
//!
//! A request waits for an issuer only if its token names a key that we do not have. That causes at most one fetch per
//! half a minute and issuer, however many such tokens come. An issuer that cannot be reached costs nothing as long as its
//! old keys are not too old.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fetch::{FetchError, Fetcher, TIMEOUT};
use crate::generation::Generation;
use crate::jwk::{self, IssuerKey};
use crate::jws::{Algorithm, Compact, Header};
use crate::keys::is_writable_by_others;
use crate::refusal::{AuthRefusal, TokenFault};
use crate::server_metadata::ServerMetadata;
use crate::time::{LEEWAY, UnixSeconds};

/// The shortest time between two fetches because of unknown keys.
const COOLDOWN: Duration = Duration::from_secs(30);

/// The same, as long as no keys were fetched at all.
const FIRST_COOLDOWN: Duration = Duration::from_secs(2);

/// How long keys count if the issuer does not say so, and the bounds of what it may say.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(15 * 60);
const MIN_LIFETIME: Duration = Duration::from_secs(60);
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// How long old keys are good while the issuer cannot be reached.
const KEEP_OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// How many unknown key ids are remembered, and for how long.
const UNKNOWN_IDS: usize = 128;
const UNKNOWN_FOR: Duration = Duration::from_secs(300);

/// A longer key id is refused.
const MAX_KEY_ID_BYTES: usize = 256;

/// How an issuer is configured.
#[derive(Clone, Debug)]
pub struct IssuerSettings {
    /// The name that its principals begin with. It has no colon.
    pub name: String,
    /// What its tokens have as `iss`, byte for byte.
    pub issuer: String,
    /// Where its keys are.
    pub keys: KeySource,
    /// The algorithms that its tokens may be signed with.
    pub algorithms: Vec<Algorithm>,
    /// Audiences that are accepted beside the URI of the resource.
    pub audiences: Vec<String>,
    /// Whether only tokens of the type `at+jwt` are access tokens.
    pub require_at_jwt: bool,
    /// A prefix of its scopes that is left out.
    pub scope_prefix: Option<String>,
    /// How to ask it about tokens that we cannot read.
    pub introspection: Option<IntrospectionSettings>,
}

/// Where the keys of an issuer are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// Its metadata says it (RFC 8414, OpenID Connect discovery).
    Discovery,
    /// A URL.
    Url(String),
    /// A file.
    File(PathBuf),
    /// Nowhere: its tokens are opaque.
    None,
}

/// How to ask an issuer about opaque tokens (RFC 7662).
#[derive(Clone)]
pub struct IntrospectionSettings {
    /// The URL; without it, the issuer's metadata says it.
    pub url: Option<String>,
    /// Our name there.
    pub client_id: String,
    /// Our secret there.
    pub client_secret: String,
}

/// It would show the secret.
impl std::fmt::Debug for IntrospectionSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("IntrospectionSettings");
        shown.field("url", &self.url).field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl IssuerSettings {
    /// An issuer with the usual settings.
    pub fn new(name: &str, issuer: &str) -> Self {
        Self {
            name: name.to_owned(),
            issuer: issuer.to_owned(),
            keys: KeySource::Discovery,
            algorithms: Algorithm::DEFAULT.to_vec(),
            audiences: Vec::new(),
            require_at_jwt: false,
            scope_prefix: None,
            introspection: None,
        }
    }
}

/// The keys of an issuer at one time.
#[derive(Debug, Default)]
struct KeySet {
    keys: Vec<IssuerKey>,
    fetched: Option<UnixSeconds>,
    lifetime: Duration,
}

impl KeySet {
    /// Whether the keys are not too old, even if the issuer could not be reached since.
    fn is_usable(&self, now: UnixSeconds) -> bool {
        self.fetched.is_some_and(|fetched| now <= fetched.plus(self.lifetime.max(KEEP_OLD)))
    }

    /// Whether it is time to fetch the keys again. Keys from the future came before the clock was set back.
    fn is_due(&self, now: UnixSeconds) -> bool {
        self.fetched
            .is_none_or(|fetched| fetched.plus(self.lifetime * 4 / 5) <= now || now.plus(LEEWAY) < fetched)
    }
}

/// An issuer with its keys at hand.
#[derive(Debug)]
pub(crate) struct Issuer {
    pub(crate) settings: IssuerSettings,
    fetcher: Fetcher,
    keys: RwLock<Arc<KeySet>>,
    unknown: Mutex<Vec<(Box<str>, UnixSeconds)>>,
    /// When the last fetch was tried.
    tried: Mutex<Option<UnixSeconds>>,
    one_at_a_time: Arc<Semaphore>,
    /// Grows when the keys change, so that verdicts by the old ones are judged again.
    generation: Arc<Generation>,
    fetches: AtomicU64,
    introspection_url: RwLock<Option<String>>,
}

/// How an issuer is doing, for operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuerStatus {
    /// Its configured name.
    pub name: String,
    /// How many usable keys it has.
    pub keys: usize,
    /// When they were fetched.
    pub fetched: Option<UnixSeconds>,
    /// How often they were asked for.
    pub fetches: u64,
}

impl Issuer {
    pub(crate) fn new(settings: IssuerSettings, fetcher: Fetcher, generation: Arc<Generation>) -> Self {
        let introspection_url = settings.introspection.as_ref().and_then(|settings| settings.url.clone());
        Self {
            settings,
            fetcher,
            keys: RwLock::default(),
            unknown: Mutex::default(),
            tried: Mutex::default(),
            one_at_a_time: Arc::new(Semaphore::new(1)),
            generation,
            fetches: AtomicU64::new(0),
            introspection_url: RwLock::new(introspection_url),
        }
    }

    pub(crate) fn status(&self) -> IssuerStatus {
        let keys = self.keys.read();
        IssuerStatus {
            name: self.settings.name.clone(),
            keys: keys.keys.len(),
            fetched: keys.fetched,
            fetches: self.fetches.load(Ordering::Relaxed),
        }
    }

    /// Checks the signature of a token that names this issuer.
    pub(crate) async fn check_signature(
        self: &Arc<Self>,
        token: &Compact<'_>,
        now: UnixSeconds,
    ) -> Result<(), AuthRefusal> {
        let header = &token.header;
        let algorithm = Algorithm::named(&header.alg).filter(|name| self.settings.algorithms.contains(name));
        let algorithm = algorithm.ok_or(AuthRefusal::Invalid(TokenFault::Algorithm))?;
        self.check_type(header)?;
        let key = match self.find(header, algorithm, now) {
            Some(key) => key,
            None => {
                self.fetch_for(header, now).await?;
                self.find(header, algorithm, now).ok_or_else(|| self.remember_unknown(header, now))?
            }
        };
        match token.is_signed_by(&key.key, algorithm) {
            true => Ok(()),
            false => Err(AuthRefusal::Invalid(TokenFault::Signature)),
        }
    }

    fn check_type(&self, header: &Header) -> Result<(), AuthRefusal> {
        let name = header.typ.as_deref().unwrap_or("JWT");
        let name = name.strip_prefix("application/").unwrap_or(name);
        let is_access_token = name.eq_ignore_ascii_case("at+jwt");
        let is_accepted =
            is_access_token || !self.settings.require_at_jwt && name.eq_ignore_ascii_case("jwt");
        match is_accepted
            && !header.crit
            && header.kid.as_ref().is_none_or(|kid| kid.len() <= MAX_KEY_ID_BYTES)
        {
            true => Ok(()),
            false => Err(AuthRefusal::Invalid(TokenFault::Type)),
        }
    }

    /// The key that a header names. Without a name, the only key that fits.
    fn find(&self, header: &Header, algorithm: Algorithm, now: UnixSeconds) -> Option<IssuerKey> {
        let set = Arc::clone(&self.keys.read());
        if !set.is_usable(now) {
            return None;
        }
        let mut fitting = set.keys.iter().filter(|key| key.is_for(algorithm));
        match header.kid.as_deref() {
            Some(kid) => fitting.find(|key| key.id.as_deref() == Some(kid)).cloned(),
            None => fitting.next().cloned().filter(|_| fitting.next().is_none()),
        }
    }

    /// Fetches the keys for a token whose key is unknown, if that is not done too often.
    async fn fetch_for(self: &Arc<Self>, header: &Header, now: UnixSeconds) -> Result<(), AuthRefusal> {
        let kid = header.kid.as_deref().unwrap_or_default();
        if self.unknown.lock().iter().any(|(known, until)| &**known == kid && now < *until) {
            return Err(AuthRefusal::Invalid(TokenFault::Key));
        }
        let before = self.fetches.load(Ordering::Acquire);
        // A request that waited here finds the fetch of another request done.
        let Ok(permit) = Arc::clone(&self.one_at_a_time).acquire_owned().await else { return Ok(()) };
        if self.fetches.load(Ordering::Acquire) != before {
            return self.check_usable(now);
        }
        let cooldown = if self.keys.read().is_usable(now) { COOLDOWN } else { FIRST_COOLDOWN };
        let is_too_soon = self.tried.lock().is_some_and(|tried| now < tried.plus(cooldown) && tried <= now);
        if !is_too_soon {
            self.fetch(permit, now).await;
        }
        self.check_usable(now)
    }

    fn check_usable(&self, now: UnixSeconds) -> Result<(), AuthRefusal> {
        match self.keys.read().is_usable(now) {
            true => Ok(()),
            false => Err(AuthRefusal::Unavailable { retry_after: FIRST_COOLDOWN }),
        }
    }

    fn remember_unknown(&self, header: &Header, now: UnixSeconds) -> AuthRefusal {
        // During the cooldown the issuer was not asked, so the key may well be there.
        let has_answered = self.keys.read().fetched == Some(now);
        if has_answered && let Some(kid) = header.kid.as_deref() {
            let mut unknown = self.unknown.lock();
            unknown.retain(|(_, until)| now < *until);
            if unknown.len() == UNKNOWN_IDS {
                unknown.remove(0);
            }
            unknown.push((kid.into(), now.plus(UNKNOWN_FOR)));
        }
        AuthRefusal::Invalid(TokenFault::Key)
    }

    /// Fetches the keys if most of their time is over.
    pub(crate) async fn refresh(self: &Arc<Self>, now: UnixSeconds) {
        let is_due = self.keys.read().is_due(now);
        if !is_due || self.settings.keys == KeySource::None && self.introspection_url.read().is_some() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.one_at_a_time).acquire_owned().await else { return };
        let pause = if self.keys.read().is_usable(now) { MIN_LIFETIME } else { FIRST_COOLDOWN };
        if self.tried.lock().is_some_and(|tried| now < tried.plus(pause) && tried <= now) {
            return;
        }
        self.fetch(permit, now).await;
    }

    /// Fetches the keys in a task of its own: a client that hangs up must not leave a fetch behind that was begun and counts
    /// as one, though its answer was not taken.
    async fn fetch(self: &Arc<Self>, permit: OwnedSemaphorePermit, now: UnixSeconds) {
        let issuer = Arc::clone(self);
        #[expect(clippy::disallowed_methods, reason = "it ends by its own timeout, and one runs at a time")]
        let fetching = tokio::spawn(async move {
            issuer.fetch_now(now).await;
            drop(permit);
        });
        drop(fetching.await);
    }

    /// Fetches the keys. A failure leaves those at hand as they are.
    async fn fetch_now(&self, now: UnixSeconds) {
        *self.tried.lock() = Some(now);
        self.fetches.fetch_add(1, Ordering::Release);
        // One bound for metadata and keys together: requests may wait for this.
        let loaded = tokio::time::timeout(TIMEOUT, self.load()).await;
        match loaded.unwrap_or(Err(FetchError::Content("did not answer in time"))) {
            Ok((keys, lifetime)) => {
                let is_other = self.keys.read().keys != keys;
                *self.keys.write() = Arc::new(KeySet { keys, fetched: Some(now), lifetime });
                self.unknown.lock().clear();
                if is_other {
                    self.generation.grow();
                }
            }
            Err(error) => {
                let issuer = &self.settings.name;
                tracing::warn!(
                    issuer,
                    error = &error as &dyn std::error::Error,
                    "could not get the issuer's keys"
                );
            }
        }
    }

    async fn load(&self) -> Result<(Vec<IssuerKey>, Duration), FetchError> {
        let (body, max_age) = match &self.settings.keys {
            KeySource::File(path) => {
                if is_writable_by_others(path) {
                    return Err(FetchError::Content("other users can write the file of its keys"));
                }
                (tokio::fs::read(path).await.map_err(FetchError::File)?, None)
            }
            KeySource::Url(url) => {
                let fetched = self.fetcher.get(url).await?;
                (fetched.body, fetched.max_age)
            }
            KeySource::Discovery => {
                let metadata = self.discover().await?;
                let url = metadata.jwks_uri.ok_or(FetchError::Content("its metadata has no jwks_uri"))?;
                let fetched = self.fetcher.get(&url).await?;
                (fetched.body, fetched.max_age)
            }
            KeySource::None => {
                self.discover().await?;
                return Ok((Vec::new(), MAX_LIFETIME));
            }
        };
        let keys = jwk::read_set(&body).ok_or(FetchError::Content("its key set cannot be read"))?;
        if keys.is_empty() {
            return Err(FetchError::Content("its key set has no key that can be used"));
        }
        Ok((keys, max_age.unwrap_or(DEFAULT_LIFETIME).clamp(MIN_LIFETIME, MAX_LIFETIME)))
    }

    /// The issuer's metadata.
    async fn discover(&self) -> Result<ServerMetadata, FetchError> {
        let metadata = ServerMetadata::discover(&self.fetcher, &self.settings.issuer).await?;
        if self.settings.introspection.as_ref().is_some_and(|settings| settings.url.is_none()) {
            self.introspection_url.write().clone_from(&metadata.introspection_endpoint);
        }
        Ok(metadata)
    }

    pub(crate) fn introspection_url(&self) -> Option<String> {
        self.introspection_url.read().clone()
    }

    pub(crate) fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }
}
