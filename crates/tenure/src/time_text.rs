//! Times as people read them: how long, how long ago, and the date.
//!
//! Two units are precise enough: a duration of days does not need seconds.

use std::time::Duration;

use tenure_session::port::clock::Time;

/// A duration in its two largest units, such as `4m 12s`.
pub(crate) fn span(duration: Duration) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let seconds = duration.as_secs();
    let Some(largest) = UNITS.iter().position(|(_, unit)| seconds >= *unit) else { return "0s".to_owned() };
    let (name, unit) = UNITS[largest];
    let text = format!("{}{name}", seconds / unit);
    match UNITS.get(largest + 1) {
        Some((name, next)) if seconds % unit >= *next => format!("{text} {}{name}", seconds % unit / next),
        _ => text,
    }
}

/// How long ago something was, in its largest unit, such as `3m ago`.
pub(crate) fn ago(then: u64, now: Time) -> String {
    match short(now.since(Time(then))) {
        Some(span) => format!("{span} ago"),
        None => "now".to_owned(),
    }
}

/// How far away something is, in its largest unit, such as `in 3m`.
pub(crate) fn until(then: u64, now: Time) -> String {
    match short(Time(then).since(now)) {
        Some(span) => format!("in {span}"),
        None => "now".to_owned(),
    }
}

/// A duration in its largest unit; `None` below one second.
pub(crate) fn short(duration: Duration) -> Option<String> {
    let text = span(duration);
    let largest = text.split(' ').next().unwrap_or_default();
    (duration.as_secs() > 0).then(|| largest.to_owned())
}

/// A time for machines, such as `2025-11-25T08:30:00.123Z`.
pub(crate) fn stamp(now: Time) -> String {
    let seconds = i64::try_from(now.0 / 1000).unwrap_or(i64::MAX);
    let at = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.to_hms();
    let (year, millis) = (u64::from(year.unsigned_abs()), now.0 % 1000);
    let mut text = String::with_capacity("2025-11-25T08:30:00.123Z".len());
    // Digit by digit: each record of the audit log has such a time, and the machinery of `format!` takes ten times as long.
    let mut digits = |number: u64, count: u32, end: char| {
        for place in (0..count).rev() {
            text.push(char::from(b'0' + (number / 10_u64.pow(place) % 10) as u8));
        }
        text.push(end);
    };
    digits(year, 4, '-');
    digits(u8::from(month).into(), 2, '-');
    digits(day.into(), 2, 'T');
    digits(hour.into(), 2, ':');
    digits(minute.into(), 2, ':');
    digits(second.into(), 2, '.');
    digits(millis, 3, 'Z');
    text
}

/// The date and the time of day in UTC, such as `2025-11-25 08:30:00 UTC`.
pub(crate) fn date(time: u64) -> String {
    let seconds = i64::try_from(time / 1000).unwrap_or(i64::MAX);
    match time::OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(at) => format!("{} {:02}:{:02}:{:02} UTC", at.date(), at.hour(), at.minute(), at.second()),
        Err(_) => "a time beyond all calendars".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most() {
        let table = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (252, "4m 12s"),
            (3600, "1h"),
            (3659, "1h"),
            (3660, "1h 1m"),
            (86_400 * 3 + 3600 * 5 + 59, "3d 5h"),
        ];
        for (seconds, text) in table {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn distances_have_one() {
        let now = Time(1_000_000_000);
        assert_eq!(ago(now.0 - 252_000, now), "4m ago");
        assert_eq!(ago(now.0 - 999, now), "now");
        assert_eq!(ago(now.0 + 5000, now), "now", "a clock may have gone back");
        assert_eq!(until(now.0 + 7_200_000, now), "in 2h");
        assert_eq!(until(now.0, now), "now");
    }

    #[test]
    fn dates_are_in_utc() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(stamp(Time(1_764_059_400_123)), "2025-11-25T08:30:00.123Z");
        assert_eq!(stamp(Time(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(stamp(Time(951_782_399_007)), "2000-02-28T23:59:59.007Z");
        assert_eq!(stamp(Time(253_402_300_799_999)), "9999-12-31T23:59:59.999Z");
        assert_eq!(date(1_764_059_400_123), "2025-11-25 08:30:00 UTC");
        assert_eq!(date(u64::MAX), "a time beyond all calendars");
    }
}
