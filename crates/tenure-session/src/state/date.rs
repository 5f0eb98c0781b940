//! Dates as cookies carry them.

use crate::port::clock::Time;

/// A time as RFC 3339 in UTC, rounded down to the second, so that it never promises too much.
pub fn date(time: Time) -> String {
    Date::of(time).as_str().to_owned()
}

/// The same without an allocation, because it is written with every answer.
#[derive(Debug)]
pub struct Date([u8; 20]);

impl Date {
    /// The date of a time.
    pub fn of(time: Time) -> Self {
        let seconds = i64::try_from(time.0 / 1000).unwrap_or(i64::MAX);
        let last = || time::PrimitiveDateTime::MAX.assume_utc();
        let at = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or_else(|_| last());
        let (year, month, day) = at.to_calendar_date();
        let (month, (hour, minute, second)) = (u8::from(month), at.to_hms());
        let year = u16::try_from(year).unwrap_or(0);
        let mut text = *b"0000-00-00T00:00:00Z";
        let parts = [(year / 100) as u8, (year % 100) as u8, month, day, hour, minute, second];
        for (place, part) in [0, 2, 5, 8, 11, 14, 17].into_iter().zip(parts) {
            text[place] += part / 10;
            text[place + 1] += part % 10;
        }
        Self(text)
    }

    /// As text, RFC 3339.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_to_the_second_in_utc() {
        assert_eq!(date(Time(0)), "1970-01-01T00:00:00Z");
        assert_eq!(date(Time(1_771_857_000_999)), "2026-02-23T14:30:00Z");
        assert_eq!(date(Time(u64::MAX)), "9999-12-31T23:59:59Z");
    }
}
