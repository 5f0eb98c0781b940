//! Which tools of a session's server are called as tasks.
//!
//! A server that has tasks says of each tool whether it can, must or must not become one. That is looked up before the
//! first call, for everybody who shares a session, and believed until the server says that its tools changed, or for
//! a few minutes. A server that answers that it does not know the tool like this is asked anew.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::modern::capability::{Capabilities, Capability};
use tenure_protocol::translate::tasks::{self, Support};
use tenure_protocol::{Method, RawJson, Request, params};
use tenure_session::call::CallContext;
use tenure_session::id::Route;
use tokio::time::Instant;

use crate::bridge::modern_client::pool::{Key, Lease};
use crate::bridge::modern_client::pooled_session::Slot;

/// How long a list is believed: nobody may have been there to hear that it changed.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);
/// How many lists are kept.
const MAX_KEPT: usize = 1024;
/// How many pages of tools are looked through.
const MAX_PAGES: usize = 20;

/// How a call is sent to a session's server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    /// As one that is answered.
    Plain,
    /// As one that the server makes a task of.
    Task,
}

/// The tools that can be called as tasks, of all servers with tasks.
#[derive(Default)]
pub(super) struct Supports(Mutex<HashMap<Key, Tools>>);

struct Tools {
    /// Without those that cannot.
    supported: HashMap<String, Support>,
    until: Instant,
}

impl Supports {
    /// How a request is sent in the session that it was given.
    ///
    /// # Cancel safety
    /// Nothing is learnt then.
    pub(super) async fn manner(&self, lease: &Lease, request: &Request, context: &CallContext) -> Manner {
        let slot = lease.slot();
        if !slot.has_tasks() || request.method != Method::ToolsCall {
            return Manner::Plain;
        }
        let Some(tool) = params::tool_name(request.params.as_ref()) else { return Manner::Plain };
        let support = match self.of(&slot.seat.key, &tool) {
            Some(support) => support,
            None => {
                self.look_up(slot).await;
                self.of(&slot.seat.key, &tool).unwrap_or(Support::Forbidden)
            }
        };
        match support {
            Support::Required => Manner::Task,
            Support::Optional if knows_tasks(context) => Manner::Task,
            Support::Optional | Support::Forbidden => Manner::Plain,
        }
    }

    /// The tools at an endpoint changed.
    pub(super) fn forget(&self, route: &Route) {
        self.0.lock().retain(|key, _| key.route != *route);
    }

    /// What is known of a tool; `None` if the tools are not known.
    fn of(&self, key: &Key, tool: &str) -> Option<Support> {
        let known = self.0.lock();
        let tools = known.get(key).filter(|tools| Instant::now() < tools.until)?;
        Some(tools.supported.get(tool).copied().unwrap_or(Support::Forbidden))
    }

    async fn look_up(&self, slot: &Arc<Slot>) {
        let mut supported = HashMap::new();
        let mut page = RawJson::EMPTY_OBJECT;
        for _ in 0..MAX_PAGES {
            let Ok(listed) = slot.inquire(&Method::ToolsList, page).await else { return };
            let (tools, next) = tasks::listed(&listed);
            supported.extend(tools.into_iter().filter(|(_, support)| *support != Support::Forbidden));
            let Some(next) = next else { break };
            page = RawJson::of(&serde_json::json!({ "cursor": next }));
        }
        let now = Instant::now();
        let mut known = self.0.lock();
        if known.len() >= MAX_KEPT {
            known.retain(|_, tools| now < tools.until);
        }
        if known.len() >= MAX_KEPT {
            known.clear();
        }
        known.insert(slot.seat.key.clone(), Tools { supported, until: now + MAX_AGE });
    }
}

/// Whether a client can come back for the outcome of a call.
fn knows_tasks(context: &CallContext) -> bool {
    Capabilities::parse(context.capabilities()).is_some_and(|it| it.has(&Capability::TASKS))
}
