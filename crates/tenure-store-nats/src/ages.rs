//! How old the messages of a shard are.
//!
//! No clocks of servers are compared: a message is old if its sequence is one to which the stream had come a minute ago,
//! by the clock of this process.

use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tenure_session::port::store::Space;
use tokio::time::Instant;

/// A message is old when it is there for so long: by then the record of an entry was written, or never will be, because
/// one write ends within seconds.
const OLD: Duration = Duration::from_secs(60);

/// How far the stream of a shard had come, and when.
#[derive(Clone, Copy)]
struct Came {
    at: Instant,
    to: u64,
}

/// How far the stream of a shard had come some time ago.
#[derive(Default)]
pub(crate) struct Ages {
    old: Option<Came>,
    next: Option<Came>,
    /// Buckets in which all entries before a sequence are obsolete, but were too young to be removed. They are looked at
    /// again when it is old, and not in between: thousands of sessions may end in the same minute.
    clear: HashMap<(Space, u32), u64, RandomState>,
}

impl Ages {
    /// Notes how far the stream has come now. Returns up to where its messages are old.
    pub(crate) fn came(&mut self, now: Instant, to: u64) -> u64 {
        match self.next {
            Some(next) if now - next.at < OLD => {}
            next => (self.old, self.next) = (next, Some(Came { at: now, to })),
        }
        self.old.map_or(0, |old| old.to)
    }

    /// All entries before this sequence are obsolete, but too young to be removed.
    pub(crate) fn is_clear(&mut self, space: Space, bucket: u32, before: u64) {
        self.clear.insert((space, bucket), before);
    }

    /// The buckets of a space that still have entries, in order. The others are forgotten.
    pub(crate) fn are_there(&mut self, space: Space, buckets: &[u32]) {
        self.clear.retain(|(of, bucket), _| *of != space || buckets.binary_search(bucket).is_ok());
    }

    /// Where to begin in a bucket.
    pub(crate) fn begin(&mut self, space: Space, bucket: u32, old: u64) -> u64 {
        match self.clear.get(&(space, bucket)) {
            Some(clear) if clear - 1 > old => *clear,
            _ => {
                self.clear.remove(&(space, bucket));
                1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_is_old_a_minute_after_it_was_seen() {
        let (mut ages, now) = (Ages::default(), Instant::now());
        assert_eq!(ages.came(now, 10), 0);
        assert_eq!(ages.came(now + OLD / 2, 20), 0);
        assert_eq!(ages.came(now + OLD, 30), 10);
        assert_eq!(ages.came(now + OLD * 2 - Duration::from_secs(1), 40), 10);
        assert_eq!(ages.came(now + OLD * 2, 50), 30);
    }

    #[test]
    fn what_is_clear_is_passed_over_until_it_is_old() {
        let mut ages = Ages::default();
        ages.is_clear(Space::Session, 7, 21);
        assert_eq!(ages.begin(Space::Session, 8, 0), 1);
        assert_eq!(ages.begin(Space::Session, 7, 19), 21);
        assert_eq!(ages.begin(Space::Session, 7, 20), 1);
        assert!(ages.clear.is_empty());
        ages.is_clear(Space::Session, 7, 21);
        ages.are_there(Space::State, &[]);
        assert_eq!(ages.begin(Space::Session, 7, 0), 21);
        ages.are_there(Space::Session, &[6, 8]);
        assert!(ages.clear.is_empty(), "another node has emptied it");
    }
}
