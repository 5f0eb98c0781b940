//! Finds the server that a resource belongs to. URIs pass unchanged, and contain no server name.
//!
//! The servers' lists are remembered. For a URI that is in none of them, all servers are asked for their lists; after
//! that the servers are tried one after the other.

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
use crate::merge::lists::ListKind;
use crate::merge::part::MergePart;

/// How many URIs a session remembers, and how long each may be. For other URIs the servers are tried one after the
/// other.
const MAX_KNOWN: usize = 4096;
const MAX_URI_BYTES: usize = 2048;

/// The pause between two surveys. After a survey that reached every server there is no other.
const SURVEY_AGAIN: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Resources {
    known: Mutex<ResourceOwners>,
    /// Set when a survey has reached every server.
    surveyed: OnceCell<()>,
}

#[derive(Default)]
struct ResourceOwners {
    /// The name of the server by URI.
    uris: HashMap<String, Arc<str>>,
    /// The text of a template in front of its first variable, and the server.
    templates: Vec<(String, Arc<str>)>,
    /// When servers were last asked.
    asked: Option<Instant>,
}

impl Resources {
    /// Remembers the server of a list item. The first server to list it keeps it.
    pub(super) fn learn(&self, kind: ListKind, part: &MergePart, item: &[u8]) {
        #[derive(Deserialize)]
        struct ListedResource {
            #[serde(alias = "uriTemplate")]
            uri: String,
        }
        let Ok(ListedResource { uri }) = serde_json::from_slice::<ListedResource>(item) else { return };
        if kind == ListKind::Resources {
            return self.settle(&uri, part);
        }
        let front = uri.split('{').next().unwrap_or_default();
        let mut known = self.known.lock();
        let has_room = known.templates.len() < MAX_KNOWN && front.len() <= MAX_URI_BYTES;
        if has_room && !known.templates.iter().any(|(known, _)| known == front) {
            known.templates.push((front.to_owned(), part.member.name.as_str().into()));
        }
    }

    /// Remembers the server of a URI. The first server keeps it.
    fn settle(&self, uri: &str, part: &MergePart) {
        let mut known = self.known.lock();
        if known.uris.len() < MAX_KNOWN && uri.len() <= MAX_URI_BYTES && !known.uris.contains_key(uri) {
            known.uris.insert(uri.to_owned(), part.member.name.as_str().into());
        }
    }

    /// The server that listed this URI, or that has the template with the longest match.
    fn owner(&self, uri: &str) -> Option<Arc<str>> {
        let known = self.known.lock();
        let fits = |front: &str| !front.is_empty() && uri.starts_with(front);
        known.uris.get(uri).cloned().or_else(|| {
            let fitting = known.templates.iter().filter(|(front, _)| fits(front));
            fitting.max_by_key(|(front, _)| front.len()).map(|(_, server)| Arc::clone(server))
        })
    }

    /// Whether another survey may start now. If so, it counts as started.
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
            // Single-flight: concurrent requests wait for the same survey.
            let survey = self.resources.surveyed.get_or_try_init(async || match self.resources.may_ask() {
                true => self.survey().await,
                false => Err(()),
            });
            let _ = survey.await;
            owner = self.owner_of(uri);
        }
        if let Some(part) = owner {
            // The owner's answer is final: another server must not take over the resource after one failure.
            let reply = part.call(request.clone(), context).await;
            return self.heard(uri, &request.method, part, reply);
        }
        // The owner is unknown: try each server.
        let (mut last, mut away) = (None, None);
        for part in &self.parts {
            if !part.is_up() {
                away = Some(&part.member.name);
                continue;
            }
            if !part.has("resources") {
                continue;
            }
            let reply = part.call(request.clone(), context).await;
            if reply.is_ok() {
                self.resources.settle(uri, part);
                return self.heard(uri, &request.method, part, reply);
            }
            // Any other error says more than "unknown resource", so it is kept.
            if last.as_ref().is_none_or(is_unknown) {
                last = Some(reply);
            }
        }
        match (away, last) {
            (Some(name), last) if last.as_ref().is_none_or(is_unknown) => {
                if context.is_our_own() && request.method == Method::ResourcesSubscribe {
                    // The session wakes up while the server of this resource is away.
                    self.shared.unplaced.lock().insert(uri.to_owned());
                }
                let text = format!("No available server has the resource; `{name}` is not available");
                Err(RpcError::of(Reason::BackendUnavailable, text))
            }
            (_, Some(last)) => last,
            (_, None) => Err(unknown(uri)),
        }
    }

    fn heard(&self, uri: &str, method: &Method, part: &MergePart, reply: Reply) -> Reply {
        match method {
            Method::ResourcesSubscribe if reply.is_ok() => part.watches(uri, true),
            Method::ResourcesUnsubscribe => part.watches(uri, false),
            _ => {}
        }
        reply
    }

    fn owner_of(&self, uri: &str) -> Option<&Arc<MergePart>> {
        let owner = self.resources.owner(uri)?;
        self.parts.iter().find(|part| *part.member.name == *owner)
    }

    /// Asks every server for its lists. An error if one could not be reached.
    async fn survey(&self) -> Result<(), ()> {
        const KINDS: [ListKind; 2] = [ListKind::Resources, ListKind::Templates];
        let surveys = self.parts.iter().map(|part| async move {
            let mut lists = Vec::new();
            for kind in KINDS {
                lists.push(self.all_items(part, kind).await);
            }
            lists
        });
        let mut reached_all = true;
        // In the order of the servers, so that the owner of a URI does not depend on which one answers first.
        for (part, lists) in self.parts.iter().zip(join_all(surveys).await) {
            for (kind, items) in KINDS.into_iter().zip(lists) {
                reached_all &= items.is_some();
                for item in items.unwrap_or_default() {
                    self.resources.learn(kind, part, &item);
                }
            }
        }
        if reached_all { Ok(()) } else { Err(()) }
    }
}

/// Whether a server says that it does not know a resource.
fn is_unknown(reply: &Reply) -> bool {
    // The specified code, the code of the next revision, and codes that some servers use.
    reply.as_ref().is_err_and(|error| matches!(error.code(), -32002 | -32602 | -32603 | -32601))
}

fn unknown(uri: &str) -> RpcError {
    RpcError::of(Reason::InvalidParams, format!("No server has the resource {uri}"))
}
