//! Forms for measures: durations, sizes, counts and shares, each within its bounds.

use std::time::Duration;

use tenure_session::limits::Jitter;

use super::units::{LARGEST, LONGEST, parse_duration, parse_size, split_number, write_duration, write_size};
use super::{SettingValue, ValueForm, ValueRefusal, quoted};

/// A duration above zero.
pub(in crate::config) struct Span;

impl ValueForm for Span {
    type Of = Duration;
    fn expected() -> String {
        "a duration such as \"30s\" or \"1h30m\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Duration, ValueRefusal> {
        match duration(raw)? {
            Duration::ZERO => Err(ValueRefusal::hint("it has to be longer than zero")),
            duration => Ok(duration),
        }
    }
    fn show(value: &Duration) -> Option<String> {
        Some(quoted(&write_duration(*value)))
    }
}

/// A duration, zero included.
pub(in crate::config) struct SpanOrZero;

impl ValueForm for SpanOrZero {
    type Of = Duration;
    fn expected() -> String {
        Span::expected()
    }
    fn read(raw: &SettingValue) -> Result<Duration, ValueRefusal> {
        duration(raw)
    }
    fn show(value: &Duration) -> Option<String> {
        Span::show(value)
    }
}

/// A duration above zero, or `infinity`.
pub(in crate::config) struct SpanOrInfinity;

impl ValueForm for SpanOrInfinity {
    type Of = Option<Duration>;
    fn expected() -> String {
        "a duration such as \"30m\", or \"infinity\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Option<Duration>, ValueRefusal> {
        if raw.text() == Some("infinity") {
            return Ok(None);
        }
        match duration(raw)? {
            Duration::ZERO => Err(ValueRefusal::hint("for no limit write \"infinity\"")),
            duration => Ok(Some(duration)),
        }
    }
    fn show(value: &Option<Duration>) -> Option<String> {
        value.map_or_else(|| Some("\"infinity\"".to_owned()), |duration| Span::show(&duration))
    }
}

fn duration(raw: &SettingValue) -> Result<Duration, ValueRefusal> {
    const UNITS: &str = "the units are ms, s, m, h and d, the largest first";
    let longest = || ValueRefusal::hint(format!("the longest is \"{}\"", write_duration(LONGEST)));
    if let Some(number) = raw.number().or_else(|| raw.text()?.parse().ok()) {
        return Err(ValueRefusal::hint(format!("say in which unit: \"{number}ms\" or \"{number}s\"")));
    }
    let Some(text) = raw.text() else { return Err(ValueRefusal::default()) };
    match parse_duration(text) {
        Some(duration) if duration > LONGEST => Err(longest()),
        Some(duration) => Ok(duration),
        None if text == "infinity" => Err(longest()),
        None => Err(ValueRefusal::hint(UNITS)),
    }
}

/// A number of bytes, at least `LEAST`.
pub(in crate::config) struct Size<const LEAST: usize>;

impl<const LEAST: usize> ValueForm for Size<LEAST> {
    type Of = usize;
    fn expected() -> String {
        "a size such as \"4MiB\" or 65536".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<usize, ValueRefusal> {
        let bytes = match (raw.number(), raw.text()) {
            (Some(number), _) => usize::try_from(number).map_err(|_| ValueRefusal::default())?,
            (None, Some(text)) => parse_size(text).ok_or_else(|| unit(text))?,
            (None, None) => return Err(ValueRefusal::default()),
        };
        match bytes {
            _ if bytes < LEAST => Err(ValueRefusal::hint(format!("the least is \"{}\"", write_size(LEAST)))),
            _ if bytes > LARGEST => {
                Err(ValueRefusal::hint(format!("the most is \"{}\"", write_size(LARGEST))))
            }
            _ => Ok(bytes),
        }
    }
    fn show(value: &usize) -> Option<String> {
        Some(quoted(&write_size(*value)))
    }
}

/// The hint about a size's unit. The usual mistake is a unit such as `MB`, which may mean powers of 1000 or of 1024.
fn unit(text: &str) -> ValueRefusal {
    let known = ["K", "M", "G"].into_iter().find(|letter| {
        split_number(text).is_some_and(|(_, unit)| unit.trim().to_uppercase().starts_with(letter))
    });
    match (split_number(text), known) {
        (Some((number, _)), Some(letter)) => {
            ValueRefusal::hint(format!("the units are B, KiB, MiB and GiB: write \"{number}{letter}iB\""))
        }
        _ => ValueRefusal::hint("the units are B, KiB, MiB and GiB"),
    }
}

/// A whole number, at least `LEAST`.
pub(in crate::config) struct WholeNumber<const LEAST: usize>;

/// More than any bound here needs, and less than a semaphore can count.
const MOST: usize = 100_000_000;

impl<const LEAST: usize> ValueForm for WholeNumber<LEAST> {
    type Of = usize;
    fn expected() -> String {
        format!("a whole number from {LEAST} to {MOST}")
    }
    fn read(raw: &SettingValue) -> Result<usize, ValueRefusal> {
        let number = raw.number().and_then(|number| usize::try_from(number).ok());
        number.filter(|number| (LEAST..=MOST).contains(number)).ok_or_else(ValueRefusal::default)
    }
    fn show(value: &usize) -> Option<String> {
        Some(value.to_string())
    }
}

/// A share in percent.
pub(in crate::config) struct Percent;

impl ValueForm for Percent {
    type Of = Jitter;
    fn expected() -> String {
        "a share such as \"20%\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Jitter, ValueRefusal> {
        percent(raw, 0).map(Jitter::percent)
    }
    fn show(value: &Jitter) -> Option<String> {
        Some(quoted(&format!("{}%", value.as_percent())))
    }
}

/// A share in percent, as a number.
pub(in crate::config) struct Portion;

impl ValueForm for Portion {
    type Of = u32;
    fn expected() -> String {
        Percent::expected()
    }
    fn read(raw: &SettingValue) -> Result<u32, ValueRefusal> {
        percent(raw, 0)
    }
    fn show(value: &u32) -> Option<String> {
        Some(quoted(&format!("{value}%")))
    }
}

/// The share of one client in percent, at least 1.
pub(in crate::config) struct Share;

impl ValueForm for Share {
    type Of = u32;
    fn expected() -> String {
        Percent::expected()
    }
    fn read(raw: &SettingValue) -> Result<u32, ValueRefusal> {
        percent(raw, 1)
    }
    fn show(value: &u32) -> Option<String> {
        Some(quoted(&format!("{value}%")))
    }
}

fn percent(raw: &SettingValue, least: u32) -> Result<u32, ValueRefusal> {
    let hint = || ValueRefusal::hint(format!("write a whole number from {least} to 100 and a percent sign"));
    let number = raw.text().and_then(|text| text.trim().strip_suffix('%')).ok_or_else(hint)?;
    let number: u32 = number.trim().parse().map_err(|_| hint())?;
    if (least..=100).contains(&number) { Ok(number) } else { Err(hint()) }
}
