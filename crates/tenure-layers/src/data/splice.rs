//! Sets members of a JSON object. The values of all other members keep their bytes.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use tenure_protocol::RawJson;
use tenure_protocol::json::prefilter::Prefilter;
use tenure_protocol::json::scan;

/// The object with the member at `path` set; missing objects on the path are made. `None` if a value on the path is not
/// an object.
pub(super) fn set(object: &str, path: &[&str], value: &str) -> Option<String> {
    let (name, rest) = path.split_first()?;
    let mut members = Vec::new();
    scan::each(object, |key, value| {
        members.push((key, value));
        Some(())
    })?;
    // A null member counts as absent.
    let there = members.iter().rev().find(|(key, _)| key == name).map(|(_, value)| *value);
    let there = there.filter(|value| *value != "null");
    let value: Cow<'_, str> = match rest {
        [] => value.into(),
        rest => set(there.unwrap_or("{}"), rest, value)?.into(),
    };
    let mut text = String::with_capacity(object.len() + value.len() + name.len() + 8);
    let mut push = |key: &str, value: &str| {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(&serde_json::Value::from(key).to_string());
        text.push(':');
        text.push_str(value);
    };
    for (key, old) in &members {
        if key != name {
            push(key, old);
        }
    }
    push(name, &value);
    text.push('}');
    Some(text)
}

/// A member of a result's `_meta`, written once for many results.
pub(super) struct MetaMember {
    key: &'static str,
    /// The opening brace and `_meta`, which replace the opening brace of a result that has no `_meta`.
    text: Box<str>,
    value: Range<usize>,
}

impl MetaMember {
    pub(super) fn new(key: &'static str, value: &[&str]) -> Self {
        let value = value.concat();
        let text = format!(r#"{{"_meta":{{"{key}":{value}}},"#);
        let end = text.len() - 2;
        Self { key, text: text.into(), value: end - value.len()..end }
    }

    /// The result with the member set. This runs with every answer, so a result without `_meta` is not parsed at all.
    pub(super) fn put_into(&self, result: &RawJson) -> RawJson {
        static META: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of("_meta"));
        let bytes = result.bytes();
        let plain = if META.may_be_in(bytes) { None } else { bytes.strip_prefix(b"{") };
        if let Some(rest) = plain {
            let more = rest.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'}');
            let before = &self.text.as_bytes()[..self.text.len() - usize::from(!more)];
            // Exact capacity, so that the buffer becomes `Bytes` without a copy.
            let mut text = Vec::with_capacity(before.len() + rest.len());
            text.extend_from_slice(before);
            text.extend_from_slice(rest);
            return RawJson::trusted(text);
        }
        let value = &self.text[self.value.clone()];
        let set = std::str::from_utf8(bytes).ok().and_then(|text| set(text, &["_meta", self.key], value));
        set.map_or_else(|| result.clone(), RawJson::trusted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_members_stay_as_they_were() {
        let object = r#"{"b": 1.50,"a":{"x" : [1, 2]},"u":"\u00e9"}"#;
        let table: [(&[&str], &str, &str); 4] = [
            (&["n"], "null", r#"{"b":1.50,"a":{"x" : [1, 2]},"u":"\u00e9","n":null}"#),
            (&["b"], "2", r#"{"a":{"x" : [1, 2]},"u":"\u00e9","b":2}"#),
            (&["a", "y"], "2", r#"{"b":1.50,"u":"\u00e9","a":{"x":[1, 2],"y":2}}"#),
            (&["c", "d", "e"], "{}", r#"{"b":1.50,"a":{"x" : [1, 2]},"u":"\u00e9","c":{"d":{"e":{}}}}"#),
        ];
        for (path, value, expected) in table {
            assert_eq!(set(object, path, value).as_deref(), Some(expected));
        }
        assert_eq!(set(r#"{"n":null}"#, &["n", "m"], "1").as_deref(), Some(r#"{"n":{"m":1}}"#));
        assert_eq!(set(object, &["b", "c"], "1"), None, "a number has no members");
        assert_eq!(set("[]", &["b"], "1"), None);
    }

    #[test]
    fn a_cookie_goes_into_any_result() {
        let table = [
            ("{}", r#"{"_meta":{"k":1}}"#),
            (r#"{"a":1}"#, r#"{"_meta":{"k":1},"a":1}"#),
            (r#"{"a":1,"_meta":{"x":2}}"#, r#"{"a":1,"_meta":{"x":2,"k":1}}"#),
            (r#"{"_meta":{"k":0}}"#, r#"{"_meta":{"k":1}}"#),
            (r#"{"a":{"_meta":{"x":2}}}"#, r#"{"a":{"_meta":{"x":2}},"_meta":{"k":1}}"#),
            (r#"{"\u005fmeta":{"x":2}}"#, r#"{"_meta":{"x":2,"k":1}}"#),
            (r#"{"_meta":7}"#, r#"{"_meta":7}"#),
        ];
        for (result, expected) in table {
            let with = MetaMember::new("k", &["", "1"]).put_into(&RawJson::trusted(result));
            assert_eq!(with.bytes(), expected, "{result}");
        }
    }
}
