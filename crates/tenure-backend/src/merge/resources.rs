//! Which server a resource belongs to. URIs pass as they are; nothing in them says whose they are.
//!
//! What servers list is remembered. For a URI that none has listed, all are asked for their lists once, and after that
//! the servers are tried one after the other.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use tenure_session::Method;
use tenure_session::message::Request;
use tenure_session::port::backend::Reply;
use tenure_session::runtime::CallContext;
use tenure_session::{Reason, RpcError};

use super::link::Merged;
use super::lists::Kind;
use super::slot::Slot;

/// How many URIs are remembered of a session. Beyond that servers are tried one after the other.
const MAX_KNOWN: usize = 10_000;

#[derive(Default)]
pub(super) struct Resources(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The name of the server by URI.
    uris: HashMap<String, Arc<str>>,
    /// What stands before the first variable of a template, and the server.
    templates: Vec<(String, Arc<str>)>,
    /// All servers were asked once.
    surveyed: bool,
}

impl Resources {
    /// Remembers whose an item of a list is. Who was first stays.
    pub(super) fn learn(&self, kind: Kind, slot: &Slot, item: &[u8]) {
        #[derive(Deserialize)]
        struct Item {
            #[serde(alias = "uriTemplate")]
            uri: String,
        }
        let Ok(Item { uri }) = serde_json::from_slice::<Item>(item) else { return };
        let mut known = self.0.lock();
        let server: Arc<str> = slot.member.name.as_str().into();
        if kind == Kind::Resources {
            if known.uris.len() < MAX_KNOWN {
                known.uris.entry(uri).or_insert(server);
            }
        } else if known.templates.len() < MAX_KNOWN {
            let front = uri.split('{').next().unwrap_or_default().to_owned();
            if !known.templates.iter().any(|(known, _)| *known == front) {
                known.templates.push((front, server));
            }
        }
    }

    fn settle(&self, uri: &str, slot: &Slot) {
        let mut known = self.0.lock();
        if known.uris.len() < MAX_KNOWN {
            known.uris.insert(uri.to_owned(), slot.member.name.as_str().into());
        }
    }

    /// The server that listed this URI, or the template that fits it best.
    fn owner(&self, uri: &str) -> Option<Arc<str>> {
        let known = self.0.lock();
        let fits = |front: &str| !front.is_empty() && uri.starts_with(front);
        known.uris.get(uri).cloned().or_else(|| {
            let fitting = known.templates.iter().filter(|(front, _)| fits(front));
            fitting.max_by_key(|(front, _)| front.len()).map(|(_, server)| Arc::clone(server))
        })
    }
}

impl Merged {
    /// Sends a request about a resource to the server that it belongs to.
    pub(super) async fn resource(&self, uri: &str, request: Request, context: &CallContext) -> Reply {
        let mut owner = self.owner_of(uri);
        if owner.is_none() && !std::mem::replace(&mut self.resources.0.lock().surveyed, true) {
            self.survey().await;
            owner = self.owner_of(uri);
        }
        if let Some(slot) = owner {
            let reply = slot.call(request.clone(), context).await;
            if reply.is_ok() || !is_unknown(&reply) {
                return self.heard(uri, &request.method, slot, reply);
            }
        }
        // Whoever takes it.
        let mut last = None;
        for slot in &self.slots {
            if slot.link().await.is_err() || !slot.has("resources") {
                continue;
            }
            let reply = slot.call(request.clone(), context).await;
            if reply.is_ok() {
                self.resources.settle(uri, slot);
                return self.heard(uri, &request.method, slot, reply);
            }
            // What a server says about a resource of its own says more than that others do not know it.
            if last.as_ref().is_none_or(is_unknown) {
                last = Some(reply);
            }
        }
        last.unwrap_or_else(|| Err(unknown(uri)))
    }

    fn heard(&self, uri: &str, method: &Method, slot: &Slot, reply: Reply) -> Reply {
        match method {
            Method::ResourcesSubscribe if reply.is_ok() => slot.watches(uri, true),
            Method::ResourcesUnsubscribe => slot.watches(uri, false),
            _ => {}
        }
        reply
    }

    fn owner_of(&self, uri: &str) -> Option<&Arc<Slot>> {
        let owner = self.resources.owner(uri)?;
        self.slots.iter().find(|slot| *slot.member.name == *owner)
    }

    /// Asks every server for its lists.
    async fn survey(&self) {
        let surveys = self.slots.iter().map(|slot| async move {
            for kind in [Kind::Resources, Kind::Templates] {
                self.read_all(slot, kind).await;
            }
        });
        futures_util::future::join_all(surveys).await;
    }
}

/// Whether a server says that it does not know a resource.
fn is_unknown(reply: &Reply) -> bool {
    // What it should say, what the next revision says, and what some say.
    reply.as_ref().is_err_and(|error| matches!(error.code(), -32002 | -32602 | -32603 | -32601))
}

fn unknown(uri: &str) -> RpcError {
    RpcError::of(Reason::InvalidParams, format!("No server has the resource {uri}"))
}
