//! A session's link to several servers: it decides which of them gets a request.

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

use crate::merge::lists::ListKind;
use crate::merge::names;
use crate::merge::part::{MergePart, MergeShared, PATIENCE, late};
use crate::merge::resources::Resources;

/// How many hashed names are remembered.
const MAX_NAMES: usize = 4096;

/// The longest original name that is remembered.
const MAX_NAME_BYTES: usize = 1024;

pub(super) struct Merged {
    pub(super) parts: Vec<Arc<MergePart>>,
    pub(super) shared: Arc<MergeShared>,
    pub(super) resources: Resources,
    pub(super) max_list_bytes: usize,
    /// The servers' own names by the hashed names that clients see.
    names: Mutex<HashMap<String, String>>,
}

pub(super) struct MergedLink(pub(super) Arc<Merged>);

impl Merged {
    pub(super) fn new(parts: Vec<Arc<MergePart>>, shared: Arc<MergeShared>, max_list_bytes: usize) -> Self {
        Self { parts, shared, max_list_bytes, resources: Resources::default(), names: Mutex::default() }
    }

    pub(super) fn prefixes(&self) -> Vec<&str> {
        self.parts.iter().map(|part| part.member.prefix.as_str()).collect()
    }

    pub(super) fn remember(&self, kind: ListKind, part: &MergePart, public: &str, name: &str) {
        let mut names = self.names.lock();
        if names.len() < MAX_NAMES && name.len() <= MAX_NAME_BYTES {
            names.insert(public.to_owned(), name.to_owned());
        } else {
            tracing::warn!(
                backend = part.member.name,
                ?kind,
                name,
                "too many names; this one cannot be used"
            );
        }
    }

    async fn answer(&self, request: Request, context: &CallContext) -> Reply {
        if let Some(kind) = ListKind::of(&request.method) {
            return self.list(kind, &request, context).await;
        }
        match &request.method {
            Method::Ping => Ok(RawJson::EMPTY_OBJECT),
            Method::ToolsCall => self.by_name(ListKind::Tools, request, context).await,
            Method::PromptsGet => self.by_name(ListKind::Prompts, request, context).await,
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

    /// Sends a request that names a tool or a prompt to its server.
    async fn by_name(&self, kind: ListKind, mut request: Request, context: &CallContext) -> Reply {
        let named = request.params.as_ref().and_then(|params| Some((params, names::read(params.bytes())?)));
        let Some((params, (public, written))) = named else {
            return Err(RpcError::of(Reason::InvalidParams, "The name is missing"));
        };
        let (part, name) = self.meant(kind, &public).await?;
        request.params = Some(names::replaced(params.bytes(), written, &name));
        part.call(request, context).await
    }

    /// The server of a tool or prompt that a client names, and the server's own name for it.
    async fn meant(&self, kind: ListKind, public: &str) -> Result<(&Arc<MergePart>, String), RpcError> {
        let what = if kind == ListKind::Tools { "tool" } else { "prompt" };
        let (prefix, rest) = names::split(public, &self.prefixes());
        let part = self
            .parts
            .iter()
            .find(|part| part.member.prefix == prefix)
            .ok_or_else(|| RpcError::of(Reason::InvalidParams, format!("Unknown {what}: {public}")))?;
        if let Some(name) = self.names.lock().get(public) {
            return Ok((part, name.clone()));
        }
        if looks_hashed(rest) {
            // A woken session has read no list yet.
            self.read_all(part, kind).await;
            if let Some(name) = self.names.lock().get(public) {
                return Ok((part, name.clone()));
            }
        }
        Ok((part, rest.to_owned()))
    }

    async fn complete(&self, mut request: Request, context: &CallContext) -> Reply {
        #[derive(Deserialize)]
        struct CompletionParams<'a> {
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
        let read: CompletionParams<'_> = params.read().map_err(|_| bad())?;
        if let Some((public, written)) = names::read(read.reference.get().as_bytes()) {
            let (part, name) = self.meant(ListKind::Prompts, &public).await?;
            request.params = Some(names::replaced(params.bytes(), written, &name));
            return part.call(request, context).await;
        }
        let reference: Reference = serde_json::from_str(read.reference.get()).map_err(|_| bad())?;
        let uri = reference.uri.ok_or_else(bad)?;
        self.resource(&uri, request, context).await
    }

    /// Sets the log level of all servers.
    async fn set_level(&self, request: Request, context: &CallContext) -> Reply {
        // Stored first: it counts even if a server does not answer, and servers that are away get it when they are
        // back.
        self.shared.level.lock().clone_from(&request.params);
        let logging = self.parts.iter().filter(|part| part.has("logging") && part.is_up());
        let set = logging.map(|part| async {
            let asked = tokio::time::timeout(PATIENCE, part.call(request.clone(), context)).await;
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

/// Whether a name ends like a hashed one: in an underscore and eight hexadecimal digits.
fn looks_hashed(name: &str) -> bool {
    let digits = name.rsplit_once('_').map(|(_, digits)| digits);
    digits.is_some_and(|digits| digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

impl Drop for Merged {
    fn drop(&mut self) {
        for part in &self.parts {
            part.abandon();
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
            for part in &self.0.parts {
                part.tell_initialized();
            }
            return;
        }
        for part in &self.0.parts {
            part.notify(notification.clone());
        }
    }

    fn close(&self) -> BoxFuture<()> {
        let merged = Arc::clone(&self.0);
        Box::pin(async move {
            join_all(merged.parts.iter().map(|part| part.close())).await;
        })
    }
}
