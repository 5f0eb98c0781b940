//! The settings of one session, and the deadline of a session in the store.
//!
//! The deadline in a record was computed with the limits of the process that wrote it, and the record contains the
//! idle time of those limits. If the limits have changed since, the deadline is computed again: so a session follows a
//! longer or shorter idle time, and no record has to be rewritten. The record of a session with its own idle time
//! contains that instead, and the session does not follow the limits. A reader that does not know this member uses the
//! deadline, which is right until that reader writes the record.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::port::clock::Time;
use crate::record::SessionRecord;

/// Data that users attach to a session.
pub type Metadata = serde_json::Map<String, serde_json::Value>;

/// The settings of one session.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Settings {
    /// Data that users attach to it.
    #[serde(default)]
    pub metadata: Metadata,
    /// Its idle time.
    #[serde(default, rename = "ttl_ms")]
    pub ttl: IdleTtl,
}

/// The idle time of a session: how long it lives without use.
///
/// As JSON it is a number of milliseconds, `"never"` or `"default"`.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(from = "IdleTtlJson", into = "IdleTtlJson")]
pub enum IdleTtl {
    /// The idle time of the limits, also when they change.
    #[default]
    Default,
    /// Its own idle time, independent of the limits; at least a millisecond.
    After(Duration),
    /// No idle time: the session ends only by [`Limits::max_lifetime`].
    Never,
}

impl IdleTtl {
    /// In milliseconds, as in records: 0 for never, `None` for the default.
    pub(crate) fn as_ms(self) -> Option<u64> {
        match self {
            Self::Default => None,
            Self::After(ttl) => Some(millis(ttl).max(1)),
            Self::Never => Some(0),
        }
    }

    /// The idle time from the number in a record.
    pub fn of_ms(ms: Option<u64>) -> Self {
        match ms {
            None => Self::Default,
            Some(0) => Self::Never,
            Some(ms) => Self::After(Duration::from_millis(ms)),
        }
    }

    /// The effective idle time; `None` if there is no limit.
    pub(crate) fn in_force(self, limits: &Limits) -> Option<Duration> {
        match self {
            Self::Default => limits.idle_ttl,
            Self::After(ttl) => Some(ttl.max(Duration::from_millis(1))),
            Self::Never => None,
        }
    }

    /// The two members of a record for it: the session's own idle time, and that of the limits.
    pub(crate) fn noted(self, limits: &Limits) -> (Option<u64>, Option<u64>) {
        match self.as_ms() {
            Some(own) => (Some(own), None),
            None => (None, Some(idle_ms(limits))),
        }
    }
}

/// An idle time as JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum IdleTtlJson {
    Ms(u64),
    Word(Word),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Default,
    Never,
}

impl From<IdleTtl> for IdleTtlJson {
    fn from(ttl: IdleTtl) -> Self {
        match ttl.as_ms() {
            None => Self::Word(Word::Default),
            Some(0) => Self::Word(Word::Never),
            Some(ms) => Self::Ms(ms),
        }
    }
}

impl From<IdleTtlJson> for IdleTtl {
    fn from(written: IdleTtlJson) -> Self {
        match written {
            IdleTtlJson::Ms(ms) => Self::After(Duration::from_millis(ms)),
            IdleTtlJson::Word(Word::Default) => Self::Default,
            IdleTtlJson::Word(Word::Never) => Self::Never,
        }
    }
}

/// The idle time of the limits, as in records.
pub(crate) fn idle_ms(limits: &Limits) -> u64 {
    limits.idle_ttl.map_or(0, millis)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The latest deadline of a session that is not used after `last_used`.
pub(crate) fn after_use(
    last_used: Time,
    idle: Option<Duration>,
    created: Time,
    limits: &Limits,
) -> Option<Time> {
    let idle = idle.map(|ttl| last_used.after(ttl));
    let old = limits.max_lifetime.map(|age| created.after(age));
    [idle, old].into_iter().flatten().min()
}

/// Gives a session that is not in memory another idle time, which counts from now. Returns its deadline.
pub(crate) fn begin_anew(
    session: &mut SessionRecord,
    ttl: IdleTtl,
    limits: &Limits,
    now: Time,
) -> Option<Time> {
    session.last_used = now.0;
    (session.ttl_ms, session.idle_ms) = ttl.noted(limits);
    // Exact, because a session that is not in memory cannot be used without this record being read.
    after_use(now, ttl.in_force(limits), Time(session.created), limits)
}

/// When a session is due, from its record and the record's deadline.
pub(crate) fn due(session: &SessionRecord, deadline: Option<Time>, limits: &Limits) -> Option<Time> {
    let followed = session.idle_ms.filter(|_| session.ttl_ms.is_none());
    let Some(before) = followed.filter(|before| *before != idle_ms(limits)) else { return deadline };
    let last_used = Time(session.last_used);
    // The record of a dormant session has the exact last use. In any other record the last uses may be missing, so the
    // session gets twice the time.
    let is_exact = before > 0 && deadline == Some(last_used.after(Duration::from_millis(before)));
    let idle = limits.idle_ttl.map(|ttl| if is_exact { ttl } else { ttl * 2 });
    after_use(last_used, idle, Time(session.created), limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A3.04, A9.01: a time in ms for each session, or none that ends it.
    #[test]
    fn an_idle_time_of_its_own_is_kept_as_it_was_set_and_follows_no_limits() {
        let limits = Limits { idle_ttl: Some(Duration::from_secs(60)), ..Limits::default() };
        for (ttl, ms, noted, in_force) in [
            (IdleTtl::Default, None, (None, Some(60_000)), Some(60_000)),
            (
                IdleTtl::After(Duration::from_millis(1_800_000)),
                Some(1_800_000),
                (Some(1_800_000), None),
                Some(1_800_000),
            ),
            (IdleTtl::Never, Some(0), (Some(0), None), None),
        ] {
            assert_eq!((ttl.as_ms(), ttl.noted(&limits)), (ms, noted));
            assert_eq!(IdleTtl::of_ms(ms), ttl);
            let json = serde_json::to_string(&ttl).unwrap();
            assert_eq!(serde_json::from_str::<IdleTtl>(&json).unwrap(), ttl, "{json}");
            assert_eq!(ttl.in_force(&limits), in_force.map(Duration::from_millis));
        }
        // Nothing can live for no time at all, nor for ever by mistake.
        assert_eq!(IdleTtl::After(Duration::ZERO).as_ms(), Some(1));
        assert_eq!(IdleTtl::After(Duration::MAX).as_ms(), Some(u64::MAX));
    }

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
