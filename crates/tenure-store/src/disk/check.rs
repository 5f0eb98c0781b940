//! Reads a store from end to end and says what is wrong with it, without changing anything.
//!
//! Every entry is decoded, and the index of deadlines is compared with the records. The same walk serves the
//! repair: what is read goes to a sink, which for a check is none.

use std::collections::HashMap;
use std::path::Path;

use fjall::Slice;
use foldhash::fast::RandomState;
use tenure_session::id::{Position, SessionKey};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{RecordKey, Space};

use super::error::DiskError;
use super::fates::{Fate, Fates};
use super::gaps::Gaps;
use super::guard;
use super::layout;
use super::mark::Mark;
use super::private;
use super::raw::{Entry, Files, Stage};
use super::report::{Damage, Kind, Report};
use crate::copy::log_of_rmcp;

/// Looks through the store in a folder. It must not be open. Says every now and then how far it is.
///
/// # Errors
/// When it is in use, of another layout, not there, or the disk cannot be read.
pub fn check(folder: &Path, mut progress: impl FnMut(Stage)) -> Result<Report, DiskError> {
    let _lock = guard::lock(folder)?;
    let mark = Mark::open(folder).map_err(DiskError::io(folder))?;
    let files = Files::read(&folder.join("data"), &mut progress).map_err(DiskError::io(folder))?;
    let exposed = private::exposed(folder).map_err(DiskError::io(folder))?;
    Ok(Report { exposed, ..walk(folder, &files, &mark, &mut Nowhere)?.report })
}

/// Where what was read goes.
pub(super) trait Sink {
    /// Takes an entry. Those of a keyspace come together and in order.
    fn take(&mut self, keyspace: &'static str, key: &Slice, value: &Slice) -> Result<(), DiskError>;
}

/// Takes nothing in.
pub(super) struct Nowhere;

impl Sink for Nowhere {
    fn take(&mut self, _: &'static str, _: &Slice, _: &Slice) -> Result<(), DiskError> {
        Ok(())
    }
}

/// What a walk through a store found.
pub(super) struct Walked {
    pub(super) report: Report,
    /// The highest number that was given to anything.
    pub(super) sequence: u64,
    /// The number of the last batch.
    pub(super) batch: u64,
    /// The records that have a deadline.
    pub(super) deadlines: HashMap<RecordKey, Time, RandomState>,
}

/// Reads everything, decodes it, and hands on what makes sense, all but counters and deadlines.
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
    /// Goes through a keyspace. What the visitor understands is handed on.
    fn each(
        &mut self,
        keyspace: &'static str,
        mut visit: impl FnMut(&mut Walked, &mut Gaps, &Entry, &Slice) -> Option<()>,
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
        // As when it is opened, what counts is how far the journal goes, not the tables.
        let last = files.last_batch.unwrap_or(0);
        walked.batch = walked.batch.max(last);
        report.missing_batches = mark.batch().saturating_sub(last);
        if mark.is_damaged() {
            let file = mark.path().strip_prefix(self.folder).unwrap_or(mark.path()).to_owned();
            report.damage.push(Damage { file, kind: Kind::Mark, is_refused: false, lost: Some(0) });
        }
        for (file, may_hide_loss) in &files.manifests {
            // Whether a table was listed that is not there any more cannot be told.
            let may_hide_loss = *may_hide_loss && !fates.has_everything();
            let (file, lost) = (file.clone(), (!may_hide_loss).then_some(0));
            report.damage.push(Damage { file, kind: Kind::Manifest, is_refused: true, lost });
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
            report.damage.push(Damage { file, kind: Kind::Journal, is_refused: true, lost });
            for stretch in &flaw.stretches {
                for (keyspace, key) in &stretch.keys {
                    tell(report, files.keyspace(*keyspace), key, fates.of(stretch, *keyspace, key));
                }
            }
        }
        for (keyspace, file, flaw) in &files.tables {
            let name = files.keyspace(*keyspace).unwrap_or("engine").to_owned();
            let (file, kind, is_refused) = (file.clone(), Kind::Table(name), flaw.is_refused);
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

    /// Compares the index with the records. It is not handed on: whoever wants it makes it anew.
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

/// Tells of a key that was written in a damaged stretch of a journal what became of it.
fn tell(report: &mut Report, keyspace: Option<&str>, key: &[u8], fate: Fate) {
    if fate == Fate::Known {
        return;
    }
    match keyspace {
        Some("records") => {
            let label = layout::read_record_key(key).map(|key| key.label());
            let is_older = fate == Fate::Older;
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
