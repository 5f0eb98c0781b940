//! Puts the ways of proving an identity together.
//!
//! The usual request has a verdict already: that of the request before on its connection, which costs a comparison, or one
//! that is found by a hash and a look-up. Otherwise its credentials are verified by what they look like: `tnr_…` is a static key, three parts with dots are a signed token of the issuer that it names, anything
//! else is an opaque token, about which the issuers are asked that can be asked.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::certificate::ClientCertificate;
use crate::claims::{Claims, Confirmation};
use crate::dpop::{self, ProofOf, Proofs};
use crate::fetch::Fetcher;
use crate::generation::Generation;
use crate::identity::Identity;
use crate::introspection::Introspection;
use crate::issuer::{Issuer, IssuerSettings, IssuerStatus, KeySource};
use crate::jws::Compact;
use crate::keys::{self, ApiKeyFile, ApiKeyFileError, FileStamp, KeyInfo, Keys};
use crate::last_shown::LastShown;
use crate::observer::{CredentialEvent, CredentialObserver, CredentialObserverPlace};
use crate::outgoing::{CallerName, SubjectTokens};
use crate::presented::{Credentials, Presented, check_token};
use crate::refusal::{AuthRefusal, TokenFault};
use crate::resource::ProtectedResource;
use crate::revoked::Revoked;
use crate::time::UnixSeconds;
use crate::verdicts::{Good, INTROSPECTED_FOR, Outcome, Verdict, Verdicts};
use crate::vouched::VouchedToken;

/// How often the last uses of keys are written, at most.
const NOTE_USES_EVERY: Duration = Duration::from_secs(60);

/// Which credentials are accepted.
#[derive(Clone, Debug, Default)]
pub struct AuthSettings {
    /// Issuers of tokens.
    pub issuers: Vec<IssuerSettings>,
    /// Static keys.
    pub keys: Option<ApiKeyFile>,
    /// Whether a client certificate alone is an identity.
    pub certificates: bool,
    /// Whether tokens that are bound to a key are accepted with a proof (DPoP).
    pub dpop: bool,
    /// Where tokens of verified callers are lent for token exchange; `None` if nothing exchanges them.
    pub subjects: Option<SubjectTokens>,
}

/// Why an authenticator cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum AuthSettingsError {
    /// The name of an issuer is part of its principals' names.
    #[error(
        "`{0}` cannot be the name of an issuer: use letters, digits, `-` and `_`, and not `key` or `cert`"
    )]
    Name(String),
    /// Two issuers have the same name or the same URL.
    #[error("two issuers are called `{0}`")]
    Twice(String),
    /// Opaque tokens do not say whose they are, and a token of one issuer must not be shown to another.
    #[error("only one issuer can be asked about opaque tokens, and `{0}` is another one")]
    Introspection(String),
    /// There is no URL at which an issuer could be asked.
    #[error("the issuer `{0}` needs `introspection.url`, because its keys do not come from its metadata")]
    IntrospectionUrl(String),
    /// The keys cannot be read.
    #[error(transparent)]
    Keys(#[from] ApiKeyFileError),
    /// The HTTP client cannot be made.
    #[error("could not make a client for issuers")]
    Client(#[source] reqwest::Error),
}

/// Verifies credentials. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Authenticator(Arc<State>);

#[derive(Debug)]
struct State {
    issuers: Vec<Arc<Issuer>>,
    key_file: Option<ApiKeyFile>,
    keys: RwLock<Arc<Keys>>,
    /// The file of keys as it was when it was read. A file that could not be read is tried again.
    keys_read: Mutex<Option<FileStamp>>,
    uses_noted: Mutex<UsesNoted>,
    certificates: bool,
    dpop: bool,
    subjects: Option<SubjectTokens>,
    observer: CredentialObserverPlace,
    proofs: Proofs,
    introspection: Introspection,
    revoked: Revoked,
    verdicts: Verdicts,
    generation: Arc<Generation>,
}

/// When the last uses of keys were written, and the newest of them.
#[derive(Debug, Default)]
struct UsesNoted {
    at: UnixSeconds,
    newest: UnixSeconds,
}

impl Authenticator {
    /// An authenticator with these settings. The builder says what its client for issuers trusts.
    pub fn new(settings: AuthSettings, client: reqwest::ClientBuilder) -> Result<Self, AuthSettingsError> {
        check_names(&settings.issuers)?;
        let fetcher = Fetcher::new(client).map_err(AuthSettingsError::Client)?;
        let generation = Arc::<Generation>::default();
        let issuer = |issuer| Arc::new(Issuer::new(issuer, fetcher.clone(), Arc::clone(&generation)));
        let issuers = settings.issuers.into_iter().map(issuer).collect();
        let state = State {
            issuers,
            key_file: settings.keys,
            keys: RwLock::default(),
            keys_read: Mutex::default(),
            uses_noted: Mutex::default(),
            certificates: settings.certificates,
            dpop: settings.dpop,
            subjects: settings.subjects,
            observer: CredentialObserverPlace::default(),
            proofs: Proofs::default(),
            introspection: Introspection::default(),
            revoked: Revoked::default(),
            verdicts: Verdicts::default(),
            generation,
        };
        let authenticator = Self(Arc::new(state));
        authenticator.read_keys()?;
        Ok(authenticator)
    }

    /// The same, with a client for issuers that trusts what the operating system trusts.
    pub fn with_system_trust(settings: AuthSettings) -> Result<Self, AuthSettingsError> {
        Self::new(settings, reqwest::Client::builder())
    }

    /// Verifies the credentials of a request to this resource. Waits only for an issuer that has to be asked.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn verify(
        &self,
        presented: &Presented<'_>,
        resource: &ProtectedResource,
        now: UnixSeconds,
    ) -> Result<Arc<Identity>, AuthRefusal> {
        let Some(credentials) = presented.credentials else { return self.by_certificate(presented, now) };
        let (Credentials::Bearer(token) | Credentials::Dpop { token, .. }) = credentials;
        let verdict = self.verdict(token, presented.last, resource, now).await?;
        let good = verdict.outcome.as_ref().map_err(AuthRefusal::clone)?;
        if let Some(key) = &good.key {
            key.used(now);
        }
        self.check_binding(good, credentials, presented, resource, now)?;
        if let Some(subjects) = &self.0.subjects {
            subjects.lend(&good.identity, token);
        }
        Ok(Arc::clone(&good.identity))
    }

    /// The verdict about a token or key: of this connection, of those that were seen lately, or a new one.
    ///
    /// # Errors
    /// When the text cannot be a token.
    async fn verdict(
        &self,
        token: &str,
        last: Option<&LastShown>,
        resource: &ProtectedResource,
        now: UnixSeconds,
    ) -> Result<Arc<Verdict>, AuthRefusal> {
        // Read before the verdict is looked for: what is taken back meanwhile is noticed with the next request.
        let generation = self.0.generation.number();
        let shown = last.and_then(|last| last.verdict(&self.0.generation, resource, token));
        if let Some(verdict) = shown.filter(|verdict| verdict.counts(generation, now)) {
            return Ok(verdict);
        }
        check_token(token)?;
        let key = Verdicts::key(resource, token);
        let verdict = match self.0.verdicts.get(&key, generation, now) {
            Some(verdict) => verdict,
            None => {
                let outcome = self.judge(token, resource, now).await;
                self.0.verdicts.keep(key, outcome, generation, now)
            }
        };
        if let Some(last) = last {
            last.saw(&self.0.generation, resource, token, &verdict);
        }
        Ok(verdict)
    }

    /// A request without other credentials may be let in by its certificate.
    fn by_certificate(
        &self,
        presented: &Presented<'_>,
        now: UnixSeconds,
    ) -> Result<Arc<Identity>, AuthRefusal> {
        let certificate =
            presented.certificate.filter(|_| self.0.certificates).ok_or(AuthRefusal::Missing)?;
        let identity = certificate.identity();
        // The handshake has checked it, perhaps long ago: connections stay open, and resume without another check.
        if identity.expires() <= now {
            return Err(AuthRefusal::Invalid(TokenFault::Expired));
        }
        match self.0.revoked.contains(identity) {
            true => Err(AuthRefusal::Invalid(TokenFault::Revoked)),
            false => Ok(Arc::clone(identity)),
        }
    }

    /// Waits until credentials that were good have been taken back: their principal was revoked, or their static key is no
    /// longer in the file. For connections that outlive the request that opened them.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn taken_back(&self, identity: &Identity) {
        self.0.generation.until(|| self.is_taken_back(identity)).await;
    }

    /// Whether credentials that were good have been taken back.
    pub fn is_taken_back(&self, identity: &Identity) -> bool {
        let is_gone = || identity.key().is_some_and(|key| !self.0.keys.read().has(key));
        self.0.revoked.contains(identity) || is_gone()
    }

    /// A number that grows whenever good credentials may have been taken back.
    pub fn generation(&self) -> u64 {
        self.0.generation.number()
    }

    /// Verifies a token or key that has no verdict.
    async fn judge(&self, token: &str, resource: &ProtectedResource, now: UnixSeconds) -> Outcome {
        let good = if keys::is_key(token) {
            let keys = Arc::clone(&self.0.keys.read());
            let (identity, key) = keys.identity(token, now).map_err(AuthRefusal::Invalid)?;
            Good { key: Some(key), ..Good::new(identity) }
        } else {
            match Compact::read(token) {
                Some(compact) => self.signed(&compact, resource, now).await?,
                None => self.opaque(token, resource, now).await?,
            }
        };
        match self.0.revoked.contains(&good.identity) {
            true => Err(AuthRefusal::Invalid(TokenFault::Revoked)),
            false => Ok(good),
        }
    }

    /// A signed token. Its issuer is looked up by what it claims, and only that issuer's keys are tried.
    async fn signed(&self, compact: &Compact<'_>, resource: &ProtectedResource, now: UnixSeconds) -> Outcome {
        let claims = Claims::read(&compact.payload).map_err(AuthRefusal::Invalid)?;
        let issuer =
            self.0.issuers.iter().find(|issuer| claims.iss.as_deref() == Some(&issuer.settings.issuer));
        let issuer = issuer.ok_or(AuthRefusal::Invalid(TokenFault::Issuer))?;
        issuer.check_signature(compact, now).await?;
        let is_typed =
            compact.header.typ.as_deref().is_some_and(|typ| typ.to_ascii_lowercase().ends_with("at+jwt"));
        if !is_typed && claims.is_id_token() {
            return Err(AuthRefusal::Invalid(TokenFault::Type));
        }
        let identity =
            claims.identity(&issuer.settings, resource, true, now).map_err(AuthRefusal::Invalid)?;
        Ok(Good { bound: claims.confirmation().cloned().map(Arc::new), ..Good::new(identity) })
    }

    /// An opaque token, about which the one issuer is asked that can be asked.
    async fn opaque(&self, token: &str, resource: &ProtectedResource, now: UnixSeconds) -> Outcome {
        let issuer = self.0.issuers.iter().find(|issuer| issuer.settings.introspection.is_some());
        let issuer = issuer.ok_or(AuthRefusal::Invalid(TokenFault::Unknown))?;
        let claims = self.0.introspection.claims(issuer, token, now).await?;
        let identity =
            claims.identity(&issuer.settings, resource, false, now).map_err(AuthRefusal::Invalid)?;
        let bound = claims.confirmation().cloned().map(Arc::new);
        Ok(Good { bound, counts_for: INTROSPECTED_FOR, ..Good::new(identity) })
    }

    /// A token that is bound to a key or a certificate is good only with the proof, and a proof is good only for a token
    /// that is bound.
    fn check_binding(
        &self,
        good: &Good,
        credentials: Credentials<'_>,
        presented: &Presented<'_>,
        resource: &ProtectedResource,
        now: UnixSeconds,
    ) -> Result<(), AuthRefusal> {
        if good.bound.is_none() && matches!(credentials, Credentials::Bearer(_)) {
            return Ok(());
        }
        let unproven = Err(AuthRefusal::Invalid(TokenFault::Proof));
        let nothing = Confirmation::default();
        let bound = good.bound.as_deref().unwrap_or(&nothing);
        // A binding that we do not know, or that names nothing, cannot be proven.
        let is_empty = good.bound.is_some() && bound.jkt.is_none() && bound.certificate.is_none();
        if is_empty || !bound.others.is_empty() {
            return unproven;
        }
        if let Some(expected) = &bound.certificate {
            let valid = presented.certificate.filter(|shown| shown.identity().expires() > now);
            if valid.map(ClientCertificate::thumbprint) != Some(expected) {
                return unproven;
            }
        }
        match (&bound.jkt, credentials) {
            (None, Credentials::Bearer(_)) => Ok(()),
            (Some(key), Credentials::Dpop { token, proof }) if self.0.dpop => {
                let asked = resource.uri_of(presented.path);
                let of = ProofOf { token, method: presented.method, uris: [resource.uri(), &asked], key };
                self.0.proofs.check(proof, &of, now)
            }
            _ => unproven,
        }
    }

    /// The token that a caller has shown here, for the process of ours that serves its request. `None` if no server behind gets
    /// tokens in exchange for those of callers, or the token has expired.
    pub fn vouched_token(&self, identity: &Identity, now: UnixSeconds) -> Option<VouchedToken> {
        let subject = self.0.subjects.as_ref()?.of(&CallerName::of(identity), now)?;
        Some(VouchedToken::new(&subject.token, subject.expires))
    }

    /// Lends the token of a caller that another process of ours has verified.
    pub fn lend_vouched(&self, identity: &Identity, token: &VouchedToken) {
        let Some(subjects) = &self.0.subjects else { return };
        subjects.lend_until(identity, token.expose(), token.expires());
        // A revocation may have come between the check of the identity and this.
        if self.is_taken_back(identity) {
            subjects.forget(identity.principal());
        }
    }

    /// Tells this observer what happens to credentials from now on. A second one is dropped.
    pub fn observed_by(&self, observer: Arc<dyn CredentialObserver>) {
        if let Some(subjects) = &self.0.subjects {
            subjects.observer().set(Arc::clone(&observer));
        }
        self.0.observer.set(observer);
    }

    /// Refuses credentials issued to this principal until now. Returns when verdicts about it are gone.
    pub fn revoke(&self, principal: &str, until: UnixSeconds) {
        self.0.revoked.add(principal, until);
        if let Some(subjects) = &self.0.subjects {
            subjects.forget(principal);
        }
        self.forget_verdicts();
    }

    /// Takes a revocation back.
    pub fn reinstate(&self, principal: &str) {
        self.0.revoked.remove(principal);
        self.forget_verdicts();
    }

    fn forget_verdicts(&self) {
        self.0.generation.grow();
    }

    /// Does what is due in the background: fetches the keys of issuers before they are too old, reads the file of static
    /// keys if it was changed, and notes when keys were used. To be called every second or two.
    pub async fn refresh(&self, now: UnixSeconds) {
        self.reread_keys();
        self.note_uses(now);
        for issuer in &self.0.issuers {
            issuer.refresh(now).await;
        }
    }

    fn reread_keys(&self) {
        let Some(file) = &self.0.key_file else { return };
        if *self.0.keys_read.lock() == file.stamp() {
            return;
        }
        if let Err(error) = self.read_keys() {
            // The keys at hand go on: a file that is half written must not lock its users out.
            tracing::warn!(error = &error as &dyn std::error::Error, "could not read the keys again");
        }
    }

    /// Writes the last uses of keys beside their file, for `tenure keys list`, at most once a minute.
    fn note_uses(&self, now: UnixSeconds) {
        let Some(file) = &self.0.key_file else { return };
        let keys = Arc::clone(&self.0.keys.read());
        let newest = keys.newest_use();
        let mut noted = self.0.uses_noted.lock();
        if newest <= noted.newest || now < noted.at.plus(NOTE_USES_EVERY) {
            return;
        }
        *noted = UsesNoted { at: now, newest };
        if let Err(error) = file.note_uses(&keys.last_uses()) {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "could not note when keys were last used"
            );
        }
    }

    /// Reads the file of static keys. If that fails, the keys at hand go on.
    pub fn read_keys(&self) -> Result<(), ApiKeyFileError> {
        let Some(file) = &self.0.key_file else { return Ok(()) };
        // Held all the time, so that of two readers the later one has the last word.
        let mut stamp = self.0.keys_read.lock();
        let found = file.stamp();
        let infos = file.list()?;
        let before = Arc::clone(&self.0.keys.read());
        let new = Arc::new(Keys::new(infos, &before));
        *self.0.keys.write() = Arc::clone(&new);
        *stamp = found;
        drop(stamp);
        self.forget_verdicts();
        for name in new.names_without(&before) {
            self.0.observer.tell(CredentialEvent::KeyAdded { name });
        }
        for name in before.names_without(&new) {
            self.0.observer.tell(CredentialEvent::KeyRemoved { name });
        }
        Ok(())
    }

    /// The static keys, and when each was last used by a request to this process.
    pub fn keys(&self) -> Vec<(KeyInfo, Option<UnixSeconds>)> {
        self.0.keys.read().last_uses()
    }

    /// How the issuers are doing.
    pub fn issuers(&self) -> Vec<IssuerStatus> {
        self.0.issuers.iter().map(|issuer| issuer.status()).collect()
    }

    /// The URLs of the issuers, for the metadata of a resource.
    pub fn issuer_urls(&self) -> Vec<String> {
        self.0.issuers.iter().map(|issuer| issuer.settings.issuer.clone()).collect()
    }

    /// The algorithms of proofs, for the metadata of a resource. Empty if proofs are not accepted.
    pub fn proof_algorithms(&self) -> Vec<&'static str> {
        match self.0.dpop {
            true => dpop::ALGORITHMS.iter().map(|algorithm| algorithm.as_str()).collect(),
            false => Vec::new(),
        }
    }
}

fn check_names(issuers: &[IssuerSettings]) -> Result<(), AuthSettingsError> {
    for (number, issuer) in issuers.iter().enumerate() {
        let name = &issuer.name;
        let is_plain =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        if !is_plain || name == "key" || name == "cert" {
            return Err(AuthSettingsError::Name(name.clone()));
        }
        let others = &issuers[..number];
        if others.iter().any(|other| other.name == *name || other.issuer == issuer.issuer) {
            return Err(AuthSettingsError::Twice(name.clone()));
        }
        let Some(introspection) = &issuer.introspection else { continue };
        if others.iter().any(|other| other.introspection.is_some()) {
            return Err(AuthSettingsError::Introspection(name.clone()));
        }
        let has_metadata = matches!(issuer.keys, KeySource::Discovery | KeySource::None);
        if introspection.url.is_none() && !has_metadata {
            return Err(AuthSettingsError::IntrospectionUrl(name.clone()));
        }
    }
    Ok(())
}
