//! The encoding of values that a header cannot hold as they are: base64 between two marks.
//!
//! Decoding is strict: a proxy that routes by the header must see the same value as the body has, so a header with two
//! possible readings is refused.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// The value in a form that a header can hold.
pub fn encode(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let edges = value.starts_with(' ') || value.ends_with(' ');
    // Also where the marks overlap, because other decoders may be less exact than `decode`.
    let looks_encoded = value.starts_with(OPEN) && value.ends_with(CLOSE);
    if plain && !edges && !looks_encoded {
        return value.into();
    }
    format!("{OPEN}{}{CLOSE}", STANDARD.encode(value)).into()
}

/// The value of a header; `None` if it has invalid base64, or characters that a header must not have. A header with
/// only one of the marks, or with marks in another case, is not encoded.
pub fn decode(header: &str) -> Option<Cow<'_, str>> {
    if !header.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
        return None;
    }
    let Some(inner) = header.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE)) else {
        return Some(header.into());
    };
    let bytes = STANDARD.decode(inner).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_as_headers() {
        let table = [
            ("us-west1", "us-west1"),
            ("", ""),
            ("a b  c", "a b  c"),
            ("~!\"#", "~!\"#"),
            (" us", "=?base64?IHVz?="),
            ("us ", "=?base64?dXMg?="),
            ("\tus", "=?base64?CXVz?="),
            ("a\tb", "=?base64?YQli?="),
            ("a\r\nb", "=?base64?YQ0KYg==?="),
            ("\u{7f}", "=?base64?fw==?="),
            ("Zürich", "=?base64?WsO8cmljaA==?="),
            ("日本", "=?base64?5pel5pys?="),
            ("=?base64?SGVsbG8=?=", "=?base64?PT9iYXNlNjQ/U0dWc2JHOD0/PQ==?="),
            ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
            ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
            ("=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
        ];
        for (value, header) in table {
            assert_eq!(encode(value), header, "{value:?}");
            assert_eq!(decode(header).as_deref(), Some(value), "{header}");
        }
    }

    #[test]
    fn headers_as_values() {
        let table = [
            ("=?base64?SGVsbG8=?=", Some("Hello")),
            ("=?base64??=", Some("")),
            // Only one mark, or a mark in another case.
            ("=?base64?=", Some("=?base64?=")),
            ("SGVsbG8=?=", Some("SGVsbG8=?=")),
            ("=?Base64?SGVsbG8=?=", Some("=?Base64?SGVsbG8=?=")),
            ("x=?base64?SGVsbG8=?=", Some("x=?base64?SGVsbG8=?=")),
            // Padding missing or too long, another alphabet, trailing bits, not UTF-8.
            ("=?base64?SGVsbG8?=", None),
            ("=?base64?SGVsbG8==?=", None),
            ("=?base64?SGVs!!!bG8=?=", None),
            ("=?base64?SGVs bG8=?=", None),
            ("=?base64?-_-_?=", None),
            ("=?base64?SGVsbG9=?=", None),
            ("=?base64?/w==?=", None),
            // Characters that a header must not have.
            ("Zürich", None),
            ("\u{fffd}", None),
            ("a\0", None),
        ];
        for (header, value) in table {
            assert_eq!(decode(header).as_deref(), value, "{header}");
        }
    }

    proptest! {
        #[test]
        fn every_value_comes_back_from_a_header_that_is_legal(value in any::<String>()) {
            let header = encode(&value);
            prop_assert!(header.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            prop_assert_eq!(header.trim_matches([' ', '\t']), &*header);
            prop_assert_eq!(decode(&header), Some(Cow::Borrowed(&*value)));
        }

        #[test]
        fn what_looks_encoded_comes_back_too(inner in "(=\\?base64\\?){0,2}[A-Za-z0-9+/=?]{0,12}(\\?=){0,2}") {
            let header = encode(&inner);
            prop_assert_eq!(decode(&header), Some(Cow::Borrowed(&*inner)));
        }

        #[test]
        fn one_value_has_one_encoding(inner in "[A-Za-z0-9+/]{0,8}={0,3}") {
            let header = format!("{OPEN}{inner}{CLOSE}");
            if let Some(value) = decode(&header) {
                prop_assert_eq!(STANDARD.encode(&*value), inner);
            }
        }
    }
}
