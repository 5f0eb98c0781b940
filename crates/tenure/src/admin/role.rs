//! What operators may do. Each role has the rights of those before it.

use serde::{Deserialize, Serialize};
use tenure_auth::scope::ScopeSet;

/// What an operator may do.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AdminRole {
    /// Looks, and sees neither messages nor the contents of data sessions.
    Viewer,
    /// Sees these too.
    Payloads,
    /// Ends, cancels and changes.
    Operator,
    /// Decides who may do this.
    Admin,
}

impl AdminRole {
    pub(crate) const ALL: [Self; 4] = [Self::Viewer, Self::Payloads, Self::Operator, Self::Admin];

    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Payloads => "payloads",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The role with this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// The highest role that scopes grant, where `PREFIX:viewer` grants the one of viewers.
    pub(super) fn of_scopes(prefix: &str, scopes: &ScopeSet) -> Option<Self> {
        let granted = scopes.iter().filter_map(|scope| scope.strip_prefix(prefix)?.strip_prefix(':'));
        granted.filter_map(Self::parse).max()
    }

    /// This role and those that it includes.
    pub(super) fn included(self) -> Vec<Self> {
        Self::ALL.into_iter().filter(|role| *role <= self).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_grant_the_highest_role_that_they_name_and_nothing_by_chance() {
        let role = |scopes: &str| AdminRole::of_scopes("admin", &ScopeSet::parse(scopes).unwrap());
        assert_eq!(role("admin:viewer"), Some(AdminRole::Viewer));
        assert_eq!(role("admin:viewer admin:operator read"), Some(AdminRole::Operator));
        for none in ["admin", "admin:", "viewer", "administrator:viewer", "admin:viewers", "ops:admin"] {
            assert_eq!(role(none), None, "{none}");
        }
        assert_eq!(
            AdminRole::Operator.included(),
            [AdminRole::Viewer, AdminRole::Payloads, AdminRole::Operator]
        );
    }
}
