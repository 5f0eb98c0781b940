//! Child programs of the modern era: one child serves many requests, because requests have no session.
//!
//! Each caller has its own child per endpoint. The first request starts it, and it ends after some time without
//! requests (`server`). Requests have ids and progress tokens of ours (`traffic`), by which the child's messages find
//! their request (`hear`). No request waits for another client: a client that does not read loses only its own
//! messages. When a child dies, its requests end as interrupted and its listens as with a server that is away. The
//! next request starts another child, with back-off if children keep dying.
//!
//! [`Probe::probe`] asks the program which era it knows; [`tenure_session::backend::probe`] says how to use it.
//! The legacy half is [`ChildBackend`].

mod server;
mod traffic;

mod hear;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::Reply;
use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::evidence::{AnsweredOver, Verdict};
use tenure_protocol::translate::result;
use tenure_protocol::{Reason, RpcError};
use tenure_session::backend::Call;
use tenure_session::backend::Responder;
use tenure_session::backend::probe::{Probe, ProbeAnswer, ProbeAttempt};
use tenure_session::port::BoxFuture;
use tenure_session::{Principal, Route};
use tokio::sync::OnceCell;

use self::server::ModernChild;
use super::pool::{TakenChild, WantedChild};
use super::starter::Starter;
use super::{ChildBackend, ChildCommand, Warden};
use crate::pending::cancelled;

/// How long a program may take to answer whether it knows the modern era. A program that knows it answers soon. Another
/// program may never answer, and a client waits meanwhile.
const PATIENCE: Duration = Duration::from_secs(15);

/// How many children may end before one of them takes the request.
const TRIES: usize = 3;

/// A responder that runs a child process for each caller.
pub struct ChildResponder {
    inner: Arc<ChildResponderInner>,
}

struct ChildResponderInner {
    starter: Starter,
    /// Entries of ended children stay until the next child is started.
    children: Mutex<HashMap<ChildKey, Arc<CallerChild>>>,
}

/// The endpoint and the caller that a child serves.
type ChildKey = (Route, Principal);

/// The child of one caller, or the attempt to start it. Starting is single-flight: concurrent requests wait for the
/// same start, and if the request that began it is dropped, the next one continues.
struct CallerChild {
    server: OnceCell<Result<Arc<ModernChild>, RpcError>>,
    /// The previous child, which has to end first.
    before: Option<Arc<ModernChild>>,
    label: String,
}

impl ChildResponder {
    /// A responder that runs this command. The warden, if there is one, ends the children if we are killed.
    ///
    /// Must be called within a tokio runtime if children are started ahead.
    pub fn new(command: ChildCommand, warden: Option<Arc<Warden>>) -> Self {
        ChildBackend::new(command, warden).modern()
    }

    pub(super) fn of(starter: Starter) -> Self {
        Self { inner: Arc::new(ChildResponderInner { starter, children: Mutex::default() }) }
    }

    /// # Cancel safety
    /// Dropping it withdraws the request.
    fn ask(&self, call: Call) -> impl Future<Output = ProbeAnswer> + Send + use<> {
        let inner = Arc::clone(&self.inner);
        async move {
            let withdrawn = call.context.cancellation();
            match withdrawn.run_until_cancelled(inner.ask(&call)).await {
                Some(answer) => answer,
                None => ProbeAnswer::NotAsked(cancelled()),
            }
        }
    }
}

impl Responder for ChildResponder {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let asking = self.ask(call);
        Box::pin(async move { ProbeAttempt { way: AnsweredOver::Pipes, answer: asking.await }.into_reply() })
    }

    /// Ends the children of this caller, also under requests that run.
    fn forget(&self, principal: &Principal) {
        let servers: Vec<_> = {
            let children = self.inner.children.lock();
            let theirs = children.iter().filter(|((_, owner), _)| owner == principal);
            theirs.filter_map(|(_, child)| child.running()).collect()
        };
        for server in servers {
            // Dropping the future is fine: the child ends without it.
            drop(server.end());
        }
    }

    /// Ends all children; resolves when they have ended. Requests in flight fail, and later requests start another
    /// child.
    fn close(&self) -> BoxFuture<()> {
        let servers: Vec<_> =
            self.inner.children.lock().values().filter_map(|child| child.running()).collect();
        let ends: Vec<_> = servers.iter().map(|server| server.end()).collect();
        Box::pin(async move { drop(futures_util::future::join_all(ends).await) })
    }

    fn keeps_request_states(&self) -> bool {
        true
    }

    fn keeps_tasks(&self, _: &Route) -> bool {
        true
    }
}

impl Probe for ChildResponder {
    fn probe(&self, call: Call) -> BoxFuture<ProbeAttempt> {
        let (inner, key) = (Arc::clone(&self.inner), key(&call));
        let known = inner
            .running(&key)
            .is_some_and(|server| server.is_modern() && !server.traffic.pending.is_closed());
        let asking = self.ask(call);
        Box::pin(async move {
            let answer = if known { unless_silent(asking.await) } else { inner.soon(asking).await };
            let attempt = ProbeAttempt { way: AnsweredOver::Pipes, answer };
            match (attempt.verdict(MODERN), inner.running(&key)) {
                (Verdict::Yes, Some(server)) => server.says_it_is_modern(),
                // Dropping the future is fine: the child ends without it.
                (Verdict::No, Some(server)) => drop(server.end()),
                _ => {}
            }
            attempt
        })
    }
}

impl std::fmt::Debug for ChildResponder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChildResponder").field(&self.inner.starter.command.program).finish()
    }
}

fn key(call: &Call) -> ChildKey {
    (call.context.route().clone(), call.context.caller().principal.clone())
}

impl ChildResponderInner {
    async fn ask(&self, call: &Call) -> ProbeAnswer {
        for _ in 0..TRIES {
            let server = match self.child(key(call)).server(&self.starter).await {
                Ok(server) => server,
                Err(error) => return ProbeAnswer::NotAsked(error),
            };
            // `None`: the child has ended or takes no more requests, so try the next one.
            if let Some(answer) = server.traffic.carry(call).await {
                return understood(call, answer);
            }
        }
        ProbeAnswer::NotAsked(RpcError::refused("The server has ended"))
    }

    fn child(&self, key: ChildKey) -> Arc<CallerChild> {
        let mut children = self.children.lock();
        if let Some(child) = children.get(&key).filter(|child| !child.is_over()) {
            return Arc::clone(child);
        }
        let before = children.remove(&key).and_then(|last| last.running());
        children.retain(|_, child| !child.is_over());
        let label = format!("exchanges of {:?}", key.1);
        let child = Arc::new(CallerChild { server: OnceCell::new(), before, label });
        children.insert(key, Arc::clone(&child));
        child
    }

    fn running(&self, key: &ChildKey) -> Option<Arc<ModernChild>> {
        self.children.lock().get(key).and_then(|child| child.running())
    }

    /// The answer of a program that may not know the method, with a timeout.
    async fn soon(&self, asking: impl Future<Output = ProbeAnswer>) -> ProbeAnswer {
        let patience = self.starter.command.limits.start_timeout.min(PATIENCE);
        tokio::time::timeout(patience, asking).await.unwrap_or_else(|_| {
            ProbeAnswer::Nothing(RpcError::of(Reason::TimedOut, "The server did not answer in time"))
        })
    }
}

impl CallerChild {
    async fn server(&self, starter: &Starter) -> Result<Arc<ModernChild>, RpcError> {
        let start = async || {
            if let Some(before) = &self.before {
                before.end().await;
            }
            let TakenChild { process, .. } = starter.process(&self.label, WantedChild::Any, &[]).await?;
            let (server, life) = ModernChild::start(process, &starter.command.limits, &self.label);
            starter.restarts.came_up(self.label.clone(), life);
            Ok(server)
        };
        self.server.get_or_init(start).await.clone()
    }

    /// The child, if one was started.
    fn running(&self) -> Option<Arc<ModernChild>> {
        self.server.get().and_then(|started| started.as_ref().ok()).map(Arc::clone)
    }

    /// Whether the start failed, or the child takes no more requests.
    fn is_over(&self) -> bool {
        match self.server.get() {
            None => false,
            Some(Ok(server)) => server.traffic.pending.is_closed(),
            Some(Err(_)) => true,
        }
    }
}

/// The answer of a child that is known to be modern. If it does not answer, the child is busy or has ended; that must not
/// count as evidence about its era, which would end the child while it works for other requests.
fn unless_silent(answer: ProbeAnswer) -> ProbeAnswer {
    match answer {
        ProbeAnswer::Nothing(error) => ProbeAnswer::NotAsked(error),
        answer => answer,
    }
}

/// A result of an unknown type becomes an error.
fn understood(call: &Call, answer: ProbeAnswer) -> ProbeAnswer {
    match answer {
        ProbeAnswer::Said(Ok(found)) => {
            ProbeAnswer::Said(result::kind(&call.request.method, &found).map(|_| found.clone()))
        }
        answer => answer,
    }
}
