//! When a session in the store is due, by the limits of today.
//!
//! Its deadline was made with the limits of the process that wrote it, which it notes. If they were changed since, it is made
//! anew: a session follows a longer idle time as well as a shorter one, without a look at every record.

use std::time::Duration;

use crate::limits::Limits;
use crate::port::clock::Time;
use crate::record::SessionRecord;

/// The idle time as records note it.
pub(super) fn idle_ms(limits: &Limits) -> u64 {
    limits.idle_ttl.map_or(0, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

/// When a session is due whose record has this deadline.
pub(super) fn due(session: &SessionRecord, deadline: Option<Time>, limits: &Limits) -> Option<Time> {
    let Some(before) = session.idle_ms.filter(|before| *before != idle_ms(limits)) else { return deadline };
    let last_used = Time(session.last_used);
    // A record of a session that was put to sleep is exact; in any other the last use may be missing, and it has twice
    // the time.
    let is_exact = before > 0 && deadline == Some(last_used.after(Duration::from_millis(before)));
    let idle = limits.idle_ttl.map(|ttl| last_used.after(if is_exact { ttl } else { ttl * 2 }));
    let old = limits.max_lifetime.map(|age| Time(session.created).after(age));
    [idle, old].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_follows_the_idle_time() {
        let limits = |minutes: Option<u64>| Limits {
            idle_ttl: minutes.map(|minutes| Duration::from_secs(minutes * 60)),
            max_lifetime: None,
            ..Limits::default()
        };
        let minute = |minutes: u64| Some(Time(1000 + minutes * 60_000));
        for (noted, deadline, now, expected) in [
            // As it was, and of an earlier version.
            (Some(10), minute(10), Some(10), minute(10)),
            (None, minute(10), Some(99), minute(10)),
            // Asleep, and left by a kill.
            (Some(10), minute(10), Some(30), minute(30)),
            (Some(10), minute(20), Some(30), minute(60)),
            (Some(10), minute(10), Some(5), minute(5)),
            // To and from no limit at all.
            (Some(10), minute(10), None, None),
            (Some(0), None, Some(10), minute(20)),
        ] {
            let session = format!(
                r#"{{"owner":null,"revision":"2025-11-25","phase":"initialized","created":1,"last_used":1000,
                    "initialize":{{}},"initialize_result":{{}},"idle_ms":{}}}"#,
                noted.map_or_else(|| "null".to_owned(), |minutes: u64| (minutes * 60_000).to_string()),
            );
            let session: SessionRecord = serde_json::from_str(&session).unwrap();
            assert_eq!(due(&session, deadline, &limits(now)), expected, "{noted:?} {deadline:?} {now:?}");
        }
    }
}
