//! The members of a JSON object one after the other, their values unread.
//!
//! Nothing is checked twice: the text was read as JSON before, with the message it came in, and the end of a value is
//! found by its marks alone. What cannot be told for sure is `None`
//! all the same, since a guard that overlooks a member guards nothing.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

use crate::json::swar;

/// Shows every member of an object in its order: the name, borrowed unless it was written with escapes, and the value
/// as it stands. `None` if it is no object, or as soon as `take` says so.
pub fn each<'a>(object: &'a str, mut take: impl FnMut(Cow<'a, str>, &'a str) -> Option<()>) -> Option<()> {
    each_as_written(object, |_, name, value| take(name?, value))
}

/// The same with every name as it is written, in front of what it says: nothing if it is no text, since half a
/// character can be written with escapes.
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

/// A place in an object, behind a `{`, a member, or a member's name. Everything that moves it on is `None` where the
/// text is not what it should be.
#[derive(Debug)]
pub struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Before the first member of an object.
    pub fn at_object(object: &'a [u8]) -> Option<Self> {
        let object = object.trim_ascii_start();
        object.starts_with(b"{").then_some(Self { text: object, at: 1 })
    }

    /// The name of the next member, borrowed unless it was written with escapes; nothing at the end of the object,
    /// which is left then. `None` too if the name is no text.
    #[expect(clippy::option_option, reason = "what makes no sense, and no more members")]
    pub fn name(&mut self) -> Option<Option<Cow<'a, [u8]>>> {
        let Some((place, spelling)) = self.pass_name()? else { return Some(None) };
        let written = self.text.get(place)?;
        Some(Some(match spelling {
            Spelling::Plain => Cow::Borrowed(written.get(1..written.len() - 1)?),
            Spelling::Escaped => Cow::Owned(serde_json::from_slice::<String>(written).ok()?.into()),
        }))
    }

    /// The value of the member whose name was last.
    pub fn value(&mut self) -> Option<&'a [u8]> {
        let place = self.pass_value()?;
        self.text.get(place)
    }

    /// Whether nothing more comes.
    pub fn is_at_end(&self) -> bool {
        self.text[self.at..].iter().all(u8::is_ascii_whitespace)
    }

    /// Goes past the next name, and says where it stands with its quotation marks.
    #[expect(clippy::option_option, reason = "what makes no sense, and no more members")]
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

    /// Goes past the next value, and says where it stands.
    fn pass_value(&mut self) -> Option<Range<usize>> {
        let start = past(self.text, self.at, b':')?;
        self.at = end_of_value(self.text, start)?;
        Some(start..self.at)
    }
}

/// The value of a member of an object; `None` too if it is no object.
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

/// What a string says; `None` if it is no string.
pub fn unquoted(string: &str) -> Option<Cow<'_, str>> {
    let inner = inner(string)?;
    match memchr::memchr(b'\\', inner.as_bytes()) {
        None => Some(inner.into()),
        Some(_) => serde_json::from_str::<String>(string).ok().map(Cow::Owned),
    }
}

/// What stands between quotation marks.
fn inner(string: &str) -> Option<&str> {
    string.strip_prefix('"')?.strip_suffix('"')
}

/// The first place from here on that is neither white space nor this mark.
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

/// Where the string ends that begins here with its quotation mark.
fn end_of_string(bytes: &[u8], start: usize) -> Option<(usize, Spelling)> {
    let (mut at, mut spelling) = (start + 1, Spelling::Plain);
    loop {
        at += next_mark(bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some((at + 1, spelling));
        }
        // Whatever stands behind it belongs to it.
        (at, spelling) = (at + 2, Spelling::Escaped);
    }
}

/// The first quotation mark or backslash. Most strings are short, and over before the search for long ones has begun.
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

/// Where the value ends that begins here.
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
        // Half a character is a name to a parser that does not look at it, and to none that does.
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
