//! Writes logs: appends, trims, drops and restores.
//!
//! An append is one message that the engine takes only while the owner of the session is the writer: it compares the
//! sequence of the owner's subject. It is sent once; if its answer is lost, its outcome is unknown until the session is
//! claimed anew, which fences it.

use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use serde::de::IgnoredAny;
use tenure_session::id::{Position, SessionKey};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, Epoch, Keep, KeptEvents, NewEvent, SavedLog, StoreError};

use crate::frame::{self, FrameEntry, RESTORE_ID};
use crate::head::{Head, HeadStream, MAX_ENTRIES, position};
use crate::log_cache::Cut;
use crate::names::Shard;
use crate::parts::Parts;
use crate::swap::{self, SwapError, there};
use crate::wire::{Doubt, Fault, Tries, code};

/// The subject whose sequence an append compares.
const NATS_EXPECTED_SUBJECT: HeaderName =
    HeaderName::from_static("Nats-Expected-Last-Subject-Sequence-Subject");

/// Messages without anything that is kept are removed when there are so many of them.
const REMOVE_AT: usize = 64;
/// How often a trim or a drop begins anew because the log was changed by others meanwhile.
const ROUNDS: usize = 8;
/// Entries of a restore in one message.
const RESTORED_ENTRIES: usize = 256;
/// The positions of two thousand messages: many times more than a shard takes in a millisecond, so that the lift of a later
/// time is soon above all positions that were given out with an earlier one. See [`Parts::restore`].
const POSITIONS_PER_MILLISECOND: u64 = 1 << 21;

impl Parts {
    pub(crate) async fn append(
        &self,
        session: SessionKey,
        epoch: Epoch,
        batch: Vec<NewEvent>,
    ) -> Result<Vec<Position>, StoreError> {
        if batch.len() > MAX_ENTRIES || frame::size_of(&batch) > self.max_batch_bytes {
            return Err(StoreError::TooLarge);
        }
        let (shard, owner) = (self.names.shard(&session), self.names.owner(&session));
        let mut tries = self.wire.tries();
        if batch.is_empty() {
            let kept = there(self.wire.last(&mut tries, shard, &owner).await?);
            let is_owner = kept.is_some_and(|kept| kept.sequence == epoch.0);
            return if is_owner { Ok(Vec::new()) } else { Err(StoreError::Fenced) };
        }
        let log = self.logs.of(session);
        let lift = match log.lift(epoch) {
            Some(lift) => lift,
            None => {
                let lift = self.head(&mut tries, &session).await?.0.lift;
                log.set_lift(epoch, lift);
                lift
            }
        };
        let payload = frame::encode(&batch);
        let subject = self.names.events(&session);
        let mut headers = HeaderMap::new();
        // 0 would mean that there is no owner.
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(epoch.0.max(1)));
        headers.insert(NATS_EXPECTED_SUBJECT, owner.as_str());
        let appending = log.begin();
        let sequence = loop {
            let sent =
                self.wire.publish(tries.until, subject.clone(), headers.clone(), payload.clone()).await;
            let ended = match sent {
                Ok(sequence) => break sequence,
                Err(Fault::NoAnswer) => return Err(StoreError::Unknown),
                Err(Fault::Refused(refusal)) if refusal.err_code == code::WRONG_SEQUENCE => {
                    Err(StoreError::Fenced)
                }
                Err(fault) => tries.again(fault, Doubt::None).await,
            };
            if let Err(error) = ended {
                appending.did_nothing();
                return Err(error);
            }
        };
        let positions: Vec<Position> =
            (0..batch.len()).map(|place| position(lift, sequence, place)).collect();
        appending.done(sequence, &positions, batch);
        Ok(positions)
    }

    pub(crate) async fn trim(&self, session: SessionKey, keep: Keep) -> Result<KeptEvents, StoreError> {
        let log = self.logs.of(session);
        for _ in 0..ROUNDS {
            let known = match log.cut(keep) {
                Some(known) => known,
                None => {
                    let changes = log.changes();
                    let view = self.load(&session).await?;
                    let cut = view.cut(keep).map(|cut| (cut, view.head_sequence));
                    log.keep_view(&self.logs, view, changes);
                    cut
                }
            };
            let (cut, before) = match known {
                Ok(cut) => cut,
                Err(kept) => return Ok(kept),
            };
            match self.write_cut(&session, &cut, before).await {
                Ok((after, removed)) => {
                    log.was_cut(&cut, before, after, removed);
                    return Ok(cut.kept);
                }
                Err(SwapError::Mismatch(_)) => log.forget_view(),
                Err(SwapError::Store(error)) => {
                    log.forget_view();
                    return Err(error);
                }
            }
        }
        Err(StoreError::Busy)
    }

    /// Writes the new head, and then removes the messages that it stands for, if there are many of them.
    async fn write_cut(
        &self,
        session: &SessionKey,
        cut: &Cut,
        before: u64,
    ) -> Result<(u64, bool), SwapError> {
        let (shard, subject) = (self.names.shard(session), self.names.head(session));
        let payload = cut.head.encode();
        if payload.len() > self.max_batch_bytes {
            return Err(StoreError::TooLarge.into());
        }
        let mut tries = self.wire.tries();
        let after = swap::swap(&self.wire, &self.ids, &mut tries, shard, &subject, before, payload).await?;
        let is_worth_it = cut.to_remove >= REMOVE_AT || (cut.kept.events == 0 && cut.to_remove > 0);
        // Entries that cannot be removed now only take room until the next trim.
        let removed = is_worth_it && self.remove_before(&mut tries, session, cut.keep_from).await.is_ok();
        Ok((after, removed))
    }

    /// Removes the messages of a log before a sequence.
    async fn remove_before(
        &self,
        tries: &mut Tries,
        session: &SessionKey,
        sequence: u64,
    ) -> Result<(), StoreError> {
        let shard = self.names.shard(session);
        let body = format!(r#"{{"filter":"{}","seq":{sequence}}}"#, self.names.events(session));
        loop {
            match self.wire.ask::<IgnoredAny>(tries.until, shard.purge.clone(), body.clone()).await {
                Ok(_) => return Ok(()),
                Err(fault) => tries.again(fault, Doubt::None).await?,
            }
        }
    }

    pub(crate) async fn drop_session(&self, session: SessionKey) -> Result<(), StoreError> {
        let (shard, owner) = (self.names.shard(&session), self.names.owner(&session));
        let mut tries = self.wire.tries();
        self.logs.forget(session);
        self.take_away(&mut tries, shard, &owner).await?;
        // From here on nothing more is appended. A drop that is late removes nothing of what a later owner writes.
        let (events, head) = (self.names.events(&session), self.names.head(&session));
        if let Some(last) = self.wire.last(&mut tries, shard, &events).await? {
            self.remove_before(&mut tries, &session, last.sequence + 1).await?;
        }
        // After the events: without the head, positions and trims would mean something else.
        self.take_away(&mut tries, shard, &head).await?;
        self.logs.forget(session);
        Ok(())
    }

    /// Removes the last message of a subject, whatever it is.
    async fn take_away(
        &self,
        tries: &mut Tries,
        shard: &Shard,
        subject: &async_nats::Subject,
    ) -> Result<(), StoreError> {
        for _ in 0..ROUNDS {
            let Some(kept) = there(self.wire.last(tries, shard, subject).await?) else { return Ok(()) };
            let taken =
                swap::swap(&self.wire, &self.ids, tries, shard, subject, kept.sequence, Bytes::new()).await;
            match taken {
                Ok(_) => return Ok(()),
                Err(SwapError::Mismatch(_)) => {}
                Err(SwapError::Store(error)) => return Err(error),
            }
        }
        Err(StoreError::Busy)
    }

    /// Puts back a saved log. The session must not be used meanwhile.
    pub(crate) async fn restore(&self, session: SessionKey, log: SavedLog) -> Result<(), StoreError> {
        let mut tries = self.wire.tries();
        let mut id = [0; RESTORE_ID];
        getrandom::fill(&mut id).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let (mut head, entries) = split(log);
        // Written first, and part of the log only when the head names this restore: so the log is replaced at once.
        let mut base = None;
        for part in self.parts_of(&entries) {
            let sequence = self.write_part(&mut tries, &session, frame::encode_restored(&id, part)).await?;
            base.get_or_insert(sequence);
        }
        // The store that it was saved from may have given out more positions since. No store is ahead of this number.
        let now = lift_at(self.clock.now());
        let highest = entries.last().map_or(head.folded, |(position, _)| (*position).max(head.folded));
        head.lift = now.max(highest.0);
        head.base = base.unwrap_or(0);
        head.restored = Some(id);
        let (shard, subject) = (self.names.shard(&session), self.names.head(&session));
        for _ in 0..ROUNDS {
            let before = self.wire.last(&mut tries, shard, &subject).await?.map_or(0, |kept| kept.sequence);
            let written =
                swap::swap(&self.wire, &self.ids, &mut tries, shard, &subject, before, head.encode()).await;
            match written {
                Ok(_) => {
                    self.logs.forget(session);
                    // The replaced entries are no longer part of the log; they only take room.
                    if let Err(error) = self.remove_before(&mut tries, &session, head.base).await {
                        tracing::debug!(session = %session.label(), %error, "could not remove a replaced log");
                    }
                    return Ok(());
                }
                Err(SwapError::Mismatch(_)) => {}
                Err(SwapError::Store(error)) => return Err(error),
            }
        }
        Err(StoreError::Busy)
    }

    /// The entries of a restore by messages; at least one message, so that the log has a beginning.
    fn parts_of<'a>(&self, entries: &'a [(Position, FrameEntry)]) -> Vec<&'a [(Position, FrameEntry)]> {
        let (mut parts, mut rest) = (Vec::new(), entries);
        loop {
            let mut bytes = 0;
            let fits = rest.iter().take(RESTORED_ENTRIES).take_while(|(_, entry)| {
                bytes += entry.body.len() + 64;
                bytes <= self.max_value_bytes
            });
            // An entry that is too large alone is refused by the engine.
            let count = fits.count().max(1).min(rest.len());
            let (part, after) = rest.split_at(count);
            parts.push(part);
            rest = after;
            if rest.is_empty() {
                return parts;
            }
        }
    }

    async fn write_part(
        &self,
        tries: &mut Tries,
        session: &SessionKey,
        payload: Bytes,
    ) -> Result<u64, StoreError> {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, self.ids.next());
        let (subject, mut doubt) = (self.names.events(session), Doubt::None);
        loop {
            let sent = self.wire.publish(tries.until, subject.clone(), headers.clone(), payload.clone());
            match sent.await {
                Ok(sequence) => return Ok(sequence),
                Err(fault) => {
                    if fault == Fault::NoAnswer {
                        doubt = Doubt::MayHaveHappened;
                    }
                    tries.again(fault, doubt).await?;
                }
            }
        }
    }
}

/// The lift of a log that is restored at this time.
fn lift_at(now: Time) -> u64 {
    now.0.saturating_mul(POSITIONS_PER_MILLISECOND)
}

/// The head of a saved log, and its entries in the order of their positions.
fn split(log: SavedLog) -> (Head, Vec<(Position, FrameEntry)>) {
    let mut head = Head { trimmed: log.trimmed, next_stream: log.next_stream, ..Head::default() };
    let mut entries = Vec::new();
    for saved in log.streams {
        let stream = saved.stream;
        head.trimmed = head.trimmed.max(saved.trimmed);
        head.next_stream = head.next_stream.max(stream.number().saturating_add(1));
        let ended = saved.events.last().is_some_and(|event| event.place == EntryPlace::End);
        // A stream of which nothing was trimmed is known by its events, or by its note.
        if saved.trimmed > Position::START || saved.note.is_some() || (saved.events.is_empty() && !ended) {
            head.streams.insert(stream, HeadStream { trimmed: saved.trimmed, note: saved.note });
        }
        entries.extend(saved.events.into_iter().map(|event| {
            let (place, at, body) = (event.place, event.at, event.body);
            (event.position, FrameEntry { stream, place, at, body })
        }));
    }
    head.folded = head.trimmed;
    // Nothing at or before the trimmed position is kept.
    entries.retain(|(position, _)| *position > head.trimmed);
    entries.sort_unstable_by_key(|(position, _)| *position);
    (head, entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_restored_again_is_above_what_the_store_gave_out_in_between() {
        const HOUR: u64 = 3_600_000;
        let began = Time(1_800_000_000_000);
        // A shard that had taken a hundred million messages, and takes ten in each millisecond after that.
        let last = position(lift_at(began), 100_000_000 + 10 * HOUR, MAX_ENTRIES - 1);
        assert!(lift_at(Time(began.0 + HOUR)) > last.0);
        // For a century there is room above.
        assert!(position(lift_at(Time(began.0 + 36_525 * 24 * HOUR)), 1 << 50, 0).0 < u64::MAX);
    }
}
