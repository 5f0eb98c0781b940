//! Decides what damaged journals and tables have really lost.
//!
//! An entry of a damaged journal is not lost if a table holds it, or if it was overwritten or removed later. The
//! entries of a damaged table are not lost if the journals still hold all of them.

use std::collections::{BTreeSet, HashMap};
use std::io;

use foldhash::fast::RandomState;
use tenure_session::id::Position;

use super::layout;
use super::mark::Mark;
use super::raw::table::Flaw;
use super::raw::{DamagedStretch, Files};

/// What became of a key that was written in a damaged stretch of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyFate {
    /// The value that was written there, or a newer one, is known.
    Known,
    /// Only an older value is there.
    Older,
    /// No value is there.
    Gone,
}

pub(super) struct Fates<'a> {
    files: &'a Files,
    /// The last known sequence number of each key, and whether the key has a value.
    newest: HashMap<(u64, &'a [u8]), (u64, bool), RandomState>,
    /// See [`Files::complete_from`]; `None` if the end of the journals may be missing.
    complete_from: Option<u64>,
}

impl<'a> Fates<'a> {
    pub(super) fn find(files: &'a Files, mark: &Mark) -> io::Result<Self> {
        let mut wanted: HashMap<u64, BTreeSet<&[u8]>, RandomState> = HashMap::default();
        for stretch in files.journals.iter().flat_map(|flaw| &flaw.stretches) {
            for (keyspace, key) in &stretch.keys {
                wanted.entry(*keyspace).or_default().insert(key);
            }
        }
        let mut newest = HashMap::default();
        for (keyspace, keys) in wanted {
            let Some(name) = files.keyspace(keyspace) else { continue };
            for entry in files.newest(name) {
                let entry = entry?;
                if let Some(key) = keys.get(&*entry.key) {
                    newest.insert((keyspace, *key), (entry.seqno, entry.value.is_some()));
                }
            }
        }
        // Without a mark it is unknown whether the end is there.
        let has_end = (1..=files.last_batch.unwrap_or(0)).contains(&mark.batch());
        Ok(Self { files, newest, complete_from: files.complete_from.filter(|_| has_end) })
    }

    /// The fate of a key that was written in a damaged stretch.
    pub(super) fn of(&self, stretch: &DamagedStretch, keyspace: u64, key: &[u8]) -> KeyFate {
        match self.newest.get(&(keyspace, key)) {
            Some((seqno, _)) if *seqno > stretch.after => KeyFate::Known,
            Some((_, true)) => KeyFate::Older,
            Some((_, false)) | None => KeyFate::Gone,
        }
    }

    /// The number of batches lost with a stretch.
    pub(super) fn lost(&self, stretch: &DamagedStretch) -> u64 {
        let is_known = |(keyspace, key): &(u64, Vec<u8>)| match self.files.keyspace(*keyspace) {
            // Later batches have newer counters, and the index of deadlines is rebuilt from the records.
            Some("meta" | "deadlines") => true,
            // A flipped bit may turn the number of an event into the number of another.
            Some("events") if !is_given(key, stretch.numbers) => false,
            Some(_) => self.of(stretch, *keyspace, key) == KeyFate::Known,
            None => false,
        };
        let is_known = stretch.is_whole && stretch.lost == 1 && stretch.keys.iter().all(is_known);
        if is_known { 0 } else { stretch.lost }
    }

    /// Whether the journals hold every entry of a damaged table.
    pub(super) fn has_all_of(&self, flaw: &Flaw) -> bool {
        self.has_everything()
            || flaw.lowest_seqno.is_some_and(|lowest| self.complete_from.is_some_and(|from| from <= lowest))
    }

    /// Whether the journals hold everything that was ever written.
    pub(super) fn has_everything(&self) -> bool {
        self.complete_from == Some(0)
    }
}

/// Whether the stretch can have given an event this number. Entries about a stream have position 0.
fn is_given(key: &[u8], (after, last): (u64, u64)) -> bool {
    layout::place_of_event(key).is_some_and(|(_, Position(number))| {
        number == Position::START.0 || (after < number && number <= last)
    })
}
