//! Finds the sessions that may have lost entries in damaged tables.
//!
//! The contents of a damaged block are unknown, but the keys before and after it are known. The sessions of these two
//! keys, and every session between them, may have lost events. Where records are missing, a session that has events or
//! an owner but no record has lost its record. A record in a gap may be stale if the gap can hold a newer version.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use tenure_session::id::SessionKey;
use tenure_session::port::store::RecordKey;

use super::layout;
use super::raw::Files;
use super::raw::table::{Flaw, Gap};
use super::report::Report;

pub(super) struct Gaps {
    records: Vec<Gap>,
    owners: Vec<Gap>,
    events: Vec<Gap>,
    /// Sessions in a gap of the records that still have a record.
    with_record: HashSet<SessionKey, RandomState>,
}

impl Gaps {
    /// Collects the gaps of the damaged tables that `may_miss` selects.
    pub(super) fn find(files: &Files, may_miss: impl Fn(&Flaw) -> bool) -> Self {
        let of = |names: &[&str]| {
            let of_these = |id: u64| files.keyspace(id).is_some_and(|name| names.contains(&name));
            let flaws = files.tables.iter().filter(|(id, _, flaw)| of_these(*id) && may_miss(flaw));
            flaws.flat_map(|(_, _, flaw)| flaw.gaps.clone()).collect::<Vec<_>>()
        };
        Self {
            records: of(&["records"]),
            owners: of(&["owners"]),
            events: of(&["events", "notes"]),
            with_record: HashSet::default(),
        }
    }

    /// Remembers that a session has a record.
    pub(super) fn saw_record(&mut self, session: &SessionKey) {
        if self.records.iter().any(|gap| holds(gap, session, GapKeys::Records)) {
            self.with_record.insert(*session);
        }
    }

    /// Whether a newer value of this key may be missing.
    pub(super) fn may_hide(&self, keyspace: &str, key: &[u8], seqno: u64) -> bool {
        let gaps = if keyspace == "records" { &self.records } else { &self.owners };
        gaps.iter().any(|gap| {
            let is_inside = gap.after.as_ref().is_none_or(|after| **after < *key)
                && gap.before.as_ref().is_none_or(|before| *key < **before);
            is_inside && seqno < gap.seqno
        })
    }

    /// Adds a session to the report if entries of it may be missing. Must run after all records were seen.
    pub(super) fn judge(&self, session: &SessionKey, report: &mut Report) {
        if self.events.iter().any(|gap| holds(gap, session, GapKeys::Sessions)) {
            report.affect(session.label(), |missing| missing.events = true);
        }
        if self.records.iter().any(|gap| holds(gap, session, GapKeys::Records))
            && !self.with_record.contains(session)
        {
            report.affect(session.label(), |missing| missing.record = true);
        }
    }
}

/// How the keys of a gap begin.
#[derive(Clone, Copy)]
enum GapKeys {
    Records,
    Sessions,
}

/// Whether a session lies in a gap or at its edges. A gap without edges, such as a whole table, names no session.
fn holds(gap: &Gap, session: &SessionKey, keys: GapKeys) -> bool {
    if gap.after.is_none() && gap.before.is_none() {
        return false;
    }
    let key = match keys {
        GapKeys::Records => layout::record_key(RecordKey::session(*session)),
        GapKeys::Sessions => session.as_bytes().to_vec(),
    };
    // Compare only the part of the key that names the session.
    let cut = |edge: &fjall::Slice| edge[..edge.len().min(key.len())].to_vec();
    gap.after.as_ref().is_none_or(|after| cut(after) <= key)
        && gap.before.as_ref().is_none_or(|before| key <= cut(before))
}
