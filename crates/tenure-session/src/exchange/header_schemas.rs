//! Which arguments of which tools stand in headers too, as the tools were last listed.
//!
//! Nobody asks the server for it: it is learned from the lists that clients get. A tool that was not listed yet is
//! not checked; nothing depends on it but whoever routes by headers.

use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_protocol::json::members::{self, Found};
use tenure_protocol::modern::header_params::HeaderParams;
use tenure_protocol::{Error, RawJson, Request, params};

use crate::id::{Principal, Route};

/// Callers whose lists are remembered, and tools of each. More are not checked.
const MAX_CALLERS: usize = 1000;
const MAX_TOOLS: usize = 1000;

/// The tools with such arguments, by endpoint and caller, since lists may differ between them.
#[derive(Default)]
pub(super) struct Catalog {
    /// Whether there is any; nearly no server has one.
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
            .is_none_or(|params| matches!(members::find(params.bytes(), "cursor"), Found::Absent));
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
            // A tool whose annotations make no sense has none that could be checked.
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

    /// The lists of an endpoint changed.
    pub(super) fn forget(&self, route: &Route) {
        if self.any.load(Ordering::Relaxed) {
            let mut all = self.tools.lock();
            all.retain(|(of, _), _| of != route);
            self.any.store(!all.is_empty(), Ordering::Relaxed);
        }
    }
}
