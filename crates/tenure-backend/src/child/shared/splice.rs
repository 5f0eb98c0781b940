//! Values inside raw JSON, found and exchanged in place; everything around them stays byte for byte.
//!
//! A member may stand there more than once, and readers differ in which one they believe. So all of them are found.

use std::borrow::Cow;
use std::ops::Range;

use bytes::BytesMut;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use tenure_session::RawJson;

/// The params of a request with our own progress token, and the client's; `None` if it has none.
pub(super) fn mark(params: &RawJson, ours: u64) -> Option<(RawJson, RawJson)> {
    let text = params.bytes();
    let metas = members(text, "_meta");
    let tokens = metas.into_iter().flat_map(|meta| members(meta.get().as_bytes(), "progressToken"));
    let places: Vec<_> = tokens.filter(|token| is_token(token)).map(|token| range(text, token)).collect();
    let own = RawJson::trusted(text.slice(places.last()?.clone())).detached();
    Some((exchange(params, &places, ours.to_string().as_bytes()), own))
}

/// The number that we gave as the token of the request that a progress notification is about.
pub(super) fn marked(params: &RawJson) -> Option<u64> {
    let token = members(params.bytes(), "progressToken").pop()?;
    // Some servers make every token a text.
    token.get().trim_matches('"').parse().ok()
}

/// The params of a progress notification with the client's own token.
pub(super) fn unmark(params: &RawJson, token: &RawJson) -> RawJson {
    replace(params, "progressToken", token.bytes())
}

/// The same object with another value for a member.
pub(super) fn replace(object: &RawJson, name: &'static str, value: &[u8]) -> RawJson {
    let text = object.bytes();
    let places: Vec<_> = members(text, name).into_iter().map(|found| range(text, found)).collect();
    exchange(object, &places, value)
}

/// Texts and numbers are tokens; anything else means nothing to a server, and is none of ours.
fn is_token(value: &RawValue) -> bool {
    value.get().starts_with(|first: char| matches!(first, '"' | '-' | '0'..='9'))
}

/// Where a value stands that was found in this text.
fn range(text: &[u8], value: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr().addr() - text.as_ptr().addr();
    start..start + value.get().len()
}

fn exchange(whole: &RawJson, places: &[Range<usize>], value: &[u8]) -> RawJson {
    let (text, mut end) = (whole.bytes(), 0);
    let mut spliced = BytesMut::with_capacity(text.len() + places.len() * value.len());
    for place in places {
        spliced.extend_from_slice(&text[end..place.start]);
        spliced.extend_from_slice(value);
        end = place.end;
    }
    spliced.extend_from_slice(&text[end..]);
    RawJson::trusted(spliced.freeze())
}

/// The values of all members of that name, in their order. None if it is no object.
fn members<'a>(text: &'a [u8], name: &'static str) -> Vec<&'a RawValue> {
    Named(name).deserialize(&mut serde_json::Deserializer::from_slice(text)).unwrap_or_default()
}

struct Named(&'static str);

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for Named {
    type Value = Vec<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Named {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            if key == self.0 {
                found.push(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(params: &'static str) -> Option<(String, String)> {
        let text = |raw: &RawJson| String::from_utf8(raw.bytes().to_vec()).unwrap();
        mark(&RawJson::trusted(params), 41).map(|(params, token)| (text(&params), text(&token)))
    }

    #[test]
    fn only_the_token_is_exchanged() {
        let cases = [
            (r#"{"_meta":{"progressToken":7}}"#, r#"{"_meta":{"progressToken":41}}"#, "7"),
            (
                r#"{ "a" : 1.50, "_meta" : {"x":[1e400] , "progressToken" : "ü\/" }, "b":"\u0041"}"#,
                r#"{ "a" : 1.50, "_meta" : {"x":[1e400] , "progressToken" : 41 }, "b":"\u0041"}"#,
                r#""ü\/""#,
            ),
            // Names may be written with escapes.
            (
                r#"{"\u005fmeta":{"progress\u0054oken":-1.5}}"#,
                r#"{"\u005fmeta":{"progress\u0054oken":41}}"#,
                "-1.5",
            ),
            // Whichever a server believes, it is ours; the last is what most do.
            (
                r#"{"_meta":{"progressToken":1,"progressToken":2},"_meta":{"progressToken":3}}"#,
                r#"{"_meta":{"progressToken":41,"progressToken":41},"_meta":{"progressToken":41}}"#,
                "3",
            ),
        ];
        for (params, marked, token) in cases {
            assert_eq!(marks(params), Some((marked.to_owned(), token.to_owned())), "{params}");
        }
        for none in [
            "{}",
            r#"{"progressToken":1}"#,
            r#"{"_meta":1}"#,
            r#"{"_meta":{"progressToken":null}}"#,
            r#"{"_meta":{"progressToken":{"a":1}}}"#,
            r#"{"arguments":{"_meta":{"progressToken":1}}}"#,
            r#"["_meta"]"#,
        ] {
            assert_eq!(marks(none), None, "{none}");
        }
    }

    #[test]
    fn the_clients_token_is_put_back() {
        let token = RawJson::trusted(r#""\u0041/7""#);
        for (said, wanted) in [
            (r#"{"progressToken":41,"progress":1.50}"#, r#"{"progressToken":"\u0041/7","progress":1.50}"#),
            (
                r#"{"progress":1, "progressToken" : "41" }"#,
                r#"{"progress":1, "progressToken" : "\u0041/7" }"#,
            ),
        ] {
            let said = RawJson::trusted(said);
            assert_eq!(marked(&said), Some(41));
            assert_eq!(unmark(&said, &token).bytes(), &wanted);
        }
        for other in [r#"{"progressToken":"x41"}"#, r#"{"progressToken":-1}"#, r#"{"progress":41}"#] {
            assert_eq!(marked(&RawJson::trusted(other)), None, "{other}");
        }
    }
}
