//! Lists of states: those of one owner, for that owner, and all states, for operators.

use std::time::Duration;

use tenure_protocol::Reason;

use super::fault::{Fault, Lost};
use super::name::{StateId, StateKind, first_key, is_of};
use super::record::{About, Edition, StateRecord};
use super::states::{States, StatesInner, label};
use crate::id::{Principal, SessionKey};
use crate::port::clock::Time;
use crate::port::store::Space;
use crate::state::live_state::SeenRecord;

/// The most records that are read at once.
const READ: usize = 64;

/// One state of a list.
#[derive(Clone, Debug)]
pub struct StateInfo {
    /// Its key in the store.
    pub key: SessionKey,
    /// Its secret id, if its owner is authenticated; the store does not contain the ids of anonymous states.
    pub id: Option<StateId>,
    /// Its owner; `None` for anonymous.
    pub owner: Option<String>,
    /// Its kind.
    pub kind: Box<str>,
    /// The description from its maker.
    pub about: About,
    /// When it was made.
    pub created: Time,
    /// When it was last used, as far as the store knows.
    pub used: Time,
    /// The time until which its client can rely on it, as far as the store knows.
    pub expiry: Option<Time>,
    /// How often its data were changed.
    pub edition: Edition,
    /// The size of its data.
    pub bytes: usize,
    /// It expires if it is not used for this long; `None`: never.
    pub idle_ttl: Option<Duration>,
    /// When it expires, used or not.
    pub ends: Option<Time>,
    /// How it ended, if it has.
    pub end: Option<Reason>,
    /// When it ended, if it has.
    pub ended: Option<Time>,
    /// It expired because it was not used, and can be recovered.
    pub is_recoverable: bool,
    /// When its record is removed, or replaced by a tombstone.
    pub due: Option<Time>,
}

impl StateInfo {
    /// Its name in logs.
    pub fn label(&self) -> String {
        label(&self.key)
    }
}

/// One page of a list.
#[derive(Clone, Debug)]
pub struct StatePage {
    /// In the order of their keys.
    pub states: Vec<StateInfo>,
    /// The keys on this page whose records this version cannot read.
    pub unreadable: Vec<SessionKey>,
    /// Where the next page begins, if there is one.
    pub next: Option<SessionKey>,
}

impl StatePage {
    const EMPTY: Self = Self { states: Vec::new(), unreadable: Vec::new(), next: None };
}

impl States {
    /// The living states of an owner, after a key. For anonymous callers the list is empty, because they share one
    /// owner.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list(
        &self,
        owner: &Principal,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<StatePage, Fault> {
        if owner.name().is_none() {
            return Ok(StatePage::EMPTY);
        }
        let begin = after.filter(|key| is_of(key, owner)).unwrap_or_else(|| first_key(owner));
        let of_owner = |listed: &StateInfo| listed.end.is_none() && listed.owner.as_deref() == owner.name();
        self.page(Some(begin), limit, READ, |key| is_of(key, owner), of_owner).await
    }

    /// The living states of an owner that are of a kind.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list_kind(
        &self,
        owner: &Principal,
        kind: &StateKind,
        limit: usize,
    ) -> Result<StatePage, Fault> {
        if owner.name().is_none() {
            return Ok(StatePage::EMPTY);
        }
        let wanted = |listed: &StateInfo| {
            listed.end.is_none() && *listed.kind == *kind.as_str() && listed.owner.as_deref() == owner.name()
        };
        self.page(Some(first_key(owner)), limit, READ, |key| is_of(key, owner), wanted).await
    }

    /// All states, ended ones too, after a key. For operators.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list_all(&self, after: Option<SessionKey>, limit: usize) -> Result<StatePage, Fault> {
        let read = READ.min(limit.saturating_add(1));
        self.page(after, limit, read, |_| true, |_| true).await
    }

    /// All states whose names in logs begin with this text, ended ones too. For operators.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list_named(&self, name: &str, limit: usize) -> Result<StatePage, Fault> {
        let wanted = |key: &SessionKey| label(key).starts_with(name);
        let mut page = self.page(None, limit, READ, |_| true, |listed| wanted(&listed.key)).await?;
        page.unreadable.retain(wanted);
        Ok(page)
    }

    async fn page(
        &self,
        mut after: Option<SessionKey>,
        limit: usize,
        read: usize,
        in_range: impl Fn(&SessionKey) -> bool,
        wanted: impl Fn(&StateInfo) -> bool,
    ) -> Result<StatePage, Fault> {
        let mut page = StatePage::EMPTY;
        loop {
            let records = self.0.store.list(Space::State, after, read).await?;
            let full = records.len() == read;
            for (key, kept) in records {
                if !in_range(&key) {
                    return Ok(page);
                }
                after = Some(key);
                let Ok(record) = StateRecord::decode(&kept.value) else {
                    page.unreadable.push(key);
                    continue;
                };
                let listed = self.0.listed(key, &SeenRecord { version: kept.version, record });
                if !wanted(&listed) {
                    continue;
                }
                if page.states.len() == limit {
                    page.next = page.states.last().map(|last: &StateInfo| last.key);
                    // Those behind the last state come with the next page.
                    page.unreadable.retain(|key| Some(*key) < page.next);
                    return Ok(page);
                }
                page.states.push(listed);
            }
            if !full {
                return Ok(page);
            }
        }
    }
}

impl StatesInner {
    pub(super) fn listed(&self, key: SessionKey, seen: &SeenRecord) -> StateInfo {
        let (head, now) = (&seen.record.head, self.clock.now());
        let (lost, due) = (head.standing(now).err(), self.deadline(head));
        let is_recoverable = lost == Some(Lost::Expired)
            && head.end.is_none()
            && !head.is_too_old(now)
            && due.is_none_or(|due| due > now);
        StateInfo {
            key,
            id: head.id.as_deref().and_then(StateId::from_cookie),
            owner: head.owner.clone(),
            kind: head.kind.clone(),
            about: head.about.clone(),
            created: Time(head.created),
            used: Time(head.used),
            expiry: Self::promise(head, Time(head.used)),
            edition: head.edition,
            bytes: seen.record.data.len(),
            idle_ttl: head.idle_ms.map(Duration::from_millis),
            ends: head.ends.map(Time),
            end: lost.map(Lost::reason),
            ended: lost
                .and_then(|_| match head.end {
                    Some(_) => Some(head.used),
                    // The sweep has not written the tombstone yet.
                    None => head.expires.into_iter().chain(head.ends).min(),
                })
                .map(Time),
            is_recoverable,
            due,
        }
    }
}
