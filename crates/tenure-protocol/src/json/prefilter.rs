//! A substring search that tells, without parsing, that a member's name cannot be in a JSON text.
//!
//! Most messages have none of the rare members, and one search shows it. To build a searcher costs more than a
//! search, so each name has one static [`Prefilter`].

use memchr::memmem::Finder;

/// A searcher for one name.
#[derive(Debug)]
pub struct Prefilter {
    name: Finder<'static>,
    has_slash: bool,
}

impl Prefilter {
    /// Prepares the search for a name.
    pub fn of(name: &'static str) -> Self {
        Self { name: Finder::new(name), has_slash: name.contains('/') }
    }

    /// Whether the name may be that of a member somewhere in the text; `false` is certain. A name can be written with
    /// escapes, so a text with such escapes is always `true`.
    pub fn may_be_in(&self, text: &[u8]) -> bool {
        self.is_spelt_in(text) || self.may_be_disguised_in(text)
    }

    /// Whether the name is there in quotes, without escapes.
    pub fn is_spelt_in(&self, text: &[u8]) -> bool {
        let length = self.name.needle().len();
        let quoted = |at: usize| {
            at > 0 && text[at - 1] == b'"' && text.get(at + length).is_some_and(|byte| *byte == b'"')
        };
        self.name.find_iter(text).any(quoted)
    }

    /// Whether an escape could hide the name: `\u` can replace any letter, `\/` a slash.
    fn may_be_disguised_in(&self, text: &[u8]) -> bool {
        let escaped = |at: usize| match text.get(at + 1) {
            Some(b'u') => true,
            Some(b'/') => self.has_slash,
            _ => false,
        };
        memchr::memchr_iter(b'\\', text).any(escaped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_however_it_is_written() {
        let (plain, slashed) = (Prefilter::of("_meta"), Prefilter::of("a/b"));
        let table = [
            (r#"{"name":"x"}"#, false, false),
            (r#"{"_meta":{}}"#, true, false),
            (r#"{"x_meta":{},"_metal":1,"x":"a/bc"}"#, false, false),
            (r#"{"\u005fmeta":{}}"#, true, true),
            (r#"{"a\/b":{}}"#, false, true),
            (r#"{"a/b":{}}"#, false, true),
            (r#"{"text":"line\nline\\"}"#, false, false),
            ("_meta", false, false),
            ("\\", false, false),
            ("", false, false),
        ];
        for (text, has_plain, has_slashed) in table {
            assert_eq!(plain.may_be_in(text.as_bytes()), has_plain, "{text}");
            assert_eq!(slashed.may_be_in(text.as_bytes()), has_slashed, "{text}");
        }
    }
}
