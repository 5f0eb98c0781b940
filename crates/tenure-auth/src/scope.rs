//! Scopes: what credentials grant, and what an operation needs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// More scopes than this in one token are refused.
const MAX_SCOPES: usize = 200;

/// A set of scopes, sorted. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct ScopeSet(Arc<[Box<str>]>);

impl ScopeSet {
    /// The scopes of a list that is separated by spaces, as `scope` claims have it. `None` if one of them is not a scope
    /// of RFC 6749, or if there are too many.
    pub fn parse(text: &str) -> Option<Self> {
        Self::of(text.split(' ').filter(|scope| !scope.is_empty()))
    }

    /// A set of these scopes. `None` if one of them is not a scope of RFC 6749, or if there are too many.
    pub fn of<'a>(scopes: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut set = Vec::new();
        for scope in scopes {
            if !is_scope(scope) {
                return None;
            }
            set.push(Box::from(scope));
        }
        set.sort_unstable();
        set.dedup();
        (set.len() <= MAX_SCOPES).then(|| Self(set.into()))
    }

    /// Whether the set has this scope.
    pub fn has(&self, scope: &str) -> bool {
        self.0.binary_search_by(|held| (**held).cmp(scope)).is_ok()
    }

    /// A set that was shared before.
    pub fn from_shared(sorted: Arc<[Box<str>]>) -> Self {
        Self(sorted)
    }

    /// The scopes, sorted and shared.
    pub fn shared(&self) -> Arc<[Box<str>]> {
        Arc::clone(&self.0)
    }

    /// The scopes, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|scope| &**scope)
    }

    /// Whether it has no scope.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All scopes of both.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        Self::of(self.iter().chain(others.iter())).unwrap_or_else(|| self.clone())
    }
}

/// The scopes in the order of the alphabet, with spaces between them: a challenge has to be the same text each time.
impl fmt::Display for ScopeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, scope) in self.iter().enumerate() {
            if number > 0 {
                f.write_str(" ")?;
            }
            f.write_str(scope)?;
        }
        Ok(())
    }
}

impl fmt::Debug for ScopeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

/// Whether a text is a scope token of RFC 6749: printable ASCII without space, quote and backslash.
pub fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

/// Which scopes an operation needs, and which scopes include others.
#[derive(Clone, Debug, Default)]
pub struct ScopeRules {
    /// From the most to the least specific, so that the first match decides.
    rules: Vec<ScopeRule>,
    /// All that a scope includes, itself too, across several steps.
    included: BTreeMap<Box<str>, ScopeSet>,
}

#[derive(Clone, Debug)]
struct ScopeRule {
    text: Box<str>,
    pattern: ToolPattern,
    needed: ScopeSet,
}

/// Why rules about scopes cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScopeRulesError {
    /// A name is not a scope of RFC 6749.
    #[error("`{0}` is not a scope: a scope is printable ASCII without spaces, quotes and backslashes")]
    NotAScope(String),
    /// A pattern cannot be read.
    #[error("`{0}` is not a pattern: use BACKEND/TOOL, TOOL or *, where * stands for any characters")]
    NotAPattern(String),
    /// More than 200 scopes at once.
    #[error("a pattern needs, or a scope includes, at most 200 scopes")]
    TooMany,
    /// The scope for refresh tokens is a matter between a client and its authorization server.
    #[error("`offline_access` is not a scope of a resource: clients ask their authorization server for it")]
    OfflineAccess,
}

impl ScopeRules {
    /// Rules from patterns with the scopes they need, and from scopes with the scopes they include.
    pub fn new<'a>(
        needed: impl IntoIterator<Item = (&'a str, &'a [String])>,
        includes: impl IntoIterator<Item = (&'a str, &'a [String])>,
    ) -> Result<Self, ScopeRulesError> {
        let mut rules = Vec::new();
        for (pattern, scopes) in needed {
            let parsed = ToolPattern::parse(pattern)
                .ok_or_else(|| ScopeRulesError::NotAPattern(pattern.to_owned()))?;
            rules.push(ScopeRule { text: pattern.into(), pattern: parsed, needed: checked(scopes)? });
        }
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.pattern.weight()));
        let mut direct = BTreeMap::new();
        for (scope, lower) in includes {
            checked(std::slice::from_ref(&scope.to_owned()))?;
            direct.insert(Box::<str>::from(scope), checked(lower)?);
        }
        let included = direct.keys().map(|scope| (scope.clone(), closure(scope, &direct))).collect();
        Ok(Self { rules, included })
    }

    /// The scopes that a call of this tool needs. The most specific pattern decides alone.
    pub fn tool(&self, backend: Option<&str>, tool: &str) -> ScopeSet {
        let rule = self.rules.iter().find(|rule| rule.pattern.matches(backend, tool));
        rule.map(|rule| rule.needed.clone()).unwrap_or_default()
    }

    /// The scopes that every other request needs: those of the pattern `*`, or of `BACKEND/*`.
    pub fn request(&self, backend: Option<&str>) -> ScopeSet {
        let rule = self.rules.iter().find(|rule| rule.pattern.is_for_all_tools_of(backend));
        rule.map(|rule| rule.needed.clone()).unwrap_or_default()
    }

    /// Whether these scopes, with all that they include, have all that is needed.
    pub fn allow(&self, granted: &ScopeSet, needed: &ScopeSet) -> bool {
        needed.iter().all(|scope| {
            granted.has(scope)
                || granted.iter().any(|held| self.included.get(held).is_some_and(|lower| lower.has(scope)))
        })
    }

    /// All scopes that rules name, for the metadata of a resource.
    pub fn all(&self) -> ScopeSet {
        let scopes = self.rules.iter().flat_map(|rule| rule.needed.iter());
        ScopeSet::of(scopes).unwrap_or_default()
    }

    /// The scopes that can count for this backend.
    pub fn all_of(&self, backend: &str) -> ScopeSet {
        let rules = self.rules.iter().filter(|rule| rule.pattern.covers(Some(backend)));
        ScopeSet::of(rules.flat_map(|rule| rule.needed.iter())).unwrap_or_default()
    }

    /// Those of the granted scopes that rules know.
    pub fn known(&self, granted: &ScopeSet) -> ScopeSet {
        let is_known = |scope: &&str| {
            self.included.contains_key(*scope) || self.rules.iter().any(|rule| rule.needed.has(scope))
        };
        ScopeSet::of(granted.iter().filter(is_known)).unwrap_or_default()
    }

    /// A pattern that names none of these servers, and so would never match.
    pub fn without_server(&self, servers: &[&str]) -> Option<&str> {
        let names_none = |rule: &&ScopeRule| {
            let backend = rule.pattern.backend.as_ref();
            backend.is_some_and(|backend| !servers.iter().any(|server| backend.matches(server)))
        };
        self.rules.iter().find(names_none).map(|rule| &*rule.text)
    }

    /// Whether no operation needs a scope.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

fn checked(scopes: &[String]) -> Result<ScopeSet, ScopeRulesError> {
    if scopes.iter().any(|scope| scope == "offline_access") {
        return Err(ScopeRulesError::OfflineAccess);
    }
    if let Some(bad) = scopes.iter().find(|scope| !is_scope(scope)) {
        return Err(ScopeRulesError::NotAScope(bad.clone()));
    }
    ScopeSet::of(scopes.iter().map(String::as_str)).ok_or(ScopeRulesError::TooMany)
}

/// The scopes that a scope includes, in any number of steps. A circle ends the walk.
fn closure(scope: &str, direct: &BTreeMap<Box<str>, ScopeSet>) -> ScopeSet {
    let mut found: Vec<&str> = vec![scope];
    let mut next = 0;
    while let Some(scope) = found.get(next).copied() {
        next += 1;
        for lower in direct.get(scope).into_iter().flat_map(ScopeSet::iter) {
            if !found.contains(&lower) {
                found.push(lower);
            }
        }
    }
    ScopeSet::of(found).unwrap_or_default()
}

/// `BACKEND/TOOL`, `TOOL` or `*`, where `*` stands for any characters.
#[derive(Clone, Debug)]
pub struct ToolPattern {
    backend: Option<Glob>,
    tool: Glob,
}

impl ToolPattern {
    /// Reads a pattern. `None` if it is empty, or has an empty part or more than one slash.
    pub fn parse(text: &str) -> Option<Self> {
        let (backend, tool) = match text.split_once('/') {
            Some((backend, tool)) => (Some(backend), tool),
            None => (None, text),
        };
        if tool.is_empty() || tool.contains('/') || backend.is_some_and(str::is_empty) {
            return None;
        }
        Some(Self { backend: backend.map(Glob::new), tool: Glob::new(tool) })
    }

    /// Whether it covers this tool. A pattern without a backend covers the tools of all backends.
    pub fn matches(&self, backend: Option<&str>, tool: &str) -> bool {
        self.covers(backend) && self.tool.matches(tool)
    }

    fn covers(&self, backend: Option<&str>) -> bool {
        match (&self.backend, backend) {
            (None, _) => true,
            (Some(pattern), Some(backend)) => pattern.matches(backend),
            (Some(_), None) => false,
        }
    }

    fn is_for_all_tools_of(&self, backend: Option<&str>) -> bool {
        self.covers(backend) && self.tool.is_anything()
    }

    /// Of two patterns for one tool the one with the greater weight decides. What they say of the tool counts first: a rule
    /// that names a tool is about that tool, wherever it is, and a rule for a whole server is about the rest of it.
    fn weight(&self) -> (Weight, Option<Weight>) {
        (self.tool.weight(), self.backend.as_ref().map(Glob::weight))
    }
}

/// How many characters a pattern gives, and whether it matches nothing else.
type Weight = (usize, bool);

/// A text in which `*` stands for any characters.
#[derive(Clone, Debug)]
struct Glob(Vec<Box<str>>);

impl Glob {
    fn new(text: &str) -> Self {
        Self(text.split('*').map(Box::from).collect())
    }

    fn is_anything(&self) -> bool {
        self.0.len() > 1 && self.literals() == 0
    }

    /// Literal characters first. A pattern without a star matches one text alone, so it is more specific than one with the
    /// same characters and a star.
    fn weight(&self) -> Weight {
        (self.literals(), self.0.len() == 1)
    }

    fn literals(&self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }

    fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = self.0.as_slice() else {
            return self.0.first().is_some_and(|only| **only == *text);
        };
        let Some(mut rest) = text.strip_prefix(&**first) else { return false };
        for part in middle {
            let Some(found) = rest.find(&**part) else { return false };
            rest = &rest[found + part.len()..];
        }
        rest.len() >= last.len() && rest.ends_with(&**last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(scopes: &[&str]) -> Vec<String> {
        scopes.iter().map(|&scope| scope.to_owned()).collect()
    }

    #[test]
    fn scopes_are_sorted_and_written_the_same_way_each_time() {
        let set = ScopeSet::parse("files:write  files:read mcp:use files:read").unwrap();
        assert_eq!(set.to_string(), "files:read files:write mcp:use");
        assert!(set.has("mcp:use") && !set.has("mcp"));
        assert!(ScopeSet::parse("").unwrap().is_empty());
        for bad in ["a\"b", "a\\b", "ä", "a\tb"] {
            assert_eq!(ScopeSet::parse(bad), None, "{bad}");
        }
        let many: Vec<String> = (0..300).map(|n| format!("s{n}")).collect();
        assert_eq!(ScopeSet::parse(&many.join(" ")), None);
    }

    #[test]
    fn the_most_specific_pattern_decides() {
        let rows: [(&str, &[String]); 5] = [
            ("*", &strings(&["mcp:use"])),
            ("files/*", &strings(&["files:read"])),
            ("files/write_*", &strings(&["files:write"])),
            ("delete_*", &strings(&["danger"])),
            ("files/write_log", &strings(&[])),
        ];
        let rules = ScopeRules::new(rows, []).unwrap();
        let table = [
            (Some("files"), "read_file", "files:read"),
            (Some("files"), "write_file", "files:write"),
            (Some("files"), "write_log", ""),
            (Some("files"), "delete_file", "danger"),
            (Some("mail"), "delete_file", "danger"),
            (Some("mail"), "send", "mcp:use"),
            (None, "delete_all", "danger"),
            (None, "echo", "mcp:use"),
        ];
        for (backend, tool, needed) in table {
            assert_eq!(rules.tool(backend, tool).to_string(), needed, "{backend:?} {tool}");
        }
        assert_eq!(rules.request(Some("files")).to_string(), "files:read");
        assert_eq!(rules.request(None).to_string(), "mcp:use");
        assert_eq!(rules.all().to_string(), "danger files:read files:write mcp:use");
    }

    #[test]
    fn a_rule_for_a_tool_wins_over_one_for_a_server_with_a_long_name() {
        let rows: [(&str, &[String]); 5] = [
            ("accounting-production/*", &strings(&["accounting"])),
            ("rm", &strings(&["danger"])),
            ("rm*", &strings(&["remove"])),
            ("acc*/rm", &strings(&["accounting:danger"])),
            ("mail/send", &strings(&[])),
        ];
        for rows in [rows, {
            let mut turned = rows;
            turned.reverse();
            turned
        }] {
            let rules = ScopeRules::new(rows, []).unwrap();
            let needed = |backend, tool| rules.tool(Some(backend), tool).to_string();
            assert_eq!(needed("mail", "rm"), "danger", "a whole name wins over a star");
            assert_eq!(needed("mail", "rmdir"), "remove");
            assert_eq!(needed("accounting-production", "rm"), "accounting:danger");
            assert_eq!(needed("accounting-production", "rmdir"), "remove");
            assert_eq!(needed("accounting-production", "send"), "accounting");
            assert_eq!(rules.without_server(&["mail", "accounting-production"]), None);
            assert_eq!(
                rules.without_server(&["mail", "accounting-production2"]),
                Some("accounting-production/*")
            );
            assert!(rules.without_server(&[]).is_some());
        }
    }

    #[test]
    fn a_scope_includes_others_over_several_steps_and_circles_end() {
        let (admin, write, read) =
            (strings(&["files:write"]), strings(&["files:read"]), strings(&["files:admin"]));
        let includes: [(&str, &[String]); 3] =
            [("files:admin", &admin), ("files:write", &write), ("files:read", &read)];
        let rules = ScopeRules::new([], includes).unwrap();
        let set = |text| ScopeSet::parse(text).unwrap();
        assert!(rules.allow(&set("files:admin"), &set("files:read files:write")));
        assert!(rules.allow(&set("files:read"), &set("files:write")), "the circle includes all of it");
        assert!(!rules.allow(&set("files:admin"), &set("mail:read")));
        assert!(rules.allow(&set(""), &set("")));
    }

    #[test]
    fn rules_that_cannot_work_are_refused() {
        let error =
            |needed: &[&str], pattern| ScopeRules::new([(pattern, &*strings(needed))], []).unwrap_err();
        assert_eq!(error(&["offline_access"], "*"), ScopeRulesError::OfflineAccess);
        assert_eq!(error(&["a b"], "*"), ScopeRulesError::NotAScope("a b".to_owned()));
        for pattern in ["", "a/", "/b", "a/b/c"] {
            assert_eq!(error(&[], pattern), ScopeRulesError::NotAPattern(pattern.to_owned()));
        }
    }

    #[test]
    fn stars_stand_for_any_characters() {
        let table = [
            ("*", "", true),
            ("a*", "a", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*a", "a", false),
            ("*b*", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("abc", "abc", true),
            ("abc", "abcd", false),
        ];
        for (pattern, text, matches) in table {
            assert_eq!(Glob::new(pattern).matches(text), matches, "{pattern} {text}");
        }
    }
}
