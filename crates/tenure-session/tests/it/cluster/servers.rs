//! The MCP servers behind the nodes, and the record of what they did and for which node.
//!
//! A tool says some messages and then answers. `careful` may be called twice, `once` may not. Every call carries a name,
//! and the record says how often it ran, and whether its node owned the session at that moment.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_protocol::{Method, Notification, RawJson, Reply, RpcError};
use tenure_session::SessionKey;
use tenure_session::backend::{Backend, Call, Link, Open, Opened};
use tenure_session::cluster::Roster;
use tenure_session::port::BoxFuture;
use tenure_session::port::store::Store;
use tenure_store::memory::Memory;

/// What all servers did.
pub(super) struct Servers {
    memory: Arc<Memory>,
    runs: Mutex<HashMap<String, u32>>,
    /// What must not have happened.
    pub(super) wrongs: Mutex<Vec<String>>,
    /// How often which kind of outcome was seen, so that a run in which nothing happens is noticed.
    pub(super) outcomes: Mutex<BTreeMap<&'static str, u64>>,
}

/// The servers of one node.
pub(super) struct ServersOfNode {
    pub(super) servers: Arc<Servers>,
    pub(super) roster: Roster,
    pub(super) is_dead: Arc<AtomicBool>,
}

impl Servers {
    pub(super) fn new(memory: Arc<Memory>) -> Arc<Self> {
        Arc::new(Self {
            memory,
            runs: Mutex::default(),
            wrongs: Mutex::default(),
            outcomes: Mutex::default(),
        })
    }

    pub(super) fn runs(&self, name: &str) -> u32 {
        self.runs.lock().get(name).copied().unwrap_or(0)
    }

    pub(super) fn count(&self, outcome: &'static str) {
        *self.outcomes.lock().entry(outcome).or_default() += 1;
    }

    pub(super) fn wrong(&self, what: String) {
        self.wrongs.lock().push(what);
    }
}

/// The params of a call: the session is named, so that the server can look who owns it.
pub(super) fn tool_call(tool: &str, name: &str, says: u64, pause_ms: u64, key: SessionKey) -> Value {
    let arguments = json!({ "name": name, "says": says, "pause": pause_ms, "session": key.hex() });
    json!({ "name": tool, "arguments": arguments })
}

impl Backend for ServersOfNode {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let result = RawJson::of(&json!({
            "protocolVersion": open.revision.as_str(),
            "capabilities": {
                "tools": { "listChanged": true },
                "prompts": {},
                "resources": { "listChanged": true },
            },
            "serverInfo": { "name": "chance", "version": "1" },
        }));
        let link = ServerLink {
            servers: Arc::clone(&self.servers),
            roster: self.roster.clone(),
            is_dead: Arc::clone(&self.is_dead),
        };
        Box::pin(async move { Ok(Opened { link: Box::new(link), result }) })
    }
}

struct ServerLink {
    servers: Arc<Servers>,
    roster: Roster,
    is_dead: Arc<AtomicBool>,
}

impl Link for ServerLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let (servers, node) = (Arc::clone(&self.servers), self.roster.node());
        if self.is_dead.load(Ordering::SeqCst) {
            // A process that was killed calls nothing.
            return Box::pin(std::future::pending());
        }
        let is_dead = Arc::clone(&self.is_dead);
        Box::pin(async move {
            if call.request.method == Method::ToolsList {
                return Ok(RawJson::of(&json!({ "tools": [
                    { "name": "careful", "inputSchema": {}, "annotations": { "readOnlyHint": true } },
                    { "name": "once", "inputSchema": {} },
                ] })));
            }
            let params: Value = call.request.params.as_ref().and_then(|params| params.read().ok()).unwrap();
            let (tool, arguments) = (params["name"].as_str().unwrap(), &params["arguments"]);
            let name = arguments["name"].as_str().unwrap().to_owned();
            let key = SessionKey::parse(arguments["session"].as_str().unwrap()).unwrap();
            let owner = servers.memory.owner(key).await.unwrap().map(|(owner, _)| owner);
            if owner.is_some_and(|owner| owner != node) {
                servers.wrong(format!("{name} was sent by {node:?}, but {owner:?} owns the session"));
            }
            let run = {
                let mut runs = servers.runs.lock();
                let run = runs.entry(name.clone()).or_default();
                *run += 1;
                *run
            };
            if run > 1 && tool == "once" {
                servers.wrong(format!("{name} ran {run} times"));
            }
            let pause = Duration::from_millis(arguments["pause"].as_u64().unwrap());
            if tool == "asking" {
                for number in 0..arguments["says"].as_u64().unwrap() {
                    tokio::time::sleep(pause).await;
                    let question = RawJson::of(&json!({ "message": format!("{name} {number}") }));
                    call.context.ask(&Method::ElicitationCreate, Some(&question)).await?;
                }
                return Ok(RawJson::of(&json!({ "name": name, "run": run, "node": node.hex() })));
            }
            for said in 0..arguments["says"].as_u64().unwrap() {
                tokio::time::sleep(pause).await;
                let text = RawJson::of(&json!({ "level": "info", "data": format!("{name} {run} {said}") }));
                // Fails if the session was given up.
                drop(call.context.notify(&Method::LogMessage, Some(&text)).await);
            }
            tokio::time::sleep(pause).await;
            if is_dead.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            Ok(RawJson::of(&json!({ "name": name, "run": run, "node": node.hex() })))
        })
    }

    fn notify(&self, _: Notification) {}

    fn close(&self) -> BoxFuture<()> {
        Box::pin(async {})
    }
}
