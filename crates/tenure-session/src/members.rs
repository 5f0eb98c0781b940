//! Looks at the members of a JSON object without reading their values.
//!
//! A name that stands twice is said, not resolved: whoever reads the same text in front of us or behind us may take
//! the other one.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A member's name, and its value as it was written.
pub(crate) type Member<'a> = (Cow<'a, str>, &'a RawValue);

/// What an object has under a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// Nothing; or it is no object.
    Absent,
    /// A value.
    One(&'a RawValue),
    /// More than one value.
    Twice,
}

impl<'a> Found<'a> {
    /// The value, if there is one and it is not null.
    pub(crate) fn value(self) -> Option<&'a RawValue> {
        match self {
            Self::One(value) if value.get() != "null" => Some(value),
            Self::One(_) | Self::Absent | Self::Twice => None,
        }
    }
}

/// A member's name; borrowed unless it was written with escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// A member's name that need not be text: with half of a surrogate pair it is none, but JSON, and other readers take
/// it. Whoever looks for another member must not be kept from finding it.
struct Bytes<'a>(Cow<'a, [u8]>);

impl<'de> Deserialize<'de> for Bytes<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct AsTheyAre;
        impl<'de> Visitor<'de> for AsTheyAre {
            type Value = Bytes<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_bytes<E>(self, name: &'de [u8]) -> Result<Self::Value, E> {
                Ok(Bytes(name.into()))
            }

            fn visit_bytes<E>(self, name: &[u8]) -> Result<Self::Value, E> {
                Ok(Bytes(name.to_owned().into()))
            }
        }
        from.deserialize_bytes(AsTheyAre)
    }
}

/// The members in their order; `None` if it is no object, or has a name that is no text.
pub(crate) fn read(object: &[u8]) -> Option<Vec<Member<'_>>> {
    struct InOrder;
    impl<'de> Visitor<'de> for InOrder {
        type Value = Vec<Member<'de>>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((Name(name), value)) = map.next_entry()? {
                members.push((name, value));
            }
            Ok(members)
        }
    }
    let mut from = serde_json::Deserializer::from_slice(object);
    serde::Deserializer::deserialize_map(&mut from, InOrder).ok()
}

/// What the object has under a name.
pub(crate) fn find<'a>(object: &'a [u8], name: &str) -> Found<'a> {
    struct Find<'n>(&'n str);
    impl<'de> Visitor<'de> for Find<'_> {
        type Value = Found<'de>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = Found::Absent;
            while let Some(Bytes(name)) = map.next_key()? {
                if *name != *self.0.as_bytes() {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                let value = map.next_value()?;
                found = match found {
                    Found::Absent => Found::One(value),
                    Found::One(_) | Found::Twice => Found::Twice,
                };
            }
            Ok(found)
        }
    }
    let mut from = serde_json::Deserializer::from_slice(object);
    serde::Deserializer::deserialize_map(&mut from, Find(name)).unwrap_or(Found::Absent)
}

/// Whether a name stands twice.
pub(crate) fn repeat(members: &[Member<'_>]) -> bool {
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
        assert!(read(b"[]").is_none());
        assert!(read(b"null").is_none());
    }
}
