//! Rewrites a modern server's question for a client of a legacy revision.
//!
//! In: the question, and the client's capabilities and revision. Out: the params of the request to the client, or the
//! reason why the client cannot be asked. "none" in the table means that the revision cannot express the question.
//!
//! | question | 2025-11-25 | 2025-06-18 | before |
//! |---|---|---|---|
//! | a form | as it is | without its mode | none |
//! | a choice with titles (`oneOf`) | as it is | `enum` with `enumNames` | none |
//! | a choice of several (`array`) | as it is | none | none |
//! | a URL | with an id | none | none |
//! | sampling with tools | as it is | none | none |
//! | a message with a list of content | as it is | a message for each | a message for each |
//! | audio | as it is | as it is | text before 2025-03-26 |
//! | roots | as it is | as it is | as it is |

use std::borrow::Cow;

use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::method::Method;
use crate::revision::Revision;
use crate::translate::capabilities::Relayed;
use crate::translate::downgrade::block_for;
use crate::translate::features::Feature;
use crate::translate::questions::{Question, is_url};

/// The params of the request that puts a question to a client. `elicitation_id` is a new id for an elicitation by URL:
/// sessions require one, modern servers send none, and no completion notification will follow.
///
/// # Errors
/// When the client did not declare the capability, or its revision cannot express the question.
pub fn params_for(
    question: &Question,
    relayed: Relayed,
    revision: Revision,
    elicitation_id: &str,
) -> Result<Option<RawJson>, &'static str> {
    if !relayed.allows(question) {
        return Err("the client does not offer it");
    }
    let Some((params, mut object)) =
        question.params.as_ref().and_then(|params| Some((params, Object::read(object::text(params))?)))
    else {
        return Ok(question.params.clone());
    };
    match question.method {
        Method::ElicitationCreate if is_url(question) => {
            object.set("elicitationId", object::quoted(elicitation_id));
        }
        Method::ElicitationCreate => form(&mut object, revision)?,
        Method::SamplingCreateMessage if !Feature::SamplingTools.is_in(revision) => {
            messages(&mut object, revision)?;
        }
        _ => {}
    }
    Ok(Some(object::kept(params, object.write())))
}

fn form(object: &mut Object<'_>, revision: Revision) -> Result<(), &'static str> {
    if object.get("mode").is_some_and(|mode| mode != r#""form""#) {
        return Err("the client knows no such mode of elicitation");
    }
    if !Feature::UrlElicitation.is_in(revision) {
        object.remove("mode");
    }
    if Feature::RichChoices.is_in(revision) {
        return Ok(());
    }
    let mut lost = false;
    object.within("requestedSchema", |schema| {
        schema.within("properties", |properties| {
            properties.each_member(|property| {
                let property = Object::read(property)?;
                lost |= property.get("type") == Some(r#""array""#);
                plain_choice(property)
            });
        });
    });
    if lost { Err("the client's protocol version has no choices of several") } else { Ok(()) }
}

/// A choice with titles in the form of 2025-06-18. The values are the same, so the answer needs no translation.
fn plain_choice(mut property: Object<'_>) -> Option<String> {
    let choices = property.get("oneOf").and_then(object::elements)?;
    let choices: Option<Vec<_>> = choices.into_iter().map(Object::read).collect();
    let choices = choices?;
    let values: Option<Vec<_>> = choices.iter().map(|choice| choice.get("const")).collect();
    let values = values?.join(",");
    let title = |choice: &Object<'_>| choice.get("title").or_else(|| choice.get("const")).map(str::to_owned);
    let titles = choices.iter().filter_map(title).collect::<Vec<_>>().join(",");
    property.remove("oneOf");
    property.set("enum", format!("[{values}]"));
    property.set("enumNames", format!("[{titles}]"));
    Some(property.write().into_owned())
}

fn messages(object: &mut Object<'_>, revision: Revision) -> Result<(), &'static str> {
    let Some(messages) = object.get("messages").and_then(object::elements) else {
        return Ok(());
    };
    let mut changed = false;
    let mut written = Vec::with_capacity(messages.len());
    for text in messages {
        match split(text, revision)? {
            None => written.push(Cow::Borrowed(text)),
            Some(parts) => {
                changed = true;
                written.extend(parts.into_iter().map(Cow::Owned));
            }
        }
    }
    if changed {
        object.set("messages", format!("[{}]", written.join(",")));
    }
    Ok(())
}

/// Splits a message into one message per block of content; `None` if it needs no change. Other members of the message
/// go only into the first one. A message without content becomes no message.
fn split(text: &str, revision: Revision) -> Result<Option<Vec<String>>, &'static str> {
    let Some(mut message) = Object::read(text) else {
        return Ok(None);
    };
    let (Some(content), Some(role @ (r#""user""# | r#""assistant""#))) =
        (message.get("content"), message.get("role"))
    else {
        return Ok(None);
    };
    let listed = object::elements(content);
    let blocks = listed.as_deref().unwrap_or(std::slice::from_ref(&content));
    for block in blocks {
        let kind = Object::read(block).and_then(|block| block.get("type"));
        if matches!(kind, Some(r#""tool_use""# | r#""tool_result""#)) {
            return Err("the client's protocol version has no tools in sampling");
        }
    }
    let known = |block: &&str| block_for(block, revision).unwrap_or_else(|| (*block).to_owned());
    let Some((first, others)) = blocks.split_first() else {
        return Ok(Some(Vec::new()));
    };
    if listed.is_none() && block_for(first, revision).is_none() {
        return Ok(None);
    }
    message.set("content", known(first));
    let mut parts = vec![message.write().into_owned()];
    parts.extend(others.iter().map(|block| format!(r#"{{"role":{role},"content":{}}}"#, known(block))));
    Ok(Some(parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the question for each revision; `=` means unchanged, `!` that the client cannot be asked.
    fn check(method: &Method, params: &'static str, expected: [&str; 4]) {
        let all = r#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}"#;
        for (revision, expected) in Revision::ALL.into_iter().zip(expected) {
            let relayed = Relayed::of_session(&RawJson::trusted(all), revision);
            let question = Question {
                key: "k".to_owned(),
                method: method.clone(),
                params: Some(RawJson::trusted(params)),
            };
            let asked = params_for(&question, relayed, revision, "id-1");
            let asked = asked.map(|params| object::text(&params.unwrap()).to_owned());
            match expected {
                "!" => assert!(asked.is_err(), "{revision}: {asked:?}"),
                "=" => assert_eq!(asked.as_deref(), Ok(params), "{revision}"),
                expected => assert_eq!(asked.as_deref(), Ok(expected), "{revision}"),
            }
        }
    }

    #[test]
    fn elicitation() {
        let create = &Method::ElicitationCreate;
        check(
            create,
            r#"{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","enum":["x"],"default":"x"}}}}"#,
            ["!", "!", "=", "="],
        );
        check(create, r#"{"mode":"form", "message":"m"}"#, ["!", "!", r#"{"message":"m"}"#, "="]);
        check(
            create,
            r#"{"mode":"url","message":"m","url":"u"}"#,
            ["!", "!", "!", r#"{"mode":"url","message":"m","url":"u","elicitationId":"id-1"}"#],
        );
        check(create, r#"{"mode":"voice","message":"m"}"#, ["!", "!", "!", "!"]);
        check(
            create,
            r#"{"message":"m","requestedSchema":{"properties":{"a":{"type":"string", "oneOf":[{"const":"x","title":"X \u00e9"},{"const":"y"}], "default":"x"},"b":{ "type":"number" }}}}"#,
            [
                "!",
                "!",
                r#"{"message":"m","requestedSchema":{"properties":{"a":{"type":"string", "default":"x","enum":["x","y"],"enumNames":["X \u00e9","y"]},"b":{ "type":"number" }}}}"#,
                "=",
            ],
        );
        check(
            create,
            r#"{"message":"m","requestedSchema":{"properties":{"a":{"type":"array","items":{"enum":["x"]}}}}}"#,
            ["!", "!", "!", "="],
        );
    }

    #[test]
    fn sampling() {
        let create = &Method::SamplingCreateMessage;
        check(
            create,
            r#"{"messages":[ {"role":"user","content":{"type":"text","text":"a"}} ],"maxTokens":1}"#,
            ["=", "=", "=", "="],
        );
        check(create, r#"{"messages":[],"tools":[]}"#, ["!", "!", "!", "="]);
        check(
            create,
            r#"{"messages":[{"role":"user","content":[{"type":"tool_result","toolUseId":"1","content":[]}]}]}"#,
            ["!", "!", "!", "="],
        );
        let split = r#"{"messages":[{"role":"user","content":{"type":"text","text":"a"},"_meta":{}},{"role":"user","content":{"type":"text","text":"b"}},{"role":"assistant","content":{"type":"text","text":"c"}}]}"#;
        check(
            create,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"_meta":{}},{"role":"assistant","content":{"type":"text","text":"c"}}]}"#,
            [split, split, split, "="],
        );
        let emptied = r#"{"messages":[{"role":"assistant","content":{"type":"text","text":"c"}}]}"#;
        check(
            create,
            r#"{"messages":[{"role":"user","content":[]},{"role":"assistant","content":{"type":"text","text":"c"}}]}"#,
            [emptied, emptied, emptied, "="],
        );
        check(
            create,
            r#"{"messages":[{"role":"user","content":{"type":"audio","data":"AAAA","mimeType":"a/b"}}]}"#,
            [
                r#"{"messages":[{"role":"user","content":{"type":"text","text":"[Audio, a/b, 3 bytes: this client's protocol version has none]"}}]}"#,
                "=",
                "=",
                "=",
            ],
        );
    }

    #[test]
    fn roots() {
        check(&Method::RootsList, r#"{ "_meta":{} }"#, ["=", "=", "=", "="]);
        let question = Question { key: "k".to_owned(), method: Method::RootsList, params: None };
        let relayed = Relayed::of_exchange(&RawJson::trusted(r#"{"roots":{}}"#));
        assert_eq!(params_for(&question, relayed, Revision::LATEST, "i"), Ok(None));
        assert!(params_for(&question, Relayed::default(), Revision::LATEST, "i").is_err());
    }
}
