//! The current time, and the format in which the jar writes times.
//!
//! The functions of the jar take the time as an argument; their callers get it here.

use time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};

#[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads the clock")]
pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::from(std::time::SystemTime::now())
}

/// Six fractional digits and a numeric offset, like Python's `isoformat`, because other programs compare the times in
/// the jar as texts.
pub(crate) fn stamp(at: OffsetDateTime) -> String {
    let at = at.to_offset(UtcOffset::UTC);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}+00:00",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.microsecond()
    )
}

pub(crate) fn parse(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::{parse, stamp};

    #[test]
    fn a_stamp_has_one_form_whatever_it_was_read_from() {
        for (read, written) in [
            ("2026-02-23T14:30:00Z", "2026-02-23T14:30:00.000000+00:00"),
            ("2026-02-23T16:30:00.5+02:00", "2026-02-23T14:30:00.500000+00:00"),
            ("2026-02-23T14:30:00.123456+00:00", "2026-02-23T14:30:00.123456+00:00"),
        ] {
            assert_eq!(stamp(parse(read).unwrap()), written);
        }
        assert!(parse("tomorrow").is_none());
    }
}
