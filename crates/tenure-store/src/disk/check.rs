//! Reads a whole store and reports its damage, without changing anything.
//!
//! Decodes every entry and compares the index of deadlines with the records. A repair uses the same walk: every
//! readable entry goes to a [`Sink`], which keeps it in a repair and drops it in a check.

use std::collections::HashMap;
use std::path::Path;

use fjall::Slice;
use foldhash::fast::RandomState;
use tenure_session::id::{Position, SessionKey};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{RecordKey, Space};

use super::error::DiskError;
use super::fates::{Fates, KeyFate};
use super::gaps::Gaps;
use super::guard;
use super::layout;
use super::mark::Mark;
use super::private;
use super::raw::{ByteProgress, Files, RawEntry};
use super::report::{Damage, DamageKind, Report};
use crate::copy::log_of_rmcp;

/// Checks the store in a folder. The store must not be open. Reports its progress to `progress`.
///
/// # Errors
/// When it is in use, of another layout, not there, or the disk cannot be read.
pub fn check(folder: &Path, mut progress: impl FnMut(ByteProgress)) -> Result<Report, DiskError> {
    let _lock = guard::lock(folder)?;
    let mark = Mark::open(folder).map_err(DiskError::io(folder))?;
    let files = Files::read(&folder.join("data"), &mut progress).map_err(DiskError::io(folder))?;
    let exposed = private::exposed(folder).map_err(DiskError::io(folder))?;
    Ok(Report { exposed, ..walk(folder, &files, &mark, &mut Nowhere)?.report })
}

/// Takes the readable entries of a walk.
pub(super) trait Sink {
    /// Takes an entry. The entries of a keyspace come together and in order.
    fn take(&mut self, keyspace: &'static str, key: &Slice, value: &Slice) -> Result<(), DiskError>;
}

/// Drops every entry.
pub(super) struct Nowhere;

impl Sink for Nowhere {
    fn take(&mut self, _: &'static str, _: &Slice, _: &Slice) -> Result<(), DiskError> {
        Ok(())
    }
}

/// The result of a walk through a store.
pub(super) struct Walked {
    pub(super) report: Report,
    /// The highest sequence number in use.
    pub(super) sequence: u64,
    /// The number of the last batch.
    pub(super) batch: u64,
    /// The records that have a deadline.
    pub(super) deadlines: HashMap<RecordKey, Time, RandomState>,
}

/// Reads and decodes everything, and passes readable entries to the sink, except counters and deadlines.
pub(super) fn walk(
    folder: &Path,
    files: &Files,
    mark: &Mark,
    sink: &mut dyn Sink,
) -> Result<Walked, DiskError> {
    let walked = Walked { report: Report::default(), sequence: 0, batch: 0, deadlines: HashMap::default() };
    let fates = Fates::find(files, mark).map_err(DiskError::io(folder))?;
    let gaps = Gaps::find(files, |flaw| !fates.has_all_of(flaw));
    let mut walk = Walk { folder, files, fates, gaps, walked, sink };
    walk.counters()?;
    walk.damage(mark);
    walk.records()?;
    walk.owners()?;
    walk.events()?;
    walk.notes()?;
    walk.deadlines()?;
    Ok(walk.walked)
}

struct Walk<'a> {
    folder: &'a Path,
    files: &'a Files,
    fates: Fates<'a>,
    gaps: Gaps,
    walked: Walked,
    sink: &'a mut dyn Sink,
}

impl Walk<'_> {
    /// Visits the entries of a keyspace, and passes those that the visitor can decode to the sink.
    fn each(
        &mut self,
        keyspace: &'static str,
        mut visit: impl FnMut(&mut Walked, &mut Gaps, &RawEntry, &Slice) -> Option<()>,
    ) -> Result<(), DiskError> {
        for entry in self.files.entries(keyspace) {
            let entry = entry.map_err(DiskError::io(self.folder))?;
            let Some(value) = &entry.value else { continue };
            match visit(&mut self.walked, &mut self.gaps, &entry, value) {
                Some(()) => {
                    self.walked.report.totals.count(keyspace, &entry.key, value);
                    self.sink.take(keyspace, &entry.key, value)?;
                }
                None => self.walked.report.unreadable += 1,
            }
        }
        Ok(())
    }

    fn counters(&mut self) -> Result<(), DiskError> {
        for entry in self.files.entries("meta") {
            let entry = entry.map_err(DiskError::io(self.folder))?;
            let number = entry.value.as_ref().and_then(|value| layout::read_u64(value, 0));
            match (&*entry.key, number) {
                (layout::META_FORMAT, Some(found)) if found != layout::FORMAT => {
                    return Err(DiskError::Format { path: self.folder.to_owned(), found });
                }
                (layout::META_SEQUENCE, Some(number)) => self.walked.sequence = number,
                (layout::META_BATCH, Some(number)) => self.walked.batch = number,
                _ => {}
            }
        }
        Ok(())
    }

    fn damage(&mut self, mark: &Mark) {
        let (files, fates) = (self.files, &self.fates);
        let walked = &mut self.walked;
        let report = &mut walked.report;
        // As in an opening, the end of the journal counts, not the tables.
        let last = files.last_batch.unwrap_or(0);
        walked.batch = walked.batch.max(last);
        report.missing_batches = mark.batch().saturating_sub(last);
        if mark.is_damaged() {
            let file = mark.path().strip_prefix(self.folder).unwrap_or(mark.path()).to_owned();
            report.damage.push(Damage { file, kind: DamageKind::Mark, is_refused: false, lost: Some(0) });
        }
        for (file, may_hide_loss) in &files.manifests {
            // It is unknown whether the manifest listed a table that is gone.
            let may_hide_loss = *may_hide_loss && !fates.has_everything();
            let (file, lost) = (file.clone(), (!may_hide_loss).then_some(0));
            report.damage.push(Damage { file, kind: DamageKind::Manifest, is_refused: true, lost });
        }
        let lost_at_end = report.missing_batches;
        for flaw in &files.journals {
            let lost_at_end = if flaw.is_unfinished { lost_at_end } else { 0 };
            if flaw.is_unfinished && lost_at_end == 0 {
                continue;
            }
            let lost: u64 = flaw.stretches.iter().map(|stretch| fates.lost(stretch)).sum();
            report.missing_batches += lost;
            let (file, lost) = (flaw.file.clone(), Some(lost + lost_at_end));
            report.damage.push(Damage { file, kind: DamageKind::Journal, is_refused: true, lost });
            for stretch in &flaw.stretches {
                for (keyspace, key) in &stretch.keys {
                    tell(report, files.keyspace(*keyspace), key, fates.of(stretch, *keyspace, key));
                }
            }
        }
        for (keyspace, file, flaw) in &files.tables {
            let name = files.keyspace(*keyspace).unwrap_or("engine").to_owned();
            let (file, kind, is_refused) = (file.clone(), DamageKind::Table(name), flaw.is_refused);
            let lost = if fates.has_all_of(flaw) { Some(0) } else { flaw.lost };
            report.damage.push(Damage { file, kind, is_refused, lost });
        }
    }

    fn records(&mut self) -> Result<(), DiskError> {
        self.each("records", |walked, gaps, entry, value| {
            let (record, key) = (layout::read_record(value)?, layout::read_record_key(&entry.key)?);
            walked.sequence = walked.sequence.max(record.version.0);
            match key.space {
                Space::Session => {
                    gaps.saw_record(&key.key);
                    gaps.judge(&key.key, &mut walked.report);
                }
                Space::Rmcp => {
                    let log = log_of_rmcp(&record.value);
                    log.inspect(|log| gaps.saw_record(log));
                }
                _ => {}
            }
            walked.report.doubtful += u64::from(gaps.may_hide("records", &entry.key, entry.seqno));
            if let Some(deadline) = record.deadline {
                walked.deadlines.insert(key, deadline);
            }
            Some(())
        })
    }

    fn owners(&mut self) -> Result<(), DiskError> {
        self.each("owners", |walked, gaps, entry, value| {
            let (_, epoch) = layout::read_owner(value)?;
            let session = session(&entry.key)?;
            walked.sequence = walked.sequence.max(epoch.0);
            walked.report.doubtful += u64::from(gaps.may_hide("owners", &entry.key, entry.seqno));
            gaps.judge(&session, &mut walked.report);
            Some(())
        })
    }

    fn events(&mut self) -> Result<(), DiskError> {
        self.each("events", |walked, gaps, entry, value| {
            let (stream, position) = layout::place_of_event(&entry.key)?;
            let session = session(&entry.key)?;
            let highest = if stream == layout::NO_STREAM {
                layout::read_gone(value)?.trimmed.0
            } else if position == Position::START {
                layout::read_u64(value, 0)?
            } else {
                layout::read_event(position, value)?;
                position.0
            };
            walked.sequence = walked.sequence.max(highest);
            gaps.judge(&session, &mut walked.report);
            Some(())
        })
    }

    fn notes(&mut self) -> Result<(), DiskError> {
        self.each("notes", |_, _, entry, _| layout::stream_of_note(&entry.key).map(|_| ()))
    }

    /// Compares the index with the records. It does not go to the sink, because a repair rebuilds it.
    fn deadlines(&mut self) -> Result<(), DiskError> {
        let mut wanted = self.walked.deadlines.clone();
        for entry in self.files.entries("deadlines") {
            let entry = entry.map_err(DiskError::io(self.folder))?;
            self.walked.report.totals.count("deadlines", &entry.key, &[]);
            let found = layout::read_deadline_key(&entry.key);
            let is_right = found.is_some_and(|(at, key)| {
                let is_right = wanted.get(&key) == Some(&at);
                if is_right {
                    wanted.remove(&key);
                }
                is_right
            });
            self.walked.report.stale_deadlines += u64::from(!is_right);
        }
        self.walked.report.missing_deadlines = wanted.len() as u64;
        Ok(())
    }
}

/// Adds the loss of a key, which a damaged stretch of a journal wrote, to the report.
fn tell(report: &mut Report, keyspace: Option<&str>, key: &[u8], fate: KeyFate) {
    if fate == KeyFate::Known {
        return;
    }
    match keyspace {
        Some("records") => {
            let label = layout::read_record_key(key).map(|key| key.label());
            let is_older = fate == KeyFate::Older;
            label.into_iter().for_each(|label| {
                report.affect(label, |missing| {
                    missing.record |= !is_older;
                    missing.newer_record |= is_older;
                });
            });
        }
        Some("owners") => {
            let label = session(key).map(|session| session.label());
            label.into_iter().for_each(|label| report.affect(label, |missing| missing.owner = true));
        }
        Some("events" | "notes") => {
            let label = session(key).map(|session| session.label());
            label.into_iter().for_each(|label| report.affect(label, |missing| missing.events = true));
        }
        _ => {}
    }
}

fn session(key: &[u8]) -> Option<SessionKey> {
    Some(SessionKey::from_bytes(key.get(..16)?.try_into().ok()?))
}
