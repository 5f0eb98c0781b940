//! Everything that operators do, on one store: list, show, revoke, export, import, back up.
//!
//! Inside a server it knows the sessions in memory too, and leaves those to the runtime. Inside a command it has
//! the store for itself. Every failure is one for people; the control socket passes it on as it is.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_protocol::{Error, Reason};
use tenure_session::budget::Budget;
use tenure_session::exchange::Exchanges;
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::port::store::{RecordKey, Space, StoreError};
use tenure_session::record::{End, Kept};
use tenure_session::session::{self, Changes, Existing, NotAdopted, SavedSession, Sessions, Settings};
use tenure_session::supervise::{LoopInfo, LoopState};
use tenure_session::{Limits, SessionKey};
use tokio::sync::Semaphore;

use super::calls::{self, Calls};
use super::data::DataDesk;
use super::key::{Prefix, key_text};
use super::look;
use super::saved::Saved;
use super::usage::{self, UsageRow};
use super::view::{Detail, LoopView, Row};
use crate::failure::Failure;
use crate::wire::{self, BackedUp, Opened, Stage};

/// Rows in one page, at most.
const PAGE: usize = 500;

/// Does what operators ask for.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    store: Opened,
    /// The sessions in memory, inside a server.
    sessions: Option<Sessions>,
    /// The requests without a session, inside a server.
    exchanges: Option<Exchanges>,
    /// What clients make it hold, inside a server.
    budget: Option<Budget>,
    limits: Arc<Limits>,
    data: DataDesk,
    /// One import at a time: two of the same session would get in each other's way.
    importing: Arc<Semaphore>,
    /// One backup at a time, because each of them takes the disk for itself.
    backing_up: Arc<Semaphore>,
}

/// Some rows, in the order of their keys.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Row>,
    /// Where the next page begins: after this key. Nothing if this was the last.
    #[serde(default)]
    pub(crate) next: Option<String>,
}

/// What came of revoking a session.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Revoked {
    /// It is over now.
    Now,
    /// It was over before, in this way.
    Before(End),
    /// There is none.
    Unknown,
}

impl Operator {
    /// For a store that no server has open.
    pub(crate) fn offline(store: Opened, limits: Limits, data: DataDesk) -> Self {
        let one = || Arc::new(Semaphore::new(1));
        Self {
            store,
            sessions: None,
            exchanges: None,
            budget: None,
            limits: Arc::new(limits),
            data,
            importing: one(),
            backing_up: one(),
        }
    }

    /// For a running server.
    pub(crate) fn online(store: Opened, sessions: Sessions, data: DataDesk) -> Self {
        let limits = sessions.limits().clone();
        Self { sessions: Some(sessions), ..Self::offline(store, limits, data) }
    }

    /// The same, with its requests without a session.
    pub(crate) fn with_exchanges(mut self, exchanges: Exchanges) -> Self {
        self.exchanges = Some(exchanges);
        self
    }

    /// The same, with what its clients make it hold.
    pub(crate) fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// What clients make the server hold; nothing where no server runs.
    pub(crate) fn usage(&self) -> Vec<UsageRow> {
        self.budget.as_ref().map(usage::usage).unwrap_or_default()
    }

    /// What is under way; nothing where no server runs.
    pub(crate) fn calls(&self) -> Calls {
        match &self.sessions {
            Some(sessions) => calls::calls(sessions, self.exchanges.as_ref()),
            None => Calls::default(),
        }
    }

    /// What runs in the background of a server; nothing where none runs.
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

    /// Everything about data sessions.
    pub(crate) fn data(&self) -> &DataDesk {
        &self.data
    }

    /// Sessions in the order of their keys, after one of them.
    pub(crate) async fn page(&self, after: Option<SessionKey>, limit: usize) -> Result<Page, Failure> {
        let limit = limit.clamp(1, PAGE);
        let records = self.store.store.list(Space::Session, after, limit).await.map_err(cannot_read)?;
        let next = records.last().filter(|_| records.len() == limit).map(|(key, _)| key_text(key));
        let now = now();
        let row = |(key, record)| look::row(&key, &record, self.info(&key).as_ref(), now);
        Ok(Page { rows: records.into_iter().map(row).collect(), next })
    }

    /// Sessions whose keys begin with these digits.
    pub(crate) async fn matching(&self, prefix: &Prefix, limit: usize) -> Result<Page, Failure> {
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
        Ok(Some(look::detail(&key, &record, live.as_ref(), &survey, trouble, now())))
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
        match record.map(|record| Kept::decode(&record.value)) {
            Some(Ok(Kept::Tombstone(tombstone))) => Ok(Revoked::Before(tombstone.end)),
            Some(Err(error)) => Err(failed(&error)),
            Some(Ok(Kept::Session(_))) | None => Ok(Revoked::Unknown),
        }
    }

    /// Changes the settings of a session. Returns all of it; nothing if there is no session that lives.
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
        // The events first: what the record says of them may then be a little ahead, which is harmless.
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
        mut progress: impl FnMut(Stage) + Send + 'static,
    ) -> Result<BackedUp, Failure> {
        let Ok(alone) = Arc::clone(&self.backing_up).try_acquire_owned() else {
            return Err(Failure::new("another backup is under way").hint("wait for it to end"));
        };
        let progress = move |stage| {
            // Kept here, because the copy goes on when nobody waits for it any more.
            let _ = &alone;
            progress(stage);
        };
        wire::backup(&self.store, to, progress).await
    }

    /// What is wrong with the background of the server, in words.
    fn fallen(&self) -> Option<String> {
        match self.sessions.as_ref()?.loops().state() {
            LoopState::Well => None,
            LoopState::Restarted(words) | LoopState::Down(words) => {
                Some(format!("the server itself is in trouble: {words}"))
            }
        }
    }

    fn info(&self, key: &SessionKey) -> Option<session::SessionInfo> {
        self.sessions.as_ref()?.info(key)
    }
}

/// The time of day. There is no other clock here: what is shown is compared with the clock of who looks.
pub(crate) fn now() -> Time {
    SystemClock.now()
}

fn cannot_read(error: StoreError) -> Failure {
    Failure::new("cannot read the store").caused_by(error)
}
