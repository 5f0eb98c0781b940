//! The names and codes of the dialects: methods, the key of the cookie and its fields. Servers and clients use this one
//! table.

use super::{draft, extension, strawman};
use crate::era::Era;

/// A set of names in which servers and clients speak of data sessions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// The first draft: `session/create`, `_meta["mcp/session"]`, capability `experimental.session`.
    Strawman,
    /// The later draft: `sessions/create`, `_meta["io.modelcontextprotocol/session"]`, capability `sessions`.
    Draft,
    /// The extension `dev.tenure/sessions` for requests without a session (2026-07-28): `dev.tenure/session/create`,
    /// `_meta["dev.tenure/session"]`. Its cookie has the fields of the later draft.
    Extension,
}

/// An operation on data sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Makes a session.
    Create,
    /// Returns the cookie of a session.
    Resume,
    /// Ends a session.
    Delete,
    /// Lists the sessions of the caller.
    List,
    /// Brings an expired session back.
    Recover,
    /// Copies a session.
    Fork,
}

/// The code of the strawman for every refusal because of a session. In 2025-11-25 it also means that a resource was not
/// found.
pub const STRAWMAN_REFUSED: i32 = -32002;
/// The code of the draft for a session that does not exist.
pub const DRAFT_NOT_FOUND: i32 = -32043;
/// The code of the draft for a request that needs a session and names none.
pub const DRAFT_REQUIRED: i32 = -32044;

impl Verb {
    /// All operations.
    pub const ALL: [Self; 6] =
        [Self::Create, Self::Resume, Self::Delete, Self::List, Self::Recover, Self::Fork];

    /// Its name among the features of a server, which is the last word of its method.
    pub const fn feature(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Resume => "resume",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Recover => "recover",
            Self::Fork => "fork",
        }
    }
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 3] = [Self::Strawman, Self::Draft, Self::Extension];

    /// The era in whose requests it is used.
    pub const fn era(self) -> Era {
        match self {
            Self::Strawman | Self::Draft => Era::Legacy,
            Self::Extension => Era::Modern,
        }
    }

    /// The key of the cookie in `_meta`.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Strawman => strawman::KEY,
            Self::Draft => draft::KEY,
            Self::Extension => extension::KEY,
        }
    }

    /// The field of a cookie that holds the session's id.
    pub const fn id_field(self) -> &'static str {
        match self {
            Self::Strawman => "id",
            Self::Draft | Self::Extension => "sessionId",
        }
    }

    /// The field of a cookie that says when the session ends.
    pub const fn expiry_field(self) -> &'static str {
        match self {
            Self::Strawman => "expiry",
            Self::Draft | Self::Extension => "expiresAt",
        }
    }

    /// The method of an operation; `None` if the dialect does not have it.
    pub const fn method(self, verb: Verb) -> Option<&'static str> {
        Some(match (self, verb) {
            (Self::Strawman, Verb::Create) => "session/create",
            (Self::Strawman, Verb::Resume) => "session/resume",
            (Self::Strawman, Verb::Delete) => "session/delete",
            (Self::Strawman, Verb::List) => "session/list",
            (Self::Strawman, Verb::Recover) => "session/recover",
            (Self::Strawman, Verb::Fork) => "session/fork",
            (Self::Draft, Verb::Create) => "sessions/create",
            (Self::Draft, Verb::Delete) => "sessions/delete",
            (Self::Draft, Verb::Resume | Verb::List | Verb::Recover | Verb::Fork) => return None,
            (Self::Extension, Verb::Create) => "dev.tenure/session/create",
            (Self::Extension, Verb::Resume) => "dev.tenure/session/resume",
            (Self::Extension, Verb::Delete) => "dev.tenure/session/delete",
            (Self::Extension, Verb::List) => "dev.tenure/session/list",
            (Self::Extension, Verb::Recover) => "dev.tenure/session/recover",
            (Self::Extension, Verb::Fork) => "dev.tenure/session/fork",
        })
    }

    /// The dialect and the operation of a method.
    pub fn of_method(name: &str) -> Option<(Self, Verb)> {
        let mut all = Self::ALL.into_iter().flat_map(|dialect| Verb::ALL.map(|verb| (dialect, verb)));
        all.find(|(dialect, verb)| dialect.method(*verb) == Some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_names_its_dialect_and_its_operation() {
        for dialect in Dialect::ALL {
            for verb in Verb::ALL {
                let Some(method) = dialect.method(verb) else { continue };
                assert_eq!(Dialect::of_method(method), Some((dialect, verb)));
                assert!(method.ends_with(&format!("/{}", verb.feature())), "{method}");
            }
        }
        for other in ["sessions/list", "session/", "dev.tenure/session", "tools/call", "Session/create"] {
            assert_eq!(Dialect::of_method(other), None, "{other}");
        }
    }
}
