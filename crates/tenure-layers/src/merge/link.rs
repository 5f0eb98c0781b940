//! A session's link to several servers: which of them a request is for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, Request, RpcError, params};
use tenure_session::backend::{Call, Link};
use tenure_session::call::CallContext;
use tenure_session::port::BoxFuture;

use crate::merge::lists::Kind;
use crate::merge::part::{PATIENCE, Shared, Slot, late};
use crate::merge::resources::Resources;
use crate::merge::{names, rewrite};

/// How many names are remembered that cannot be turned back.
const MAX_NAMES: usize = 4096;

/// The longest of them.
const MAX_NAME_BYTES: usize = 1024;

pub(super) struct Merged {
    pub(super) slots: Vec<Arc<Slot>>,
    pub(super) shared: Arc<Shared>,
    pub(super) resources: Resources,
    pub(super) max_list_bytes: usize,
    /// Names that clients see and that cannot be turned back, with those that their servers know.
    names: Mutex<HashMap<String, String>>,
}

pub(super) struct MergedLink(pub(super) Arc<Merged>);

impl Merged {
    pub(super) fn new(slots: Vec<Arc<Slot>>, shared: Arc<Shared>, max_list_bytes: usize) -> Self {
        Self { slots, shared, max_list_bytes, resources: Resources::default(), names: Mutex::default() }
    }

    pub(super) fn prefixes(&self) -> Vec<&str> {
        self.slots.iter().map(|slot| slot.member.prefix.as_str()).collect()
    }

    pub(super) fn remember(&self, kind: Kind, slot: &Slot, public: &str, name: &str) {
        let mut names = self.names.lock();
        if names.len() < MAX_NAMES && name.len() <= MAX_NAME_BYTES {
            names.insert(public.to_owned(), name.to_owned());
        } else {
            tracing::warn!(
                backend = slot.member.name,
                ?kind,
                name,
                "too many names; this one cannot be used"
            );
        }
    }

    async fn answer(&self, request: Request, context: &CallContext) -> Reply {
        if let Some(kind) = Kind::of(&request.method) {
            return self.list(kind, &request, context).await;
        }
        match &request.method {
            Method::Ping => Ok(RawJson::EMPTY_OBJECT),
            Method::ToolsCall => self.by_name(Kind::Tools, request, context).await,
            Method::PromptsGet => self.by_name(Kind::Prompts, request, context).await,
            Method::CompletionComplete => self.complete(request, context).await,
            Method::LoggingSetLevel => self.set_level(request, context).await,
            Method::ResourcesRead | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
                match params::subscription_uri(request.params.as_ref()) {
                    Some(uri) => self.resource(&uri, request, context).await,
                    None => Err(RpcError::of(Reason::InvalidParams, "The uri is missing")),
                }
            }
            method => Err(RpcError::new(-32601, &format!("Method not found: {method}"))),
        }
    }

    /// A request that names a tool or a prompt.
    async fn by_name(&self, kind: Kind, mut request: Request, context: &CallContext) -> Reply {
        let named = request.params.as_ref().and_then(|params| Some((params, rewrite::name(params.bytes())?)));
        let Some((params, (public, place))) = named else {
            return Err(RpcError::of(Reason::InvalidParams, "The name is missing"));
        };
        let (slot, name) = self.meant(kind, &public).await?;
        request.params = Some(rewrite::renamed(params, &name, place));
        slot.call(request, context).await
    }

    /// The server that a name means, and the name that it has there.
    async fn meant(&self, kind: Kind, public: &str) -> Result<(&Arc<Slot>, String), RpcError> {
        let what = if kind == Kind::Tools { "tool" } else { "prompt" };
        let (prefix, rest) = names::split(public, &self.prefixes());
        let slot = self
            .slots
            .iter()
            .find(|slot| slot.member.prefix == prefix)
            .ok_or_else(|| RpcError::of(Reason::InvalidParams, format!("Unknown {what}: {public}")))?;
        if let Some(name) = self.names.lock().get(public) {
            return Ok((slot, name.clone()));
        }
        if looks_made_up(rest) {
            // A session that was woken has seen no list yet.
            self.read_all(slot, kind).await;
            if let Some(name) = self.names.lock().get(public) {
                return Ok((slot, name.clone()));
            }
        }
        Ok((slot, rest.to_owned()))
    }

    async fn complete(&self, mut request: Request, context: &CallContext) -> Reply {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, rename = "ref")]
            reference: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct Reference {
            #[serde(default)]
            uri: Option<String>,
        }
        let bad = || RpcError::of(Reason::InvalidParams, "The ref is missing");
        let params = request.params.clone().ok_or_else(bad)?;
        let read: Params<'_> = params.read().map_err(|_| bad())?;
        if let Some((public, place)) = rewrite::name(read.reference.get().as_bytes()) {
            let (slot, name) = self.meant(Kind::Prompts, &public).await?;
            let front = rewrite::place(params.bytes(), read.reference).start;
            let place = front + place.start..front + place.end;
            request.params = Some(rewrite::renamed(&params, &name, place));
            return slot.call(request, context).await;
        }
        let reference: Reference = serde_json::from_str(read.reference.get()).map_err(|_| bad())?;
        let uri = reference.uri.ok_or_else(bad)?;
        self.resource(&uri, request, context).await
    }

    /// The log level is one for all.
    async fn set_level(&self, request: Request, context: &CallContext) -> Reply {
        // For those who are away now, and those who come back. First, so that it counts also if one does not answer.
        self.shared.level.lock().clone_from(&request.params);
        let logging = self.slots.iter().filter(|slot| slot.has("logging") && slot.is_up());
        let set = logging.map(|slot| async {
            let asked = tokio::time::timeout(PATIENCE, slot.call(request.clone(), context)).await;
            asked.unwrap_or_else(|_| Err(late()))
        });
        let replies = join_all(set).await;
        if let Some(Err(refused)) = replies.iter().find(|reply| reply.is_err())
            && replies.iter().all(Result::is_err)
        {
            return Err(refused.clone());
        }
        Ok(RawJson::EMPTY_OBJECT)
    }
}

/// Whether a name ends as those do that cannot be turned back.
fn looks_made_up(name: &str) -> bool {
    let digits = name.rsplit_once('_').map(|(_, digits)| digits);
    digits.is_some_and(|digits| digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

impl Drop for Merged {
    fn drop(&mut self) {
        for slot in &self.slots {
            slot.abandon();
        }
    }
}

impl Link for MergedLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let merged = Arc::clone(&self.0);
        Box::pin(async move { merged.answer(call.request, &call.context).await })
    }

    fn notify(&self, notification: Notification) {
        if notification.method == Method::Initialized {
            self.0.shared.initialized.store(true, Ordering::Release);
            for slot in &self.0.slots {
                slot.tell_initialized();
            }
            return;
        }
        for slot in &self.0.slots {
            slot.notify(notification.clone());
        }
    }

    fn close(&self) -> BoxFuture<()> {
        let merged = Arc::clone(&self.0);
        Box::pin(async move {
            join_all(merged.slots.iter().map(|slot| slot.close())).await;
        })
    }
}
