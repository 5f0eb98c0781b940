//! Changes members of JSON objects and elements of arrays in place: everything else stays the bytes it was,
//! spaces and escapes included.
//!
//! In: the text of one JSON value. Out: the same text where nothing was changed, else a text in which only the
//! changed members differ. Of members that stand twice the last one counts, and a change leaves only one.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::{RawJson, scan};

/// An object: its members in their order, values unread.
#[derive(Debug)]
pub struct Object<'a> {
    text: &'a str,
    members: Vec<Member<'a>>,
    added: Vec<(&'static str, Cow<'a, str>)>,
    changed: bool,
}

#[derive(Debug)]
struct Member<'a> {
    name: Cow<'a, str>,
    /// Where its name starts.
    start: usize,
    value: &'a str,
    fate: Fate<'a>,
}

#[derive(Debug)]
enum Fate<'a> {
    Stays,
    Becomes(Cow<'a, str>),
    Goes,
}

impl<'a> Object<'a> {
    /// Reads the members; `None` if the value is no object.
    pub fn read(text: &'a str) -> Option<Self> {
        let mut members = Vec::new();
        scan::each_as_written(text, |written, name, value| {
            members.push(Member { name: name?, start: offset(text, written), value, fate: Fate::Stays });
            Some(())
        })?;
        Some(Self { text, members, added: Vec::new(), changed: false })
    }

    /// The value of a member as it was read, whatever was changed since.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.members.iter().rev().find(|member| member.name == name).map(|member| member.value)
    }

    /// All names and values as they were read.
    pub fn members(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.members.iter().map(|member| (&*member.name, member.value))
    }

    /// Takes a member out.
    pub fn remove(&mut self, name: &str) {
        for member in self.members.iter_mut().filter(|member| member.name == name) {
            member.fate = Fate::Goes;
            self.changed = true;
        }
    }

    /// Puts a member in place: where it stood, or else at the end.
    pub fn set(&mut self, name: &'static str, value: impl Into<Cow<'a, str>>) {
        let value = value.into();
        self.added.retain(|(added, _)| *added != name);
        self.remove(name);
        self.changed = true;
        match self.members.iter_mut().rev().find(|member| member.name == name) {
            Some(member) => member.fate = Fate::Becomes(value),
            None => self.added.push((name, value)),
        }
    }

    /// Changes a member that is an object, and takes it out if nothing is left of what was not empty before. A
    /// member that is absent or no object stays as it is.
    pub fn within(&mut self, name: &'static str, change: impl FnOnce(&mut Object<'a>)) {
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

    /// Changes the values of members, whatever they are called: `None` leaves one as it is.
    pub fn each_member(&mut self, mut change: impl FnMut(&'a str) -> Option<String>) {
        for member in &mut self.members {
            if let Some(value) = change(member.value) {
                member.fate = Fate::Becomes(value.into());
                self.changed = true;
            }
        }
    }

    /// Whether no member is left.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.members.iter().all(|member| matches!(member.fate, Fate::Goes))
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
            fate: member.fate,
        });
        rewrite(self.text, '{', spans.collect(), &self.added).into()
    }
}

/// Changes the elements of an array: `None` leaves one as it is. What is no array stays as it is.
pub fn each<'a>(text: &'a str, mut change: impl FnMut(&'a str) -> Option<String>) -> Cow<'a, str> {
    let Some(elements) = elements(text) else {
        return text.into();
    };
    let mut changed = false;
    let spans = elements.into_iter().map(|element| {
        let start = offset(text, element);
        let fate = change(element).map_or(Fate::Stays, |new| Fate::Becomes(new.into()));
        changed |= matches!(fate, Fate::Becomes(_));
        Span { start, value: start, end: start + element.len(), fate }
    });
    let spans: Vec<_> = spans.collect();
    if changed { rewrite(text, '[', spans, &[]).into() } else { text.into() }
}

/// The elements of an array, unread; `None` if the value is none.
pub fn elements(text: &str) -> Option<Vec<&str>> {
    let Elements(elements) = serde_json::from_str(text).ok()?;
    Some(elements.into_iter().map(RawValue::get).collect())
}

/// A piece of an object or array: a name and a value, or a value alone.
struct Span<'a> {
    start: usize,
    value: usize,
    end: usize,
    fate: Fate<'a>,
}

fn rewrite(text: &str, open: char, spans: Vec<Span<'_>>, added: &[(&'static str, Cow<'_, str>)]) -> String {
    let opened = text.find(open).map_or(0, |at| at + 1);
    let head = spans.first().map_or(opened, |span| span.start);
    let tail = spans.last().map_or(opened, |span| span.end);
    let grown: usize = added.iter().map(|(name, value)| name.len() + value.len() + r#","":"#.len()).sum();
    let mut written = String::with_capacity(text.len() + 64 + grown);
    written.push_str(&text[..head]);
    let mut empty = true;
    // The gap in front of a piece holds its comma; the first piece that stays has none.
    let mut gap = head..head;
    for span in spans {
        gap.end = span.start;
        let next = span.end;
        if !matches!(span.fate, Fate::Goes) {
            if !empty {
                written.push_str(&text[gap]);
            }
            empty = false;
            written.push_str(&text[span.start..span.value]);
            match &span.fate {
                Fate::Becomes(value) => written.push_str(value),
                Fate::Stays | Fate::Goes => written.push_str(&text[span.value..span.end]),
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

/// The text of a value; empty, and so nothing that any rule knows, if it is not UTF-8.
pub fn text(json: &RawJson) -> &str {
    std::str::from_utf8(json.bytes()).unwrap_or_default()
}

/// What became of a value: itself, without copying, if its text is still the same.
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
    // Nearly nothing that is quoted here needs more than its marks.
    match text.bytes().all(is_plain) {
        true => ["\"", text, "\""].concat(),
        false => serde_json::Value::from(text).to_string(),
    }
}

/// What a JSON string says; `None` if it is none.
pub fn unquoted(text: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str(text).ok().map(|Name(name)| name)
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
    part.as_ptr() as usize - text.as_ptr() as usize
}

struct Elements<'a>(Vec<&'a RawValue>);

/// Borrowed unless it was written with escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

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
