//! Forms for limits of calls: rates, and limits for tools and servers by name.

use std::time::Duration;

use tenure_layers::limited::{CallPattern, PatternLimit};
use tenure_session::rate::Rate;

use super::{SettingValue, ValueForm, ValueRefusal, quoted, quoted_list};

const HINT: &str = "write a number and a unit (s, min, h or d), such as \"30/min\" or \"10/s burst 50\"";

/// A rate, or `off`.
pub(in crate::config) struct RateOrOff;

impl ValueForm for RateOrOff {
    type Of = Option<Rate>;
    fn expected() -> String {
        "a rate such as \"10/s\" or \"10/s burst 50\", or \"off\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Option<Rate>, ValueRefusal> {
        match raw.text() {
            Some("off") => Ok(None),
            Some(text) => rate(text).map(Some).ok_or_else(|| ValueRefusal::hint(HINT)),
            None => Err(ValueRefusal::hint(HINT)),
        }
    }
    fn show(value: &Option<Rate>) -> Option<String> {
        Some(quoted(&value.map_or_else(|| "off".to_owned(), |rate| rate.to_string())))
    }
}

/// Reads a rate: `10/s`, or `10/s burst 50`. Without a burst, as many at once as in a unit of time.
fn rate(text: &str) -> Option<Rate> {
    let mut words = text.split_whitespace();
    let (count, unit) = words.next()?.split_once('/')?;
    let seconds = match unit {
        "s" => 1,
        "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let number = |text: &str| text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    let count: u32 = number(count)?;
    let burst = match (words.next(), words.next(), words.next()) {
        (None, ..) => count,
        (Some("burst"), Some(burst), None) => number(burst)?,
        _ => return None,
    };
    Some(Rate::new(count, Duration::from_secs(seconds), burst))
}

/// Rates for tools, by pattern.
pub(in crate::config) struct PatternRates;

impl ValueForm for PatternRates {
    type Of = Vec<PatternLimit<Rate>>;
    fn expected() -> String {
        "a list such as [\"files/write_* = 5/s burst 10\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Self::Of, ValueRefusal> {
        patterns(raw, rate, HINT)
    }
    fn show(value: &Self::Of) -> Option<String> {
        Some(shown(value))
    }
}

/// Numbers of calls at once for tools, by pattern.
pub(in crate::config) struct PatternNumbers;

impl ValueForm for PatternNumbers {
    type Of = Vec<PatternLimit<usize>>;
    fn expected() -> String {
        "a list such as [\"files/write_* = 2\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Self::Of, ValueRefusal> {
        patterns(raw, number, "each is a pattern, an equals sign, and a whole number from 1 on")
    }
    fn show(value: &Self::Of) -> Option<String> {
        Some(shown(value))
    }
}

/// Rates of principals, by name.
pub(in crate::config) struct PrincipalRates;

impl ValueForm for PrincipalRates {
    type Of = Vec<(String, Rate)>;
    fn expected() -> String {
        "a list such as [\"corp:alice = 100/s\", \"key:ci-* = 10/s burst 50\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Self::Of, ValueRefusal> {
        named(raw, rate, HINT)
    }
    fn show(value: &Self::Of) -> Option<String> {
        Some(quoted_list(value.iter().map(|(name, rate)| format!("{name} = {rate}"))))
    }
}

/// Numbers for principals, by name.
pub(in crate::config) struct PrincipalNumbers;

impl ValueForm for PrincipalNumbers {
    type Of = Vec<(String, usize)>;
    fn expected() -> String {
        "a list such as [\"corp:alice = 8\", \"key:ci-* = 2\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Self::Of, ValueRefusal> {
        let hint = "each is the name of a principal with or without `*`, an equals sign, and a whole number from 1 on";
        named(raw, number, hint)
    }
    fn show(value: &Self::Of) -> Option<String> {
        Some(quoted_list(value.iter().map(|(name, number)| format!("{name} = {number}"))))
    }
}

/// Numbers of requests at once for servers, by name.
pub(in crate::config) struct ServerNumbers;

impl ValueForm for ServerNumbers {
    type Of = Vec<(String, usize)>;
    fn expected() -> String {
        "a list such as [\"files = 4\", \"* = 16\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Self::Of, ValueRefusal> {
        let hint = "each is the name of a backend or `*`, an equals sign, and a whole number from 1 on";
        named(raw, number, hint)
    }
    fn show(value: &Self::Of) -> Option<String> {
        Some(quoted_list(value.iter().map(|(name, most)| format!("{name} = {most}"))))
    }
}

fn number(text: &str) -> Option<usize> {
    text.parse().ok().filter(|number| (1..=1_000_000).contains(number))
}

/// Rows of a name and a value. A name may have an equals sign.
fn named<T>(
    raw: &SettingValue,
    read: impl Fn(&str) -> Option<T>,
    hint: &str,
) -> Result<Vec<(String, T)>, ValueRefusal> {
    let rows = raw.names()?;
    let row = |row: &String| {
        let (name, value) = row.rsplit_once('=')?;
        Some((name.trim().to_owned(), read(value.trim())?)).filter(|(name, _)| !name.is_empty())
    };
    rows.iter().map(row).collect::<Option<_>>().ok_or_else(|| ValueRefusal::hint(hint))
}

fn patterns<T>(
    raw: &SettingValue,
    read: impl Fn(&str) -> Option<T>,
    hint: &str,
) -> Result<Vec<PatternLimit<T>>, ValueRefusal> {
    let rows = raw.names()?;
    let row = |row: &String| {
        let (pattern, limit) = row.split_once('=')?;
        Some(PatternLimit { pattern: CallPattern::parse(pattern.trim())?, limit: read(limit.trim())? })
    };
    rows.iter().map(row).collect::<Option<_>>().ok_or_else(|| ValueRefusal::hint(hint))
}

fn shown<T: ToString>(limits: &[PatternLimit<T>]) -> String {
    quoted_list(limits.iter().map(|limit| format!("{} = {}", limit.pattern, limit.limit.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_as_it_is_shown() {
        for text in ["10/s", "10/s burst 50", "30/min", "1000/d burst 10", "5/h", "off"] {
            let read = RateOrOff::read(&SettingValue::Text(text.to_owned())).unwrap();
            assert_eq!(RateOrOff::show(&read), Some(quoted(text)));
        }
        for text in
            ["", "10", "10/m", "0/s", "-1/s", "10/s burst", "10/s burst 0", "10/s burst 5 6", "x/s", "on"]
        {
            assert!(RateOrOff::read(&SettingValue::Text(text.to_owned())).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_by_name_are_read_as_they_are_shown() {
        let list = |texts: &[&str]| SettingValue::List(texts.iter().map(|text| (*text).to_owned()).collect());
        let rates = PatternRates::read(&list(&["files/*=5/s burst 10", "* = 1/min"])).unwrap();
        assert_eq!(PatternRates::show(&rates).unwrap(), r#"["files/* = 5/s burst 10", "* = 1/min"]"#);
        let numbers = PatternNumbers::read(&list(&["write = 2"])).unwrap();
        assert_eq!(PatternNumbers::show(&numbers).unwrap(), r#"["write = 2"]"#);
        let servers = ServerNumbers::read(&SettingValue::Untyped("files = 4,*=16".to_owned())).unwrap();
        assert_eq!(ServerNumbers::show(&servers).unwrap(), r#"["files = 4", "* = 16"]"#);
        let principals = PrincipalRates::read(&list(&["corp:a=b = 5/s", "key:*=1/min"])).unwrap();
        assert_eq!(PrincipalRates::show(&principals).unwrap(), r#"["corp:a=b = 5/s", "key:* = 1/min"]"#);
        let weights = PrincipalNumbers::read(&list(&["key:ci = 4"])).unwrap();
        assert_eq!(PrincipalNumbers::show(&weights).unwrap(), r#"["key:ci = 4"]"#);
        assert!(PrincipalNumbers::read(&list(&["key:ci = 0"])).is_err());
        assert!(PatternRates::read(&list(&["files/* 5/s"])).is_err());
        assert!(
            PatternNumbers::read(&list(&["/ = 2"])).is_err() && ServerNumbers::read(&list(&["= 2"])).is_err()
        );
    }
}
