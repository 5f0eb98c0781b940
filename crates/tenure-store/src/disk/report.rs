//! The result of a check, a repair or a backup.
//!
//! Holds figures and names; the caller turns them into text for an operator. Sessions appear by their labels, because
//! keys are secret.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tenure_session::id::Position;
use tenure_session::port::store::Space;

use super::layout;

/// How many entries of each kind there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReportTotals {
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

impl ReportTotals {
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
                // An entry at position 0 is about the stream and is not an event.
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
    /// Its path, relative to the store's folder.
    pub file: PathBuf,
    /// What the file contains.
    pub kind: DamageKind,
    /// The engine refuses to open a store with this damage, or would silently drop a part of the file.
    pub is_refused: bool,
    /// How much of it is lost: batches of a journal, entries of a table. `None` if the number cannot be known. Some of
    /// it may have been found elsewhere, such as in a journal that is still there.
    pub lost: Option<u64>,
}

/// The kind of a damaged file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DamageKind {
    /// A journal: writes of every kind that no table holds yet.
    Journal,
    /// A table of this keyspace: records, events, owners, notes, deadlines, meta, or the engine's own.
    Table(String),
    /// The list of a keyspace's tables, or the file that points to it.
    Manifest,
    /// The high-water mark.
    Mark,
}

/// What may be missing of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// Its record is gone.
    pub record: bool,
    /// Its record is there, but a newer version is gone.
    pub newer_record: bool,
    /// Its last owner is gone, or out of date.
    pub owner: bool,
    /// Some of its events or notes are gone, or may be.
    pub events: bool,
}

/// What was found in a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Counts of the entries that can be read.
    pub totals: ReportTotals,
    /// The damaged files. A journal whose last batch was cut off by a kill is not damaged.
    pub damage: Vec<Damage>,
    /// Batches that were written and are missing or incomplete in the journal. Tables may hold some of their entries.
    pub missing_batches: u64,
    /// Entries that can be read but not decoded.
    pub unreadable: u64,
    /// Records and owners in a damaged place, where a newer version may be lost.
    pub doubtful: u64,
    /// Records whose deadline is not in the index, so that they would never expire.
    pub missing_deadlines: u64,
    /// Entries of the index that fit no record.
    pub stale_deadlines: u64,
    /// The affected sessions and data sessions, by their labels; at most 1000.
    pub sessions: BTreeMap<String, Missing>,
    /// Paths that other users of the machine can read or reach. This is not damage: a server that opens the store
    /// removes their permissions, and so does a repair.
    pub exposed: Vec<PathBuf>,
    /// Where a repair left the damaged data.
    pub kept: Option<PathBuf>,
}

/// The most labels in a report.
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
        // Tables that a repair rebuilds from the rest are not lost.
        let is_rebuilt = |name: &str| name == "deadlines" || name == "engine";
        let made_anew = |kind: &DamageKind| matches!(kind, DamageKind::Table(name) if is_rebuilt(name));
        let has_lost = |damage: &Damage| damage.lost != Some(0) && !made_anew(&damage.kind);
        self.missing_batches > 0 || self.unreadable > 0 || self.damage.iter().any(has_lost)
    }

    pub(super) fn affect(&mut self, label: String, affect: impl Fn(&mut Missing)) {
        if self.sessions.len() < MAX_SESSIONS || self.sessions.contains_key(&label) {
            affect(self.sessions.entry(label).or_default());
        }
    }
}
