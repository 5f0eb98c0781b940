//! The policy of data sessions: which tools need one, and how they are offered to clients.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_session::port::seal::Seal;

/// Which tools cannot be called without a data session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Required {
    /// No tool.
    #[default]
    None,
    /// These tools.
    Tools(BTreeSet<String>),
    /// All tools.
    All,
}

impl Required {
    /// Whether this tool needs a data session.
    pub fn of(&self, tool: &str) -> bool {
        match self {
            Self::None => false,
            Self::Tools(tools) => tools.contains(tool),
            Self::All => true,
        }
    }

    /// The union of both demands.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::None, other) => other,
            (one, Self::None) => one,
            (Self::Tools(mut one), Self::Tools(other)) => {
                one.extend(other);
                Self::Tools(one)
            }
        }
    }

    /// The capability's word for it.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tools(_) => "some",
            Self::All => "all",
        }
    }
}

/// All operations on data sessions.
pub const FEATURES: [&str; 6] = ["create", "resume", "delete", "list", "recover", "fork"];

/// How data sessions are offered.
#[derive(Clone)]
pub struct Policy {
    /// Which tools need a data session.
    pub required: Required,
    /// Clients of the draft get their cookie with every result, not only when it changed.
    pub always_echo: bool,
    /// The largest cookie that is read or sent.
    pub max_cookie_bytes: usize,
    /// The version in the strawman's capability. Released clients know 2, or no version.
    pub version: Option<usize>,
    /// The operations that are offered, by the last word of the method: some of [`FEATURES`].
    pub features: Vec<String>,
    /// The error code for clients of the strawman.
    pub strawman_code: i32,
    /// The error code for clients of the draft that name no session.
    pub draft_required_code: i32,
    /// Seals the states that clients carry in their cookies. `None`: cookies carry no state.
    pub seal: Option<Arc<dyn Seal>>,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let carried = self.seal.is_some();
        f.debug_struct("Policy")
            .field("required", &self.required)
            .field("carried", &carried)
            .finish_non_exhaustive()
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            required: Required::None,
            always_echo: false,
            max_cookie_bytes: 4096,
            version: None,
            features: FEATURES.map(str::to_owned).to_vec(),
            strawman_code: -32002,
            draft_required_code: -32044,
            seal: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_add_up() {
        let tools = |names: &[&str]| Required::Tools(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(tools(&["a"]).and(tools(&["b"])), tools(&["a", "b"]));
        assert_eq!(Required::None.and(tools(&["a"])), tools(&["a"]));
        assert_eq!(tools(&["a"]).and(Required::All), Required::All);
        assert!(tools(&["a"]).of("a") && !tools(&["a"]).of("b") && Required::All.of("b"));
    }
}
