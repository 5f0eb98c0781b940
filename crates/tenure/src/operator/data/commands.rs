//! The operations of operators on data sessions: list, show, create, resume, select, clear, revoke.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_layers::data::KindOfState;
use tenure_session::port::clock::SystemClock;
use tenure_session::port::store::{RecordKey, Space, Store};
use tenure_session::record::EndCause;
use tenure_session::state::{
    self, Fault, Lost, NewState, Resumed, StateId, StateInfo, StateKind, StateLimits, States,
};
use tenure_session::{Principal, SessionKey};

use super::name::DataName;
use super::view::{Contents, DataDetail, DataRow, NamedData, NewData, ResumedData};
use crate::failure::Failure;
use crate::operator::commands::{PAGE, Revoked};
use crate::operator::key::{Prefix, key_text, parse_key};
use crate::operator::view::Page;

/// The kind of a data session if the server's tools work on no kind.
const PLAIN: &str = "session";

/// The operations of operators on the data sessions of one store.
#[derive(Clone, Debug)]
pub(crate) struct DataOperator {
    states: States,
    /// The kinds that the server's tools work on; the first one is the default for a new data session.
    kinds: Arc<[KindOfState]>,
    count: CountSource,
}

/// Where the number of data sessions comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CountSource {
    /// The server counts them.
    Kept,
    /// The records have to be counted.
    Taken,
}

impl DataOperator {
    /// For a store that no server has open. `kinds` are those of the server that uses it.
    pub(crate) fn offline(store: Arc<dyn Store>, limits: StateLimits, kinds: Vec<KindOfState>) -> Self {
        let states = States::at_rest(store, Arc::new(SystemClock), limits);
        Self { states, kinds: kinds.into(), count: CountSource::Taken }
    }

    /// For a running server.
    pub(crate) fn online(states: States, kinds: Vec<KindOfState>) -> Self {
        Self { states, kinds: kinds.into(), count: CountSource::Kept }
    }

    /// How many data sessions have not ended.
    pub(crate) async fn count(&self) -> Result<u64, Failure> {
        if self.count == CountSource::Kept {
            return Ok(self.states.count() as u64);
        }
        let (mut count, mut after) = (0, None);
        loop {
            let page = self.states.list_all(after, PAGE).await.map_err(cannot_read)?;
            let rows = page.states.iter().filter(|listed| listed.end.is_none() || listed.is_recoverable);
            count += rows.count() as u64;
            after = page.next;
            if after.is_none() {
                return Ok(count);
            }
        }
    }

    /// Data sessions in the order of their keys, after one of them.
    pub(crate) async fn page(
        &self,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<Page<DataRow>, Failure> {
        let found = self.states.list_all(after, limit.clamp(1, PAGE)).await.map_err(cannot_read)?;
        Ok(page(&found))
    }

    /// The data sessions with this name.
    pub(crate) async fn matching(&self, name: &DataName, limit: usize) -> Result<Page<DataRow>, Failure> {
        let limit = limit.clamp(1, PAGE);
        match name {
            DataName::Label(label) => {
                Ok(page(&self.states.list_named(label, limit).await.map_err(cannot_read)?))
            }
            DataName::Key(key) => {
                let mut found = self.page(Prefix::of(key).before(), 1).await?;
                found.rows.retain(|row| row.key == key_text(key));
                Ok(Page { next: None, ..found })
            }
        }
    }

    /// Everything about one data session, with or without its contents.
    pub(crate) async fn show(&self, key: SessionKey, show: Show) -> Result<Option<DataDetail>, Failure> {
        let found = self.states.look_at(key).await;
        let found = found.map_err(|fault| cannot("read", &key).caused_by(fault))?;
        Ok(found.map(|(listed, data)| DataDetail {
            row: DataRow::of(&listed),
            idle_ttl_ms: listed.idle_ttl.map(|idle| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)),
            ends: listed.ends.map(|ends| ends.0),
            hints: listed.about.data.as_ref().and_then(|hints| serde_json::from_str(hints.get()).ok()),
            contents: (show == Show::Contents).then(|| Contents::of(&data)),
        }))
    }

    /// Makes a data session.
    pub(crate) async fn create(&self, new: NewData) -> Result<NamedData, Failure> {
        if let Some(key) = &new.copy_of {
            let key = parse_key(key).ok_or_else(|| Failure::new("cannot copy: not a key"))?;
            let owner = self.look_at(key).await?.and_then(|listed| listed.owner);
            return match self.states.copy(key, new.label).await {
                Ok(copied) => self.named(copied.id(), owner).await,
                Err(fault) => Err(self.refused("copy", &key, fault).await),
            };
        }
        let failed = || Failure::new("cannot make a data session");
        let state = self.begin(&new)?;
        let owner = new.owner.as_deref().map_or(Principal::ANONYMOUS, Principal::named);
        let made = self.states.create(&owner, state).await.map_err(|fault| match &fault {
            Fault::TooLarge { .. } => failed().caused_by(fault).hint(
                "give it less, or raise `data_sessions.max_bytes` (for a label `data_sessions.max_about`)",
            ),
            Fault::Full(_) => failed()
                .caused_by(fault)
                .hint("revoke some, or raise `data_sessions.max`, `data_sessions.max_per_principal` or `clients.disk`"),
            _ => failed().caused_by(fault),
        })?;
        tracing::info!(state = %made.label(), "an operator made a data session");
        self.named(made.id(), new.owner).await
    }

    /// The state of a new data session.
    fn begin(&self, new: &NewData) -> Result<NewState, Failure> {
        let main = self.kinds.first().map_or(PLAIN, |kind| kind.kind().as_str());
        let name = new.kind.as_deref().unwrap_or(main);
        let data = new.data.clone().map(Bytes::from);
        let mut state = match self.kinds.iter().find(|kind| kind.kind().as_str() == name) {
            Some(kind) => kind.holding(data).map_err(|refusal| {
                Failure::new(format!("cannot make a {name} out of nothing: {refusal}"))
                    .hint("say with `--data` what it holds")
            })?,
            None => {
                let kind = StateKind::new(name).ok_or_else(|| {
                    Failure::new(format!("`{name}` cannot be a kind of data session"))
                        .hint("write up to 32 of `a-z`, `0-9` and `_`, the first a letter")
                })?;
                NewState { data: data.unwrap_or_default(), ..NewState::of(kind) }
            }
        };
        state.about.label.clone_from(&new.label);
        state.idle_ttl = new.idle_ms.map(Duration::from_millis).or(state.idle_ttl);
        Ok(state)
    }

    /// Puts off its expiry, and brings it back if it has expired and is still kept.
    pub(crate) async fn resume(&self, key: SessionKey) -> Result<Option<ResumedData>, Failure> {
        match self.states.resume(key).await {
            Ok(resumed) => {
                let is_recovered = resumed == Resumed::Recovered;
                let listed = self.look_at(key).await?;
                Ok(listed.map(|listed| ResumedData { row: DataRow::of(&listed), is_recovered }))
            }
            Err(Fault::Lost(Lost::NotFound)) => Ok(None),
            Err(fault) => Err(self.refused("resume", &key, fault).await),
        }
    }

    /// The names by which a client can use it, if the store knows them.
    pub(crate) async fn select(&self, key: SessionKey) -> Result<Option<NamedData>, Failure> {
        let Some(listed) = self.look_at(key).await? else { return Ok(None) };
        if let Some(lost) = lost(&listed) {
            return Err(self.refused("select", &key, Fault::Lost(lost)).await);
        }
        let Some(id) = listed.id else {
            let name = listed.label();
            return Err(Failure::new(format!("only its client knows the id of {name}")).hint(format!(
                "it is anonymous, so the store has only a hash of its id, which was shown when it was made; \
                 `tenure sessions data create --copy-of {name}` makes another that holds the same"
            )));
        };
        self.named(id, listed.owner).await.map(Some)
    }

    /// Removes its contents.
    pub(crate) async fn clear(&self, key: SessionKey) -> Result<Option<DataRow>, Failure> {
        match self.states.clear(key).await {
            Ok(()) => Ok(self.look_at(key).await?.as_ref().map(DataRow::of)),
            Err(Fault::Lost(Lost::NotFound)) => Ok(None),
            Err(fault) => Err(self.refused("clear", &key, fault).await),
        }
    }

    /// Ends it.
    pub(crate) async fn revoke(&self, key: SessionKey) -> Result<Revoked, Failure> {
        match self.states.revoke(key).await {
            Ok(()) => {
                tracing::info!(state = %label(&key), "an operator revoked a data session");
                Ok(Revoked::Now)
            }
            Err(Fault::Lost(Lost::NotFound)) => Ok(Revoked::Unknown),
            Err(Fault::Lost(Lost::Deleted)) => Ok(Revoked::Before(EndCause::Deleted)),
            Err(Fault::Lost(Lost::Expired)) => Ok(Revoked::Before(EndCause::Expired)),
            Err(Fault::Lost(Lost::Revoked)) => Ok(Revoked::Before(EndCause::Revoked)),
            Err(fault) => Err(cannot("revoke", &key).caused_by(fault)),
        }
    }

    async fn look_at(&self, key: SessionKey) -> Result<Option<StateInfo>, Failure> {
        let found = self.states.look_at(key).await;
        Ok(found.map_err(|fault| cannot("read", &key).caused_by(fault))?.map(|(listed, _)| listed))
    }

    /// A live data session, with its secret names.
    async fn named(&self, id: StateId, owner: Option<String>) -> Result<NamedData, Failure> {
        let owner = owner.as_deref().map_or(Principal::ANONYMOUS, Principal::named);
        let key = id.key(&owner);
        let gone = || cannot("find", &key).hint("it has ended in this moment");
        let listed = self.look_at(key).await?.ok_or_else(gone)?;
        let kind = StateKind::new(&listed.kind).ok_or_else(gone)?;
        let known = self.kinds.iter().map(|kind| kind.kind().as_str().to_owned());
        let is_known = self.kinds.iter().any(|known| *known.kind() == kind);
        Ok(NamedData {
            row: DataRow::of(&listed),
            id: id.cookie(),
            handle: id.handle(&kind),
            argument: KindOfState::new(kind, "").argument().to_owned(),
            kinds: known.filter(|_| !is_known).collect(),
        })
    }

    /// The failure of an operation on a data session, with a hint.
    async fn refused(&self, doing: &str, key: &SessionKey, fault: Fault) -> Failure {
        let lost = match fault {
            Fault::Lost(lost) => lost,
            fault => return cannot(doing, key).caused_by(fault),
        };
        let name = label(key);
        let may_come_back = match self.states.look_at(*key).await {
            Ok(Some((listed, _))) => listed.is_recoverable,
            Ok(None) | Err(_) => false,
        };
        let why = match lost {
            Lost::NotFound => "it is gone",
            Lost::Deleted => "its client has deleted it",
            Lost::Revoked => "it was revoked",
            Lost::Expired => "it has expired",
        };
        let failure = Failure::new(format!("cannot {doing} {name}: {why}"));
        if may_come_back {
            failure.hint(format!("bring it back first: `tenure sessions data resume {name}`"))
        } else {
            failure.hint("what has ended stays so; make another with `tenure sessions data create`")
        }
    }
}

/// Whether to show the contents of a data session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Show {
    Facts,
    Contents,
}

fn page(found: &state::StatePage) -> Page<DataRow> {
    let mut rows: Vec<_> = found.states.iter().map(DataRow::of).collect();
    rows.extend(found.unreadable.iter().map(DataRow::unreadable));
    Page { rows, next: found.next.map(|key| key_text(&key)) }
}

fn lost(listed: &StateInfo) -> Option<Lost> {
    let all = [Lost::Expired, Lost::Deleted, Lost::Revoked];
    listed.end.map(|reason| all.into_iter().find(|lost| lost.reason() == reason).unwrap_or(Lost::NotFound))
}

fn label(key: &SessionKey) -> String {
    RecordKey { space: Space::State, key: *key }.label()
}

fn cannot(do_what: &str, key: &SessionKey) -> Failure {
    Failure::new(format!("cannot {do_what} {}", label(key)))
}

fn cannot_read(fault: Fault) -> Failure {
    Failure::new("cannot read the store").caused_by(fault)
}
