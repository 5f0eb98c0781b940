//! The thread that writes the audit log, and the queue in front of it.
//!
//! In: records. Out: lines, many with one write, and for each record whether it is kept: with the operating system, so that a
//! kill of the process does not take it. The queue is bounded. A record that does not fit, or cannot be written, is not kept;
//! as soon as the log can be written again, it says how many there were.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tenure_session::port::clock::{Clock, Time};
use tokio::sync::oneshot;

use super::chain::Chain;
use super::file::AuditOutput;
use super::key::AuditKey;
use super::record::{Event, Record};

/// The most records that wait.
const MOST: usize = 4096;

/// The most bytes of one write.
const BATCH_BYTES: usize = 1 << 20;

/// The capacity that the buffer of lines keeps after a burst.
const KEPT_BYTES: usize = 64 << 10;

/// How often a head is written, if there is something to sign.
const HEADS: Duration = Duration::from_secs(60);

/// How long the end of the process waits for the disk.
const CLOSING: Duration = Duration::from_secs(5);

/// The writing end of the log. Cheap to clone.
#[derive(Clone)]
pub(super) struct AuditWriter(Arc<WriterShared>);

struct WriterShared {
    state: Mutex<WriterState>,
    /// Notified when there is something to do.
    some: Condvar,
    clock: Arc<dyn Clock>,
}

/// A record that waits, and who is told whether it is kept. In a box, since it is passed on several times.
type Waiting = (Box<Record>, Option<oneshot::Sender<bool>>);

#[derive(Default)]
struct WriterState {
    waiting: VecDeque<Waiting>,
    /// Records that did not fit.
    lost: u64,
    rotates: bool,
    closes: Option<oneshot::Sender<()>>,
    is_closed: bool,
}

/// The state of the thread.
pub(super) struct WriterParts {
    pub(super) output: Box<dyn AuditOutput>,
    pub(super) chain: Chain,
    pub(super) key: Arc<AuditKey>,
    pub(super) node: String,
    pub(super) max_bytes: u64,
}

/// Tells whether a record is kept.
pub(super) struct Receipt(Option<oneshot::Receiver<bool>>);

impl Receipt {
    /// Waits until the record is with the operating system, or it is clear that it never will be.
    pub(super) async fn kept(self) -> bool {
        match self.0 {
            Some(kept) => kept.await.unwrap_or(false),
            None => false,
        }
    }
}

impl AuditWriter {
    /// Starts the thread.
    pub(super) fn start(parts: WriterParts, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let shared = WriterShared { state: Mutex::default(), some: Condvar::new(), clock };
        let writer = Self(Arc::new(shared));
        let its = writer.clone();
        std::thread::Builder::new().name("tenure-audit".to_owned()).spawn(move || its.run(parts))?;
        Ok(writer)
    }

    pub(super) fn now(&self) -> Time {
        self.0.clock.now()
    }

    /// Records something.
    pub(super) fn record(&self, record: Box<Record>) -> Receipt {
        let (kept, receipt) = oneshot::channel();
        let taken = self.push(record, Some(kept));
        Receipt(taken.then_some(receipt))
    }

    /// Records an event without a wait.
    pub(super) fn note(&self, record: Box<Record>) {
        self.push(record, None);
    }

    fn push(&self, record: Box<Record>, kept: Option<oneshot::Sender<bool>>) -> bool {
        let mut state = self.0.state.lock();
        if state.is_closed || state.waiting.len() >= MOST {
            state.lost += 1;
            return false;
        }
        state.waiting.push_back((record, kept));
        drop(state);
        self.0.some.notify_one();
        true
    }

    /// Puts the file aside and begins another one.
    pub(super) fn rotate(&self) {
        self.0.state.lock().rotates = true;
        self.0.some.notify_one();
    }

    /// Writes the queue, signs it and ends the thread. Later records are not kept.
    pub(super) async fn close(&self) {
        let (closed, done) = oneshot::channel();
        {
            let mut state = self.0.state.lock();
            if state.is_closed {
                return;
            }
            state.closes = Some(closed);
        }
        self.0.some.notify_one();
        // Fails if the thread is gone; then nothing is left to wait for. A disk that hangs must not hold up the next process.
        if tokio::time::timeout(CLOSING, done).await.is_err() {
            tracing::error!("the audit log could not be closed in time; its last records may be missing");
        }
    }

    fn run(self, parts: WriterParts) {
        let mut thread = WriterThread { parts, lines: Vec::new(), unsigned: 0, lost: 0, is_told: false };
        let mut since = monotonic();
        loop {
            let mut state = self.0.state.lock();
            while state.waiting.is_empty() && state.closes.is_none() && !state.rotates {
                let slept = since.elapsed();
                if slept >= HEADS {
                    break;
                }
                self.0.some.wait_for(&mut state, HEADS - slept);
            }
            let batch = std::mem::take(&mut state.waiting);
            let lost = std::mem::take(&mut state.lost);
            let rotates = std::mem::take(&mut state.rotates);
            let closes = state.closes.take();
            state.is_closed |= closes.is_some();
            drop(state);
            thread.lost += lost;
            thread.write(batch, self.now());
            if rotates || thread.parts.output.len() >= thread.parts.max_bytes {
                thread.rotate(self.now());
            }
            if closes.is_some() {
                thread.write_one(Record::new(Event::AuditClosed, self.now()), self.now());
            }
            if since.elapsed() >= HEADS || closes.is_some() {
                thread.sign(self.now());
                since = monotonic();
            }
            if let Some(closed) = closes {
                // Closes the file, and so gives up its lock, before a waiting caller may go on.
                drop(thread);
                let _ = closed.send(());
                return;
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the thread sleeps in real time")]
fn monotonic() -> std::time::Instant {
    std::time::Instant::now()
}

struct WriterThread {
    parts: WriterParts,
    /// The lines of one write.
    lines: Vec<u8>,
    /// Records since the last head.
    unsigned: u64,
    /// Records that were not kept, and are not yet counted in the log.
    lost: u64,
    /// The log of the process was told that this log cannot be written.
    is_told: bool,
}

impl WriterThread {
    /// Writes records, in batches.
    fn write(&mut self, batch: VecDeque<Waiting>, now: Time) {
        let mut batch = batch.into_iter().peekable();
        while batch.peek().is_some() {
            let before = self.parts.chain.clone();
            let (mut lines, mut waiting, mut count) = (std::mem::take(&mut self.lines), Vec::new(), 0);
            if self.lost > 0 {
                let mut record = Record::new(Event::AuditLost, now);
                record.count = Some(self.lost);
                self.parts.chain.append(record, &self.parts.node, &mut lines);
            }
            while lines.len() < BATCH_BYTES
                && let Some((record, kept)) = batch.next()
            {
                self.parts.chain.append(*record, &self.parts.node, &mut lines);
                waiting.extend(kept);
                count += 1;
            }
            let is_kept = self.append(&lines);
            lines.clear();
            lines.shrink_to(KEPT_BYTES);
            self.lines = lines;
            if is_kept {
                self.lost = 0;
                self.unsigned += count;
            } else {
                self.parts.chain = before;
                self.lost += count;
            }
            for kept in waiting {
                // Fails if its call is over; then no task waits for it.
                let _ = kept.send(is_kept);
            }
        }
    }

    fn write_one(&mut self, record: Record, now: Time) {
        self.write([(Box::new(record), None)].into(), now);
    }

    fn append(&mut self, lines: &[u8]) -> bool {
        match self.parts.output.append(lines) {
            Ok(()) => {
                if std::mem::take(&mut self.is_told) {
                    tracing::info!("the audit log can be written again");
                }
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_told, true) {
                    tracing::error!(%error, "the audit log cannot be written");
                }
                false
            }
        }
    }

    /// Writes a head and keeps it beside the log too: only a head that is on the disk may say how long the log is.
    fn sign(&mut self, now: Time) {
        if self.unsigned == 0 {
            return;
        }
        let before = self.parts.chain.clone();
        let line = self.parts.chain.sign(&self.parts.key, &self.parts.node, now);
        if !self.append(&line) {
            self.parts.chain = before;
            return;
        }
        self.unsigned = 0;
        let kept = self.parts.output.sync().and_then(|()| self.parts.output.keep_head(&line));
        if let Err(error) = kept {
            tracing::error!(%error, "the head of the audit log cannot be kept beside it");
        }
        let Chain { seq, hash } = &self.parts.chain;
        tracing::info!(target: "tenure::audit", seq, hash = %hash, "head of the audit log");
    }

    fn rotate(&mut self, now: Time) {
        self.write_one(Record::new(Event::AuditRotated, now), now);
        self.sign(now);
        if self.is_told {
            // The chain has to be whole in this file first.
            return;
        }
        match self.parts.output.rotate(self.parts.chain.seq + 1) {
            Ok(old) => {
                let mut record = Record::new(Event::AuditContinued, now);
                record.name = Some(old.into());
                self.write_one(record, now);
            }
            Err(error) => {
                // Tried again when as much was written again.
                self.parts.max_bytes = self.parts.max_bytes.saturating_add(self.parts.output.len());
                tracing::error!(%error, "the audit log goes on in the same file");
            }
        }
    }
}

#[cfg(test)]
mod tests;
