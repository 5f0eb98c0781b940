//! Replaces parts of a JSON text. All other bytes stay as they are.

use std::ops::Range;

use crate::json::RawJson;

/// The range in a text of a part that was found in it.
pub fn place(text: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

/// The text with other values in these ranges, which rise and do not overlap. An empty range inserts its value.
pub fn replace<Value: AsRef<[u8]>>(text: &[u8], edits: &[(Range<usize>, Value)]) -> RawJson {
    let (taken, given) = edits
        .iter()
        .fold((0, 0), |(taken, given), (range, value)| (taken + range.len(), given + value.as_ref().len()));
    // Exact capacity, so that the buffer becomes `Bytes` without another allocation.
    let mut written = Vec::with_capacity(text.len() - taken + given);
    let mut done = 0;
    for (range, value) in edits {
        written.extend_from_slice(&text[done..range.start]);
        written.extend_from_slice(value.as_ref());
        done = range.end;
    }
    written.extend_from_slice(&text[done..]);
    RawJson::trusted(written)
}

/// Where new first members of an object go, and whether others follow them; `None` if the text is not an object.
pub fn front(object: &[u8]) -> Option<(usize, bool)> {
    let open = object.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let rest = object[open..].strip_prefix(b"{")?;
    Some((open + 1, rest.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'}')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ranges_change() {
        let text = br#"{ "a" : 1.50, "b":"\u00e9" }"#;
        let (one, two) = (place(text, &text[8..12]), place(text, &text[18..26]));
        assert_eq!((&text[one.clone()], &text[two.clone()]), (&b"1.50"[..], &br#""\u00e9""#[..]));
        let edits = [(1..1, r#""n":0,"#), (one, "[]"), (two, "null")];
        assert_eq!(replace(text, &edits).bytes(), r#"{"n":0, "a" : [], "b":null }"#);
        assert_eq!(replace::<&str>(text, &[]).bytes(), &text[..]);
    }

    #[test]
    fn the_front_of_an_object() {
        let table = [
            ("{}", Some((1, false))),
            (" { }", Some((2, false))),
            ("\n{ \"a\":1}", Some((2, true))),
            ("[{}]", None),
            ("null", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(front(text.as_bytes()), expected, "{text}");
        }
    }
}
