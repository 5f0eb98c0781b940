//! The operations of operators on one store: list, show, revoke, export, import, back up.
//!
//! Inside a server it also knows the sessions in memory, and leaves changes of those to the runtime. Inside a command
//! it has the store for itself. Every failure is written for people; the control socket passes it on as it is.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_auth::Authenticator;
use tenure_layers::data::KindOfState;
use tenure_layers::limited::{CallLimits, PrincipalLimits};
use tenure_protocol::{Error, Reason};
use tenure_session::budget::Budget;
use tenure_session::exchange::Exchanges;
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::port::store::{RecordKey, Space, Store, StoreError};
use tenure_session::record::{EndCause, StoredSession};
use tenure_session::session::{self, Changes, Existing, NotAdopted, SavedSession, Sessions};
use tenure_session::settings::Settings;
use tenure_session::supervise::{LoopInfo, LoopState};
use tenure_session::{Limits, Principal, SessionKey, task};
use tokio::sync::Semaphore;

use super::calls::{self, CallList};
use super::data::DataOperator;
use super::details;
use super::key::{Prefix, key_text};
use super::saved::Saved;
use super::usage::{self, UsageRow};
use super::view::{Detail, LoopView, Page, SessionRow};
use crate::audit::Audit;
use crate::failure::Failure;
use crate::wire::{self, BackedUp, ByteProgress, OpenedStore, Runtimes};

/// Rows in one page, at most.
pub(super) const PAGE: usize = 500;

/// The name of callers without credentials, for operators.
const ANONYMOUS: &str = "anonymous";

/// The operations of operators on one store.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    store: OpenedStore,
    /// The sessions in memory, inside a server.
    sessions: Option<Sessions>,
    /// The requests without a session, inside a server.
    exchanges: Option<Exchanges>,
    /// What clients make the process hold, inside a server.
    budget: Option<Budget>,
    /// Who verifies credentials, inside a server that asks for some.
    authenticator: Option<Authenticator>,
    /// How much clients may do, inside a server.
    call_limits: Option<CallLimits>,
    /// Who did what, inside a server that records it.
    audit: Option<Arc<Audit>>,
    limits: Arc<Limits>,
    data: DataOperator,
    /// One import at a time: two imports of the same session would interfere.
    importing: Arc<Semaphore>,
    /// One backup at a time, because a backup uses all of the disk's bandwidth.
    backing_up: Arc<Semaphore>,
}

/// The result of revoking a session.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Revoked {
    /// It was alive, and has ended now.
    Now,
    /// It had ended before, in this way.
    Before(EndCause),
    /// There is no such session.
    Unknown,
}

impl Operator {
    /// For a store that no server has open.
    pub(crate) fn offline(store: OpenedStore, limits: Limits, data: DataOperator) -> Self {
        let one = || Arc::new(Semaphore::new(1));
        Self {
            store,
            sessions: None,
            exchanges: None,
            budget: None,
            authenticator: None,
            call_limits: None,
            audit: None,
            limits: Arc::new(limits),
            data,
            importing: one(),
            backing_up: one(),
        }
    }

    /// For a running server.
    pub(crate) fn online(server: &Runtimes, kinds: Vec<KindOfState>) -> Self {
        let Runtimes { sessions, exchanges, states, store, auth, limits: limiting, audit, .. } =
            server.clone();
        let limits = sessions.limits().clone();
        let (sessions, exchanges, call_limits) = (Some(sessions), Some(exchanges), Some(limiting.calls));
        let authenticator = auth.map(|auth| auth.authenticator);
        Self {
            sessions,
            exchanges,
            authenticator,
            call_limits,
            audit,
            ..Self::offline(store, limits, DataOperator::online(states, kinds))
        }
    }

    /// Records what operators do.
    pub(crate) fn audit(&self) -> Option<&Arc<Audit>> {
        self.audit.as_ref()
    }

    /// Adds the counts of what clients make the server hold.
    pub(crate) fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// What clients make the server hold; empty without a server.
    pub(crate) fn usage(&self) -> Vec<UsageRow> {
        self.budget.as_ref().map(usage::usage).unwrap_or_default()
    }

    /// What principals have left of their limits: one of them, or those that did something lately; empty without a server.
    pub(crate) async fn limits_left(&self, principal: Option<&str>) -> Vec<PrincipalLimits> {
        let Some(limits) = &self.call_limits else { return Vec::new() };
        let principal = principal.map(|name| match name {
            ANONYMOUS => Principal::ANONYMOUS,
            name => Principal::named(name),
        });
        limits.show(principal.as_ref(), PAGE).await
    }

    /// The running requests; empty without a server.
    pub(crate) fn calls(&self) -> CallList {
        match &self.sessions {
            Some(sessions) => calls::calls(sessions, self.exchanges.as_ref()),
            None => CallList::default(),
        }
    }

    /// The background loops of the server; empty without a server.
    pub(crate) fn loops(&self) -> Vec<LoopView> {
        let (now, loops) = (now(), self.sessions.as_ref().map(|sessions| sessions.loops().list()));
        let view = |info: LoopInfo| LoopView {
            name: info.name.to_owned(),
            restarts: info.restarts,
            is_down: info.is_down,
            panicked: info.panicked.map(|ago| now.before(ago).0),
        };
        loops.unwrap_or_default().into_iter().map(view).collect()
    }

    /// The same operations on data sessions.
    pub(crate) fn data(&self) -> &DataOperator {
        &self.data
    }

    /// Sessions in the order of their keys, after one of them.
    pub(crate) async fn page(
        &self,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<Page<SessionRow>, Failure> {
        let limit = limit.clamp(1, PAGE);
        let records = self.store.store.list(Space::Session, after, limit).await.map_err(cannot_read)?;
        let next = records.last().filter(|_| records.len() == limit).map(|(key, _)| key_text(key));
        let now = now();
        let row = |(key, record)| details::row(&key, &record, self.info(&key).as_ref(), now);
        Ok(Page { rows: records.into_iter().map(row).collect(), next })
    }

    /// Sessions whose keys begin with these digits.
    pub(crate) async fn matching(&self, prefix: &Prefix, limit: usize) -> Result<Page<SessionRow>, Failure> {
        let mut page = self.page(prefix.before(), limit).await?;
        let found = page.rows.len();
        page.rows.retain(|row| row.key.starts_with(prefix.digits()));
        page.next = page.next.filter(|_| page.rows.len() == found);
        Ok(page)
    }

    /// Everything about one session.
    pub(crate) async fn show(&self, key: SessionKey) -> Result<Option<Detail>, Failure> {
        let store = &self.store.store;
        let Some(record) = store.get(RecordKey::session(key)).await.map_err(cannot_read)? else {
            return Ok(None);
        };
        let survey = store.survey(key).await.map_err(cannot_read)?;
        let live = self.info(&key);
        let trouble = [
            store.trouble().map(|trouble| format!("the store is in trouble: {}", trouble.what)),
            self.fallen(),
        ];
        let trouble = trouble.into_iter().flatten().collect();
        Ok(Some(details::detail(&key, &record, live.as_ref(), &survey, trouble, now())))
    }

    /// Ends a session.
    pub(crate) async fn revoke(&self, key: SessionKey) -> Result<Revoked, Failure> {
        let failed = |error: &dyn std::error::Error| {
            Failure::new(format!("cannot revoke {}", key.label())).caused_by(error)
        };
        let store = self.store.store.as_ref();
        let ended = match &self.sessions {
            Some(sessions) => sessions.revoke(&key).await.map_err(|error: Error| failed(&error)),
            None => {
                let ttl = self.limits.tombstone_ttl;
                session::revoke(store, key, now(), ttl).await.map_err(|error| failed(&error))
            }
        };
        if ended? {
            return Ok(Revoked::Now);
        }
        let record = store.get(RecordKey::session(key)).await.map_err(cannot_read)?;
        match record.map(|record| StoredSession::decode(&record.value)) {
            Some(Ok(StoredSession::Tombstone(tombstone))) => Ok(Revoked::Before(tombstone.end)),
            Some(Err(error)) => Err(failed(&error)),
            Some(Ok(StoredSession::Session(_))) | None => Ok(Revoked::Unknown),
        }
    }

    /// Changes the settings of a session and returns all of them; `None` if the session does not exist or has ended.
    pub(crate) async fn annotate(
        &self,
        key: SessionKey,
        changes: &Changes,
    ) -> Result<Option<Settings>, Failure> {
        let annotated = match &self.sessions {
            Some(sessions) => sessions.annotate(&key, changes).await,
            None => {
                let store = self.store.store.as_ref();
                session::annotate(store, key, changes, &self.limits, now()).await
            }
        };
        annotated.map_err(|error| {
            let failure = Failure::new(format!("cannot change {}", key.label())).caused_by(&error);
            match error.reason() {
                Reason::MetadataTooLarge => failure
                    .hint("remove something with `key:=null`, or let `session.max_metadata` allow for more"),
                _ => failure,
            }
        })
    }

    /// A session as it goes into a file.
    pub(crate) async fn export(&self, key: SessionKey) -> Result<Option<Saved>, Failure> {
        let store = self.store.store.as_ref();
        // The events first: then the record may be slightly newer than the events, which is harmless.
        let log = wire::save_log(store, key).await.map_err(cannot_read)?;
        let Some(record) = store.get(RecordKey::session(key)).await.map_err(cannot_read)? else {
            return Ok(None);
        };
        let saved = SavedSession { key, record: record.value, deadline: record.deadline, log };
        let saved = Saved::of(&saved).map_err(|error| {
            Failure::new(format!("cannot export {}", key.label()))
                .caused_by(error)
                .hint("name the sessions to export, and leave this one out")
        })?;
        Ok(Some(saved))
    }

    /// Puts a session from a file into the store.
    pub(crate) async fn import(&self, saved: Saved, existing: Existing) -> Result<(), Failure> {
        let label = saved.key().map_or_else(|| "a session".to_owned(), |key| key.label());
        let failed = Failure::new(format!("cannot import {label}"));
        let session = match saved.check() {
            Ok(session) => session,
            Err(error) => return Err(failed.caused_by(error)),
        };
        let _alone = self.importing.acquire().await;
        let adopted = match &self.sessions {
            Some(sessions) => sessions.adopt(session, existing).await,
            None => session::adopt(self.store.store.as_ref(), session, existing, now()).await.map(drop),
        };
        adopted.map_err(|error| match error {
            NotAdopted::Exists => {
                failed.caused_by(&error).hint("put it in the place of that one with `--replace`")
            }
            NotAdopted::Awake => {
                failed.caused_by(&error).hint("revoke it first, or stop the server and import again")
            }
            _ => failed.caused_by(&error),
        })
    }

    /// Copies the whole store into a folder while it is in use.
    pub(crate) async fn backup(
        &self,
        to: &Path,
        mut progress: impl FnMut(ByteProgress) + Send + 'static,
    ) -> Result<BackedUp, Failure> {
        let Ok(alone) = Arc::clone(&self.backing_up).try_acquire_owned() else {
            return Err(Failure::new("another backup is under way").hint("wait for it to end"));
        };
        let progress = move |stage| {
            // The permit lives as long as the copy, which goes on even if the caller is gone.
            let _ = &alone;
            progress(stage);
        };
        wire::backup(&self.store, to, progress).await
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.store.store.as_ref()
    }

    pub(super) fn authenticator(&self) -> Option<&Authenticator> {
        self.authenticator.as_ref()
    }

    /// The sessions of a principal in memory; none without a server.
    pub(super) fn awake_sessions_of(&self, owner: &Principal) -> Vec<SessionKey> {
        self.sessions.as_ref().map(|sessions| sessions.awake_of(owner)).unwrap_or_default()
    }

    /// Ends the requests without a session of a principal. Returns how many there were.
    pub(super) fn end_calls_of(&self, owner: &Principal) -> usize {
        self.exchanges.as_ref().map_or(0, |exchanges| exchanges.revoke(owner))
    }

    /// Cancels the tasks of a principal that no process works on. Returns how many there were.
    pub(super) async fn cancel_tasks_of(&self, owner: &Principal) -> Result<usize, StoreError> {
        match &self.exchanges {
            Some(exchanges) => exchanges.cancel_tasks_left(owner).await,
            None => task::cancel_left(self.store(), owner, |_| false, now()).await,
        }
    }

    /// What is wrong with the server's background loops, in words.
    fn fallen(&self) -> Option<String> {
        match self.sessions.as_ref()?.loops().state() {
            LoopState::Well => None,
            LoopState::Restarted(words) | LoopState::Down(words) => {
                Some(format!("the server itself is in trouble: {words}"))
            }
        }
    }

    pub(super) fn info(&self, key: &SessionKey) -> Option<session::SessionInfo> {
        self.sessions.as_ref()?.info(key)
    }
}

/// The system's time of day: operators compare the times that they see with it.
pub(crate) fn now() -> Time {
    SystemClock.now()
}

pub(super) fn cannot_read(error: StoreError) -> Failure {
    Failure::new("cannot read the store").caused_by(error)
}
