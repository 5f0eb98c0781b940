//! Finds members of a JSON object without parsing their values.
//!
//! A repeated name is reported, not resolved: a proxy in front of us or a server behind us may read the other value.

use std::borrow::Cow;

use crate::json::scan;

/// The text of a value, as the sender wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrittenValue<'a>(&'a str);

impl<'a> WrittenValue<'a> {
    /// Its text.
    pub fn get(self) -> &'a str {
        self.0
    }
}

/// A member's name, and its value.
pub type RawMember<'a> = (Cow<'a, str>, WrittenValue<'a>);

/// The result of a search for a name in an object.
#[derive(Clone, Copy, Debug)]
pub enum MemberLookup<'a> {
    /// No such member, or the text is not an object.
    Absent,
    /// A value.
    One(WrittenValue<'a>),
    /// More than one value, or one that only some readers find.
    Twice,
}

impl<'a> MemberLookup<'a> {
    /// The value, if there is exactly one and it is not null.
    pub fn value(self) -> Option<WrittenValue<'a>> {
        match self {
            Self::One(value) if value.get() != "null" => Some(value),
            Self::One(_) | Self::Absent | Self::Twice => None,
        }
    }
}

/// The members in their order; `None` if the text is not an object, or a name is not valid text.
pub fn read(object: &[u8]) -> Option<Vec<RawMember<'_>>> {
    let mut members = Vec::new();
    scan::each(std::str::from_utf8(object).ok()?, |name, value| {
        members.push((name, WrittenValue(value)));
        Some(())
    })?;
    Some(members)
}

/// Finds a member by its exact name.
pub fn find<'a>(object: &'a [u8], name: &str) -> MemberLookup<'a> {
    find_by(object, |other| (other == name).then_some(NameMatch::Surely))
}

/// Finds a member in an object that a client sent. A member whose name some server takes for this one (see
/// [`is_taken_for`]) counts as a repetition, because it is unknown which of the two that server uses.
pub fn find_sent<'a>(object: &'a [u8], name: &str) -> MemberLookup<'a> {
    find_by(object, |other| match other == name {
        true => Some(NameMatch::Surely),
        false => is_taken_for(other, name).then_some(NameMatch::Perhaps),
    })
}

/// Whether some JSON reader takes `written` for `name`. Readers in Go ignore case, also for letters such as `ſ` that
/// become an ASCII letter when their case changes.
pub fn is_taken_for(written: &str, name: &str) -> bool {
    let folded = |text: &str| text.to_lowercase().to_uppercase();
    written.eq_ignore_ascii_case(name) || (!written.is_ascii() && folded(written) == folded(name))
}

/// Which readers take a name for the one that is searched.
enum NameMatch {
    /// All of them.
    Surely,
    /// Some of them.
    Perhaps,
}

fn find_by(object: &[u8], is_it: impl Fn(&str) -> Option<NameMatch>) -> MemberLookup<'_> {
    let mut found = MemberLookup::Absent;
    let text = std::str::from_utf8(object).unwrap_or_default();
    let whole = scan::each_as_written(text, |_, other, value| {
        // A name with half of a surrogate pair is valid JSON but not valid text. Other readers accept the object, so
        // the search must go on to the other members.
        match (other.and_then(|other| is_it(&other)), found) {
            (None, _) => {}
            (Some(NameMatch::Surely), MemberLookup::Absent) => found = MemberLookup::One(WrittenValue(value)),
            (Some(_), _) => found = MemberLookup::Twice,
        }
        Some(())
    });
    // If the scan failed, the text is not an object, and the members found so far do not count.
    whole.map_or(MemberLookup::Absent, |()| found)
}

/// Whether a name is repeated.
pub fn repeat(members: &[RawMember<'_>]) -> bool {
    /// Up to here, comparing all pairs is faster than sorting.
    const FEW: usize = 16;
    if members.len() <= FEW {
        let is_among =
            |(at, (name, _)): (usize, &RawMember<'_>)| members[..at].iter().any(|(other, _)| other == name);
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
            MemberLookup::Absent => "absent",
            MemberLookup::One(value) => value.get(),
            MemberLookup::Twice => "twice",
        };
        let table = [
            (r#"{"a/b": [1, 2] }"#, "[1, 2]"),
            (r#"{"x":1,"a\/b":{"y":2}}"#, r#"{"y":2}"#),
            (r#"{"\u0061/b":null}"#, "null"),
            (r#"{"a/b":1,"a\/b":1}"#, "twice"),
            (r#"{"a/b":1,"x":0,"a/b":1,"a/b":1}"#, "twice"),
            (r#"{"x":{"a/b":1}}"#, "absent"),
            // Names that are not valid text do not hide other members.
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
