//! Limits the lines that one place in the code (callsite) logs.
//!
//! Clients can cause some lines thousands of times a second. The first lines of a place in an interval are written; the
//! others are counted, and at the end of the interval one line says how many there were. Lines at `debug` and `trace`
//! are not limited. The standard error of the servers behind has its own limit.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::OWN;

/// At most this many lines of one place are written in this interval.
const MOST: u64 = 100;
const WHILE: Duration = Duration::from_secs(10);

/// The most characters that are quoted of a line that was left out.
const LONGEST: usize = 200;

/// The target of the servers' standard error.
const OF_CHILDREN: &str = "tenure::child";

/// The counts of all places. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit(Arc<Mutex<HashMap<Identifier, LoggedPlace>>>);

/// A place in the code that has logged something in this interval.
#[derive(Debug)]
struct LoggedPlace {
    since: Instant,
    lines: u64,
    /// The first line that was left out.
    like: String,
}

impl Limit {
    /// Whether a line of this place is written.
    fn admits(&self, place: Identifier, now: Instant, like: impl FnOnce() -> String) -> bool {
        let mut places = self.0.lock();
        let known =
            places.entry(place).or_insert_with(|| LoggedPlace { since: now, lines: 0, like: String::new() });
        // If lines were left out, the interval goes on until the writing thread has reported them.
        if now.saturating_duration_since(known.since) > WHILE && known.lines <= MOST {
            (known.since, known.lines) = (now, 0);
        }
        known.lines += 1;
        if known.lines == MOST + 1 {
            known.like = like();
        }
        known.lines <= MOST
    }

    /// The time until the next interval ends; `None` if nothing was logged lately.
    pub(super) fn is_looked_at_in(&self) -> Option<Duration> {
        let now = now();
        let places = self.0.lock();
        places.values().map(|place| (place.since + WHILE).saturating_duration_since(now)).min()
    }

    /// Logs how many lines were left out in intervals that are over.
    pub(super) fn tell(&self) {
        self.tell_of(now().checked_sub(WHILE));
    }

    /// Logs how many lines were left out in all intervals, also unfinished ones.
    pub(super) fn tell_all(&self) {
        self.tell_of(Some(now()));
    }

    fn tell_of(&self, until: Option<Instant>) {
        let mut over = Vec::new();
        self.0.lock().retain(|_, place| {
            let is_over = until.is_some_and(|until| place.since <= until);
            if is_over && place.lines > MOST {
                over.push((place.lines - MOST, std::mem::take(&mut place.like)));
            }
            !is_over
        });
        for (more, like) in over {
            tracing::warn!(target: OWN, more, like, "more lines of the same kind were not written");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how fast lines come is a matter of real time")]
fn now() -> Instant {
    Instant::now()
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let place = event.metadata();
        if *place.level() > Level::INFO || [OWN, OF_CHILDREN].contains(&place.target()) {
            return true;
        }
        self.admits(place.callsite(), now(), || {
            let mut message = Message(String::new());
            event.record(&mut message);
            message.0
        })
    }
}

/// The sentence of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.0, "{value:?}");
            self.0 = self.0.chars().take(LONGEST).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::super::queue::Queue;
    use super::*;

    fn lines(log: impl FnOnce(&Limit)) -> String {
        let read = Arc::new(Mutex::new(Vec::new()));
        struct Out(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Out {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let limit = Limit::default();
        let queue = Queue::start(Out(Arc::clone(&read)), limit.clone()).unwrap();
        let builder = tracing_subscriber::fmt().with_writer(queue.clone()).without_time().with_ansi(false);
        let subscriber = builder.with_max_level(Level::TRACE).finish().with(limit.clone());
        tracing::subscriber::with_default(subscriber, || {
            log(&limit);
            queue.finish(Duration::from_secs(60));
        });
        String::from_utf8(std::mem::take(&mut *read.lock())).unwrap()
    }

    #[test]
    fn of_the_same_line_so_many_are_written_and_then_how_many_more_there_were() {
        let lines = lines(|_| {
            for number in 0..1000 {
                tracing::warn!(number, "a client did it again");
                tracing::debug!("all of it");
            }
            tracing::info!("something else");
        });
        assert_eq!(lines.matches("a client did it again number=").count() as u64, MOST, "{lines}");
        assert_eq!(lines.matches("all of it").count(), 1000);
        assert_eq!(lines.matches("something else").count(), 1);
        let told = "more lines of the same kind were not written more=900 like=\"a client did it again\"";
        assert!(lines.contains(told), "{lines}");
    }

    /// Remembers the place of an event.
    struct Seen(Arc<Mutex<Option<Identifier>>>);

    impl<S: Subscriber> Layer<S> for Seen {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            *self.0.lock() = Some(event.metadata().callsite());
        }
    }

    #[test]
    fn a_place_that_was_quiet_for_a_while_may_say_as_much_again() {
        let seen = Arc::default();
        let subscriber = tracing_subscriber::registry().with(Seen(Arc::clone(&seen)));
        tracing::subscriber::with_default(subscriber, || tracing::info!("here"));
        let place = seen.lock().clone().unwrap();
        let (limit, start) = (Limit::default(), now());
        let admitted =
            |at: Instant| (0..300).filter(|_| limit.admits(place.clone(), at, String::new)).count();
        assert_eq!(admitted(start) as u64, MOST);
        let later = start + WHILE * 2;
        assert_eq!(admitted(later), 0, "first it is told what was left out");
        limit.tell_of(Some(later));
        assert_eq!(admitted(later) as u64, MOST);
        assert_eq!(limit.is_looked_at_in().map(|wait| wait > WHILE), Some(true));
        limit.tell_of(Some(later));
        assert_eq!(limit.is_looked_at_in(), None, "who is quiet is forgotten");
    }
}
