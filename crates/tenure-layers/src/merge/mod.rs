//! Several servers as one: every session has a link to each of them.
//!
//! Names of tools and prompts get a prefix that says whose they are (`names.rs`). Resources keep their URIs, and are
//! found by what the servers list (`resources.rs`). Lists are put together (`lists.rs`). What servers say and ask by
//! themselves goes to the client as it is. A server that is away takes nothing with it but its own (`part.rs`).

mod handshake;
mod link;
mod lists;
mod names;
mod part;
mod resources;
mod rewrite;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tenure_protocol::RpcError;
use tenure_session::backend::{Backend, Open, Opened};
use tenure_session::port::BoxFuture;

pub use crate::merge::lists::UNAVAILABLE;

use crate::merge::link::{Merged, MergedLink};
use crate::merge::part::{PATIENCE, Shared, Slot};

/// One of the servers.
pub struct Member {
    /// Its name, in logs and for people.
    pub name: String,
    /// What stands before the names of its tools and prompts. May be empty, for one of them.
    pub prefix: String,
    /// The server.
    pub backend: Arc<dyn Backend>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("name", &self.name)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Serves several servers as one.
#[derive(Debug)]
pub struct MergedBackend {
    members: Vec<Arc<Member>>,
    open_timeout: Duration,
    max_list_bytes: usize,
}

impl MergedBackend {
    /// These servers, each of which may take so long to answer `initialize`, and whose lists together may have so many
    /// bytes. Their prefixes must differ.
    pub fn new(
        members: impl IntoIterator<Item = Member>,
        open_timeout: Duration,
        max_list_bytes: usize,
    ) -> Self {
        Self { members: members.into_iter().map(Arc::new).collect(), open_timeout, max_list_bytes }
    }
}

impl Backend for MergedBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let Open { params, revision, opening, route, outlet, fanout } = open;
        let shared = Arc::new(Shared {
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
        let slots: Vec<_> = self
            .members
            .iter()
            .map(|member| Slot::new(Arc::clone(member), Arc::clone(&shared), opening))
            .collect();
        // Whoever drops it frees the servers, also those that are coming up.
        let merged = Arc::new(Merged::new(slots, Arc::clone(&shared), self.max_list_bytes));
        // Servers that are slow to come up may come later.
        let patience = PATIENCE.min(self.open_timeout / 2);
        Box::pin(async move {
            let slots = &merged.slots;
            let opened = join_all(slots.iter().map(|slot| tokio::time::timeout(patience, slot.link()))).await;
            // With none of them there is nothing to serve; whoever is only slow may still come.
            let refused = opened.iter().filter_map(|opened| opened.as_ref().ok()?.as_ref().err());
            if refused.clone().count() == slots.len()
                && let Some(error) = refused.into_iter().next()
            {
                return Err(error.clone());
            }
            let said: Vec<_> = slots.iter().map(|slot| (slot.member.name.as_str(), slot.said())).collect();
            let result = handshake::compose(revision, &said);
            shared.begun.store(true, Ordering::Release);
            Ok(Opened { link: Box::new(MergedLink(merged)), result })
        })
    }
}
