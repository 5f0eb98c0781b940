//! Forms that measure: durations, sizes and counts, each within what makes sense.

use std::time::Duration;

use tenure_session::limits::Jitter;

use super::forms::{Form, Raw, Refusal, quoted};
use super::units::{LARGEST, LONGEST, parse_duration, parse_size, split_number, write_duration, write_size};

/// A duration above zero.
pub(super) struct Span;

impl Form for Span {
    type Of = Duration;
    fn expected() -> String {
        "a duration such as \"30s\" or \"1h30m\"".to_owned()
    }
    fn read(raw: &Raw) -> Result<Duration, Refusal> {
        match duration(raw)? {
            Duration::ZERO => Err(Refusal::hint("it has to be longer than zero")),
            duration => Ok(duration),
        }
    }
    fn show(value: &Duration) -> Option<String> {
        Some(quoted(&write_duration(*value)))
    }
}

/// A duration, zero included.
pub(super) struct SpanOrZero;

impl Form for SpanOrZero {
    type Of = Duration;
    fn expected() -> String {
        Span::expected()
    }
    fn read(raw: &Raw) -> Result<Duration, Refusal> {
        duration(raw)
    }
    fn show(value: &Duration) -> Option<String> {
        Span::show(value)
    }
}

/// A duration above zero, or `infinity`.
pub(super) struct SpanOrInfinity;

impl Form for SpanOrInfinity {
    type Of = Option<Duration>;
    fn expected() -> String {
        "a duration such as \"30m\", or \"infinity\"".to_owned()
    }
    fn read(raw: &Raw) -> Result<Option<Duration>, Refusal> {
        if raw.text() == Some("infinity") {
            return Ok(None);
        }
        match duration(raw)? {
            Duration::ZERO => Err(Refusal::hint("for no limit write \"infinity\"")),
            duration => Ok(Some(duration)),
        }
    }
    fn show(value: &Option<Duration>) -> Option<String> {
        value.map_or_else(|| Some("\"infinity\"".to_owned()), |duration| Span::show(&duration))
    }
}

fn duration(raw: &Raw) -> Result<Duration, Refusal> {
    const UNITS: &str = "the units are ms, s, m, h and d, the largest first";
    let longest = || Refusal::hint(format!("the longest is \"{}\"", write_duration(LONGEST)));
    if let Some(number) = raw.number().or_else(|| raw.text()?.parse().ok()) {
        return Err(Refusal::hint(format!("say in which unit: \"{number}ms\" or \"{number}s\"")));
    }
    let Some(text) = raw.text() else { return Err(Refusal::default()) };
    match parse_duration(text) {
        Some(duration) if duration > LONGEST => Err(longest()),
        Some(duration) => Ok(duration),
        None if text == "infinity" => Err(longest()),
        None => Err(Refusal::hint(UNITS)),
    }
}

/// A number of bytes, at least `LEAST`.
pub(super) struct Size<const LEAST: usize>;

impl<const LEAST: usize> Form for Size<LEAST> {
    type Of = usize;
    fn expected() -> String {
        "a size such as \"4MiB\" or 65536".to_owned()
    }
    fn read(raw: &Raw) -> Result<usize, Refusal> {
        let bytes = match (raw.number(), raw.text()) {
            (Some(number), _) => usize::try_from(number).map_err(|_| Refusal::default())?,
            (None, Some(text)) => parse_size(text).ok_or_else(|| unit(text))?,
            (None, None) => return Err(Refusal::default()),
        };
        match bytes {
            _ if bytes < LEAST => Err(Refusal::hint(format!("the least is \"{}\"", write_size(LEAST)))),
            _ if bytes > LARGEST => Err(Refusal::hint(format!("the most is \"{}\"", write_size(LARGEST)))),
            _ => Ok(bytes),
        }
    }
    fn show(value: &usize) -> Option<String> {
        Some(quoted(&write_size(*value)))
    }
}

/// What is wrong with a size's unit: mostly that it leaves open whether a thousand or 1024 is meant.
fn unit(text: &str) -> Refusal {
    let known = ["K", "M", "G"].into_iter().find(|letter| {
        split_number(text).is_some_and(|(_, unit)| unit.trim().to_uppercase().starts_with(letter))
    });
    match (split_number(text), known) {
        (Some((number, _)), Some(letter)) => {
            Refusal::hint(format!("the units are B, KiB, MiB and GiB: write \"{number}{letter}iB\""))
        }
        _ => Refusal::hint("the units are B, KiB, MiB and GiB"),
    }
}

/// A whole number, at least `LEAST`.
pub(super) struct Count<const LEAST: usize>;

/// More than any bound here can mean, and less than a semaphore can count.
const MOST: usize = 100_000_000;

impl<const LEAST: usize> Form for Count<LEAST> {
    type Of = usize;
    fn expected() -> String {
        format!("a whole number from {LEAST} to {MOST}")
    }
    fn read(raw: &Raw) -> Result<usize, Refusal> {
        let number = raw.number().and_then(|number| usize::try_from(number).ok());
        number.filter(|number| (LEAST..=MOST).contains(number)).ok_or_else(Refusal::default)
    }
    fn show(value: &usize) -> Option<String> {
        Some(value.to_string())
    }
}

/// A share in percent.
pub(super) struct Percent;

impl Form for Percent {
    type Of = Jitter;
    fn expected() -> String {
        "a share such as \"20%\"".to_owned()
    }
    fn read(raw: &Raw) -> Result<Jitter, Refusal> {
        percent(raw, 0).map(Jitter::percent)
    }
    fn show(value: &Jitter) -> Option<String> {
        Some(quoted(&format!("{}%", value.as_percent())))
    }
}

/// The share of one client in percent, which cannot be nothing.
pub(super) struct Share;

impl Form for Share {
    type Of = u32;
    fn expected() -> String {
        Percent::expected()
    }
    fn read(raw: &Raw) -> Result<u32, Refusal> {
        percent(raw, 1)
    }
    fn show(value: &u32) -> Option<String> {
        Some(quoted(&format!("{value}%")))
    }
}

fn percent(raw: &Raw, least: u32) -> Result<u32, Refusal> {
    let hint = || Refusal::hint(format!("write a whole number from {least} to 100 and a percent sign"));
    let number = raw.text().and_then(|text| text.trim().strip_suffix('%')).ok_or_else(hint)?;
    let number: u32 = number.trim().parse().map_err(|_| hint())?;
    if (least..=100).contains(&number) { Ok(number) } else { Err(hint()) }
}
