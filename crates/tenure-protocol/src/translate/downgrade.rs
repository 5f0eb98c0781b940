//! Rewrites results for clients of older revisions.
//!
//! Clients ignore members that their revision does not have, so titles, icons, annotations, `_meta`, `$schema`,
//! keywords of schemas and messages of progress pass unchanged. Three things make clients fail and are rewritten:
//! content of a type that the revision lacks becomes text; a structured result that is not an object is removed, and
//! becomes text if there is no other content; an output schema that is not of an object is removed. `execution` of
//! tools is removed where the revision has no tasks.
//!
//! In: a result of any later revision. Out: the same bytes, unless something had to be rewritten.

use std::borrow::Cow;

use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::method::Method;
use crate::revision::Revision;
use crate::translate::features::Feature;

/// A result for a client of a revision.
pub fn result_for(method: &Method, result: &RawJson, revision: Revision) -> RawJson {
    let Some(mut object) = Object::read(object::text(result)) else {
        return result.clone();
    };
    let execution = if Feature::Tasks.is_in(revision) { Execution::Stays } else { Execution::Goes };
    rewrite(method, &mut object, revision, execution);
    object::kept(result, object.write())
}

/// Rewrites a result for a client of a revision.
pub(crate) fn rewrite(method: &Method, result: &mut Object<'_>, revision: Revision, execution: Execution) {
    match method {
        Method::ToolsCall => tool_result(result, revision),
        Method::PromptsGet => prompt_messages(result, revision),
        Method::ToolsList => tools(result, execution, OutputSchemas::OfObjects),
        _ => {}
    }
}

/// Whether `execution` is kept in a list of tools.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Execution {
    Stays,
    Goes,
}

/// Which output schemas stay in a list of tools.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputSchemas {
    Any,
    OfObjects,
}

/// Changes the tools in a result of `tools/list`.
pub(crate) fn tools(result: &mut Object<'_>, execution: Execution, schemas: OutputSchemas) {
    let change = |tool| {
        let mut tool = Object::read(tool)?;
        if execution == Execution::Goes {
            tool.remove("execution");
        }
        let of_object =
            |schema| Object::read(schema).is_some_and(|schema| schema.get("type") == Some(r#""object""#));
        if schemas == OutputSchemas::OfObjects && tool.get("outputSchema").is_some_and(|it| !of_object(it)) {
            tool.remove("outputSchema");
        }
        rewritten(tool.write())
    };
    if let Some(Cow::Owned(tools)) = result.get("tools").map(|tools| object::each(tools, change)) {
        result.set("tools", tools);
    }
}

fn tool_result(result: &mut Object<'_>, revision: Revision) {
    if has_unknown_content(revision)
        && let Some(content) = result.get("content")
        && let Cow::Owned(content) = object::each(content, |block| block_for(block, revision))
    {
        result.set("content", content);
    }
    let Some(structured) = result.get("structuredContent").filter(|value| !object::is_object(value)) else {
        return;
    };
    result.remove("structuredContent");
    let says_nothing =
        result.get("content").and_then(object::elements).is_none_or(|blocks| blocks.is_empty());
    if says_nothing {
        result.set("content", format!("[{}]", text_block(structured, None)));
    }
}

fn prompt_messages(result: &mut Object<'_>, revision: Revision) {
    if !has_unknown_content(revision) {
        return;
    }
    let change = |message| {
        let mut message = Object::read(message)?;
        let block = message.get("content").and_then(|content| block_for(content, revision))?;
        message.set("content", block);
        rewritten(message.write())
    };
    if let Some(Cow::Owned(messages)) = result.get("messages").map(|messages| object::each(messages, change))
    {
        result.set("messages", messages);
    }
}

/// Whether the revision lacks a type of content. If not, content is not parsed, because it may be large.
fn has_unknown_content(revision: Revision) -> bool {
    !(Feature::Audio.is_in(revision) && Feature::ResourceLinks.is_in(revision))
}

/// A block of content, rewritten for a peer of a revision; `None` if it needs no change. Types that no revision defines
/// pass unchanged.
pub(crate) fn block_for(text: &str, revision: Revision) -> Option<String> {
    let block = Object::read(text)?;
    let member = |name: &str| block.get(name).and_then(object::unquoted);
    match &*member("type")? {
        "audio" if !Feature::Audio.is_in(revision) => {
            let kind = member("mimeType").unwrap_or("unknown type".into());
            let bytes = member("data").map_or(0, |data| data.trim_end_matches('=').len() * 3 / 4);
            let words = format!("[Audio, {kind}, {bytes} bytes: this client's protocol version has none]");
            Some(text_block(&words, Some(&block)))
        }
        "resource_link" if !Feature::ResourceLinks.is_in(revision) => {
            let uri = member("uri").unwrap_or_default();
            let mut words = match member("title").or_else(|| member("name")) {
                Some(name) => format!("{name}: {uri}"),
                None => uri.into_owned(),
            };
            if let Some(description) = member("description") {
                words = format!("{words}\n{description}");
            }
            Some(text_block(&words, Some(&block)))
        }
        _ => None,
    }
}

/// A text block with the annotations and `_meta` of the block that it replaces.
fn text_block(words: &str, instead_of: Option<&Object<'_>>) -> String {
    let mut block = format!(r#"{{"type":"text","text":{}"#, object::quoted(words));
    for name in ["annotations", "_meta"] {
        if let Some(value) = instead_of.and_then(|block| block.get(name)) {
            block += &format!(r#","{name}":{value}"#);
        }
    }
    block.push('}');
    block
}

fn rewritten(text: Cow<'_, str>) -> Option<String> {
    match text {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the result for each revision; `=` means unchanged.
    fn check(method: &Method, result: &'static str, expected: [&str; 4]) {
        for (revision, expected) in Revision::ALL.into_iter().zip(expected) {
            let json = RawJson::trusted(result);
            let shaped = result_for(method, &json, revision);
            assert_eq!(object::text(&shaped), if expected == "=" { result } else { expected }, "{revision}");
            if expected == "=" {
                assert_eq!(shaped.bytes().as_ptr(), json.bytes().as_ptr(), "copied for nothing");
            }
        }
    }

    #[test]
    fn content_of_tools() {
        let call = Method::ToolsCall;
        check(
            &call,
            r#"{ "content": [{"type":"text","text":"\u00e9"}, {"type":"image","data":"","mimeType":"i"},{"type":"resource","resource":{"uri":"a:b","text":"t"}}] }"#,
            ["=", "=", "=", "="],
        );
        let audio = r#"{"content":[{"type":"text","text":"a"} , {"type":"audio","mimeType":"audio/wav","data":"AAAA","annotations":{"priority":1}}],"isError":false}"#;
        let as_text = r#"{"content":[{"type":"text","text":"a"} , {"type":"text","text":"[Audio, audio/wav, 3 bytes: this client's protocol version has none]","annotations":{"priority":1}}],"isError":false}"#;
        check(&call, audio, [as_text, "=", "=", "="]);
        let link = r#"{"content":[{"type":"resource_link","uri":"a:b","name":"n","description":"d"}]}"#;
        let as_text = r#"{"content":[{"type":"text","text":"n: a:b\nd"}]}"#;
        check(&call, link, [as_text, as_text, "=", "="]);
        check(&call, r#"{"content":[{"type":"hologram"},7]}"#, ["=", "=", "=", "="]);
    }

    #[test]
    fn structured_content() {
        let call = Method::ToolsCall;
        check(&call, r#"{"content":[],"structuredContent":{"a":1.50}}"#, ["=", "=", "=", "="]);
        let with_text = r#"{"content":[{"type":"text","text":"7"}],"structuredContent":[7],"isError":false}"#;
        check(&call, with_text, [r#"{"content":[{"type":"text","text":"7"}],"isError":false}"#; 4]);
        for (alone, expected) in [
            (
                r#"{"content":[],"structuredContent":[7, "x"]}"#,
                r#"{"content":[{"type":"text","text":"[7, \"x\"]"}]}"#,
            ),
            (r#"{"structuredContent":null}"#, r#"{"content":[{"type":"text","text":"null"}]}"#),
        ] {
            check(&call, alone, [expected; 4]);
        }
    }

    #[test]
    fn tools_in_a_list() {
        let list = Method::ToolsList;
        check(
            &list,
            r#"{"tools":[{"name":"t","title":"T","icons":[],"annotations":{},"_meta":{},"inputSchema":{"type":"object","$schema":"s","oneOf":[]},"outputSchema":{"type":"object"}}]}"#,
            ["=", "=", "=", "="],
        );
        check(
            &list,
            r#"{"tools":[{"name":"t", "outputSchema":{"type":"array"}, "inputSchema":{}},{"name":"u","outputSchema":{"anyOf":[]}}],"nextCursor":"c"}"#,
            [r#"{"tools":[{"name":"t", "inputSchema":{}},{"name":"u"}],"nextCursor":"c"}"#; 4],
        );
        let without = r#"{"tools":[{"name":"t"}]}"#;
        check(
            &list,
            r#"{"tools":[{"name":"t","execution":{"taskSupport":"optional"}}]}"#,
            [without, without, without, "="],
        );
    }

    #[test]
    fn messages_of_prompts() {
        let link = r#"{"description":"d","messages":[{"role":"user","content":{"type":"resource_link","uri":"a:b","name":"n","title":"T"}},{"role":"user","content":{"type":"text","text":"x"}}]}"#;
        let as_text = r#"{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"T: a:b"}},{"role":"user","content":{"type":"text","text":"x"}}]}"#;
        check(&Method::PromptsGet, link, [as_text, as_text, "=", "="]);
    }

    #[test]
    fn what_older_clients_ignore_is_left_alone() {
        let table = [
            (
                Method::ResourcesList,
                r#"{"resources":[{"uri":"a:b","name":"n","title":"T","icons":[],"_meta":{}}]}"#,
            ),
            (Method::PromptsList, r#"{"prompts":[{"name":"n","title":"T","icons":[]}]}"#),
            (Method::CompletionComplete, r#"{"completion":{"values":["audio"]}}"#),
            (Method::ResourcesRead, r#"{"contents":[{"uri":"a:b","blob":"AAAA"}]}"#),
            (Method::ToolsCall, "[]"),
            (Method::ToolsCall, r#"{"content":7}"#),
        ];
        for (method, result) in table {
            check(&method, result, ["=", "=", "=", "="]);
        }
    }
}
