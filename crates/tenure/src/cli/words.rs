//! How counts are written, such as `1 session` and `2 sessions`.

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

/// The text, cut to this many letters.
pub(super) fn short(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}
