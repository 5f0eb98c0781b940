//! From when and until when a certificate is valid: `notBefore` and `notAfter` of X.509.
//!
//! The TLS library checks both in a full handshake, and does not tell them. A connection can be open for days, and can be resumed
//! without another check, so they are looked at on every request. In: the DER of a certificate that the library has verified.

use crate::time::UnixSeconds;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// `[0] EXPLICIT`, around the version.
const VERSION: u8 = 0xa0;

/// `notBefore` and `notAfter`; `None` if they cannot be read.
pub(crate) fn of(der: &[u8]) -> Option<(UnixSeconds, UnixSeconds)> {
    let mut certificate = Der(Der(der).take(SEQUENCE)?);
    let mut signed = Der(certificate.take(SEQUENCE)?);
    // A certificate of the first version has none.
    let _ = signed.take(VERSION);
    signed.take(INTEGER)?;
    signed.take(SEQUENCE)?;
    signed.take(SEQUENCE)?;
    let mut validity = Der(signed.take(SEQUENCE)?);
    Some((validity.time()?, validity.time()?))
}

/// The rest of some DER.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The content of the next element, if it has this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let [found, length, rest @ ..] = self.0 else { return None };
        if *found != tag {
            return None;
        }
        let (length, rest) = match *length {
            short @ 0..=0x7f => (usize::from(short), rest),
            long @ 0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(content)
    }

    fn time(&mut self) -> Option<UnixSeconds> {
        // RFC 5280: UTCTime up to 2049, GeneralizedTime after that; both with seconds and in UTC.
        if let Some(text) = self.take(UTC_TIME) {
            let (year, rest) = text.split_at_checked(2)?;
            let year = number(year)?;
            return seconds(if year < 50 { 2000 + year } else { 1900 + year }, rest);
        }
        let (year, rest) = self.take(GENERALIZED_TIME)?.split_at_checked(4)?;
        seconds(number(year)?, rest)
    }
}

/// The seconds since 1970 of `MMDDHHMMSSZ` in a year. Times before 1970 are 1970.
fn seconds(year: u64, rest: &[u8]) -> Option<UnixSeconds> {
    let rest = rest.strip_suffix(b"Z").filter(|rest| rest.len() == 10)?;
    let mut parts = rest.chunks(2).map(number);
    let mut next = || parts.next().flatten();
    let (month, day, hour, minute, second) = (next()?, next()?, next()?, next()?, next()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days from the civil calendar, counted from March, so that leap days come last in a year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    // The same count for 1 January 1970.
    let days = days.saturating_sub(719_468);
    Some(UnixSeconds(days * 86_400 + hour * 3600 + minute * 60 + second))
}

fn number(digits: &[u8]) -> Option<u64> {
    digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn read(year: i32, month: u8, day: u8, later: u64) -> u64 {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(1975, 1, 1);
        params.not_after = date_time_ymd(year, month, day) + Duration::from_secs(later);
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        for end in [0, 1, 5, 20, 60] {
            assert_eq!(of(&der[..end]), None, "cut at {end}");
        }
        let (begins, ends) = of(&der).unwrap();
        assert_eq!(begins, UnixSeconds(157_766_400), "1975-01-01");
        ends.0
    }

    #[test]
    fn the_end_of_a_certificate_is_read_as_it_was_written() {
        let rows = [
            ((1999, 12, 31, 86_399), 946_684_799),
            ((2024, 2, 29, 0), 1_709_164_800),
            ((2026, 11, 18, 71_999), 1_795_031_999),
            ((2049, 12, 31, 0), 2_524_521_600),
            ((2050, 1, 1, 1), 2_524_608_001),
            ((2400, 3, 1, 0), 13_574_649_600),
        ];
        for ((year, month, day, later), seconds) in rows {
            assert_eq!(read(year, month, day, later), seconds, "{year}-{month}-{day}");
        }
    }
}
