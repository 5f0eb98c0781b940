//! What a check, a repair or a backup found in a store, and what it did.
//!
//! These are figures and names for whoever tells them to an operator; how they are worded is up to them. Sessions
//! go by their labels, since keys are nobody's business.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tenure_session::id::Position;
use tenure_session::port::store::Space;

use super::layout;

/// How much of each kind there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Sessions that have a record, the tombstones of ended ones among them.
    pub sessions: u64,
    /// Data sessions that have a record, the tombstones of ended ones among them.
    pub data_sessions: u64,
    /// Tasks, those that have ended among them.
    pub tasks: u64,
    /// All other records.
    pub other_records: u64,
    /// Sessions that are or were owned by a node.
    pub owners: u64,
    /// Entries in the index of deadlines.
    pub deadlines: u64,
    /// Events.
    pub events: u64,
    /// Notes beside open streams.
    pub notes: u64,
    /// Bytes of keys and values, all together.
    pub bytes: u64,
}

impl Totals {
    /// Counts an entry of a keyspace.
    pub(super) fn count(&mut self, keyspace: &str, key: &[u8], value: &[u8]) {
        self.bytes += (key.len() + value.len()) as u64;
        match keyspace {
            "records" if key.starts_with(&layout::space_prefix(Space::Session)) => self.sessions += 1,
            "records" if key.starts_with(&layout::space_prefix(Space::State)) => self.data_sessions += 1,
            "records" if key.starts_with(&layout::space_prefix(Space::Task)) => self.tasks += 1,
            "records" => self.other_records += 1,
            "owners" => self.owners += 1,
            "deadlines" => self.deadlines += 1,
            "notes" => self.notes += 1,
            "events" => {
                // What stands at no position of a stream is about the stream, and no event of it.
                let place = layout::place_of_event(key);
                self.events += u64::from(place.is_some_and(|(_, position)| position > Position::START));
            }
            _ => {}
        }
    }
}

/// A file that is not as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Which, from the store's folder on.
    pub file: PathBuf,
    /// What is kept in it.
    pub kind: Kind,
    /// The engine opens no store that has it, or would silently leave a part of it out.
    pub is_refused: bool,
    /// How much of it is lost: batches of a journal, entries of a table. Unknown if nothing is left to tell it
    /// by. Some of it may have been found elsewhere, such as in a journal that is still there.
    pub lost: Option<u64>,
}

/// What a file of the engine is for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A journal: writes of every kind that are in no table yet.
    Journal,
    /// A table of this keyspace: records, events, owners, notes, deadlines or meta, or of the engine's own.
    Table(String),
    /// The list of a keyspace's tables, or what leads to it.
    Manifest,
    /// The high-water mark.
    Mark,
}

/// What may be missing of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// Its record is gone.
    pub record: bool,
    /// Its record is there, and a newer one is gone.
    pub newer_record: bool,
    /// Which node had it last is gone, or out of date.
    pub owner: bool,
    /// Some of its events or notes are gone, or may be.
    pub events: bool,
}

/// What was found in a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What can be read.
    pub totals: Totals,
    /// What is damaged. A journal that just was not finished when its process was killed is not.
    pub damage: Vec<Damage>,
    /// Batches that were written and are not in the journal, or not whole. Some of it may be in tables.
    pub missing_batches: u64,
    /// Entries that can be read but make no sense.
    pub unreadable: u64,
    /// Records and owners that are there, but lie where a newer one may be lost.
    pub doubtful: u64,
    /// Records whose deadline is not in the index, so that they would never expire.
    pub missing_deadlines: u64,
    /// Entries of the index that no record has.
    pub stale_deadlines: u64,
    /// The sessions and data sessions that are affected, by their labels. Not all, if there are very many.
    pub sessions: BTreeMap<String, Missing>,
    /// What other users of the machine can read or reach. It is no damage: a server that opens the store takes
    /// their rights away, and so does a repair.
    pub exposed: Vec<PathBuf>,
    /// Where a repair left what was there before.
    pub kept: Option<PathBuf>,
}

/// Labels that a report holds at most.
const MAX_SESSIONS: usize = 1000;

impl Report {
    /// Whether there is nothing to repair.
    pub fn is_sound(&self) -> bool {
        self.is_sound_but_for(|_| false)
    }

    pub(super) fn is_sound_but_for(&self, may_be: impl Fn(&Damage) -> bool) -> bool {
        self.damage.iter().all(may_be)
            && self.missing_batches == 0
            && self.unreadable == 0
            && self.missing_deadlines == 0
            && self.stale_deadlines == 0
    }

    /// Whether something is gone for good, or may be.
    pub fn has_lost(&self) -> bool {
        // What is made anew from the rest is not lost.
        let made_anew =
            |kind: &Kind| matches!(kind, Kind::Table(name) if name == "deadlines" || name == "engine");
        let has_lost = |damage: &Damage| damage.lost != Some(0) && !made_anew(&damage.kind);
        self.missing_batches > 0 || self.unreadable > 0 || self.damage.iter().any(has_lost)
    }

    pub(super) fn affect(&mut self, label: String, affect: impl Fn(&mut Missing)) {
        if self.sessions.len() < MAX_SESSIONS || self.sessions.contains_key(&label) {
            affect(self.sessions.entry(label).or_default());
        }
    }
}
