//! Which tools need a data session.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_session::port::seal::Seal;

/// Which tools cannot be called without one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Required {
    /// None.
    #[default]
    None,
    /// These.
    Tools(BTreeSet<String>),
    /// All.
    All,
}

impl Required {
    /// Whether this tool needs one.
    pub fn of(&self, tool: &str) -> bool {
        match self {
            Self::None => false,
            Self::Tools(tools) => tools.contains(tool),
            Self::All => true,
        }
    }

    /// What both demand together.
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

    /// The word for it in the capability.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tools(_) => "some",
            Self::All => "all",
        }
    }
}

/// All that can be asked of data sessions.
pub const FEATURES: [&str; 6] = ["create", "resume", "delete", "list", "recover", "fork"];

/// How data sessions are offered.
#[derive(Clone)]
pub struct Policy {
    /// Which tools need one.
    pub required: Required,
    /// The draft's clients are told of their cookie with every result too, not only when it changed.
    pub always_echo: bool,
    /// The largest cookie that is read, and sent.
    pub max_cookie_bytes: usize,
    /// The number that the strawman's capability carries. Clients in the field know 2, or none.
    pub version: Option<usize>,
    /// What can be asked of data sessions, by the last word of the method: some of [`FEATURES`].
    pub features: Vec<String>,
    /// The code that clients of the strawman are refused with.
    pub strawman_code: i32,
    /// The code that clients of the draft are refused with when they name no session.
    pub draft_required_code: i32,
    /// What seals the states that clients carry in their cookies. `None`: they carry none.
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
