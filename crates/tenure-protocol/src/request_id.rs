//! The id of a JSON-RPC request, kept as its sender wrote it.

use std::fmt;

use bytes::Bytes;

/// A JSON-RPC id exactly as its sender wrote it: a string or an integer.
///
/// Comparison follows JSON, not bytes: `"a"` and `"\u0061"` are the same id. The sender gets the raw form back byte for
/// byte.
#[derive(Clone)]
pub struct RequestId {
    raw: Bytes,
    /// The unescaped form, kept only for strings written with escapes.
    plain: Option<Box<str>>,
}

impl RequestId {
    /// The longest id that is accepted. Every message about the request repeats it.
    pub const MAX_BYTES: usize = 1024;

    /// Takes the raw JSON of an id; `None` if it is not a string or an integer, or is longer than [`Self::MAX_BYTES`].
    pub fn from_raw(raw: Bytes) -> Option<Self> {
        if raw.len() > Self::MAX_BYTES {
            return None;
        }
        match *raw.first()? {
            b'"' => {
                if !raw.contains(&b'\\') {
                    return Some(Self { raw, plain: None });
                }
                let text: String = serde_json::from_slice(&raw).ok()?;
                let plain = serde_json::to_string(&text).ok()?.into_boxed_str();
                Some(Self { raw, plain: Some(plain) })
            }
            b'-' | b'0'..=b'9' => {
                let digits = raw.strip_prefix(b"-").unwrap_or(&raw);
                let whole = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
                whole.then_some(Self { raw, plain: None })
            }
            _ => None,
        }
    }

    /// An id of our own making.
    pub fn from_number(number: u64) -> Self {
        let mut buffer = itoa::Buffer::new();
        Self { raw: Bytes::copy_from_slice(buffer.format(number).as_bytes()), plain: None }
    }

    /// An id of our own making, from text that needs no escapes.
    pub fn from_text(text: &str) -> Self {
        debug_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
        Self { raw: Bytes::from(format!("\"{text}\"")), plain: None }
    }

    /// The text of an id that is a string without escapes.
    pub fn as_text(&self) -> Option<&str> {
        let text = std::str::from_utf8(self.canonical()).ok()?;
        text.strip_prefix('"')?.strip_suffix('"')
    }

    /// The id as its sender wrote it.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The id as a number, if it is one that we could have made.
    pub fn as_number(&self) -> Option<u64> {
        std::str::from_utf8(&self.raw).ok()?.parse().ok()
    }

    fn canonical(&self) -> &[u8] {
        self.plain.as_ref().map_or(&self.raw, |plain| plain.as_bytes())
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Eq for RequestId {}

impl std::hash::Hash for RequestId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.canonical().hash(state);
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Shortened, because the client chooses the id and it goes into log lines.
        f.write_str(&String::from_utf8_lossy(&self.raw[..self.raw.len().min(64)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_compare_as_json_and_come_back_as_written() {
        let id = |text: &'static str| RequestId::from_raw(Bytes::from_static(text.as_bytes()));
        assert_eq!(id(r#""a""#), id(r#""\u0061""#));
        assert_eq!(id(r#""\u0061""#).unwrap().raw(), &r#""\u0061""#);
        assert_ne!(id("1"), id(r#""1""#));
        for bad in ["null", "1.0", "1e3", "true", "{}", "-", ""] {
            assert_eq!(id(bad), None, "{bad}");
        }
    }
}
