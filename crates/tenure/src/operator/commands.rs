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
use tenure_session::id::Position;
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::port::members::Member;
use tenure_session::port::store::{ReadLimit, RecordKey, Space, Store, StoreError, StreamEvents};
use tenure_session::record::{EndCause, StoredSession};
use tenure_session::session::{self, Changes, Existing, NotAdopted, SavedSession, Sessions};
use tenure_session::settings::Settings;
use tenure_session::supervise::{LoopInfo, LoopState};
use tenure_session::{Limits, Principal, SessionKey, StreamId, task};
use tokio::sync::Semaphore;

use super::calls::{self, CallList, CallRow};
use super::data::DataOperator;
use super::details;
use super::extent::{Extent, StoreLook};
use super::key::key_text;
use super::nodes::{Known, MissingNode, Others};
use super::principals::ListedTask;
use super::saved::Saved;
use super::usage::{self, UsageRow};
use super::view::{Detail, Found, ListedSession, LoopView, Page, SessionRow};
use crate::audit::Audit;
use crate::failure::Failure;
use crate::wire::{self, BackedUp, ByteProgress, Engine, OpenedStore, Runtimes};

/// Rows in one page, at most.
pub(super) const PAGE: usize = 500;

/// The name of callers without credentials, for operators.
pub(super) const ANONYMOUS: &str = "anonymous";

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
    /// Who verifies credentials, inside a server that asks for some: of clients, and of operators.
    authenticators: Vec<Authenticator>,
    /// How much clients may do, inside a server.
    call_limits: Option<CallLimits>,
    /// Who did what, inside a server that records it.
    audit: Option<Arc<Audit>>,
    /// The other nodes, inside a node of a cluster.
    others: Option<Others>,
    /// The revocations that this process knows of.
    known: Known,
    /// The engine that the sessions are kept on, if they are.
    engine: Option<Engine>,
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
            authenticators: Vec::new(),
            call_limits: None,
            audit: None,
            others: None,
            known: Known::default(),
            engine: None,
            limits: Arc::new(limits),
            data,
            importing: one(),
            backing_up: one(),
        }
    }

    /// For a running server.
    pub(crate) fn online(server: &Runtimes, kinds: Vec<KindOfState>) -> Self {
        let Runtimes { sessions, exchanges, states, store, auth, limits: limiting, audit, cluster, .. } =
            server.clone();
        let limits = sessions.limits().clone();
        let (sessions, exchanges, call_limits) = (Some(sessions), Some(exchanges), Some(limiting.calls));
        let authenticators = auth.map(|auth| auth.authenticator).into_iter().collect();
        Self {
            sessions,
            exchanges,
            authenticators,
            call_limits,
            audit,
            others: cluster.map(|cluster| Others::new(cluster.roster, cluster.relay)),
            ..Self::offline(store, limits, DataOperator::online(states, kinds))
        }
    }

    /// The same for one operation, which notes the nodes that do not answer.
    pub(crate) fn for_one(&self) -> Self {
        Self { others: self.others.as_ref().map(Others::for_one), ..self.clone() }
    }

    /// The nodes that did not answer in this operation.
    pub(crate) fn missing_nodes(&self) -> Vec<MissingNode> {
        self.others.as_ref().map(Others::missing).unwrap_or_default()
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

    /// Adds another one that hears of revoked principals.
    pub(crate) fn with_authenticator(mut self, authenticator: Option<Authenticator>) -> Self {
        self.authenticators.extend(authenticator);
        self
    }

    /// Says which engine the sessions are kept on.
    pub(crate) fn with_engine(mut self, engine: Option<Engine>) -> Self {
        self.engine = engine;
        self
    }

    /// The engine that the sessions are kept on, if they are.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
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

    /// The running requests that belong to no session; empty without a server. Costs nothing for those that do.
    pub(crate) fn calls_without_session(&self) -> Vec<CallRow> {
        calls::without_session(self.exchanges.as_ref())
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

    /// Sessions in the order of their keys, after one of them, as far as this process knows them.
    pub(super) async fn page_here(
        &self,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<Page<SessionRow>, Failure> {
        let limit = limit.clamp(1, PAGE);
        let records = self.store.store.list(Space::Session, after, limit).await.map_err(cannot_read)?;
        let next = records.last().filter(|_| records.len() == limit).map(|(key, _)| key_text(key));
        let (now, own) = (now(), self.own_node());
        let row = |(key, record)| {
            let live = self.info(&key);
            let row = details::row(&key, &record, live.as_ref(), now);
            SessionRow { node: live.and_then(|_| own.clone()), ..row }
        };
        Ok(Page { rows: records.into_iter().map(row).collect(), next })
    }

    /// Everything about one session, as far as this process knows it.
    pub(super) async fn show_here(&self, key: SessionKey) -> Result<Option<Detail>, Failure> {
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
        let mut detail = details::detail(&key, &record, live.as_ref(), &survey, trouble, now());
        detail.row.node = live.and_then(|_| self.own_node());
        Ok(Some(detail))
    }

    /// Ends a session that is here or dormant.
    pub(super) async fn revoke_here(&self, key: SessionKey) -> Result<Revoked, Failure> {
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

    /// Changes the settings of a session that is here or dormant.
    pub(super) async fn annotate_here(
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
        self.check_alone().await?;
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

    pub(super) fn others(&self) -> Option<&Others> {
        self.others.as_ref()
    }

    pub(super) fn known(&self) -> &Known {
        &self.known
    }

    /// How many sessions are in memory; none without a server.
    pub(super) fn awake_count(&self) -> usize {
        self.sessions.as_ref().map_or(0, Sessions::awake)
    }

    /// This node's name, in a cluster.
    fn own_node(&self) -> Option<String> {
        self.others.as_ref().map(|others| format!("{:?}", others.roster().node()))
    }

    /// Whether this is in a server.
    pub(super) fn is_online(&self) -> bool {
        self.sessions.is_some()
    }

    /// The records of the nodes that share the store.
    pub(super) async fn member_records(&self) -> Result<Vec<Member>, StoreError> {
        match &self.store.members {
            Some(members) => members.members().await,
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.store.store.as_ref()
    }

    pub(super) fn authenticators(&self) -> &[Authenticator] {
        &self.authenticators
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

    /// The sessions in memory; none without a server.
    pub(super) fn awake(&self) -> Vec<session::SessionInfo> {
        self.sessions.as_ref().map(Sessions::list).unwrap_or_default()
    }

    /// How many sessions there are, awake and dormant, as far as a server has counted them.
    pub(super) fn session_count(&self) -> Option<usize> {
        self.sessions.as_ref().map(|sessions| sessions.tallies().sessions)
    }

    /// A session in memory with what looks wrong with it.
    pub(crate) fn listed(&self, key: &SessionKey) -> Option<ListedSession> {
        let live = self.info(key)?;
        Some(details::listed(details::live_row(&live), Some(&live), now()))
    }

    /// Kept events of one stream of a session, after a position.
    pub(crate) async fn events(
        &self,
        key: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Result<StreamEvents, Failure> {
        self.store.store.read(key, stream, after, limit).await.map_err(cannot_read)
    }

    /// Tasks, the newest first, as many as asked for, of those that one answer looks at.
    pub(crate) async fn tasks(&self, limit: usize) -> Result<Found<ListedTask>, Failure> {
        let (mut tasks, mut look) = (Vec::new(), StoreLook::begin(Extent::Share));
        let goes_on = |read| {
            look.count(read);
            look.goes_on()
        };
        task::each(self.store(), now(), |task| tasks.push(task), goes_on).await.map_err(cannot_read)?;
        tasks.sort_by_key(|task| std::cmp::Reverse(task.created));
        tasks.truncate(limit);
        let rows = tasks.into_iter().map(ListedTask::of).collect();
        Ok(Found { rows, next: None, looked_at: look.cut_at(), of: None })
    }

    /// What is wrong with the server's background loops, in words.
    pub(crate) fn fallen(&self) -> Option<String> {
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
