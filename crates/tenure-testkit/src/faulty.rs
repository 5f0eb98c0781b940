//! A store whose calls fail on demand: the Nth, or all while a switch is on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_session::forward_store;
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    Epoch, Expected, Keep, KeptEvents, NewEvent, ReadLimit, Record, RecordKey, Space, Store,
    StoreCapabilities, StoreDurability, StoreError, Stored, StreamEvents, Trouble, Version,
};
use tokio::sync::watch;

use crate::crash::Last;

/// How many calls of `expired` [`Faulty::swept`] waits for before it fails.
const MAX_LOOKS: u64 = 1_000;

/// A store around a store, with faults.
pub struct Faulty {
    inner: Arc<dyn Store>,
    calls: AtomicU64,
    fail_at: AtomicU64,
    broken: AtomicBool,
    lasts: AtomicBool,
    held: watch::Sender<bool>,
    append_answers_held: watch::Sender<bool>,
    read_answers_held: watch::Sender<bool>,
    marks_held: watch::Sender<bool>,
    reads: watch::Sender<u64>,
    trims_fail: AtomicBool,
    trims: AtomicU64,
    puts_held: watch::Sender<bool>,
    next_put_held: AtomicBool,
    puts_fail: Mutex<Option<StoreError>>,
    puts: AtomicU64,
    puts_under_way: watch::Sender<u64>,
    all_due: AtomicBool,
    look_panics: Mutex<Option<Space>>,
    get_panics: Mutex<Option<RecordKey>>,
    lost: Mutex<Option<Last>>,
    lost_delete: Mutex<Option<Last>>,
    trouble: Mutex<Option<Trouble>>,
    looks: watch::Sender<Looks>,
}

/// How often `expired` was called.
#[derive(Default)]
struct Looks {
    all: u64,
    /// Calls that found nothing due.
    idle: u64,
}

impl Faulty {
    /// A store that works until a fault is set.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            calls: AtomicU64::new(0),
            fail_at: AtomicU64::new(u64::MAX),
            broken: AtomicBool::new(false),
            lasts: AtomicBool::new(false),
            held: watch::Sender::new(false),
            append_answers_held: watch::Sender::new(false),
            read_answers_held: watch::Sender::new(false),
            marks_held: watch::Sender::new(false),
            reads: watch::Sender::new(0),
            trims_fail: AtomicBool::new(false),
            trims: AtomicU64::new(0),
            puts_held: watch::Sender::new(false),
            next_put_held: AtomicBool::new(false),
            puts_fail: Mutex::new(None),
            puts: AtomicU64::new(0),
            puts_under_way: watch::Sender::new(0),
            all_due: AtomicBool::new(false),
            look_panics: Mutex::new(None),
            get_panics: Mutex::new(None),
            lost: Mutex::new(None),
            lost_delete: Mutex::new(None),
            trouble: Mutex::new(None),
            looks: watch::Sender::default(),
        }
    }

    /// The wrapped store.
    pub fn inner(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner)
    }

    /// Makes the `n`th call from now fail, counting from 0.
    pub fn fail_nth(&self, n: u64) {
        self.fail_at.store(self.calls.load(Ordering::SeqCst) + n, Ordering::SeqCst);
    }

    /// Declares the durability of a store that outlives the process, for tests that start another process on it.
    pub fn set_lasting(&self) {
        self.lasts.store(true, Ordering::SeqCst);
    }

    /// Sets the trouble that the store reports, or none.
    pub fn set_trouble(&self, trouble: Option<Trouble>) {
        *self.trouble.lock() = trouble;
    }

    /// Makes every call fail, or work again.
    pub fn set_broken(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    /// Holds appends back until [`Faulty::release_appends`]: a slow disk.
    pub fn hold_appends(&self) {
        self.held.send_replace(true);
    }

    /// Lets appends go on.
    pub fn release_appends(&self) {
        self.held.send_replace(false);
    }

    /// Makes appends take effect at once but answer only after [`Faulty::answer_appends`].
    pub fn hold_answers_of_appends(&self) {
        self.append_answers_held.send_replace(true);
    }

    /// Lets appends answer.
    pub fn answer_appends(&self) {
        self.append_answers_held.send_replace(false);
    }

    /// Makes reads of events read at once but answer only after [`Faulty::answer_reads`].
    pub fn hold_answers_of_reads(&self) {
        self.read_answers_held.send_replace(true);
    }

    /// Lets reads of events answer.
    pub fn answer_reads(&self) {
        self.read_answers_held.send_replace(false);
    }

    /// Makes reads take their events at once, but read only after [`Faulty::look_at_marks`] how far their stream was
    /// trimmed. This simulates an engine that does not read both at the same moment, with trims in between.
    pub fn hold_looks_at_marks(&self) {
        self.marks_held.send_replace(true);
    }

    /// Lets reads find out how far their stream was trimmed.
    pub fn look_at_marks(&self) {
        self.marks_held.send_replace(false);
    }

    /// Watches how many reads of events were done, whether or not they may answer yet.
    pub fn reads(&self) -> watch::Receiver<u64> {
        self.reads.subscribe()
    }

    /// Makes writes of records take effect at once but answer only after [`Faulty::answer_puts`].
    pub fn hold_answers_of_puts(&self) {
        self.puts_held.send_replace(true);
    }

    /// Makes the next write of a record take effect at once but answer only after [`Faulty::answer_puts`]; later writes
    /// are not held.
    pub fn hold_answer_of_next_put(&self) {
        self.next_put_held.store(true, Ordering::SeqCst);
    }

    /// Lets writes of records answer.
    pub fn answer_puts(&self) {
        self.next_put_held.store(false, Ordering::SeqCst);
        self.puts_held.send_replace(false);
    }

    /// Makes every trim fail.
    pub fn fail_trims(&self) {
        self.trims_fail.store(true, Ordering::SeqCst);
    }

    /// Makes every write of a record fail, or work again.
    pub fn fail_puts(&self, fail: bool) {
        *self.puts_fail.lock() = fail.then(fault);
    }

    /// Makes every write of a record fail with this error.
    pub fn fail_puts_with(&self, error: StoreError) {
        *self.puts_fail.lock() = Some(error);
    }

    /// Makes `expired` list every record as due from now on, again and again.
    pub fn say_that_all_is_due(&self) {
        self.all_due.store(true, Ordering::SeqCst);
    }

    /// Makes the next call of `expired` for this space panic, once.
    pub fn panic_at_next_look(&self, space: Space) {
        *self.look_panics.lock() = Some(space);
    }

    /// Makes every read of this record panic.
    pub fn panic_at_reads_of(&self, key: RecordKey) {
        *self.get_panics.lock() = Some(key);
    }

    /// Loses the answer to the next write of a record; the write itself is done or not.
    pub fn lose_answer_of_next_put(&self, put: Last) {
        *self.lost.lock() = Some(put);
    }

    /// Loses the answer to the next removal of a record; the removal itself is done or not.
    pub fn lose_answer_of_next_delete(&self, delete: Last) {
        *self.lost_delete.lock() = Some(delete);
    }

    /// How many writes of records were tried.
    pub fn puts(&self) -> u64 {
        self.puts.load(Ordering::SeqCst)
    }

    /// Resolves when the wrapped store has no write of a record under way. Together with [`Faulty::set_broken`]
    /// before it, this simulates a killed process, whose writes are either done or never done.
    pub async fn puts_are_done(&self) {
        // `self` holds the sender, so the wait cannot fail.
        let _ = self.puts_under_way.subscribe().wait_for(|under_way| *under_way == 0).await;
    }

    /// How often `expired` was called.
    pub fn looks(&self) -> u64 {
        self.looks.borrow().all
    }

    /// Resolves when the sweeper has found no record due.
    ///
    /// # Panics
    /// When `expired` always finds a record.
    pub async fn swept(&self) {
        let mut looks = self.looks.subscribe();
        let (all, idle) = {
            let looks = looks.borrow();
            (looks.all, looks.idle)
        };
        // A call that was already under way may have read too early, so two idle calls are needed.
        let done = |looks: &Looks| looks.idle >= idle + 2;
        // `self` holds the sender, so the wait cannot fail.
        let _ = looks.wait_for(|looks| done(looks) || looks.all > all + MAX_LOOKS).await;
        assert!(done(&self.looks.borrow()), "what is due is never removed");
    }

    /// How many trims were tried.
    pub fn trims(&self) -> u64 {
        self.trims.load(Ordering::SeqCst)
    }

    fn fault(&self) -> Option<StoreError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let fails = self.broken.load(Ordering::SeqCst) || call == self.fail_at.load(Ordering::SeqCst);
        fails.then(fault)
    }

    /// As [`Faulty::run`], but not counted: the runtime makes these calls by itself, at times that a test cannot know.
    fn run_uncounted<T: Send + 'static>(&self, operation: impl FnOnce(&dyn Store) -> Stored<T>) -> Stored<T> {
        if self.broken.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(fault())));
        }
        operation(self.inner.as_ref())
    }

    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&dyn Store) -> Stored<T>) -> Stored<T> {
        match self.fault() {
            Some(error) => Box::pin(std::future::ready(Err(error))),
            None => operation(self.inner.as_ref()),
        }
    }
}

/// Counts a write as long as it is under way.
struct UnderWay(watch::Sender<u64>);

impl UnderWay {
    fn new(count: watch::Sender<u64>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

fn fault() -> StoreError {
    StoreError::Unavailable("a fault for testing".to_owned())
}

impl Store for Faulty {
    forward_store!(run: claim, owner, release, drop_session, tail, survey, restore);
    forward_store!(run_uncounted: list);

    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        if let Some(error) = self.puts_fail.lock().clone() {
            // Yields first, so that a caller that retries without a pause lets other tasks run.
            return Box::pin(async move {
                tokio::task::yield_now().await;
                Err(error)
            });
        }
        let lost = self.lost.lock().take();
        let put = match lost {
            Some(Last::Undone) => Box::pin(std::future::ready(Err(StoreError::Unknown))),
            Some(Last::Done) | None => self.run(|store| store.put(key, value, expected, deadline)),
        };
        let (mut held, under_way) = (self.puts_held.subscribe(), self.puts_under_way.clone());
        let until_answered = self.next_put_held.swap(false, Ordering::SeqCst);
        Box::pin(async move {
            let under_way = UnderWay::new(under_way);
            let outcome = put.await;
            drop(under_way);
            if until_answered {
                held.changed().await.map_err(|_| StoreError::Unknown)?;
            }
            held.wait_for(|held| !held).await.map_err(|_| StoreError::Unknown)?;
            if lost.is_some() { Err(StoreError::Unknown) } else { outcome }
        })
    }

    fn get(&self, key: RecordKey) -> Stored<Option<Record>> {
        let panics = *self.get_panics.lock() == Some(key);
        assert!(!panics, "a panic for testing");
        self.run(|store| store.get(key))
    }

    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        // If the engine cannot peek, the caller uses `get`, which fails then.
        let found = self.inner.peek(key)?;
        Some(self.fault().map_or(found, Err))
    }

    fn delete(&self, key: RecordKey, expected: Version) -> Stored<()> {
        let lost = self.lost_delete.lock().take();
        if lost == Some(Last::Undone) {
            return Box::pin(std::future::ready(Err(StoreError::Unknown)));
        }
        let delete = self.run(|store| store.delete(key, expected));
        Box::pin(async move {
            let outcome = delete.await;
            if lost.is_some() { Err(StoreError::Unknown) } else { outcome }
        })
    }

    fn expired(&self, space: Space, now: Time, limit: usize) -> Stored<Vec<(RecordKey, Version)>> {
        let panics = self.look_panics.lock().take_if(|panics| *panics == space);
        assert!(panics.is_none(), "a panic for testing");
        let looks = self.looks.clone();
        looks.send_modify(|looks| looks.all += 1);
        let look = self.run_uncounted(|store| store.expired(space, now, limit));
        let all = self.all_due.load(Ordering::SeqCst).then(|| self.inner.list(space, None, limit));
        Box::pin(async move {
            if let Some(all) = all {
                let all: Vec<_> = all.await?;
                let due = all.iter().map(|(key, record)| (RecordKey { space, key: *key }, record.version));
                return Ok(due.cycle().take(limit).collect());
            }
            let due = look.await;
            if due.as_ref().is_ok_and(Vec::is_empty) {
                looks.send_modify(|looks| looks.idle += 1);
            }
            due
        })
    }

    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>> {
        if let Some(error) = self.fault() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (inner, mut held) = (Arc::clone(&self.inner), self.held.subscribe());
        let mut unanswered = self.append_answers_held.subscribe();
        Box::pin(async move {
            held.wait_for(|held| !held).await.map_err(|_| StoreError::Unknown)?;
            let outcome = inner.append(session, epoch, batch).await;
            unanswered.wait_for(|held| !held).await.map_err(|_| StoreError::Unknown)?;
            outcome
        })
    }

    fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Stored<StreamEvents> {
        let read = self.run(|store| store.read(session, stream, after, limit));
        let (reads, mut held) = (self.reads.clone(), self.read_answers_held.subscribe());
        let mut marks = self.marks_held.subscribe();
        let again = marks.borrow().then(|| Arc::clone(&self.inner));
        Box::pin(async move {
            let mut outcome = read.await;
            reads.send_modify(|reads| *reads += 1);
            if let (Some(inner), Ok(stretch)) = (again, &mut outcome) {
                marks.wait_for(|held| !held).await.map_err(|_| StoreError::Unknown)?;
                let trimmed = inner.read(session, stream, after, limit).await?.trimmed;
                // Only as far as these events; see clause 19 of the port.
                let last = stretch.events.last();
                stretch.trimmed = last.map_or(trimmed, |last| trimmed.min(last.position));
            }
            held.wait_for(|held| !held).await.map_err(|_| StoreError::Unknown)?;
            outcome
        })
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<KeptEvents> {
        self.trims.fetch_add(1, Ordering::SeqCst);
        if self.trims_fail.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StoreError::Busy)));
        }
        self.run(|store| store.trim(session, keep))
    }

    fn capabilities(&self) -> StoreCapabilities {
        let mut capabilities = self.inner.capabilities();
        if self.lasts.load(Ordering::SeqCst) {
            capabilities.durability = StoreDurability::Machine;
        }
        capabilities
    }

    fn trouble(&self) -> Option<Trouble> {
        self.trouble.lock().clone().or_else(|| self.inner.trouble())
    }
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}
