//! Days and months of UTC, by numbers that grow.
//!
//! In: a time. Out: the number of its period, and when that ends.

use std::fmt;

use time::{Date, Month, OffsetDateTime};

use crate::port::clock::Time;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// A span of the calendar for which calls are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Period {
    /// A day, which begins at midnight UTC.
    Day,
    /// A month, which begins at midnight UTC of its first day.
    Month,
}

impl Period {
    /// The number of the period that a time is in, counted from 1970.
    pub(super) fn number(self, now: Time) -> u64 {
        match self {
            Self::Day => now.0 / DAY_MS,
            Self::Month => month_of(now),
        }
    }

    /// When the period with a number ends.
    pub(super) fn end(self, number: u64) -> Time {
        match self {
            Self::Day => Time((number + 1) * DAY_MS),
            Self::Month => begin_of(number + 1),
        }
    }

    /// The letter that stands for it in a limit, such as `1000/d`. A month has a word, since `m` would be a minute.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Day => "d",
            Self::Month => "month",
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Day => "day",
            Self::Month => "month",
        })
    }
}

/// The number of the month that a time is in.
fn month_of(now: Time) -> u64 {
    let seconds = i64::try_from(now.0 / 1000).unwrap_or(i64::MAX);
    // A time beyond all calendars is in the last month of them.
    let date = OffsetDateTime::from_unix_timestamp(seconds).map_or(Date::MAX, OffsetDateTime::date);
    let years = u64::try_from(date.year() - 1970).unwrap_or_default();
    years * 12 + u64::from(u8::from(date.month())) - 1
}

/// When a month begins.
fn begin_of(month: u64) -> Time {
    let year = i32::try_from(1970 + month / 12).unwrap_or(i32::MAX);
    let name = u8::try_from(month % 12 + 1).ok().and_then(|month| Month::try_from(month).ok());
    let date = name.and_then(|name| Date::from_calendar_date(year, name, 1).ok()).unwrap_or(Date::MAX);
    let seconds = date.midnight().assume_utc().unix_timestamp();
    Time(u64::try_from(seconds).unwrap_or_default() * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_where_the_calendar_says() {
        // The days from 1970 to the first of each, as `date -u -d 2000-03-01 +%s` says.
        for (year, month, begins) in [
            (1970, 1, 0),
            (1970, 2, 31),
            (1971, 1, 365),
            (1972, 2, 761),
            (1972, 3, 790),
            (2000, 2, 10_988),
            (2000, 3, 11_017),
            (2026, 11, 20_758),
            (2100, 2, 47_513),
            (2100, 3, 47_541),
        ] {
            let number = (year - 1970) * 12 + month - 1;
            assert_eq!(begin_of(number), Time(begins * DAY_MS), "{year}-{month}");
            assert_eq!(month_of(Time(begins * DAY_MS)), number, "{year}-{month}");
        }
    }

    #[test]
    fn every_time_is_before_the_end_of_its_period_and_not_in_the_next_one() {
        for day in 0..60_000 {
            for period in [Period::Day, Period::Month] {
                let now = Time(day * DAY_MS + 1);
                let (number, end) = (period.number(now), period.end(period.number(now)));
                assert!(end > now, "{day} {period}");
                assert_eq!(period.number(end), number + 1, "{day} {period}");
                assert_eq!(period.number(Time(end.0 - 1)), number, "{day} {period}");
            }
        }
        assert!(Period::Month.number(Time(u64::MAX)) > 0, "a clock that is out of its mind breaks nothing");
    }
}
