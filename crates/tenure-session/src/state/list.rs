//! What states there are: of one owner, for that owner; of all, for operators.

use super::fault::Fault;
use super::held::{Seen, State};
use super::name::{StateId, first_key, is_of};
use super::record::{About, Edition, StateRecord};
use super::states::{Inner, States, label};
use crate::error::Reason;
use crate::id::{Principal, SessionKey};
use crate::port::clock::Time;
use crate::port::store::Space;

/// Records that are read at once.
const READ: usize = 256;

/// One state of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The key under which the store has it.
    pub key: SessionKey,
    /// Its secret name, if its owner has to prove who they are; otherwise nobody knows it.
    pub id: Option<StateId>,
    /// Whose it is; `None` for anonymous.
    pub owner: Option<String>,
    /// What sort it is.
    pub kind: Box<str>,
    /// What its maker said of it.
    pub about: About,
    /// When it was made.
    pub created: Time,
    /// When it was last used, as far as that was written down.
    pub used: Time,
    /// Until when it can be counted on, as far as that was written down.
    pub expiry: Option<Time>,
    /// How often its data were changed.
    pub edition: Edition,
    /// How much it holds.
    pub bytes: usize,
    /// How it ended, if it has.
    pub end: Option<Reason>,
}

impl Listed {
    /// Its name in logs.
    pub fn label(&self) -> String {
        label(&self.key)
    }
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct Page {
    /// In the order of their keys.
    pub states: Vec<Listed>,
    /// Where the next page begins, if there is one.
    pub next: Option<SessionKey>,
}

impl States {
    /// The living states of an owner, after a key. Nobody is told what is anonymous.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list(
        &self,
        owner: &Principal,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<Page, Fault> {
        if owner.name().is_none() {
            return Ok(Page { states: Vec::new(), next: None });
        }
        let begin = after.filter(|key| is_of(key, owner)).unwrap_or_else(|| first_key(owner));
        let of_owner = |listed: &Listed| listed.end.is_none() && listed.owner.as_deref() == owner.name();
        self.page(Some(begin), limit, |key| is_of(key, owner), of_owner).await
    }

    /// All states, ended ones too, after a key. For operators.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list_all(&self, after: Option<SessionKey>, limit: usize) -> Result<Page, Fault> {
        self.page(after, limit, |_| true, |_| true).await
    }

    /// Ends a state as an operator, by the key that a list shows.
    ///
    /// # Errors
    /// When there is none, it is over already, or the store fails.
    pub async fn revoke(&self, key: SessionKey) -> Result<(), Fault> {
        let seen = self.0.read(key).await?.ok_or(Fault::Lost(super::Lost::NotFound))?;
        // Its name is not known here, and not needed.
        let state = State::new(std::sync::Arc::clone(&self.0), StateId::random(), key, seen);
        state.revoke().await
    }

    async fn page(
        &self,
        mut after: Option<SessionKey>,
        limit: usize,
        in_range: impl Fn(&SessionKey) -> bool,
        wanted: impl Fn(&Listed) -> bool,
    ) -> Result<Page, Fault> {
        let mut states = Vec::new();
        loop {
            let records = self.0.store.list(Space::State, after, READ).await?;
            let full = records.len() == READ;
            for (key, kept) in records {
                if !in_range(&key) {
                    return Ok(Page { states, next: None });
                }
                after = Some(key);
                let Ok(record) = StateRecord::decode(&kept.value) else { continue };
                let listed = self.0.listed(key, &Seen { version: kept.version, record });
                if !wanted(&listed) {
                    continue;
                }
                if states.len() == limit {
                    let next = states.last().map(|last: &Listed| last.key);
                    return Ok(Page { states, next });
                }
                states.push(listed);
            }
            if !full {
                return Ok(Page { states, next: None });
            }
        }
    }
}

impl Inner {
    fn listed(&self, key: SessionKey, seen: &Seen) -> Listed {
        let head = &seen.record.head;
        Listed {
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
            end: head.standing(self.clock.now()).err().map(super::Lost::reason),
        }
    }
}
