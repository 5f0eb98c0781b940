//! How counts are written, such as `1 session` and `2 sessions`.

/// A count of things, by the words for one and for many of them.
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

/// As much of a text as fits into so many letters.
pub(super) fn short(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}
