//! Which server a resource belongs to. URIs pass as they are; nothing in them says whose they are.
//!
//! What servers list is remembered. For a URI that none has listed, all are asked for their lists, and after that the
//! servers are tried one after the other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use tenure_protocol::{Method, Reason, Reply, Request, RpcError};
use tenure_session::call::CallContext;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::merge::link::Merged;
use crate::merge::lists::Kind;
use crate::merge::part::Slot;

/// How many URIs are remembered of a session, and how long each may be. Beyond that servers are tried one after the
/// other.
const MAX_KNOWN: usize = 4096;
const MAX_URI_BYTES: usize = 2048;

/// How long after a survey another one may be made. Only one that reached every server is the last.
const SURVEY_AGAIN: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Resources {
    known: Mutex<Known>,
    /// Set when every server was asked for its lists.
    surveyed: OnceCell<()>,
}

#[derive(Default)]
struct Known {
    /// The name of the server by URI.
    uris: HashMap<String, Arc<str>>,
    /// What stands before the first variable of a template, and the server.
    templates: Vec<(String, Arc<str>)>,
    /// When servers were last asked.
    asked: Option<Instant>,
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
        if kind == Kind::Resources {
            return self.settle(&uri, slot);
        }
        let front = uri.split('{').next().unwrap_or_default();
        let mut known = self.known.lock();
        let has_room = known.templates.len() < MAX_KNOWN && front.len() <= MAX_URI_BYTES;
        if has_room && !known.templates.iter().any(|(known, _)| known == front) {
            known.templates.push((front.to_owned(), slot.member.name.as_str().into()));
        }
    }

    /// Remembers whose a URI is. Who was first stays.
    fn settle(&self, uri: &str, slot: &Slot) {
        let mut known = self.known.lock();
        if known.uris.len() < MAX_KNOWN && uri.len() <= MAX_URI_BYTES && !known.uris.contains_key(uri) {
            known.uris.insert(uri.to_owned(), slot.member.name.as_str().into());
        }
    }

    /// The server that listed this URI, or the template that fits it best.
    fn owner(&self, uri: &str) -> Option<Arc<str>> {
        let known = self.known.lock();
        let fits = |front: &str| !front.is_empty() && uri.starts_with(front);
        known.uris.get(uri).cloned().or_else(|| {
            let fitting = known.templates.iter().filter(|(front, _)| fits(front));
            fitting.max_by_key(|(front, _)| front.len()).map(|(_, server)| Arc::clone(server))
        })
    }

    /// Whether servers may be asked again.
    fn may_ask(&self) -> bool {
        let mut known = self.known.lock();
        let may = known.asked.is_none_or(|when| when.elapsed() >= SURVEY_AGAIN);
        if may {
            known.asked = Some(Instant::now());
        }
        may
    }
}

impl Merged {
    /// Sends a request about a resource to the server that it belongs to.
    pub(super) async fn resource(&self, uri: &str, request: Request, context: &CallContext) -> Reply {
        let mut owner = self.owner_of(uri);
        if owner.is_none() {
            // Those who come together wait for the same survey.
            let survey = self.resources.surveyed.get_or_try_init(async || match self.resources.may_ask() {
                true => self.survey().await,
                false => Err(()),
            });
            let _ = survey.await;
            owner = self.owner_of(uri);
        }
        if let Some(slot) = owner {
            // What it says counts: another server must not get hold of its resources because it fails once.
            let reply = slot.call(request.clone(), context).await;
            return self.heard(uri, &request.method, slot, reply);
        }
        // Whoever takes it.
        let (mut last, mut away) = (None, None);
        for slot in &self.slots {
            if !slot.is_up() {
                away = Some(&slot.member.name);
                continue;
            }
            if !slot.has("resources") {
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
        match (away, last) {
            (Some(name), last) if last.as_ref().is_none_or(is_unknown) => {
                if context.is_our_own() && request.method == Method::ResourcesSubscribe {
                    // A session that is woken, while its server is away.
                    self.shared.unplaced.lock().insert(uri.to_owned());
                }
                let text = format!("No server that is there has the resource; `{name}` is not");
                Err(RpcError::of(Reason::BackendUnavailable, text))
            }
            (_, Some(last)) => last,
            (_, None) => Err(unknown(uri)),
        }
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

    /// Asks every server for its lists. An error if one could not be asked.
    async fn survey(&self) -> Result<(), ()> {
        const KINDS: [Kind; 2] = [Kind::Resources, Kind::Templates];
        let surveys = self.slots.iter().map(|slot| async move {
            let mut lists = Vec::new();
            for kind in KINDS {
                lists.push(self.all_items(slot, kind).await);
            }
            lists
        });
        let mut reached_all = true;
        // In the order of the servers, not of their answers.
        for (slot, lists) in self.slots.iter().zip(join_all(surveys).await) {
            for (kind, items) in KINDS.into_iter().zip(lists) {
                reached_all &= items.is_some();
                for item in items.unwrap_or_default() {
                    self.resources.learn(kind, slot, &item);
                }
            }
        }
        if reached_all { Ok(()) } else { Err(()) }
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
