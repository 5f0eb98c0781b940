//! Programs in the modern era: one child for many requests, since none of them belongs to a session.
//!
//! Each caller has a child of its own (per endpoint), started by its first request and ended when there was none for
//! a while (`server`). Requests are kept apart by ids and progress tokens of ours (`traffic`), and what the child says
//! is put where it belongs (`hear`). Nobody waits for anybody: a client that does not read loses its own messages.
//! When a child dies, whatever it was working on ends as interrupted, listens as with a server that is away, and the
//! next request starts another; one that keeps dying is not started again at once.
//!
//! Which era the program is of is asked with [`Probe::probe`]; [`tenure_session::backend::probe`] says how to use it.
//! The legacy half is [`ChildBackend`].

mod hear;
mod server;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::Reply;
use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::evidence::{Verdict, Way};
use tenure_protocol::translate::result;
use tenure_protocol::{Reason, RpcError};
use tenure_session::backend::Call;
use tenure_session::backend::Responder;
use tenure_session::backend::probe::{Answer, Attempt, Probe};
use tenure_session::port::BoxFuture;
use tenure_session::{Principal, Route};
use tokio::sync::OnceCell;

use self::server::Server;
use super::pool::{Taken, Wanted};
use super::starter::Starter;
use super::{ChildBackend, ChildCommand, Warden};

/// How long a program may take to say that it knows the modern era. One that knows it says so soon; one that does not
/// may say nothing, and a client waits.
const PATIENCE: Duration = Duration::from_secs(15);

/// How often a child may end between its start and the moment when it takes the request.
const TRIES: usize = 3;

/// A responder that runs a child process for each caller.
pub struct ChildResponder {
    inner: Arc<Inner>,
}

struct Inner {
    starter: Starter,
    /// Those that are over stay until another is needed in their place, or in any.
    slots: Mutex<HashMap<Key, Arc<Slot>>>,
}

/// Whose child it is.
type Key = (Route, Principal);

/// A child, or the attempt to start it. Those who need it at once wait for the same start; if the one who began gives
/// up, the next goes on with it.
struct Slot {
    server: OnceCell<Result<Arc<Server>, RpcError>>,
    /// The one before, which has to be gone first.
    before: Option<Arc<Server>>,
    label: String,
}

impl ChildResponder {
    /// A responder that runs this command. The warden, if there is one, ends the children should we be killed.
    ///
    /// Must be called within a tokio runtime if children are started ahead.
    pub fn new(command: ChildCommand, warden: Option<Arc<Warden>>) -> Self {
        ChildBackend::new(command, warden).modern()
    }

    pub(super) fn of(starter: Starter) -> Self {
        Self { inner: Arc::new(Inner { starter, slots: Mutex::default() }) }
    }

    /// # Cancel safety
    /// Dropping it withdraws the request.
    fn ask(&self, call: Call) -> impl Future<Output = Answer> + Send + use<> {
        let inner = Arc::clone(&self.inner);
        async move {
            let cancelled = call.context.cancellation();
            match cancelled.run_until_cancelled(inner.ask(&call)).await {
                Some(answer) => answer,
                None => Answer::NotAsked(RpcError::of(Reason::Cancelled, "The request was cancelled")),
            }
        }
    }
}

impl Responder for ChildResponder {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let asking = self.ask(call);
        Box::pin(async move { Attempt { way: Way::Pipes, answer: asking.await }.into_reply() })
    }

    /// Ends all children; resolves when they are gone. What they were asked meanwhile fails, and whatever is asked
    /// later starts another.
    fn close(&self) -> BoxFuture<()> {
        let servers: Vec<_> = self.inner.slots.lock().values().filter_map(|slot| slot.running()).collect();
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
    fn probe(&self, call: Call) -> BoxFuture<Attempt> {
        let (inner, key) = (Arc::clone(&self.inner), key(&call));
        let known =
            inner.running(&key).is_some_and(|server| server.is_modern() && !server.traffic.is_closed());
        let asking = self.ask(call);
        Box::pin(async move {
            let answer = if known { unless_silent(asking.await) } else { inner.soon(asking).await };
            let attempt = Attempt { way: Way::Pipes, answer };
            match (attempt.verdict(MODERN), inner.running(&key)) {
                (Verdict::Yes, Some(server)) => server.says_it_is_modern(),
                // It goes whether or not anybody waits for that.
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

fn key(call: &Call) -> Key {
    (call.context.route().clone(), call.context.caller().principal.clone())
}

impl Inner {
    async fn ask(&self, call: &Call) -> Answer {
        for _ in 0..TRIES {
            let server = match self.slot(key(call)).server(&self.starter).await {
                Ok(server) => server,
                Err(error) => return Answer::NotAsked(error),
            };
            // `None`: it has ended, or takes nothing more; another one is needed.
            if let Some(answer) = server.traffic.carry(call).await {
                return understood(call, answer);
            }
        }
        Answer::NotAsked(RpcError::refused("The server has ended"))
    }

    fn slot(&self, key: Key) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(&key).filter(|slot| !slot.is_over()) {
            return Arc::clone(slot);
        }
        let before = slots.remove(&key).and_then(|last| last.running());
        slots.retain(|_, slot| !slot.is_over());
        let label = format!("exchanges of {:?}", key.1);
        let slot = Arc::new(Slot { server: OnceCell::new(), before, label });
        slots.insert(key, Arc::clone(&slot));
        slot
    }

    fn running(&self, key: &Key) -> Option<Arc<Server>> {
        self.slots.lock().get(key).and_then(|slot| slot.running())
    }

    /// The answer of a program that may not know the question.
    async fn soon(&self, asking: impl Future<Output = Answer>) -> Answer {
        let patience = self.starter.command.limits.start_timeout.min(PATIENCE);
        tokio::time::timeout(patience, asking).await.unwrap_or_else(|_| {
            Answer::Nothing(RpcError::of(Reason::TimedOut, "The server did not answer in time"))
        })
    }
}

impl Slot {
    async fn server(&self, starter: &Starter) -> Result<Arc<Server>, RpcError> {
        let start = async || {
            if let Some(before) = &self.before {
                before.end().await;
            }
            let Taken { process, .. } = starter.process(&self.label, Wanted::Any).await?;
            let (server, life) = Server::start(process, &starter.command.limits, &self.label);
            starter.backoff.came_up(self.label.clone(), life);
            Ok(server)
        };
        self.server.get_or_init(start).await.clone()
    }

    /// The child, if one was started.
    fn running(&self) -> Option<Arc<Server>> {
        self.server.get().and_then(|started| started.as_ref().ok()).map(Arc::clone)
    }

    /// Whether it failed, or the child takes no more requests.
    fn is_over(&self) -> bool {
        match self.server.get() {
            None => false,
            Some(Ok(server)) => server.traffic.is_closed(),
            Some(Err(_)) => true,
        }
    }
}

/// The answer of a child that has said before that it is modern: if it says nothing it is busy, or has ended, and what
/// others have asked of it goes on.
fn unless_silent(answer: Answer) -> Answer {
    match answer {
        Answer::Nothing(error) => Answer::NotAsked(error),
        answer => answer,
    }
}

/// A result of a type that nobody knows is no result.
fn understood(call: &Call, answer: Answer) -> Answer {
    match answer {
        Answer::Said(Ok(found)) => {
            Answer::Said(result::kind(&call.request.method, &found).map(|_| found.clone()))
        }
        answer => answer,
    }
}
