//! Cache of which tools of a session's server are called as tasks.
//!
//! A server that has tasks declares for each tool whether a call can, must or must not become one. The first call reads
//! the list of tools, once per pool key. The entry holds until the server reports that its tools changed, or for a few
//! minutes. If the server answers "method not found" to a call, the list is read again.

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

use crate::bridge::modern_client::pool::{Lease, PoolKey};
use crate::bridge::modern_client::pooled_session::PooledSession;

/// How long a list is kept: no session may have been open to receive the news that it changed.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);
/// How many lists are kept.
const MAX_KEPT: usize = 1024;
/// How many pages of tools are looked through.
const MAX_PAGES: usize = 20;

/// How a call is sent to a session's server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallMode {
    /// The server answers the call itself.
    Plain,
    /// The server makes a task of the call.
    Task,
}

/// The tools that can be called as tasks, of all servers with tasks.
#[derive(Default)]
pub(super) struct TaskSupportCache(Mutex<HashMap<PoolKey, ToolSupport>>);

struct ToolSupport {
    /// Without the tools that forbid tasks.
    supported: HashMap<String, Support>,
    until: Instant,
}

impl TaskSupportCache {
    /// How a request is sent in the session that it leases.
    ///
    /// # Cancel safety
    /// The cache stays as it was.
    pub(super) async fn mode(&self, lease: &Lease, request: &Request, context: &CallContext) -> CallMode {
        let session = lease.session();
        if !session.has_tasks() || request.method != Method::ToolsCall {
            return CallMode::Plain;
        }
        let Some(tool) = params::tool_name(request.params.as_ref()) else { return CallMode::Plain };
        let support = match self.of(&session.client.key, &tool) {
            Some(support) => support,
            None => {
                self.look_up(session).await;
                self.of(&session.client.key, &tool).unwrap_or(Support::Forbidden)
            }
        };
        match support {
            Support::Required => CallMode::Task,
            Support::Optional if knows_tasks(context) => CallMode::Task,
            Support::Optional | Support::Forbidden => CallMode::Plain,
        }
    }

    /// Forgets the tools at an endpoint, because they changed.
    pub(super) fn forget(&self, route: &Route) {
        self.0.lock().retain(|key, _| key.route != *route);
    }

    /// The support of a tool; `None` if the tools are not cached.
    fn of(&self, key: &PoolKey, tool: &str) -> Option<Support> {
        let known = self.0.lock();
        let tools = known.get(key).filter(|tools| Instant::now() < tools.until)?;
        Some(tools.supported.get(tool).copied().unwrap_or(Support::Forbidden))
    }

    async fn look_up(&self, session: &Arc<PooledSession>) {
        let mut supported = HashMap::new();
        let mut page = RawJson::EMPTY_OBJECT;
        for _ in 0..MAX_PAGES {
            let Ok(listed) = session.inquire(&Method::ToolsList, page).await else { return };
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
        known.insert(session.client.key.clone(), ToolSupport { supported, until: now + MAX_AGE });
    }
}

/// Whether the client declared that it knows tasks.
fn knows_tasks(context: &CallContext) -> bool {
    Capabilities::parse(context.capabilities()).is_some_and(|it| it.has(&Capability::TASKS))
}
