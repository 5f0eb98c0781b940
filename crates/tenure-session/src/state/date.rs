//! Dates as cookies carry them.

use crate::port::clock::Time;

/// A time as RFC 3339 in UTC, to the second, rounded down: a client may believe in it.
pub fn date(time: Time) -> String {
    let seconds = i64::try_from(time.0 / 1000).unwrap_or(i64::MAX);
    let last = || time::PrimitiveDateTime::MAX.assume_utc();
    let at = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or_else(|_| last());
    let (year, month, day) = at.to_calendar_date();
    let (month, (hour, minute, second)) = (u8::from(month), at.to_hms());
    let digits = |number: u8| [b'0' + number / 10, b'0' + number % 10];
    let mut text = String::with_capacity(20);
    // Written by hand, because it is written with every answer.
    let mut push = |bytes: &[u8]| text.extend(bytes.iter().map(|byte| char::from(*byte)));
    let year = u16::try_from(year).unwrap_or(0);
    for part in [u8::try_from(year / 100).unwrap_or(99), (year % 100) as u8] {
        push(&digits(part));
    }
    for (mark, part) in [(b'-', month), (b'-', day), (b'T', hour), (b':', minute), (b':', second)] {
        push(&[mark]);
        push(&digits(part));
    }
    push(b"Z");
    text
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
