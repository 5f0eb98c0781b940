//! Looks at contents that were recorded lately: a page that stays open looks again and again, and is recorded once in a while.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_session::port::clock::Time;

use super::caller::CallerShare;

/// How long a look of a caller at a thing stands for further ones.
const STANDS_FOR: Duration = Duration::from_secs(600);

/// Looks that are remembered. With more, some are recorded once more.
const MOST: usize = 1000;

/// Who looked at what, and how.
type Look = (CallerShare, String, String);

/// Looks that were recorded lately, each with its time.
#[derive(Debug, Default)]
pub(super) struct RecentLooks(Mutex<HashMap<Look, Time>>);

impl RecentLooks {
    /// Whether a look is to be recorded. If so, it stands for further ones from now on.
    pub(super) fn is_new(&self, who: &CallerShare, operation: String, about: String, now: Time) -> bool {
        let mut looks = self.0.lock();
        let look = (who.clone(), operation, about);
        // A clock that was set back makes looks new.
        let is_recent = |at: &Time| now >= *at && now.since(*at) < STANDS_FOR;
        if looks.get(&look).is_some_and(is_recent) {
            return false;
        }
        if looks.len() >= MOST {
            looks.retain(|_, at| is_recent(at));
        }
        if looks.len() >= MOST {
            looks.clear();
        }
        looks.insert(look, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_stands_for_those_of_ten_minutes() {
        let (looks, start) = (RecentLooks::default(), Time(1_000_000));
        let (one, other) = (CallerShare::Login(1), CallerShare::Login(2));
        let is_new = |who: &CallerShare, about: &str, at: Time| {
            looks.is_new(who, "sessions".to_owned(), about.to_owned(), at)
        };
        assert!(is_new(&one, "s-1", start) && is_new(&one, "s-2", start) && is_new(&other, "s-1", start));
        assert!(!is_new(&one, "s-1", start.after(STANDS_FOR - Duration::from_millis(1))));
        assert!(is_new(&one, "s-1", start.after(STANDS_FOR)));
        assert!(is_new(&other, "s-1", Time(0)), "the clock was set back");
    }

    #[test]
    fn few_looks_are_remembered() {
        let looks = RecentLooks::default();
        for number in 0..10 * MOST {
            looks.is_new(&CallerShare::Login(1), "sessions".to_owned(), number.to_string(), Time(1));
        }
        assert!(looks.0.lock().len() <= MOST);
    }
}
