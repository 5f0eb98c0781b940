//! The limits that the configuration can set.

use std::time::Duration;

use tenure_session::Principal;
use tenure_session::rate::{QuotaLimits, Rate};

use super::QueueBounds;

/// Limits of calls. Every level is off unless it is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallLimitSettings {
    /// Requests of each principal.
    pub principal: Option<Rate>,
    /// Requests of each principal at once.
    pub principal_concurrent: Option<usize>,
    /// Calls of tools a day of each principal.
    pub calls_per_day: Option<usize>,
    /// Calls of tools a month of each principal.
    pub calls_per_month: Option<usize>,
    /// The same four for principals whose names fit a pattern.
    pub grants: PrincipalGrants,
    /// Requests of each session.
    pub session: Option<Rate>,
    /// Calls of tools by each principal.
    pub tools: Vec<PatternLimit<Rate>>,
    /// Calls of tools by each principal, at once.
    pub tools_concurrent: Vec<PatternLimit<usize>>,
    /// Calls of tools by all together.
    pub tools_in_all: Vec<PatternLimit<Rate>>,
    /// Calls of tools by all together, at once.
    pub tools_in_all_concurrent: Vec<PatternLimit<usize>>,
    /// Requests at once for a server: by name, or `*` for those that are not named.
    pub servers_concurrent: Vec<(String, usize)>,
    /// How long a request waits for room.
    pub max_wait: Duration,
    /// How many requests may wait for each limit of requests at once.
    pub queue: QueueBounds,
    /// How a call of a tool is refused.
    pub over_limit: OverLimit,
}

impl Default for CallLimitSettings {
    fn default() -> Self {
        Self {
            principal: None,
            principal_concurrent: None,
            calls_per_day: None,
            calls_per_month: None,
            grants: PrincipalGrants::default(),
            session: None,
            tools: Vec::new(),
            tools_concurrent: Vec::new(),
            tools_in_all: Vec::new(),
            tools_in_all_concurrent: Vec::new(),
            servers_concurrent: Vec::new(),
            max_wait: Duration::from_secs(1),
            queue: QueueBounds::default(),
            over_limit: OverLimit::Error,
        }
    }
}

impl CallLimitSettings {
    /// Whether anything of a caller is limited.
    pub(super) fn limits_callers(&self) -> bool {
        self.principal.is_some()
            || self.principal_concurrent.is_some()
            || self.session.is_some()
            || !(self.grants.rates.is_empty() && self.grants.concurrent.is_empty())
            || self.has_quotas()
    }

    /// Whether calls of a day or of a month are limited.
    pub fn has_quotas(&self) -> bool {
        self.calls_per_day.is_some()
            || self.calls_per_month.is_some()
            || !(self.grants.calls_per_day.is_empty() && self.grants.calls_per_month.is_empty())
    }

    /// The rate of a principal.
    pub(super) fn rate_of(&self, principal: &Principal) -> Option<Rate> {
        granted(&self.grants.rates, principal).or(self.principal)
    }

    /// How many requests of a principal there may be at once.
    pub(super) fn concurrent_of(&self, principal: &Principal) -> Option<usize> {
        granted(&self.grants.concurrent, principal).or(self.principal_concurrent)
    }

    /// How many calls a day and a month a principal has.
    pub fn quotas_of(&self, principal: &Principal) -> QuotaLimits {
        let day = granted(&self.grants.calls_per_day, principal).or(self.calls_per_day);
        let month = granted(&self.grants.calls_per_month, principal).or(self.calls_per_month);
        QuotaLimits { day: day.map(|most| most as u64), month: month.map(|most| most as u64) }
    }

    /// Whether anything of tools is limited.
    pub(super) fn limits_tools(&self) -> bool {
        !(self.tools.is_empty()
            && self.tools_concurrent.is_empty()
            && self.tools_in_all.is_empty()
            && self.tools_in_all_concurrent.is_empty())
    }

    /// How many requests a server may get at once.
    pub(super) fn of_server(&self, name: Option<&str>) -> Option<usize> {
        let named = |wanted: &str| self.servers_concurrent.iter().find(|(known, _)| known == wanted);
        name.and_then(named).or_else(|| named("*")).map(|(_, most)| *most)
    }
}

/// Limits and weights of principals by their names, such as `corp:alice` or `key:ci-*`, where `*` stands for any characters.
/// Callers without a name are `anonymous`. The first pattern that fits counts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PrincipalGrants {
    /// Requests.
    pub rates: Vec<(String, Rate)>,
    /// Requests at once.
    pub concurrent: Vec<(String, usize)>,
    /// Calls of tools a day.
    pub calls_per_day: Vec<(String, usize)>,
    /// Calls of tools a month.
    pub calls_per_month: Vec<(String, usize)>,
    /// How many turns a principal has where others have one, in a queue in which principals take turns.
    pub weights: Vec<(String, usize)>,
}

impl PrincipalGrants {
    /// The turns of a principal.
    pub(super) fn weight_of(&self, principal: &Principal) -> usize {
        granted(&self.weights, principal).unwrap_or(1)
    }
}

/// The value of the first pattern that fits the name of a principal.
fn granted<T: Copy>(grants: &[(String, T)], principal: &Principal) -> Option<T> {
    let name = principal.name().unwrap_or("anonymous");
    grants.iter().find(|(pattern, _)| fits(pattern, name)).map(|(_, granted)| *granted)
}

/// How a call of a tool is refused.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OverLimit {
    /// With an error, which programs read.
    #[default]
    Error,
    /// With a result that says so, which models read.
    ToolResult,
}

/// A limit for the tools that a pattern names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PatternLimit<T> {
    /// The tools.
    pub pattern: CallPattern,
    /// Their limit.
    pub limit: T,
}

/// Tools: `BACKEND/TOOL`, `TOOL` or `*`, where `*` stands for any characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallPattern {
    backend: Option<Box<str>>,
    tool: Box<str>,
}

impl CallPattern {
    /// Reads a pattern. `None` if a part of it is empty.
    pub fn parse(text: &str) -> Option<Self> {
        let (backend, tool) = match text.split_once('/') {
            Some((backend, tool)) => (Some(backend), tool),
            None => (None, text),
        };
        let is_whole = !tool.is_empty() && backend.is_none_or(|backend| !backend.is_empty());
        is_whole.then(|| Self { backend: backend.map(Box::from), tool: tool.into() })
    }

    /// Whether it names a tool of a server. A call that does not say clearly which tool it is for is taken for any.
    pub(super) fn names(&self, server: Option<&str>, tool: Option<&str>) -> bool {
        let of_server = match (&self.backend, server) {
            (None, _) => true,
            (Some(pattern), Some(server)) => fits(pattern, server),
            (Some(pattern), None) => **pattern == *"*",
        };
        of_server && tool.is_none_or(|tool| fits(&self.tool, tool))
    }
}

impl std::fmt::Display for CallPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.backend {
            Some(backend) => write!(f, "{backend}/{}", self.tool),
            None => f.write_str(&self.tool),
        }
    }
}

/// Whether a text fits a pattern, in which `*` stands for any characters.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_that_fits_a_name_says_what_a_principal_has() {
        let row = |pattern: &str, number| (pattern.to_owned(), number);
        let grants = PrincipalGrants {
            concurrent: vec![row("corp:alice", 8), row("corp:*", 4), row("anonymous", 1)],
            weights: vec![row("key:*", 3)],
            ..PrincipalGrants::default()
        };
        let settings =
            CallLimitSettings { principal_concurrent: Some(2), grants, ..CallLimitSettings::default() };
        for (name, concurrent, weight) in
            [("corp:alice", 8, 1), ("corp:bob", 4, 1), ("key:ci", 2, 3), ("other:corp:bob", 2, 1)]
        {
            let principal = Principal::named(name);
            assert_eq!(settings.concurrent_of(&principal), Some(concurrent), "{name}");
            assert_eq!(settings.grants.weight_of(&principal), weight, "{name}");
            assert_eq!(
                (settings.rate_of(&principal), settings.quotas_of(&principal)),
                (None, QuotaLimits::default())
            );
        }
        assert_eq!(settings.concurrent_of(&Principal::ANONYMOUS), Some(1));
        assert!(settings.limits_callers());
    }

    #[test]
    fn a_pattern_names_tools_by_their_names_and_their_server() {
        let table = [
            ("*", Some("files"), "read", true),
            ("read", Some("files"), "read", true),
            ("read", None, "reader", false),
            ("read_*", None, "read_file", true),
            ("*_file", None, "read_file", true),
            ("*_file", None, "read_files", false),
            ("a*b*c", None, "a-b-b-c", true),
            ("a*b*c", None, "a-c-b", false),
            ("ab*ba", None, "aba", false),
            ("files/*", Some("files"), "read", true),
            ("files/*", Some("notes"), "read", false),
            ("files/*", None, "read", false),
            ("*/read", None, "read", true),
            ("f*/re*", Some("files"), "read", true),
        ];
        for (pattern, server, tool, named) in table {
            let parsed = CallPattern::parse(pattern).unwrap();
            assert_eq!(parsed.names(server, Some(tool)), named, "{pattern} {server:?} {tool}");
            assert_eq!(parsed.to_string(), pattern);
        }
        assert!(CallPattern::parse("files/read").unwrap().names(Some("files"), None));
        assert!(["", "/a", "a/"].iter().all(|text| CallPattern::parse(text).is_none()));
    }
}
