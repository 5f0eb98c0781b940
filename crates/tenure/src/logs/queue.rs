//! The queue of log lines, and the thread that writes them.
//!
//! A write to a pipe without a reader blocks for ever. So a thread that logs puts its line into a queue and goes on,
//! and another thread writes. The queue is bounded in bytes; lines that do not fit are dropped and counted, and the log
//! says how many when it is written again. Lines about requests may be very many: they wait a moment for others, so that
//! one write takes many of them, and they leave room for all other lines.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

use super::OWN;
use super::limit::Limit;
use crate::escape::HarmlessLines;

/// The most bytes in the queue.
const MOST_BYTES: usize = 1 << 20;

/// The room of lines about requests: when it is full, other lines still fit.
const MOST_IN_PASSING: usize = MOST_BYTES / 4 * 3;

/// How long lines about requests wait for others, unless there are many.
const MOMENT: Duration = Duration::from_millis(50);
const MANY_BYTES: usize = 32 << 10;

/// Further room for the last messages of panics and of the end of the process.
const MOST_LAST_BYTES: usize = 64 << 10;

/// The capacity that the writer's buffer keeps after a burst.
const KEPT_BYTES: usize = 64 << 10;

/// The pause when the output is non-blocking and has no room.
const NO_ROOM: Duration = Duration::from_millis(10);

/// A queue of lines. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Queue(Arc<QueueShared>);

#[derive(Debug)]
struct QueueShared {
    state: Mutex<QueueState>,
    /// Notified when there is something to write.
    some: Condvar,
    /// Notified when all is written.
    none: Condvar,
    limit: Limit,
}

#[derive(Debug, Default)]
struct QueueState {
    lines: Vec<u8>,
    dropped: u64,
    /// Dropped lines about requests.
    dropped_in_passing: u64,
    /// Some of the lines must not wait for others.
    is_urgent: bool,
    is_writing: bool,
}

impl Queue {
    /// Starts the thread that writes. It ends with the process.
    pub(super) fn start(out: impl Write + Send + 'static, limit: Limit) -> io::Result<Self> {
        let shared =
            QueueShared { state: Mutex::default(), some: Condvar::new(), none: Condvar::new(), limit };
        let queue = Self(Arc::new(shared));
        let its = queue.clone();
        std::thread::Builder::new().name("tenure-log".to_owned()).spawn(move || its.run(out))?;
        Ok(queue)
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.0.state.lock();
        if state.lines.len() + line.len() > MOST_BYTES {
            state.dropped += 1;
            return;
        }
        state.lines.extend_from_slice(line);
        state.is_urgent = true;
        drop(state);
        self.0.some.notify_one();
    }

    /// Queues a line about a request. Mostly without waking the writing thread.
    pub(super) fn push_in_passing(&self, line: &[u8]) {
        let mut state = self.0.state.lock();
        let before = state.lines.len();
        if before + line.len() > MOST_IN_PASSING {
            state.dropped_in_passing += 1;
            return;
        }
        state.lines.extend_from_slice(line);
        let wakes = before == 0 || (before < MANY_BYTES && state.lines.len() >= MANY_BYTES);
        drop(state);
        if wakes {
            self.0.some.notify_one();
        }
    }

    /// Queues a text that must not be dropped, as far as the room for last messages allows.
    pub(super) fn push_anyway(&self, words: &[u8]) {
        let mut state = self.0.state.lock();
        let room = (MOST_BYTES + MOST_LAST_BYTES).saturating_sub(state.lines.len());
        state.lines.extend_from_slice(&words[..words.len().min(room)]);
        state.is_urgent = true;
        drop(state);
        self.0.some.notify_one();
    }

    /// Waits until all is written, at most this long.
    pub(super) fn flush(&self, limit: Duration) {
        let mut state = self.0.state.lock();
        state.is_urgent = true;
        self.0.some.notify_one();
        let is_busy = |state: &mut QueueState| state.is_writing || !state.lines.is_empty();
        self.0.none.wait_while_for(&mut state, is_busy, limit);
    }

    /// The same at the end of the process; logs first how many lines `limit` has left out.
    pub(super) fn finish(&self, limit: Duration) {
        self.0.limit.tell_all();
        self.flush(limit);
    }

    fn run(self, mut out: impl Write) {
        let mut lines = Vec::new();
        loop {
            let mut state = self.0.state.lock();
            state.is_writing = false;
            self.0.none.notify_all();
            while state.lines.is_empty() {
                match self.0.limit.is_looked_at_in() {
                    Some(wait) => {
                        if self.0.some.wait_for(&mut state, wait).timed_out() {
                            // Without the lock, because `tell` logs, which pushes into this queue.
                            parking_lot::MutexGuard::unlocked(&mut state, || self.0.limit.tell());
                        }
                    }
                    None => self.0.some.wait(&mut state),
                }
            }
            let can_wait = |state: &mut QueueState| !state.is_urgent && state.lines.len() < MANY_BYTES;
            self.0.some.wait_while_for(&mut state, can_wait, MOMENT);
            std::mem::swap(&mut lines, &mut state.lines);
            state.is_writing = true;
            state.is_urgent = false;
            let dropped = std::mem::take(&mut state.dropped);
            let requests = std::mem::take(&mut state.dropped_in_passing);
            drop(state);
            write_all(&mut out, &lines);
            lines.clear();
            lines.shrink_to(KEPT_BYTES);
            if dropped > 0 {
                tracing::warn!(target: OWN, dropped, "lines of the log were dropped, because its reader was too slow");
            }
            if requests > 0 {
                tracing::warn!(target: OWN, requests, "lines about requests were dropped, because there were too many at once");
            }
        }
    }
}

/// Writes all bytes, however long that takes. Drops them if the output has failed: there is no place to report that.
fn write_all(out: &mut impl Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(NO_ROOM),
            Err(_) => return,
        }
    }
}

/// The subscriber writes each line with one call.
impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = HarmlessLines<&'a Self>;

    fn make_writer(&'a self) -> Self::Writer {
        HarmlessLines(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A reader that takes one piece for each message in `turns`.
    struct Slow {
        turns: mpsc::Receiver<()>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Without a sender it reads everything.
            let _ = self.turns.recv();
            self.read.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (Queue, mpsc::Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let (turn, turns) = mpsc::channel();
        let read = Arc::default();
        let out = Slow { turns, read: Arc::clone(&read) };
        (Queue::start(out, Limit::default()).unwrap(), turn, read)
    }

    #[test]
    fn lines_about_requests_leave_room_for_others_and_are_counted() {
        let (queue, turn, read) = slow();
        queue.push(b"first\n");
        while !queue.0.state.lock().is_writing {
            std::thread::yield_now();
        }
        let line = [b'r'; 1024];
        for _ in 0..2 * MOST_BYTES / line.len() {
            queue.push_in_passing(&line);
        }
        {
            let state = queue.0.state.lock();
            assert!(state.lines.len() <= MOST_IN_PASSING && state.dropped_in_passing > 0, "{state:?}");
            assert_eq!(state.dropped, 0);
        }
        queue.push(b"another\n");
        assert_eq!(queue.0.state.lock().dropped, 0, "it fits all the same");
        drop(turn);
        queue.flush(Duration::from_secs(60));
        assert!(read.lock().ends_with(b"another\n"));
    }

    #[test]
    fn a_line_about_a_request_is_written_without_any_other_line() {
        let (queue, turn, read) = slow();
        drop(turn);
        queue.push_in_passing(b"request\n");
        while read.lock().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(*read.lock(), b"request\n");
    }

    #[test]
    fn who_logs_does_not_wait_for_who_reads_and_the_queue_is_bounded() {
        let (queue, turn, read) = slow();
        let line = [b'x'; 1024];
        queue.push(&line);
        // From here on its thread waits for the reader, and takes nothing more.
        while !queue.0.state.lock().is_writing {
            std::thread::yield_now();
        }
        // More than fits, though nothing is read.
        for _ in 0..3 * MOST_BYTES / line.len() {
            queue.push(&line);
        }
        let waiting = queue.0.state.lock().lines.len();
        assert!(waiting <= MOST_BYTES, "{waiting}");
        assert!(queue.0.state.lock().dropped > 0);
        queue.push_anyway(b"last words\n");
        queue.flush(Duration::from_millis(10));
        assert!(read.lock().is_empty(), "a flush does not wait for ever either");
        drop(turn);
        queue.flush(Duration::from_secs(60));
        let read = read.lock();
        assert!(read.ends_with(b"last words\n"));
        assert!(read.len() <= 2 * MOST_BYTES + MOST_LAST_BYTES, "{}", read.len());
    }
}
