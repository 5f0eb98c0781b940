//! Durations and sizes as people write them: `1h30m`, `4MiB`.

use std::time::Duration;

/// The longest duration that is accepted; short enough that no sum of times overflows.
pub(super) const LONGEST: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// The largest size that is accepted.
pub(super) const LARGEST: usize = 1 << 40;

const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

const SIZES: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Reads numbers with units, from the largest unit to the smallest, each once.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut units = TIMES.iter();
    let mut milliseconds = 0_u64;
    loop {
        let (number, after) = split_number(rest)?;
        let end = after.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        // The iterator only moves forward, so units have to be in order and none can occur twice.
        let (_, factor) = units.find(|(name, _)| *name == unit)?;
        milliseconds = milliseconds.checked_add(number.checked_mul(*factor)?)?;
        rest = next.trim_start();
        if rest.is_empty() {
            return Some(Duration::from_millis(milliseconds));
        }
    }
}

/// Writes what [`parse_duration`] reads.
pub(crate) fn write_duration(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, factor) in TIMES {
        let number = rest / u128::from(factor);
        if number > 0 {
            text.push_str(&format!("{number}{unit}"));
            rest %= u128::from(factor);
        }
    }
    text
}

/// Reads a number of bytes, with or without a unit.
pub(super) fn parse_size(text: &str) -> Option<usize> {
    let (number, unit) = split_number(text.trim())?;
    let unit = unit.trim_start();
    let factor = if unit.is_empty() { 1 } else { SIZES.iter().find(|(name, _)| *name == unit)?.1 };
    usize::try_from(number).ok()?.checked_mul(factor)
}

/// Writes what [`parse_size`] reads, in the largest unit that leaves no rest.
pub(in crate::config) fn write_size(bytes: usize) -> String {
    let unit = SIZES.iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    let (name, factor) = unit.unwrap_or(&("B", 1));
    format!("{}{name}", bytes / factor)
}

/// Splits the digits at the front from the rest.
pub(super) fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let table = [
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("30m", Some(1_800_000)),
            ("1h30m", Some(5_400_000)),
            ("1h 30m", Some(5_400_000)),
            ("1d2h3m4s5ms", Some(93_784_005)),
            ("0s", Some(0)),
            (" 5s ", Some(5000)),
            ("", None),
            ("30", None),
            ("m", None),
            ("30m1h", None),
            ("1h1h", None),
            ("1.5h", None),
            ("-5s", None),
            ("5 m", None),
            ("5min", None),
            ("1h30", None),
            ("99999999999999999999s", None),
            ("9999999999999999999d", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_duration(text), expected.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn sizes() {
        let table = [
            ("65536", Some(65_536)),
            ("512B", Some(512)),
            ("64KiB", Some(64 << 10)),
            ("4MiB", Some(4 << 20)),
            ("4 MiB", Some(4 << 20)),
            ("2GiB", Some(2 << 30)),
            ("", None),
            ("MiB", None),
            ("4MB", None),
            ("4mib", None),
            ("1.5MiB", None),
            ("-1", None),
            ("99999999999999999999GiB", None),
            ("9999999999999999999GiB", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_size(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        for milliseconds in [0, 1, 250, 1000, 90_000, 1_800_000, 5_400_000, 86_400_000, 93_784_005] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!(parse_duration(&write_duration(duration)), Some(duration));
        }
        assert_eq!(write_duration(Duration::from_secs(5400)), "1h30m");
        for bytes in [0, 1, 1023, 1024, 1025, 4 << 20, (4 << 20) + 1024, 1 << 40] {
            assert_eq!(parse_size(&write_size(bytes)), Some(bytes));
        }
        assert_eq!(write_size(4 << 20), "4MiB");
    }
}
