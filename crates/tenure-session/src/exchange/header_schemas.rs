//! Remembers which tool arguments also appear in headers, from the latest tool lists.
//!
//! The server is not asked for this: it is learned from the `tools/list` answers to clients. Calls of a tool that was
//! not listed yet are not checked. The check only matters for proxies that route by headers.

use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_protocol::json::members::{self, MemberLookup};
use tenure_protocol::modern::header_params::HeaderParams;
use tenure_protocol::{Error, RawJson, Request, params};

use crate::id::{Principal, Route};

/// The most callers whose lists are remembered, and the most tools of each. Others are not checked.
const MAX_CALLERS: usize = 1000;
const MAX_TOOLS: usize = 1000;

/// The tools with such arguments, by endpoint and caller, because each may get another list.
#[derive(Default)]
pub(super) struct Catalog {
    /// Whether there is any such tool. Almost no server has one, so this makes the common case cheap.
    any: AtomicBool,
    tools: Mutex<HashMap<(Route, Principal), Tools>>,
}

type Tools = HashMap<Box<str>, HeaderParams>;

impl Catalog {
    /// Learns from the answer to a `tools/list`.
    pub(super) fn learn(&self, request: &Request, route: &Route, principal: &Principal, result: &RawJson) {
        #[derive(Deserialize)]
        struct List<'a> {
            #[serde(borrow, default)]
            tools: Vec<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Tool<'a> {
            #[serde(borrow)]
            name: std::borrow::Cow<'a, str>,
        }
        let annotated = memchr::memmem::find(result.bytes(), b"x-mcp-header").is_some()
            || memchr::memmem::find(result.bytes(), br"\u").is_some();
        if !annotated && !self.any.load(Ordering::Relaxed) {
            return;
        }
        let Ok(list) = result.read::<List<'_>>() else { return };
        let is_first = request
            .params
            .as_ref()
            .is_none_or(|params| matches!(members::find(params.bytes(), "cursor"), MemberLookup::Absent));
        let mut all = self.tools.lock();
        let key = (route.clone(), principal.clone());
        if !all.contains_key(&key) && all.len() >= MAX_CALLERS {
            return;
        }
        let tools = all.entry(key).or_default();
        if is_first {
            tools.clear();
        }
        for tool in list.tools {
            let Ok(Tool { name }) = serde_json::from_str(tool.get()) else { continue };
            // A tool with invalid annotations is not checked.
            let params = HeaderParams::of_tool(&RawJson::trusted(tool.get().to_owned())).unwrap_or_default();
            if params.is_empty() {
                tools.remove(&*name);
            } else if tools.len() < MAX_TOOLS {
                tools.insert(name.into(), params);
            }
        }
        all.retain(|_, tools| !tools.is_empty());
        self.any.store(!all.is_empty(), Ordering::Relaxed);
    }

    /// Checks the headers of a `tools/call`.
    pub(super) fn check(
        &self,
        request: &Request,
        route: &Route,
        principal: &Principal,
        headers: &[(Box<str>, Box<str>)],
    ) -> Result<(), Error> {
        if !self.any.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(name) = params::tool_name(request.params.as_ref()) else { return Ok(()) };
        let all = self.tools.lock();
        let params = all.get(&(route.clone(), principal.clone())).and_then(|tools| tools.get(&*name));
        params.map_or(Ok(()), |params| params.check(request.params.as_ref(), headers))
    }

    /// Forgets the lists of an endpoint, because its tools changed.
    pub(super) fn forget(&self, route: &Route) {
        if self.any.load(Ordering::Relaxed) {
            let mut all = self.tools.lock();
            all.retain(|(of, _), _| of != route);
            self.any.store(!all.is_empty(), Ordering::Relaxed);
        }
    }
}
