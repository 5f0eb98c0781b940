//! Names of tools and prompts of merged servers: the prefix of the server, two underscores, and the server's own name.
//!
//! Clients and their models accept names of up to 128 letters, digits, underscores, dots and dashes. A name that does
//! not fit is cleaned, cut and gets a hash at its end. The original cannot be computed from such a hashed name, so the
//! caller has to remember it.

use std::borrow::Cow;

use tenure_protocol::RawJson;
use tenure_protocol::json::{members, object, scan, splice};

/// The separator between the prefix and the name.
pub(super) const BETWEEN: &str = "__";

/// The longest name.
const MAX: usize = 128;

/// The name that clients see.
pub(super) fn public<'a>(prefix: &str, name: &'a str, prefixes: &[&str]) -> Cow<'a, str> {
    if !is_plain(prefix, name, prefixes) {
        return Cow::Owned(hashed(prefix, name));
    }
    match prefix {
        "" => Cow::Borrowed(name),
        prefix => Cow::Owned(format!("{prefix}{BETWEEN}{name}")),
    }
}

/// Whether the name that clients see contains the original name.
fn is_plain(prefix: &str, name: &str, prefixes: &[&str]) -> bool {
    let length = if prefix.is_empty() { name.len() } else { prefix.len() + BETWEEN.len() + name.len() };
    let fits = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'.' | b'-');
    // A name without a prefix must not look as if it had the prefix of another server.
    let is_taken = prefix.is_empty()
        && name.split_once(BETWEEN).is_some_and(|(head, _)| !head.is_empty() && prefixes.contains(&head));
    !name.is_empty() && length <= MAX && name.bytes().all(fits) && !is_taken
}

fn hashed(prefix: &str, name: &str) -> String {
    let front = if prefix.is_empty() { String::new() } else { format!("{prefix}{BETWEEN}") };
    let digits = format!("_{:08x}", digest(name));
    let room = MAX - front.len() - digits.len();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-');
    // Single underscores only, so that no part of it looks like a prefix.
    let mut middle = String::new();
    for letter in name.chars().map(|letter| if fits(letter) { letter } else { '_' }) {
        if middle.len() < room && !(letter == '_' && (middle.is_empty() || middle.ends_with('_'))) {
            middle.push(letter);
        }
    }
    format!("{front}{}{digits}", middle.trim_end_matches('_'))
}

/// FNV-1a: all that matters here is that it is the same in every process and version.
fn digest(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Splits a name that clients use into prefix and rest; the prefix is empty if it is not one of `prefixes`.
pub(super) fn split<'a>(name: &'a str, prefixes: &[&str]) -> (&'a str, &'a str) {
    match name.split_once(BETWEEN) {
        Some((prefix, rest)) if !prefix.is_empty() && prefixes.contains(&prefix) => (prefix, rest),
        _ => ("", name),
    }
}

/// The merged servers by the prefixes of their tools, for rules that name a server and its own name of a tool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToolPrefixes(Vec<(String, String)>);

impl ToolPrefixes {
    /// Prefixes with the names of their servers.
    pub fn new(servers: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(servers.into_iter().collect())
    }

    /// The server of a tool, and the tool's name there. A name that had to be shortened stays as it is.
    pub fn owner(&self, tool: &str) -> (Option<String>, String) {
        let prefixes: Vec<&str> = self.0.iter().map(|(prefix, _)| prefix.as_str()).collect();
        let (prefix, name) = split(tool, &prefixes);
        let server = self.0.iter().find(|(known, _)| known == prefix).map(|(_, server)| server.clone());
        (server, name.to_owned())
    }
}

/// The name of a tool or prompt, and the text of its value; `None` if there is not exactly one.
pub(super) fn read(object: &[u8]) -> Option<(Cow<'_, str>, &str)> {
    let written = members::find(object, "name").value()?.get();
    Some((scan::unquoted(written)?, written))
}

/// The text with another name in place of a value that was found in it.
pub(super) fn replaced(text: &[u8], written: &str, name: &str) -> RawJson {
    splice::replace(text, &[(splice::place(text, written.as_bytes()), object::quoted(name))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PREFIXES: [&str; 3] = ["files", "git-hub", ""];

    #[test]
    fn names_are_readable_where_they_can_be() {
        let long = "x".repeat(200);
        let table = [
            ("files", "read_file", "files__read_file"),
            ("", "read_file", "read_file"),
            ("git-hub", "a__b", "git-hub__a__b"),
            ("files", "read file/µ", "files__read_file_ab161407"),
            ("", "files__x", "files_x_31298e7a"),
            ("", "other__x", "other__x"),
            ("files", "", "files___811c9dc5"),
            ("files", &long, &format!("files__{}_{:08x}", "x".repeat(112), digest(&long))),
        ];
        for (prefix, name, expected) in table {
            assert_eq!(public(prefix, name, &PREFIXES), expected, "{prefix} {name}");
        }
    }

    #[test]
    fn only_the_name_is_changed() {
        let params = br#"{ "_meta":{"name":1e2}, "n\u0061me" : "a\u002fb" ,"arguments":{"name":"x"} }"#;
        let (found, written) = read(params).unwrap();
        assert_eq!(found, "a/b");
        assert_eq!(
            replaced(params, written, "c\"d").bytes(),
            &br#"{ "_meta":{"name":1e2}, "n\u0061me" : "c\"d" ,"arguments":{"name":"x"} }"#[..]
        );
        for none in ["{}", r#"{"name":1}"#, "[]", r#"{"name":null}"#, r#"{"name":"a","n\u0061me":"a"}"#] {
            assert!(read(none.as_bytes()).is_none(), "{none}");
        }
    }

    proptest! {
        #[test]
        fn every_public_name_fits_and_leads_back_to_its_server(which in 0..3usize, name in ".{0,160}") {
            let prefix = PREFIXES[which];
            let public = public(prefix, &name, &PREFIXES);
            prop_assert!(public.len() <= MAX && !public.is_empty());
            prop_assert!(public.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-')));
            let (found, rest) = split(&public, &PREFIXES);
            prop_assert_eq!(found, prefix);
            if is_plain(prefix, &name, &PREFIXES) {
                prop_assert_eq!(rest, &name);
            }
        }
    }
}
