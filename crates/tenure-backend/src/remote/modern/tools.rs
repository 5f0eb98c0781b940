//! Which arguments of which tools are repeated in headers, by the server's last list of tools for each caller.
//!
//! Learned from every list of tools that passes. A tool with invalid annotations cannot be called as the server
//! intends, so it is removed from the list; all other bytes of the list stay as they are. Kept per caller, since a
//! server may show each caller different tools. Bounded: a forgotten tool is learned again when the server misses a
//! header.

use bytes::BytesMut;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenure_protocol::keys::{CAPABILITIES, CLIENT, META_VERSION};
use tenure_protocol::modern::{HeaderParams, Meta};
use tenure_protocol::{Method, RawJson, Request};
use tenure_session::Principal;

use super::headers::text;

/// Most tools with arguments in headers that are remembered, over all callers. When there are more, all are forgotten.
const REMEMBERED: usize = 16_384;

#[derive(Default)]
pub(super) struct ToolHeaders(Mutex<HashMap<(Principal, Box<str>), HeaderParams>>);

/// A page of a list of tools.
#[derive(Deserialize)]
struct ToolsPage<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct ToolName {
    name: String,
}

impl ToolHeaders {
    /// The header params of the called tool, if they are known.
    pub(super) fn of_call(&self, principal: &Principal, call: &Request) -> Option<HeaderParams> {
        if call.method != Method::ToolsCall {
            return None;
        }
        let known = self.0.lock();
        // Fast path: hardly any server has such tools.
        if known.is_empty() {
            return None;
        }
        known.get(&(principal.clone(), text(call, "name")?.into())).cloned()
    }

    /// Learns from a caller's list, and returns it without the tools that have invalid annotations.
    pub(super) fn learn(&self, principal: &Principal, list: &RawJson, place: &str) -> RawJson {
        let Ok(page) = list.read::<ToolsPage<'_>>() else { return list.clone() };
        let mut senseless = Vec::new();
        for (at, tool) in page.tools.iter().enumerate() {
            let Ok(ToolName { name }) = serde_json::from_str(tool.get()) else { continue };
            match HeaderParams::of_tool(&RawJson::trusted(list.bytes().slice_ref(tool.get().as_bytes()))) {
                Ok(params) => self.keep(principal, name, params),
                Err(nonsense) => {
                    tracing::warn!(
                        url = place, tool = name, %nonsense,
                        "removed a tool of the server upstream that has invalid annotations"
                    );
                    senseless.push(at);
                }
            }
        }
        if senseless.is_empty() { list.clone() } else { without(list, &page.tools, &senseless) }
    }

    fn keep(&self, principal: &Principal, name: String, params: HeaderParams) {
        let mut known = self.0.lock();
        let key = (principal.clone(), name.into_boxed_str());
        if params.is_empty() {
            known.remove(&key);
            return;
        }
        if known.len() >= REMEMBERED && !known.contains_key(&key) {
            known.clear();
        }
        known.insert(key, params);
    }
}

/// The list without some of its tools.
fn without(list: &RawJson, tools: &[&RawValue], senseless: &[usize]) -> RawJson {
    let text = list.bytes();
    let start = |at: usize| tools[at].get().as_ptr().addr() - text.as_ptr().addr();
    let end = |at: usize| start(at) + tools[at].get().len();
    let last = tools.len() - 1;
    let mut kept = BytesMut::with_capacity(text.len());
    kept.extend_from_slice(&text[..start(0)]);
    let mut is_first = true;
    for at in (0..tools.len()).filter(|at| !senseless.contains(at)) {
        // Keep the separator in front of it, which contains the comma.
        let from = if is_first { start(at) } else { end(at - 1) };
        kept.extend_from_slice(&text[from..end(at)]);
        is_first = false;
    }
    kept.extend_from_slice(&text[end(last)..]);
    RawJson::trusted(kept.freeze())
}

/// The params of a `tools/list` on behalf of the client whose `_meta` this is.
pub(super) fn listing(meta: &Meta, cursor: Option<&str>) -> RawJson {
    #[derive(Serialize)]
    struct ToolsListParams<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        cursor: Option<&'a str>,
        #[serde(rename = "_meta")]
        meta: serde_json::Map<String, serde_json::Value>,
    }
    let mut said = serde_json::Map::new();
    said.insert(META_VERSION.to_owned(), meta.version.clone().into());
    for (name, value) in [(CAPABILITIES, Some(meta.capabilities.raw())), (CLIENT, meta.info.as_ref())] {
        if let Some(value) = value.and_then(|value| value.read().ok()) {
            said.insert(name.to_owned(), value);
        }
    }
    RawJson::of(&ToolsListParams { cursor, meta: said })
}

/// Whether a page contains the called tool.
pub(super) fn names(page: &RawJson, call: &Request) -> bool {
    let Ok(page) = page.read::<ToolsPage<'_>>() else { return false };
    let Some(wanted) = text(call, "name") else { return false };
    page.tools
        .iter()
        .any(|tool| serde_json::from_str(tool.get()).is_ok_and(|ToolName { name }| name == wanted))
}

/// The cursor of the next page, if there is one.
pub(super) fn next_page(page: &RawJson) -> Option<String> {
    #[derive(Deserialize)]
    struct Next {
        #[serde(rename = "nextCursor")]
        next: Option<String>,
    }
    page.read::<Next>().ok()?.next
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{ "name":"g","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"R"}}}, "x":1.0}"#;
    const BAD: &str = r#"{"name":"b","inputSchema":{"type":"object","properties":{"r":{"type":"number","x-mcp-header":"R"}}}}"#;
    const PLAIN: &str = r#"{"name":"p","inputSchema":{"type":"object"}}"#;

    fn learned(tools: &ToolHeaders, list: &str) -> String {
        let list = tools.learn(&Principal::ANONYMOUS, &RawJson::parse(list.to_owned()).unwrap(), "here");
        String::from_utf8(list.bytes().to_vec()).unwrap()
    }

    #[test]
    fn only_tools_that_make_no_sense_go_and_the_rest_stays_byte_for_byte() {
        let table = [
            (format!("{GOOD} , {BAD},\n{PLAIN}"), format!("{GOOD},\n{PLAIN}")),
            (format!("{BAD}, {GOOD}"), GOOD.to_owned()),
            (format!("{GOOD} ,{BAD}"), GOOD.to_owned()),
            (format!("{BAD},{BAD}"), String::new()),
            (format!("{BAD},{PLAIN},{BAD},{BAD} , {GOOD}"), format!("{PLAIN} , {GOOD}")),
            (format!("{GOOD},{PLAIN}"), format!("{GOOD},{PLAIN}")),
        ];
        for (tools, kept) in table {
            let list = |tools: &str| format!(r#"{{ "ttlMs" : 0, "tools":[ {tools} ],"nextCursor":"c" }}"#);
            assert_eq!(learned(&ToolHeaders::default(), &list(&tools)), list(&kept), "{tools}");
        }
        for strange in [r#"{"tools":7}"#, "[]", "{}", r#"{"tools":[]}"#, r#"{"tools":[1,{"name":2}]}"#] {
            assert_eq!(learned(&ToolHeaders::default(), strange), strange);
        }
    }

    #[test]
    fn a_caller_knows_what_it_was_told_last() {
        let call = Request {
            id: tenure_protocol::RequestId::from_number(1),
            method: Method::ToolsCall,
            params: Some(RawJson::trusted(r#"{"name":"g","arguments":{"r":"x"}}"#)),
        };
        let tools = ToolHeaders::default();
        assert_eq!(tools.of_call(&Principal::ANONYMOUS, &call), None);
        learned(&tools, &format!(r#"{{"tools":[{GOOD}]}}"#));
        let known = tools.of_call(&Principal::ANONYMOUS, &call).unwrap();
        assert_eq!(known.headers_for(call.params.as_ref()), [("Mcp-Param-R", "x".to_owned())]);
        assert_eq!(tools.of_call(&Principal::named("other"), &call), None, "callers do not share");
        learned(&tools, r#"{"tools":[{"name":"g","inputSchema":{"type":"object"}}]}"#);
        assert_eq!(tools.of_call(&Principal::ANONYMOUS, &call), None);
    }
}
