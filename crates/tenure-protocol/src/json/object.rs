//! The editor: changes members of JSON objects and elements of arrays, and keeps all other bytes, spaces and escapes
//! included.
//!
//! In: the text of one JSON value. Out: the same text if nothing was changed, else a text in which only the changed
//! members differ. Of a repeated member the last one counts, and a change leaves only one.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::{RawJson, scan, splice};

pub use crate::json::scan::unquoted;

/// An object: its members in their order, values not parsed, and the changes to write.
#[derive(Debug)]
pub struct Object<'a> {
    text: &'a str,
    members: Vec<ObjectMember<'a>>,
    added: Vec<(&'a str, Cow<'a, str>)>,
    changed: bool,
}

#[derive(Debug)]
struct ObjectMember<'a> {
    name: Cow<'a, str>,
    /// The offset of its name.
    start: usize,
    value: &'a str,
    edit: MemberEdit<'a>,
}

#[derive(Debug)]
enum MemberEdit<'a> {
    Stays,
    Becomes(Cow<'a, str>),
    Goes,
}

impl<'a> Object<'a> {
    /// Reads the members; `None` if the value is not an object.
    pub fn read(text: &'a str) -> Option<Self> {
        let mut members = Vec::new();
        scan::each_as_written(text, |written, name, value| {
            members.push(ObjectMember {
                name: name?,
                start: offset(text, written),
                value,
                edit: MemberEdit::Stays,
            });
            Some(())
        })?;
        Some(Self { text, members, added: Vec::new(), changed: false })
    }

    /// The value of a member as it was read, without later changes.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.members.iter().rev().find(|member| member.name == name).map(|member| member.value)
    }

    /// All names and values as they were read, without later changes.
    pub fn members(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.members.iter().map(|member| (&*member.name, member.value))
    }

    /// Removes a member.
    pub fn remove(&mut self, name: &str) {
        for member in self.members.iter_mut().filter(|member| member.name == name) {
            member.edit = MemberEdit::Goes;
            self.changed = true;
        }
    }

    /// Sets a member: in its old position, or else at the end.
    pub fn set(&mut self, name: &'a str, value: impl Into<Cow<'a, str>>) {
        let value = value.into();
        self.added.retain(|(added, _)| *added != name);
        self.remove(name);
        self.changed = true;
        match self.members.iter_mut().rev().find(|member| member.name == name) {
            Some(member) => member.edit = MemberEdit::Becomes(value),
            None => self.added.push((name, value)),
        }
    }

    /// Changes a member that is an object, and removes it if the change left it empty. A member that is absent or not
    /// an object is not changed.
    pub fn within(&mut self, name: &'a str, change: impl FnOnce(&mut Object<'a>)) {
        let Some(mut inner) = self.get(name).and_then(Object::read) else {
            return;
        };
        change(&mut inner);
        if !inner.changed {
            return;
        }
        if inner.is_empty() {
            self.remove(name);
        } else {
            self.set(name, inner.write());
        }
    }

    /// Changes the values of all members; `None` keeps a value.
    pub fn each_member(&mut self, mut change: impl FnMut(&'a str) -> Option<String>) {
        for member in &mut self.members {
            if let Some(value) = change(member.value) {
                member.edit = MemberEdit::Becomes(value.into());
                self.changed = true;
            }
        }
    }

    /// Whether no member is left.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.members.iter().all(|member| matches!(member.edit, MemberEdit::Goes))
    }

    /// The object's text: the one that was read, if nothing was changed.
    pub fn write(self) -> Cow<'a, str> {
        if !self.changed {
            return self.text.into();
        }
        let spans = self.members.into_iter().map(|member| Span {
            start: member.start,
            value: offset(self.text, member.value),
            end: offset(self.text, member.value) + member.value.len(),
            edit: member.edit,
        });
        rewrite(self.text, '{', spans.collect(), &self.added).into()
    }
}

/// The object with the member at `path` set. Objects on the path that are absent or null are made. `None` if a value on
/// the path is not an object.
pub fn set_at<'a>(text: &'a str, path: &[&'a str], value: &'a str) -> Option<Cow<'a, str>> {
    let (name, rest) = path.split_first()?;
    let mut object = Object::read(text)?;
    let value = match rest {
        [] => value.into(),
        rest => set_at(object.get(name).filter(|value| *value != "null").unwrap_or("{}"), rest, value)?,
    };
    object.set(name, value);
    Some(object.write())
}

/// Changes the elements of an array; `None` keeps an element. A text that is not an array is returned unchanged.
pub fn each<'a>(text: &'a str, mut change: impl FnMut(&'a str) -> Option<String>) -> Cow<'a, str> {
    let Some(elements) = elements(text) else {
        return text.into();
    };
    let mut changed = false;
    let spans = elements.into_iter().map(|element| {
        let start = offset(text, element);
        let edit = change(element).map_or(MemberEdit::Stays, |new| MemberEdit::Becomes(new.into()));
        changed |= matches!(edit, MemberEdit::Becomes(_));
        Span { start, value: start, end: start + element.len(), edit }
    });
    let spans: Vec<_> = spans.collect();
    if changed { rewrite(text, '[', spans, &[]).into() } else { text.into() }
}

/// The elements of an array, not parsed; `None` if the value is not an array.
pub fn elements(text: &str) -> Option<Vec<&str>> {
    let Elements(elements) = serde_json::from_str(text).ok()?;
    Some(elements.into_iter().map(RawValue::get).collect())
}

/// The position of one member or element: `start` is that of the name, or of the value if there is no name.
struct Span<'a> {
    start: usize,
    value: usize,
    end: usize,
    edit: MemberEdit<'a>,
}

fn rewrite(text: &str, open: char, spans: Vec<Span<'_>>, added: &[(&str, Cow<'_, str>)]) -> String {
    let opened = text.find(open).map_or(0, |at| at + 1);
    let head = spans.first().map_or(opened, |span| span.start);
    let tail = spans.last().map_or(opened, |span| span.end);
    let grown: usize = added.iter().map(|(name, value)| name.len() + value.len() + r#","":"#.len()).sum();
    let mut written = String::with_capacity(text.len() + 64 + grown);
    written.push_str(&text[..head]);
    let mut empty = true;
    // The gap in front of a span holds its comma; the first span that is kept is written without its gap.
    let mut gap = head..head;
    for span in spans {
        gap.end = span.start;
        let next = span.end;
        if !matches!(span.edit, MemberEdit::Goes) {
            if !empty {
                written.push_str(&text[gap]);
            }
            empty = false;
            written.push_str(&text[span.start..span.value]);
            match &span.edit {
                MemberEdit::Becomes(value) => written.push_str(value),
                MemberEdit::Stays | MemberEdit::Goes => written.push_str(&text[span.value..span.end]),
            }
        }
        gap = next..next;
    }
    for (name, value) in added {
        if !empty {
            written.push(',');
        }
        empty = false;
        written.push_str(&quoted(name));
        written.push(':');
        written.push_str(value);
    }
    written.push_str(&text[tail..]);
    written
}

/// The text of a value; empty if it is not UTF-8, so that no rule finds anything in it.
pub fn text(json: &RawJson) -> &str {
    std::str::from_utf8(json.bytes()).unwrap_or_default()
}

/// The edited value: a slice of the old one, not a copy, if its text is unchanged.
pub fn kept(json: &RawJson, text: Cow<'_, str>) -> RawJson {
    match text {
        Cow::Borrowed(text) => part(json, text),
        Cow::Owned(text) => RawJson::trusted(text),
    }
}

/// A part of a value, which shares the value's bytes.
pub fn part(json: &RawJson, text: &str) -> RawJson {
    let bytes = json.bytes();
    let whole = bytes.as_ptr_range();
    let part = text.as_bytes().as_ptr_range();
    if whole.start <= part.start && part.end <= whole.end {
        RawJson::trusted(bytes.slice_ref(text.as_bytes()))
    } else {
        RawJson::trusted(text.to_owned())
    }
}

/// A text as a JSON string.
pub fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    // Nearly every text needs only its quotes.
    match text.bytes().all(is_plain) {
        true => ["\"", text, "\""].concat(),
        false => serde_json::Value::from(text).to_string(),
    }
}

/// Whether a value is an object.
pub fn is_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{')
}

/// An object without members.
pub fn nothing<'a>() -> Object<'a> {
    Object { text: "{}", members: Vec::new(), added: Vec::new(), changed: false }
}

fn offset(text: &str, part: &str) -> usize {
    splice::place(text.as_bytes(), part.as_bytes()).start
}

struct Elements<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Elements<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Elements<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = from.next_element()? {
                    elements.push(element);
                }
                Ok(Elements(elements))
            }
        }
        from.deserialize_seq(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changed(text: &str, change: impl FnOnce(&mut Object<'_>)) -> String {
        let mut object = Object::read(text).unwrap();
        change(&mut object);
        object.write().into_owned()
    }

    #[test]
    fn a_member_goes_and_the_others_stay_as_they_were_written() {
        let table = [
            (r#" { "a" : 1.50 , "b": "\u00e9", "c":[1, 2] } "#, "a", r#" { "b": "\u00e9", "c":[1, 2] } "#),
            (r#" { "a" : 1.50 , "b": "\u00e9", "c":[1, 2] } "#, "b", r#" { "a" : 1.50, "c":[1, 2] } "#),
            (r#" { "a" : 1.50 , "b": "\u00e9", "c":[1, 2] } "#, "c", r#" { "a" : 1.50 , "b": "\u00e9" } "#),
            (r#"{"a":1}"#, "a", "{}"),
            (r#"{"a":1,"\u0061":2,"b":3}"#, "a", r#"{"b":3}"#),
            (r#"{"b":3,"a":1,"a":2}"#, "a", r#"{"b":3}"#),
            (r#"{"b":{"a":1}}"#, "a", r#"{"b":{"a":1}}"#),
        ];
        for (text, name, expected) in table {
            assert_eq!(changed(text, |object| object.remove(name)), expected, "{text}");
        }
    }

    #[test]
    fn a_member_is_put_where_it_stood_or_at_the_end() {
        let table = [
            ("{}", r#"{"a":9}"#),
            ("{ }", r#"{"a":9 }"#),
            (r#"{"b": 1 }"#, r#"{"b": 1,"a":9 }"#),
            (r#"{"a" : 1, "b":2}"#, r#"{"a" : 9, "b":2}"#),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"b":2,"a":9}"#),
        ];
        for (text, expected) in table {
            assert_eq!(changed(text, |object| object.set("a", "9")), expected, "{text}");
        }
        let twice = changed("{}", |object| {
            object.set("a", "1");
            object.set("a", "2");
        });
        assert_eq!(twice, r#"{"a":2}"#);
    }

    #[test]
    fn a_member_on_a_path_is_set_and_the_others_stay() {
        let object = r#"{"b": 1.50,"a":{"x" : [1, 2]},"u":"\u00e9"}"#;
        let table: [(&[&str], &str, &str); 4] = [
            (&["n"], "null", r#"{"b": 1.50,"a":{"x" : [1, 2]},"u":"\u00e9","n":null}"#),
            (&["b"], "2", r#"{"b": 2,"a":{"x" : [1, 2]},"u":"\u00e9"}"#),
            (&["a", "y"], "2", r#"{"b": 1.50,"a":{"x" : [1, 2],"y":2},"u":"\u00e9"}"#),
            (&["c", "d", "e"], "{}", r#"{"b": 1.50,"a":{"x" : [1, 2]},"u":"\u00e9","c":{"d":{"e":{}}}}"#),
        ];
        for (path, value, expected) in table {
            assert_eq!(set_at(object, path, value).as_deref(), Some(expected));
        }
        assert_eq!(set_at(r#"{"n":null}"#, &["n", "m"], "1").as_deref(), Some(r#"{"n":{"m":1}}"#));
        assert_eq!(
            set_at(r#"{"a":{"x":1},"\u0061":{"y":1}}"#, &["a", "z"], "1").as_deref(),
            Some(r#"{"\u0061":{"y":1,"z":1}}"#)
        );
        assert_eq!(set_at(object, &["b", "c"], "1"), None, "a number has no members");
        assert_eq!(set_at("[]", &["b"], "1"), None);
    }

    #[test]
    fn an_inner_object_that_becomes_empty_goes() {
        let without = |text: &str| changed(text, |object| object.within("m", |inner| inner.remove("a")));
        assert_eq!(without(r#"{"m":{"a":1},"b":2}"#), r#"{"b":2}"#);
        assert_eq!(without(r#"{"m": {"a":1, "c":3} ,"b":2}"#), r#"{"m": {"c":3} ,"b":2}"#);
        for same in [r#"{"m": { } ,"b":2}"#, r#"{"m":7}"#, "{}"] {
            assert_eq!(without(same), same);
        }
    }

    #[test]
    fn elements_change_in_place() {
        let text = r#" [ 1, "two" ,{ "three":3 }] "#;
        let written = each(text, |element| (element == "1").then(|| "one".to_owned()));
        assert_eq!(written, r#" [ one, "two" ,{ "three":3 }] "#);
        assert!(matches!(each(text, |_| None), Cow::Borrowed(same) if same == text));
        assert_eq!(each("7", |_| Some("8".to_owned())), "7");
        assert_eq!(elements("{}"), None);
    }

    #[test]
    fn a_text_is_quoted_so_that_it_can_be_read() {
        for text in ["", "a b/c", "é\u{1f600}", "a\"b", "a\\b", "a\nb\u{1}", "\u{7f}"] {
            assert_eq!(quoted(text), serde_json::to_string(text).unwrap());
            assert_eq!(unquoted(&quoted(text)).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_object_is_not_read() {
        for text in ["[]", "1", "null", "", "{\"a\":1", r#""{}""#] {
            assert!(Object::read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn an_unchanged_value_shares_its_bytes() {
        let json = RawJson::trusted(r#"{"a":{"b":1}}"#);
        let object = Object::read(text(&json)).unwrap();
        let inner = part(&json, object.get("a").unwrap());
        assert_eq!(inner.bytes(), r#"{"b":1}"#);
        assert_eq!(inner.bytes().as_ptr(), json.bytes()[5..].as_ptr());
        assert_eq!(kept(&json, object.write()).bytes().as_ptr(), json.bytes().as_ptr());
    }

    proptest! {
        #[test]
        fn a_change_changes_one_member_and_no_other(
            members in proptest::collection::vec(("[a-d\\\\\"é]{0,2}", any::<i32>(), "[ \n]{0,2}"), 0..6),
            removes in any::<bool>(),
        ) {
            let written = members.iter().map(|(name, value, space)| {
                format!("{space}{}{space}:{space}{value}{space}", quoted(name))
            });
            let text = format!("{{{}}}", written.collect::<Vec<_>>().join(","));
            let result = changed(&text, |object| match removes {
                true => object.remove("a"),
                false => object.set("a", "true"),
            });
            let mut expected: serde_json::Map<_, _> = serde_json::from_str(&text).unwrap();
            expected.remove("a");
            if !removes {
                expected.insert("a".to_owned(), true.into());
            }
            let result: serde_json::Map<_, _> = serde_json::from_str(&result).unwrap();
            prop_assert_eq!(result, expected);
        }
    }
}
