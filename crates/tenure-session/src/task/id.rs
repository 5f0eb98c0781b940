//! The id of a task: 128 random bits, 32 lower-case hex digits on the wire.

use std::fmt;

use crate::id::{Principal, Route, SessionId, SessionKey};

/// The secret id of a task. The store contains only a hash of the id, its owner and its endpoint, so that the id is
/// useless to another principal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TaskId(SessionId);

impl TaskId {
    /// Draws fresh bits from the operating system.
    pub(crate) fn random() -> Self {
        Self(SessionId::random())
    }

    /// Reads the wire form. `None` for any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        SessionId::parse(text.as_bytes()).map(Self)
    }

    /// The wire form. Only the owner of the task may get it.
    pub(crate) fn expose(&self) -> String {
        self.0.expose()
    }

    /// The task's key in stores.
    pub(crate) fn key(&self, owner: &Principal, route: &Route) -> SessionKey {
        self.0.key_of_owner(b"tenure task\0", owner, route)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskId(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_elsewhere_for_another_owner_or_endpoint() {
        let id = TaskId::random();
        assert_eq!(TaskId::parse(&id.expose()), Some(id));
        let owners = [
            Principal::ANONYMOUS,
            Principal::named(""),
            Principal::named("a"),
            Principal::named("ab"),
            Principal::named("b"),
        ];
        let routes = [Route::MAIN, Route::named(""), Route::named("b"), Route::named("bc")];
        let keys: std::collections::HashSet<_> =
            owners.iter().flat_map(|owner| routes.iter().map(|route| id.key(owner, route))).collect();
        assert_eq!(keys.len(), owners.len() * routes.len());
    }

    #[test]
    fn what_is_no_name_is_none_and_names_are_not_shown() {
        for text in ["", "786512e2", "786512E2786512E2786512E2786512E2", "task"] {
            assert_eq!(TaskId::parse(text), None, "{text}");
        }
        assert_eq!(format!("{:?}", TaskId::random()), "TaskId(…)");
    }
}
