//! Several servers as one: every session has a link to each of them.
//!
//! Names of tools and prompts get a prefix that says whose they are (`names.rs`). Resources keep their URIs, and are
//! found by the servers' lists (`resources.rs`). Lists are concatenated (`lists.rs`). Notifications and questions of a
//! server go to the client unchanged. If one server is away, only its own tools, prompts and resources are missing
//! (`part.rs`).

mod link;
mod part;
mod handshake;
mod lists;
mod resources;
mod names;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tenure_protocol::RpcError;
use tenure_session::backend::{Backend, Open, Opened};
use tenure_session::port::BoxFuture;

pub use crate::merge::lists::UNAVAILABLE;
pub use crate::merge::names::ToolPrefixes;

use crate::merge::link::{Merged, MergedLink};
use crate::merge::part::{MergePart, MergeShared, PATIENCE};

/// One of the servers.
pub struct MergedMember {
    /// Its name, in logs and for people.
    pub name: String,
    /// The prefix of its tools' and prompts' names. It may be empty for one server.
    pub prefix: String,
    /// The server.
    pub backend: Arc<dyn Backend>,
}

impl std::fmt::Debug for MergedMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MergedMember")
            .field("name", &self.name)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Serves several servers as one.
#[derive(Debug)]
pub struct MergedBackend {
    members: Vec<Arc<MergedMember>>,
    open_timeout: Duration,
    max_list_bytes: usize,
}

impl MergedBackend {
    /// Merges these servers, whose prefixes must differ. Each server may take `open_timeout` to answer `initialize`; a
    /// merged list may have `max_list_bytes`.
    pub fn new(
        members: impl IntoIterator<Item = MergedMember>,
        open_timeout: Duration,
        max_list_bytes: usize,
    ) -> Self {
        Self { members: members.into_iter().map(Arc::new).collect(), open_timeout, max_list_bytes }
    }
}

impl Backend for MergedBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let Open { params, revision, opening, route, outlet, fanout } = open;
        let shared = Arc::new(MergeShared {
            params,
            revision,
            route,
            outlet,
            fanout,
            open_timeout: self.open_timeout,
            begun: AtomicBool::new(false),
            initialized: AtomicBool::new(false),
            level: Mutex::new(None),
            unplaced: Mutex::default(),
        });
        let parts: Vec<_> = self
            .members
            .iter()
            .map(|member| MergePart::new(Arc::clone(member), Arc::clone(&shared), opening))
            .collect();
        // Dropping it frees the servers, also those that are still starting.
        let merged = Arc::new(Merged::new(parts, Arc::clone(&shared), self.max_list_bytes));
        // A server that starts slowly may join later.
        let patience = PATIENCE.min(self.open_timeout / 2);
        Box::pin(async move {
            let parts = &merged.parts;
            let opened = join_all(parts.iter().map(|part| tokio::time::timeout(patience, part.link()))).await;
            // If every server refused, there is nothing to serve; a slow server may still come.
            let refused = opened.iter().filter_map(|opened| opened.as_ref().ok()?.as_ref().err());
            if refused.clone().count() == parts.len()
                && let Some(error) = refused.into_iter().next()
            {
                return Err(error.clone());
            }
            let handshakes: Vec<_> =
                parts.iter().map(|part| (part.member.name.as_str(), part.handshake())).collect();
            let result = handshake::compose(revision, &handshakes);
            shared.begun.store(true, Ordering::Release);
            Ok(Opened { link: Box::new(MergedLink(merged)), result })
        })
    }
}
