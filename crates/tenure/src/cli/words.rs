//! How counts and long texts are written, such as `2 sessions` and `the beginning of …`.

use serde_json::Value;

use crate::escape::plain;

/// A count with the singular or the plural.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A count of sessions.
pub(super) fn sessions(number: u64) -> String {
    count(number, "session", "sessions")
}

/// A count of data sessions.
pub(super) fn data_sessions(number: u64) -> String {
    count(number, "data session", "data sessions")
}

/// The first line of the first of these members that has a text, cut to this many letters.
pub(super) fn about(thing: &Value, members: &[&str], letters: usize) -> String {
    let mut texts = members.iter().filter_map(|member| thing[*member].as_str());
    let line = texts.find_map(|text| text.lines().map(str::trim).find(|line| !line.is_empty()));
    short(&plain(line.unwrap_or_default()), letters)
}

/// The text, cut to this many letters.
pub(super) fn short(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}
