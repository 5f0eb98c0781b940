//! Finds and replaces values inside raw JSON; all other bytes stay as they are.
//!
//! An object may have duplicate members, and JSON readers differ in which one they use. So all duplicates are replaced.

use std::ops::Range;

use bytes::BytesMut;
use tenure_protocol::json::object::text;
use tenure_protocol::json::scan;
use tenure_protocol::{RawJson, Reason, RpcError};

/// The two progress tokens of one request.
#[derive(Clone)]
pub(super) struct TokenPair {
    /// The client's token.
    pub(super) own: RawJson,
    /// Our token, which the server sees.
    pub(super) ours: Token,
}

/// The params of request `number` with our progress token in place of the client's.
pub(super) fn replace_token(
    params: Option<RawJson>,
    number: u64,
) -> Result<(Option<RawJson>, Option<TokenPair>), RpcError> {
    let Some(params) = params else { return Ok((None, None)) };
    // Refuse names that we cannot read: the server might read a token there.
    let found = tokens(&params)
        .ok_or_else(|| RpcError::of(Reason::InvalidParams, "The names in the params cannot be read"))?;
    let Some(found) = found else { return Ok((Some(params), None)) };
    let ours = Token::new(number)
        .map_err(|error| RpcError::of(Reason::Internal, format!("No random number is available: {error}")))?;
    let params = found.exchange(&params, &ours);
    Ok((Some(params), Some(TokenPair { own: found.own, ours })))
}

/// Where the client's tokens stand in the params of a request, and the last of them.
struct TokenPlaces {
    places: Vec<Range<usize>>,
    /// The last token, which is the one that most JSON readers use.
    own: RawJson,
}

/// The client's tokens in the params of a request, if there are any. `None` if another JSON reader might find tokens
/// that we do not find.
fn tokens(params: &RawJson) -> Option<Option<TokenPlaces>> {
    let metas = match params.outline() {
        // Nearly always the parser has found the only `_meta`, or has found no `_meta`.
        Some(outline) => outline.meta.map(std::str::from_utf8).transpose().ok()?.into_iter().collect(),
        None => members(text(params), "_meta")?,
    };
    let mut places = Vec::new();
    for meta in metas {
        let found = members(meta, "progressToken")?;
        places.extend(found.into_iter().filter(|token| is_token(token)).map(|token| range(params, token)));
    }
    let Some(last) = places.last() else { return Some(None) };
    let own = RawJson::trusted(params.bytes().slice(last.clone())).detached();
    Some(Some(TokenPlaces { places, own }))
}

impl TokenPlaces {
    /// The params in which they were found, with our token in their place.
    fn exchange(&self, params: &RawJson, ours: &Token) -> RawJson {
        exchange(params, &self.places, format!("\"{}\"", ours.text).as_bytes())
    }
}

/// Our own token for a request. It cannot be guessed, so even a client that gets a token of its choice to the server
/// cannot hit the token of another client's request.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token {
    text: Box<str>,
}

impl Token {
    /// A token for the request of this number.
    fn new(number: u64) -> Result<Self, getrandom::Error> {
        let mut chance = [0; 16];
        getrandom::fill(&mut chance)?;
        Ok(Self { text: format!("{number}-{:032x}", u128::from_ne_bytes(chance)).into() })
    }

    /// The token in the params of a progress notification, and the number of the request in it; `None` if it is not one
    /// of ours. The caller has still to compare it with that request's token.
    pub(super) fn read(params: &RawJson) -> Option<(u64, Self)> {
        let said = members(text(params), "progressToken")?.pop()?;
        let said = scan::unquoted(said)?;
        let number = said.split_once('-')?.0.parse().ok()?;
        Some((number, Self { text: said.into() }))
    }
}

/// The params of a progress notification with the client's own token.
pub(super) fn restore_token(params: &RawJson, token: &RawJson) -> RawJson {
    replace(params, "progressToken", token.bytes())
}

/// The same object with another value for a member.
pub(super) fn replace(object: &RawJson, name: &str, value: &[u8]) -> RawJson {
    let found = members(text(object), name).unwrap_or_default().into_iter();
    exchange(object, &found.map(|found| range(object, found)).collect::<Vec<_>>(), value)
}

/// The value under a name in an object's `_meta`; the last one, which most JSON readers use.
pub(super) fn in_meta<'a>(object: &'a RawJson, name: &str) -> Option<&'a str> {
    let meta = members(text(object), "_meta")?.pop()?;
    members(meta, name)?.pop()
}

/// The same object with another value for a member of its `_meta`.
pub(super) fn replace_in_meta(object: &RawJson, name: &str, value: &[u8]) -> RawJson {
    let metas = members(text(object), "_meta").unwrap_or_default();
    let found = metas.into_iter().flat_map(|meta| members(meta, name).unwrap_or_default());
    exchange(object, &found.map(|found| range(object, found)).collect::<Vec<_>>(), value)
}

/// Strings and numbers are tokens; servers ignore anything else, and so do we.
fn is_token(value: &str) -> bool {
    value.starts_with(|first: char| matches!(first, '"' | '-' | '0'..='9'))
}

/// The range of a part of this value.
fn range(whole: &RawJson, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.bytes().as_ptr().addr();
    start..start + part.len()
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

/// The values of all members of that name, in order; empty if the text is not an object. `None` if a name cannot be
/// read, such as one with half a surrogate pair, which other JSON readers may accept.
fn members<'a>(text: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let mut found = Vec::new();
    // Nearly every text does not have the name. A backslash may hide it behind an escape.
    let may_have = memchr::memmem::find(text.as_bytes(), name.as_bytes()).is_some() || text.contains('\\');
    if may_have && text.trim_ascii_start().starts_with('{') {
        scan::each(text, |other, value| {
            if other == name {
                found.push(value);
            }
            Some(())
        })?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(params: &'static str) -> Option<(String, String)> {
        let text = |raw: &RawJson| String::from_utf8(raw.bytes().to_vec()).unwrap();
        let params = RawJson::trusted(params);
        let tokens = tokens(&params).unwrap()?;
        let ours = Token { text: "41-x".into() };
        Some((text(&tokens.exchange(&params, &ours)), text(&tokens.own)))
    }

    #[test]
    fn only_the_token_is_exchanged() {
        let cases = [
            (r#"{"_meta":{"progressToken":7}}"#, r#"{"_meta":{"progressToken":"41-x"}}"#, "7"),
            (
                r#"{ "a" : 1.50, "_meta" : {"x":[1e400] , "progressToken" : "ü\/" }, "b":"\u0041"}"#,
                r#"{ "a" : 1.50, "_meta" : {"x":[1e400] , "progressToken" : "41-x" }, "b":"\u0041"}"#,
                r#""ü\/""#,
            ),
            // Names may be written with escapes.
            (
                r#"{"\u005fmeta":{"progress\u0054oken":-1.5}}"#,
                r#"{"\u005fmeta":{"progress\u0054oken":"41-x"}}"#,
                "-1.5",
            ),
            // Whichever duplicate the server uses, it is our token; the client's token is the last.
            (
                r#"{"_meta":{"progressToken":1,"progressToken":2},"_meta":{"progressToken":3}}"#,
                r#"{"_meta":{"progressToken":"41-x","progressToken":"41-x"},"_meta":{"progressToken":"41-x"}}"#,
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
    fn params_with_names_that_cannot_be_read_are_not_taken_for_empty() {
        for unreadable in
            [r#"{"_meta":{"\ud800":0,"progressToken":41}}"#, r#"{"\ud800":0,"_meta":{"progressToken":41}}"#]
        {
            assert!(tokens(&RawJson::trusted(unreadable)).is_none(), "{unreadable}");
        }
        // Unreadable names elsewhere do not matter.
        assert!(tokens(&RawJson::trusted(r#"{"arguments":{"\ud800":"\ud800"},"x":"\ud800"}"#)).is_some());
    }

    #[test]
    fn the_clients_token_is_put_back() {
        let ours = Token { text: "41-x".into() };
        let token = RawJson::trusted(r#""\u0041/7""#);
        for (said, wanted) in [
            (
                r#"{"progressToken":"41-x","progress":1.50}"#,
                r#"{"progressToken":"\u0041/7","progress":1.50}"#,
            ),
            // A server may have written it with other escapes.
            (
                r#"{"progress":1, "progressToken" : "\u00341-x" }"#,
                r#"{"progress":1, "progressToken" : "\u0041/7" }"#,
            ),
        ] {
            let said = RawJson::trusted(said);
            assert!(Token::read(&said) == Some((41, ours.clone())));
            assert_eq!(restore_token(&said, &token).bytes(), &wanted);
        }
        for other in
            [r#"{"progressToken":"x-41"}"#, r#"{"progressToken":41}"#, r#"{"progressToken":"41"}"#, "{}"]
        {
            assert!(Token::read(&RawJson::trusted(other)).is_none(), "{other}");
        }
    }

    #[test]
    fn only_the_member_of_meta_is_exchanged() {
        const NAME: &str = "a/b";
        for (object, found, replaced) in [
            (
                r#"{ "a/b":1, "_meta" : {"x":2, "a\/b" : 5 } }"#,
                Some("5"),
                r#"{ "a/b":1, "_meta" : {"x":2, "a\/b" : "n" } }"#,
            ),
            (r#"{"_meta":{"a/b":5,"a/b":6}}"#, Some("6"), r#"{"_meta":{"a/b":"n","a/b":"n"}}"#),
            (r#"{"_meta":{}}"#, None, r#"{"_meta":{}}"#),
            (r#"{"_meta":5,"a/b":1}"#, None, r#"{"_meta":5,"a/b":1}"#),
            ("[]", None, "[]"),
        ] {
            let object = RawJson::trusted(object);
            assert_eq!(in_meta(&object, NAME), found);
            assert_eq!(replace_in_meta(&object, NAME, br#""n""#).bytes(), replaced);
        }
    }

    #[test]
    fn no_two_tokens_are_the_same() {
        assert!(Token::new(41).unwrap() != Token::new(41).unwrap());
    }
}
