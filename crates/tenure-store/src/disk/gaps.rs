//! Which sessions may have lost something in what is damaged of the tables.
//!
//! What was in a damaged block is not known, but the keys before and behind it are. A session between them, or
//! one of theirs, may have lost events. A session that has events or an owner but no record, where records
//! are missing, has lost its record. A record that is older than what is missing around it may be stale.

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
    /// Sessions that have a record, where records are missing.
    with_record: HashSet<SessionKey, RandomState>,
}

impl Gaps {
    /// Finds them in those of the damaged tables of which something may be missing.
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
        if self.records.iter().any(|gap| holds(gap, session, Keys::Records)) {
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

    /// Puts a session into the report if something of it may be missing. Called after all records were seen.
    pub(super) fn judge(&self, session: &SessionKey, report: &mut Report) {
        if self.events.iter().any(|gap| holds(gap, session, Keys::Sessions)) {
            report.affect(session.label(), |missing| missing.events = true);
        }
        if self.records.iter().any(|gap| holds(gap, session, Keys::Records))
            && !self.with_record.contains(session)
        {
            report.affect(session.label(), |missing| missing.record = true);
        }
    }
}

/// What the keys of a gap begin with.
#[derive(Clone, Copy)]
enum Keys {
    Records,
    Sessions,
}

/// Whether a session lies in a gap or at its edges. A gap without edges, such as a whole table, says nothing
/// about any one session.
fn holds(gap: &Gap, session: &SessionKey, keys: Keys) -> bool {
    if gap.after.is_none() && gap.before.is_none() {
        return false;
    }
    let key = match keys {
        Keys::Records => layout::record_key(RecordKey::session(*session)),
        Keys::Sessions => session.as_bytes().to_vec(),
    };
    // Of a longer key only what names the session counts.
    let cut = |edge: &fjall::Slice| edge[..edge.len().min(key.len())].to_vec();
    gap.after.as_ref().is_none_or(|after| cut(after) <= key)
        && gap.before.as_ref().is_none_or(|before| key <= cut(before))
}
