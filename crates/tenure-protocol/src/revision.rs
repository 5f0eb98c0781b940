//! The revisions of MCP that sessions speak, and the differences between them. Only this file, `era.rs` and
//! `translate/features.rs` compare versions.

use crate::error::{Error, Reason};

/// A revision of the legacy era that sessions may speak.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Revision {
    /// 2024-11-05
    V2024_11_05,
    /// 2025-03-26
    V2025_03_26,
    /// 2025-06-18
    V2025_06_18,
    /// 2025-11-25
    V2025_11_25,
}

impl Revision {
    /// All of them, oldest first.
    pub const ALL: [Self; 4] = [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25];

    /// The answer to a client that requests an unknown revision.
    pub const LATEST: Self = Self::V2025_11_25;

    /// The revision's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// Reads a name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    /// The answer to a requested revision: the same if known, otherwise our latest.
    pub fn negotiate(requested: &str) -> Self {
        Self::parse(requested).unwrap_or(Self::LATEST)
    }

    /// Streams start with an event that has an id and no data. Older SDK clients parse the empty data as JSON and fail,
    /// so their streams start without that event.
    pub fn primes_streams(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// The server may close a connection before the response and let the client poll for it.
    pub fn may_close_early(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// Clients name the revision in a header of every request.
    pub fn names_itself(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// A body may be an array of messages.
    pub fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }
}

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The revision of the modern era; the first, and so far the only one.
pub const MODERN: &str = "2026-07-28";

/// The first 64 characters of a client's text, for an error that repeats it.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Checks the `MCP-Protocol-Version` header of a message inside a session.
///
/// # Errors
/// When the header names a revision that is not served. An absent header means the session's own.
pub fn check_header(header: Option<&str>) -> Result<(), Error> {
    match header {
        None => Ok(()),
        Some(text) if Revision::parse(text).is_some() => Ok(()),
        Some(text) => Err(unsupported(text)),
    }
}

/// The error for a version that is not served.
pub fn unsupported(requested: &str) -> Error {
    let requested: &str = &cut(requested);
    let supported: Vec<_> = Revision::ALL.iter().rev().map(|revision| revision.as_str()).collect();
    Error::new(Reason::UnsupportedVersion, format!("Unsupported protocol version: {requested}"))
        .with("supported", supported)
        .with("requested", requested)
        .with("provided", requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_revision_is_kept_and_an_unknown_one_becomes_our_latest() {
        for revision in Revision::ALL {
            assert_eq!(Revision::negotiate(revision.as_str()), revision);
        }
        for unknown in ["2099-01-01", "2026-07-28", "", "1.0", "2025-11-25 "] {
            assert_eq!(Revision::negotiate(unknown), Revision::V2025_11_25, "{unknown}");
        }
    }
}
