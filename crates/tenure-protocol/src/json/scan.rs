//! Iterates over the members of a JSON object without parsing their values.
//!
//! The text was checked as JSON together with its message, so the scan finds the end of a value only by quotes and
//! brackets. It still returns `None` wherever the text is not as expected, because a check that misses a member
//! protects nothing.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

use crate::json::swar;

/// Calls `take` for every member of an object in order, with the name (borrowed unless it has escapes) and the raw
/// value. `None` if the text is not an object, or as soon as `take` returns `None`.
pub fn each<'a>(object: &'a str, mut take: impl FnMut(Cow<'a, str>, &'a str) -> Option<()>) -> Option<()> {
    each_as_written(object, |_, name, value| take(name?, value))
}

/// As [`each`], with the raw name in front of the decoded one. The decoded name is `None` if its escapes are not valid
/// text, such as half of a surrogate pair.
pub fn each_as_written<'a>(
    object: &'a str,
    mut take: impl FnMut(&'a str, Option<Cow<'a, str>>, &'a str) -> Option<()>,
) -> Option<()> {
    let object = object.trim_ascii_start();
    let mut cursor = Cursor::at_object(object.as_bytes())?;
    while let Some((place, spelling)) = cursor.pass_name()? {
        let written = object.get(place)?;
        let name = match spelling {
            Spelling::Plain => Some(Cow::Borrowed(inner(written)?)),
            Spelling::Escaped => unquoted(written),
        };
        take(written, name, object.get(cursor.pass_value()?)?)?;
    }
    cursor.is_at_end().then_some(())
}

/// A position in an object: after its `{`, after a member, or after a member's name. All methods that move it return
/// `None` where the text is not as expected.
#[derive(Debug)]
pub struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor in front of the first member of an object.
    pub fn at_object(object: &'a [u8]) -> Option<Self> {
        let object = object.trim_ascii_start();
        object.starts_with(b"{").then_some(Self { text: object, at: 1 })
    }

    /// The name of the next member, borrowed unless it has escapes; `Some(None)` at the end of the object, and then the
    /// cursor is behind the `}`. `None` also if the name is not valid text.
    pub fn name(&mut self) -> Option<Option<Cow<'a, [u8]>>> {
        let Some((place, spelling)) = self.pass_name()? else { return Some(None) };
        let written = self.text.get(place)?;
        Some(Some(match spelling {
            Spelling::Plain => Cow::Borrowed(written.get(1..written.len() - 1)?),
            Spelling::Escaped => Cow::Owned(serde_json::from_slice::<String>(written).ok()?.into()),
        }))
    }

    /// The value of the member whose name was read last.
    pub fn value(&mut self) -> Option<&'a [u8]> {
        let place = self.pass_value()?;
        self.text.get(place)
    }

    /// Whether only white space is left.
    pub fn is_at_end(&self) -> bool {
        self.text[self.at..].iter().all(u8::is_ascii_whitespace)
    }

    /// Skips the next name and returns its range, quotes included.
    fn pass_name(&mut self) -> Option<Option<(Range<usize>, Spelling)>> {
        let start = past(self.text, self.at, b',')?;
        match self.text.get(start)? {
            b'"' => {
                let (end, spelling) = end_of_string(self.text, start)?;
                self.at = end;
                Some(Some((start..end, spelling)))
            }
            b'}' => {
                self.at = start + 1;
                Some(None)
            }
            _ => None,
        }
    }

    /// Skips the next value and returns its range.
    fn pass_value(&mut self) -> Option<Range<usize>> {
        let start = past(self.text, self.at, b':')?;
        self.at = end_of_value(self.text, start)?;
        Some(start..self.at)
    }
}

/// The value of a member of an object; `None` also if the text is not an object.
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let mut found = None;
    each(object, |key, value| {
        if key == name {
            found = Some(value);
        }
        Some(())
    })?;
    found
}

/// The value at a path of names; `None` also if a value on the path is not an object.
pub fn at<'a>(object: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(object, |object, name| member(object, name))
}

/// The content of a JSON string; `None` if the text is not a JSON string.
pub fn unquoted(string: &str) -> Option<Cow<'_, str>> {
    let inner = inner(string)?;
    match memchr::memchr(b'\\', inner.as_bytes()) {
        None => Some(inner.into()),
        Some(_) => serde_json::from_str::<String>(string).ok().map(Cow::Owned),
    }
}

/// The text between the quotes.
fn inner(string: &str) -> Option<&str> {
    string.strip_prefix('"')?.strip_suffix('"')
}

/// The first position from here on that is neither white space nor `mark`.
fn past(bytes: &[u8], from: usize, mark: u8) -> Option<usize> {
    let mut at = from;
    while let Some(byte) = bytes.get(at)
        && (*byte == mark || byte.is_ascii_whitespace())
    {
        at += 1;
    }
    (at <= bytes.len()).then_some(at)
}

/// How a string is written.
enum Spelling {
    Plain,
    Escaped,
}

/// The end of the string whose opening quote is at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> Option<(usize, Spelling)> {
    let (mut at, mut spelling) = (start + 1, Spelling::Plain);
    loop {
        at += next_mark(bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some((at + 1, spelling));
        }
        // A backslash: the next byte belongs to it.
        (at, spelling) = (at + 2, Spelling::Escaped);
    }
}

/// The first quote or backslash. The first 32 bytes are searched word by word: most strings are short, and `memchr`
/// pays off only for long ones.
fn next_mark(bytes: &[u8]) -> Option<usize> {
    const SHORT: usize = 32;
    let mut at = 0;
    while at < SHORT
        && let Some(word) = bytes.get(at..)?.first_chunk::<8>()
    {
        let word = u64::from_le_bytes(*word);
        if let Some(found) = swar::first(swar::equal(word, b'"') | swar::equal(word, b'\\')) {
            return Some(at + found);
        }
        at += 8;
    }
    memchr2(b'"', b'\\', &bytes[at..]).map(|found| at + found)
}

/// The end of the value that begins at `start`.
fn end_of_value(bytes: &[u8], start: usize) -> Option<usize> {
    match bytes.get(start)? {
        b'"' => end_of_string(bytes, start).map(|(end, _)| end),
        b'{' | b'[' => {
            let (mut at, mut depth) = (start + 1, 1_usize);
            while depth > 0 {
                match bytes.get(at)? {
                    b'"' => {
                        (at, _) = end_of_string(bytes, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
            }
            Some(at)
        }
        b',' | b'}' | b']' => None,
        // A number, or `true`, `false`, `null`.
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace();
            Some(bytes[start..].iter().position(ends).map_or(bytes.len(), |length| start + length))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn members(object: &str) -> Option<Vec<(String, &str)>> {
        let mut found = Vec::new();
        each(object, |name, value| {
            found.push((name.into_owned(), value));
            Some(())
        })?;
        Some(found)
    }

    #[test]
    fn members_stand_as_they_were_written() {
        let object = " { \"a\" : 1.50 ,\n\"b\\u0063\":{\"x\" : [1, \"]}\\\"\"]},\"\":null , \"n\":[ ]} ";
        let expected = [("a", "1.50"), ("bc", "{\"x\" : [1, \"]}\\\"\"]}"), ("", "null"), ("n", "[ ]")];
        let found = members(object).unwrap();
        assert!(found.iter().map(|(name, value)| (&**name, *value)).eq(expected), "{found:?}");
        assert_eq!(member(object, "bc"), Some(expected[1].1));
        assert_eq!(member(object, "x"), None);
        assert_eq!(member(r#"{"a":1,"a":2}"#, "a"), Some("2"));
        assert_eq!(at(r#"{"a":{"b":7},"a":{"c":{"d":8}}}"#, &["a", "c", "d"]), Some("8"));
        assert_eq!(at(object, &["a", "b"]), None);
        assert_eq!(members("{ }").unwrap().len(), 0);
    }

    #[test]
    fn nothing_is_told_of_what_is_no_object() {
        let whole = r#"{"a":{"b":["c\"",1]},"d":true}"#;
        for cut in 0..whole.len() {
            assert!(members(&whole[..cut]).is_none() && members(&whole[cut + 1..]).is_none(), "cut at {cut}");
        }
        for other in
            ["7", "[1]", "null", "\"a\"", "{\"a\":\"\\", "{\"a\":]}", "{\"a\"}", "{\"a\":1}}", "{}{}"]
        {
            assert!(members(other).is_none(), "{other}");
        }
        // Half of a surrogate pair: only parsers that do not decode names accept it.
        assert!(members(r#"{"\ud800":1,"name":"x"}"#).is_none());
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z\"\\\\{}\\[\\],: \u{e9}\n]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c\"\\\\{}:,]{0,3}", inner, 0..4)
                    .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_scan_finds_what_a_parser_finds(
            object in prop::collection::btree_map("[a-c\"\\\\{}:, ]{0,3}", values(), 0..5),
            is_pretty: bool,
        ) {
            let write = if is_pretty { serde_json::to_string_pretty } else { serde_json::to_string };
            let text = write(&object).unwrap();
            let scanned: BTreeMap<String, Value> = members(&text)
                .unwrap()
                .into_iter()
                .map(|(name, value)| (name, serde_json::from_str(value).unwrap()))
                .collect();
            prop_assert_eq!(scanned, object);
        }
    }
}
