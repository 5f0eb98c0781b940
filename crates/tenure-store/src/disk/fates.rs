//! What became of the keys that can be made out in damaged journals, and of what damaged tables held.
//!
//! A journal is damaged, and what it says there may still be known: it was put into a table before, or was written
//! anew or removed since. A table is damaged, and all of it may still be in the journals. None of that is lost.

use std::collections::{BTreeSet, HashMap};
use std::io;

use foldhash::fast::RandomState;
use tenure_session::id::Position;

use super::layout;
use super::mark::Mark;
use super::raw::table::Flaw;
use super::raw::{Files, Stretch};

/// What became of a key that was written in a damaged stretch of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// What was written there, or something newer, is known.
    Known,
    /// Only something older is there.
    Older,
    /// Nothing is there.
    Gone,
}

pub(super) struct Fates<'a> {
    files: &'a Files,
    /// When keys were written last, as far as it is known, and whether they are there.
    newest: HashMap<(u64, &'a [u8]), (u64, bool), RandomState>,
    /// See [`Files::complete_from`]; nothing if the end of the journals may be missing.
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
        // Without a mark nothing tells that the end is there.
        let has_end = (1..=files.last_batch.unwrap_or(0)).contains(&mark.batch());
        Ok(Self { files, newest, complete_from: files.complete_from.filter(|_| has_end) })
    }

    /// What became of a key of a stretch.
    pub(super) fn of(&self, stretch: &Stretch, keyspace: u64, key: &[u8]) -> Fate {
        match self.newest.get(&(keyspace, key)) {
            Some((seqno, _)) if *seqno > stretch.after => Fate::Known,
            Some((_, true)) => Fate::Older,
            Some((_, false)) | None => Fate::Gone,
        }
    }

    /// How many batches are lost with a stretch.
    pub(super) fn lost(&self, stretch: &Stretch) -> u64 {
        let is_known = |(keyspace, key): &(u64, Vec<u8>)| match self.files.keyspace(*keyspace) {
            // What comes after has newer ones, and the index is made anew from the records.
            Some("meta" | "deadlines") => true,
            // A bit that is wrong in the number of an event may make it that of another.
            Some("events") if !is_given(key, stretch.numbers) => false,
            Some(_) => self.of(stretch, *keyspace, key) == Fate::Known,
            None => false,
        };
        let is_known = stretch.is_whole && stretch.lost == 1 && stretch.keys.iter().all(is_known);
        if is_known { 0 } else { stretch.lost }
    }

    /// Whether all that a damaged table held is in the journals.
    pub(super) fn has_all_of(&self, flaw: &Flaw) -> bool {
        self.has_everything()
            || flaw.lowest_seqno.is_some_and(|lowest| self.complete_from.is_some_and(|from| from <= lowest))
    }

    /// Whether all that was ever written is in the journals.
    pub(super) fn has_everything(&self) -> bool {
        self.complete_from == Some(0)
    }
}

/// Whether an event can have been given its number there. What is about a stream has none.
fn is_given(key: &[u8], (after, last): (u64, u64)) -> bool {
    layout::place_of_event(key).is_some_and(|(_, Position(number))| {
        number == Position::START.0 || (after < number && number <= last)
    })
}
