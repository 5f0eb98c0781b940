//! Whether a member's name can stand in a JSON text, told without reading the text.
//!
//! Most messages have none of the members that matter only now and then, and are done with one look. To make what
//! looks takes longer than to look, so it is made once for each name.

use memchr::memmem::Finder;

/// A name to look for.
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

    /// Whether the name may be that of a member somewhere in the text. It can be written in other ways, with escapes;
    /// a text that has some is not judged.
    pub fn may_be_in(&self, text: &[u8]) -> bool {
        self.is_spelt_in(text) || self.may_be_disguised_in(text)
    }

    /// Whether the name stands there, in quotes, as it is usually written.
    pub fn is_spelt_in(&self, text: &[u8]) -> bool {
        let length = self.name.needle().len();
        let quoted = |at: usize| {
            at > 0 && text[at - 1] == b'"' && text.get(at + length).is_some_and(|byte| *byte == b'"')
        };
        self.name.find_iter(text).any(quoted)
    }

    /// Only `\u` can stand for a letter, and only `\/` for a slash.
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
