//! Looks at the members of a JSON object without reading their values.
//!
//! A name that stands twice is said, not resolved: whoever reads the same text in front of us or behind us may take
//! the other one.

use std::borrow::Cow;

use crate::json::scan;

/// A value as it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// Its text.
    pub fn get(self) -> &'a str {
        self.0
    }
}

/// A member's name, and its value.
pub type Member<'a> = (Cow<'a, str>, Raw<'a>);

/// What an object has under a name.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// Nothing; or it is no object.
    Absent,
    /// A value.
    One(Raw<'a>),
    /// More than one value, or one that not everybody finds there.
    Twice,
}

impl<'a> Found<'a> {
    /// The value, if there is one and it is not null.
    pub fn value(self) -> Option<Raw<'a>> {
        match self {
            Self::One(value) if value.get() != "null" => Some(value),
            Self::One(_) | Self::Absent | Self::Twice => None,
        }
    }
}

/// The members in their order; `None` if it is no object, or has a name that is no text.
pub fn read(object: &[u8]) -> Option<Vec<Member<'_>>> {
    let mut members = Vec::new();
    scan::each(std::str::from_utf8(object).ok()?, |name, value| {
        members.push((name, Raw(value)));
        Some(())
    })?;
    Some(members)
}

/// What the object has under a name.
pub fn find<'a>(object: &'a [u8], name: &str) -> Found<'a> {
    find_by(object, |other| (other == name).then_some(Taken::Surely))
}

/// The same in what a client sent. What a server may take for it, although it is written otherwise, is one too many:
/// nobody can tell what that server will go by.
pub fn find_sent<'a>(object: &'a [u8], name: &str) -> Found<'a> {
    find_by(object, |other| match other == name {
        true => Some(Taken::Surely),
        false => is_taken_for(other, name).then_some(Taken::Perhaps),
    })
}

/// Whether some reader takes one name for the other. Those of Go mind neither case nor letters that become one of ASCII
/// with their case.
pub fn is_taken_for(written: &str, name: &str) -> bool {
    let folded = |text: &str| text.to_lowercase().to_uppercase();
    written.eq_ignore_ascii_case(name) || (!written.is_ascii() && folded(written) == folded(name))
}

/// Who takes a name for another.
enum Taken {
    Surely,
    Perhaps,
}

fn find_by(object: &[u8], is_it: impl Fn(&str) -> Option<Taken>) -> Found<'_> {
    let mut found = Found::Absent;
    let text = std::str::from_utf8(object).unwrap_or_default();
    let whole = scan::each_as_written(text, |_, other, value| {
        // With half of a surrogate pair a name is no text, but JSON, and other readers take it. It must not keep
        // the others from being found.
        match (other.and_then(|other| is_it(&other)), found) {
            (None, _) => {}
            (Some(Taken::Surely), Found::Absent) => found = Found::One(Raw(value)),
            (Some(_), _) => found = Found::Twice,
        }
        Some(())
    });
    // What is no object has no members, whatever could be taken for some.
    whole.map_or(Found::Absent, |()| found)
}

/// Whether a name stands twice.
pub fn repeat(members: &[Member<'_>]) -> bool {
    /// So many are looked through faster than they are sorted.
    const FEW: usize = 16;
    if members.len() <= FEW {
        let is_among =
            |(at, (name, _)): (usize, &Member<'_>)| members[..at].iter().any(|(other, _)| other == name);
        return members.iter().enumerate().any(is_among);
    }
    let mut names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_whatever_way_it_is_written() {
        let found = |object: &'static str| match find(object.as_bytes(), "a/b") {
            Found::Absent => "absent",
            Found::One(value) => value.get(),
            Found::Twice => "twice",
        };
        let table = [
            (r#"{"a/b": [1, 2] }"#, "[1, 2]"),
            (r#"{"x":1,"a\/b":{"y":2}}"#, r#"{"y":2}"#),
            (r#"{"\u0061/b":null}"#, "null"),
            (r#"{"a/b":1,"a\/b":1}"#, "twice"),
            (r#"{"a/b":1,"x":0,"a/b":1,"a/b":1}"#, "twice"),
            (r#"{"x":{"a/b":1}}"#, "absent"),
            // Names that are no text hide nothing.
            (r#"{"\ud800":1,"a/b":2}"#, "2"),
            (r#"{"a/b":2,"\ud800":1}"#, "2"),
            (r#"{"a/b":1,"\ud800":1,"a\/b":2}"#, "twice"),
            (r#"{"\ud800":1}"#, "absent"),
            ("{}", "absent"),
            ("[1]", "absent"),
            (r#""a/b""#, "absent"),
        ];
        for (object, expected) in table {
            assert_eq!(found(object), expected, "{object}");
        }
        assert!(find(br#"{"a":null}"#, "a").value().is_none());
    }

    #[test]
    fn repetitions_are_seen() {
        let repeats = |object: &'static str| repeat(&read(object.as_bytes()).unwrap());
        assert!(!repeats("{}"));
        assert!(!repeats(r#"{"a":1,"b":1,"A":1}"#));
        assert!(repeats(r#"{"a":1,"b":1,"\u0061":2}"#));
        let many: Vec<_> = (0..40).map(|number| format!(r#""{number}":1"#)).collect();
        let many = |last: &str| format!(r#"{{{},"{last}":1}}"#, many.join(","));
        assert!(!repeat(&read(many("40").as_bytes()).unwrap()));
        assert!(repeat(&read(many("7").as_bytes()).unwrap()));
        assert!(read(b"[]").is_none());
        assert!(read(b"null").is_none());
    }
}
