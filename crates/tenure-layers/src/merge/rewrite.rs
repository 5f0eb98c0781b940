//! Replaces one value inside a JSON text, and leaves every other byte unchanged.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_protocol::RawJson;

/// The byte range of a part inside its text.
pub(super) fn place(text: &[u8], part: &RawValue) -> Range<usize> {
    let part = part.get().as_bytes();
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

/// The text with another value in that range.
pub(super) fn replace(text: &[u8], place: Range<usize>, value: &[u8]) -> Bytes {
    let mut spliced = BytesMut::with_capacity(text.len() + value.len());
    spliced.extend_from_slice(&text[..place.start]);
    spliced.extend_from_slice(value);
    spliced.extend_from_slice(&text[place.end..]);
    spliced.freeze()
}

/// The name of a tool or prompt, and the byte range of its value.
pub(super) fn name(text: &[u8]) -> Option<(String, Range<usize>)> {
    #[derive(Deserialize)]
    struct NameMember<'a> {
        #[serde(borrow)]
        name: &'a RawValue,
    }
    let named: NameMember<'_> = serde_json::from_slice(text).ok()?;
    let name = serde_json::from_str(named.name.get()).ok()?;
    Some((name, place(text, named.name)))
}

/// Params with another name.
pub(super) fn renamed(params: &RawJson, name: &str, place: Range<usize>) -> RawJson {
    RawJson::trusted(replace(params.bytes(), place, quoted(name).as_bytes()))
}

/// Text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text has a JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_is_changed() {
        let params = RawJson::trusted(
            r#"{ "_meta":{"name":1e2}, "n\u0061me" : "a\u002fb" ,"arguments":{"name":"x"} }"#,
        );
        let (found, place) = name(params.bytes()).unwrap();
        assert_eq!(found, "a/b");
        let renamed = renamed(&params, "c\"d", place);
        assert_eq!(
            &renamed.bytes()[..],
            br#"{ "_meta":{"name":1e2}, "n\u0061me" : "c\"d" ,"arguments":{"name":"x"} }"#
        );
        assert!(name(b"{}").is_none() && name(br#"{"name":1}"#).is_none() && name(b"[]").is_none());
    }
}
