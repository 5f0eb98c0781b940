//! A digest of a request's params, which tells whether a retry is the same request.
//!
//! A client that answers a question sends its request again, with the answers and the `requestState` that it got. The
//! order of members, white space and escapes in strings do not change the digest; the notation of a number does.

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::json::{RawJson, members};

/// The members of params that differ between attempts at the same request.
const PASSING: [&str; 3] = ["_meta", "inputResponses", "requestState"];

/// Below this depth the raw text is hashed. Every level scans its text again, so the depth must be limited.
const MAX_DEPTH: usize = 16;

/// The digest of a request's params.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of a request's params, without the members that differ between attempts.
    pub fn of(params: Option<&RawJson>) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"tenure params\0");
        let params = params.map_or(b"{}".as_slice(), |params| params.bytes());
        match members::read(params) {
            Some(mut members) => {
                members.retain(|(name, _)| !PASSING.contains(&&**name));
                feed_members(&mut hash, members, 0);
            }
            None => feed_raw(&mut hash, params),
        }
        Self(hash.finalize().into())
    }

    /// The digest's bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest(")?;
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

fn feed(hash: &mut Sha256, value: &str, depth: usize) {
    let fed = match value.as_bytes().first() {
        Some(b'{') if depth < MAX_DEPTH => {
            members::read(value.as_bytes()).map(|members| feed_members(hash, members, depth))
        }
        Some(b'[') if depth < MAX_DEPTH => {
            serde_json::from_str::<Vec<&RawValue>>(value).ok().map(|elements| {
                hash.update(b"[");
                hash.update((elements.len() as u64).to_le_bytes());
                elements.iter().for_each(|element| feed(hash, element.get(), depth + 1));
            })
        }
        Some(b'"') => serde_json::from_str::<String>(value).ok().map(|text| feed_text(hash, &text)),
        _ => None,
    };
    // Numbers and literals; also a string with half of a surrogate pair, which is valid JSON but cannot be decoded.
    if fed.is_none() {
        feed_raw(hash, value.as_bytes());
    }
}

fn feed_members(hash: &mut Sha256, mut members: Vec<members::RawMember<'_>>, depth: usize) {
    // A stable sort, so that the values of a repeated name keep their order.
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    hash.update(b"{");
    hash.update((members.len() as u64).to_le_bytes());
    for (name, value) in members {
        feed_text(hash, &name);
        feed(hash, value.get(), depth + 1);
    }
}

// A kind byte and the length come first, so that two different sequences never hash the same bytes.

fn feed_text(hash: &mut Sha256, text: &str) {
    hash.update(b"\"");
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

fn feed_raw(hash: &mut Sha256, text: &[u8]) {
    hash.update(b"=");
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Digest {
        Digest::of(Some(&RawJson::parse(text.to_owned()).expect("a test writes JSON")))
    }

    #[test]
    fn the_same_question_has_the_same_digest() {
        let same = [
            r#"{"name":"x","arguments":{"a":[1,{"b":"é"}],"c":null}}"#,
            r#"{ "arguments" : {"c":null, "a":[ 1, {"b":"\u00e9"} ]}, "n\u0061me":"x" }"#,
            r#"{"name":"x","arguments":{"a":[1,{"b":"é"}],"c":null},"_meta":{"progressToken":1}}"#,
            r#"{"name":"x","requestState":"s","arguments":{"a":[1,{"b":"é"}],"c":null},"inputResponses":{"k":{}}}"#,
        ];
        for text in same {
            assert_eq!(of(text), of(same[0]), "{text}");
        }
        assert_eq!(of(r#"{"_meta":{}}"#), Digest::of(None));
    }

    #[test]
    fn another_question_has_another() {
        let different = [
            "{}",
            r#"{"name":"x"}"#,
            r#"{"name":"X"}"#,
            r#"{"name":"x","arguments":{}}"#,
            r#"{"name":"x","arguments":null}"#,
            r#"{"name":"x","arguments":[]}"#,
            r#"{"name":"x","arguments":{"a":1}}"#,
            r#"{"name":"x","arguments":{"a":"1"}}"#,
            r#"{"name":"x","arguments":{"a":1.0}}"#,
            r#"{"name":"x","arguments":{"a":[1]}}"#,
            r#"{"name":"x","arguments":{"a":[1,[]]}}"#,
            r#"{"name":"x","arguments":{"a":[[1]]}}"#,
            r#"{"name":"x","arguments":{"a":18446744073709551616}}"#,
            r#"{"name":"x","arguments":{"a":18446744073709551617}}"#,
            // Members are left out only at the top level.
            r#"{"name":"x","arguments":{"requestState":"s"}}"#,
            r#"{"name":"x","arguments":{"_meta":{}}}"#,
            r#"{"name":"x","arguments":{"a":1,"a":2}}"#,
            r#"{"name":"x","arguments":{"a":2,"a":1}}"#,
            r#"{"name":"xarguments"}"#,
            r#"{"name":"x","arguments":{"a":"\ud800"}}"#,
            r#"{"name":"x","arguments":{"a":"\ud801"}}"#,
            r#"{"name":"x","arguments":{"\ud801":1}}"#,
            r#"{"name":"x","arguments":{"\ud801":2}}"#,
            r#"{"name":"x","\ud801":1}"#,
            r#"{"name":"x","\ud801":2}"#,
        ];
        let all: std::collections::HashSet<_> = different.iter().map(|text| of(text)).collect();
        assert_eq!(all.len(), different.len());
    }

    #[test]
    fn depth_has_an_end() {
        let deep = |inner: &str| format!(r#"{{"a":{}{inner}{}}}"#, "[".repeat(20_000), "]".repeat(20_000));
        assert_eq!(of(&deep("1")), of(&deep("1")));
        assert_ne!(of(&deep("1")), of(&deep("2")));
    }
}
