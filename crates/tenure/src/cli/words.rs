//! How counts are written: `1 session`, `2 sessions`.

/// A count of things, by the words for one and for many of them.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A count of sessions.
pub(super) fn sessions(number: u64) -> String {
    count(number, "session", "sessions")
}
