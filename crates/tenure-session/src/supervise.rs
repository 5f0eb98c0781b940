//! Background loops that run as long as the process. A loop that panics is restarted, and the restarts are counted.
//!
//! No caller waits for such a loop, so a loop that died would not be noticed: sessions would no longer expire, and
//! their records would stay for ever. Owns the pauses and the counts. A function makes the loop anew for each start;
//! the loop's data must be consistent at every point where it can panic. In: that function. Out: a log line for every
//! restart, and [`Loops`] for readiness and operators.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;

/// The first and the longest pause between a panic and the restart. It doubles, so that no loop can spin.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// A restart is reported for this long. A loop that has run for this long begins with the first pause again.
const RECENT: Duration = Duration::from_secs(5 * 60);

/// The most items that one loop skips.
const MOST_AVOIDED: usize = 64;

/// The loops of a process, or of a part of it. Clones share the same table.
#[derive(Clone, Default)]
pub struct Loops(Arc<Mutex<LoopTable>>);

#[derive(Default)]
struct LoopTable {
    loops: Vec<Loop>,
    /// The loops of other parts of the process.
    parts: Vec<Loops>,
}

/// One loop, or several with the same name.
struct Loop {
    name: &'static str,
    restarts: u64,
    /// How many of them wait for their restart.
    down: usize,
    panicked: Option<Instant>,
}

/// How a loop is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopInfo {
    /// What it does, in a few words.
    pub name: &'static str,
    /// How often it panicked. Each panic is followed by a restart.
    pub restarts: u64,
    /// Whether it waits for its restart.
    pub is_down: bool,
    /// How long ago the last panic was.
    pub panicked: Option<Duration>,
}

/// The state of all loops, with a text for operators if something is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoopState {
    /// All run, without a recent restart.
    Well,
    /// All run, and some were restarted recently.
    Restarted(String),
    /// Some wait for their restart.
    Down(String),
}

impl Loops {
    /// Includes the loops of another part of the process, also those that it adds later. Two parts must not include
    /// each other.
    pub fn include(&self, part: &Self) {
        self.0.lock().parts.push(part.clone());
    }

    /// All of them.
    pub fn list(&self) -> Vec<LoopInfo> {
        let (mut list, parts) = {
            let known = self.0.lock();
            let infos = known.loops.iter().map(|known| LoopInfo {
                name: known.name,
                restarts: known.restarts,
                is_down: known.down > 0,
                panicked: known.panicked.map(|at| at.elapsed()),
            });
            (infos.collect::<Vec<_>>(), known.parts.clone())
        };
        list.extend(parts.iter().flat_map(Self::list));
        list
    }

    /// How they are doing.
    pub fn state(&self) -> LoopState {
        let list = self.list();
        let words =
            |infos: Vec<&LoopInfo>| infos.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let down: Vec<_> = list.iter().filter(|info| info.is_down).collect();
        if !down.is_empty() {
            return LoopState::Down(words(down));
        }
        let recent: Vec<_> =
            list.iter().filter(|info| info.panicked.is_some_and(|ago| ago < RECENT)).collect();
        if recent.is_empty() { LoopState::Well } else { LoopState::Restarted(words(recent)) }
    }

    /// Runs a loop until it returns, and restarts it after every panic, until it is stopped. The caller spawns this on
    /// a tracker.
    pub fn keep<F, R>(
        &self,
        name: &'static str,
        stop: CancellationToken,
        mut begin: F,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        F: FnMut() -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        // Entered before the first start, so that operators see every loop, not only those that failed.
        self.change(name, |_| {});
        let loops = self.clone();
        async move {
            let mut backoff = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
            loop {
                let began = Instant::now();
                // In a block, because `begin` may panic too.
                let run = AssertUnwindSafe(async { begin().await }).catch_unwind();
                let Err(panic) = run.await else { return };
                if began.elapsed() >= RECENT {
                    backoff = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
                }
                let pause = backoff.next();
                let down = Down::new(&loops, name);
                tracing::error!(
                    name, restarts = down.restarts, again_in = ?pause, panic = message(&*panic),
                    "a background loop panicked; it will be restarted"
                );
                if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                    return;
                }
            }
        }
    }

    fn change<T>(&self, name: &'static str, change: impl FnOnce(&mut Loop) -> T) -> T {
        let mut known = self.0.lock();
        let at = known.loops.iter().position(|known| known.name == name);
        let at = at.unwrap_or_else(|| {
            known.loops.push(Loop { name, restarts: 0, down: 0, panicked: None });
            known.loops.len() - 1
        });
        change(&mut known.loops[at])
    }
}

/// A loop that waits for its restart. Dropped when the loop restarts, or the process stops.
struct Down<'a> {
    loops: &'a Loops,
    name: &'static str,
    restarts: u64,
}

impl<'a> Down<'a> {
    fn new(loops: &'a Loops, name: &'static str) -> Self {
        let restarts = loops.change(name, |known| {
            known.restarts += 1;
            known.down += 1;
            known.panicked = Some(Instant::now());
            known.restarts
        });
        Self { loops, name, restarts }
    }
}

impl Drop for Down<'_> {
    fn drop(&mut self) {
        self.loops.change(self.name, |known| known.down -= 1);
    }
}

/// The items that a loop was handling when it panicked. The loop skips them from then on: it would panic at them again,
/// and never reach the items behind them.
pub(crate) struct Avoided<K>(Mutex<VecDeque<K>>);

impl<K: Copy + PartialEq> Avoided<K> {
    /// Marks an item as being handled until the guard is dropped. `None` if the item must be skipped.
    pub(crate) fn take(&self, key: K) -> Option<InHand<'_, K>> {
        let is_avoided = self.0.lock().contains(&key);
        (!is_avoided).then_some(InHand { avoided: self, key })
    }
}

impl<K> Default for Avoided<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// An item that is being handled.
pub(crate) struct InHand<'a, K: Copy + PartialEq> {
    avoided: &'a Avoided<K>,
    key: K,
}

impl<K: Copy + PartialEq> Drop for InHand<'_, K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut avoided = self.avoided.0.lock();
            // With so many panics the items are probably not the cause, so the oldest one may be handled again.
            if avoided.len() == MOST_AVOIDED {
                avoided.pop_front();
            }
            avoided.push_back(self.key);
        }
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not a text")
}

impl std::fmt::Display for LoopInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, restarts, is_down, panicked } = self;
        let times = if *restarts == 1 { "once" } else { "times" };
        let count = if *restarts == 1 { String::new() } else { format!("{restarts} ") };
        write!(f, "the loop `{name}` panicked {count}{times}")?;
        if *is_down {
            return f.write_str(" and waits to be started again");
        }
        match panicked {
            Some(ago) => write!(f, ", last {} s ago, and was started again", ago.as_secs()),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Loops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use expect_test::expect;
    use tokio_util::task::TaskTracker;

    use super::*;

    /// A loop that panics this often and then runs until it is stopped.
    fn start(loops: &Loops, panics: u32) -> (Arc<AtomicU32>, CancellationToken, TaskTracker) {
        let (starts, stop, tasks) =
            (Arc::new(AtomicU32::new(0)), CancellationToken::new(), TaskTracker::new());
        let (counted, stopped) = (Arc::clone(&starts), stop.clone());
        tasks.spawn(loops.keep("test", stop.clone(), move || {
            let (start, stopped) = (counted.fetch_add(1, Ordering::SeqCst), stopped.clone());
            async move {
                assert!(start >= panics, "start {start}");
                stopped.cancelled().await;
            }
        }));
        tasks.close();
        (starts, stop, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_is_started_again_counted_and_told_of_for_a_while() {
        let loops = Loops::default();
        let all = Loops::default();
        all.include(&loops);
        assert_eq!(all.state(), LoopState::Well);
        let (starts, stop, tasks) = start(&loops, 2);
        let words = |state| match state {
            LoopState::Well => "well".to_owned(),
            LoopState::Restarted(words) => format!("restarted: {words}"),
            LoopState::Down(words) => format!("down: {words}"),
        };
        tokio::time::sleep(FIRST_PAUSE / 2).await;
        expect!["down: the loop `test` panicked once and waits to be started again"]
            .assert_eq(&words(all.state()));
        tokio::time::sleep(FIRST_PAUSE * 2).await;
        expect!["down: the loop `test` panicked 2 times and waits to be started again"]
            .assert_eq(&words(all.state()));
        tokio::time::sleep(FIRST_PAUSE * 4).await;
        expect!["restarted: the loop `test` panicked 2 times, last 2 s ago, and was started again"]
            .assert_eq(&words(all.state()));
        assert_eq!(starts.load(Ordering::SeqCst), 3);
        tokio::time::sleep(RECENT).await;
        assert_eq!(all.state(), LoopState::Well);
        assert_eq!(all.list()[0].restarts, 2, "the count stays");
        stop.cancel();
        tasks.wait().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_always_panics_is_started_at_most_once_a_minute_and_can_be_stopped() {
        let loops = Loops::default();
        let (starts, stop, tasks) = start(&loops, u32::MAX);
        tokio::time::sleep(Duration::from_secs(60 * 60)).await;
        let count = starts.load(Ordering::SeqCst);
        assert!((60..70).contains(&count), "{count} starts in an hour");
        assert!(matches!(loops.state(), LoopState::Down(_)));
        stop.cancel();
        tasks.wait().await;
        assert!(!loops.list()[0].is_down, "a process that stops waits for no restart");
    }
}
