//! The requests in flight at one server: a table from ids of ours to the requests that wait under them.
//!
//! Towards the server every request has a number as its id, so clients may use the same ids at once. The table does not
//! know what waits (`T`, and `R` for its answer): a session's request (`session_traffic`), a request of one of many
//! sessions (`child::shared`), or a request without a session (`child::modern`). Those decide to which of the requests
//! a message of the server belongs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RequestId, RpcError, message};
use tenure_session::call::CallContext;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

/// Most cancellations and refusals that wait for room in the queue of one server. More are dropped: a server that takes
/// nothing would make them grow without end, and answers to its questions wait behind them.
const PARKED: usize = 128;

pub(crate) struct Pending<T, R = Reply> {
    /// Messages to the server.
    out: mpsc::Sender<Bytes>,
    next: AtomicU64,
    table: Mutex<Table<T, R>>,
    /// Notified when no request is in flight any more.
    quiet: Notify,
    /// For cancellations and refusals that wait for room in the queue.
    parked: Arc<Semaphore>,
}

struct Table<T, R> {
    waiting: HashMap<u64, Waiting<T, R>>,
    /// New requests are refused.
    is_closed: bool,
}

/// A request that waits for its answer.
pub(crate) struct Waiting<T, R = Reply> {
    pub(crate) caller: T,
    pub(crate) answer: oneshot::Sender<R>,
}

/// Keeps a request in the table. Dropping it removes the request, and cancels it at the server if it is unanswered.
pub(crate) struct InFlight<T, R = Reply> {
    pending: Arc<Pending<T, R>>,
    number: u64,
    /// The request was sent, so the server needs a cancellation.
    pub(crate) is_sent: bool,
    pub(crate) answer: oneshot::Receiver<R>,
}

/// What became of the attempt to send a request.
pub(crate) enum Sent {
    Taken,
    /// The server takes no more messages.
    QueueClosed,
    /// The request was ended before the queue had room.
    Ended,
}

impl<T, R> Pending<T, R> {
    /// A table whose first request gets this number.
    pub(crate) fn new(out: mpsc::Sender<Bytes>, first: u64) -> Arc<Self> {
        let table = Mutex::new(Table { waiting: HashMap::new(), is_closed: false });
        let parked = Arc::new(Semaphore::new(PARKED));
        Arc::new(Self { out, next: AtomicU64::new(first), table, quiet: Notify::new(), parked })
    }

    /// A number for the next request.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a request; the caller has still to send it. `None` if the server takes no more requests.
    pub(crate) fn enter(self: &Arc<Self>, number: u64, caller: T) -> Option<InFlight<T, R>> {
        let (answer, answered) = oneshot::channel();
        let mut table = self.table.lock();
        if table.is_closed {
            return None;
        }
        table.waiting.insert(number, Waiting { caller, answer });
        Some(InFlight { pending: Arc::clone(self), number, is_sent: false, answer: answered })
    }

    /// Removes a request, if it is still in flight.
    pub(crate) fn take(&self, number: u64) -> Option<Waiting<T, R>> {
        let mut table = self.table.lock();
        let waiting = table.waiting.remove(&number)?;
        if table.waiting.is_empty() {
            self.quiet.notify_one();
        }
        Some(waiting)
    }

    /// Removes the request that the server answers with this id.
    pub(crate) fn answered(&self, id: &RequestId) -> Option<Waiting<T, R>> {
        let waiting = number_of(id.raw()).and_then(|number| self.take(number));
        if waiting.is_none() {
            tracing::debug!(?id, "the server answered a request that is not in flight; dropped");
        }
        waiting
    }

    /// Reads something of the request of this number.
    pub(crate) fn of<U>(&self, number: u64, read: impl FnOnce(&T) -> Option<U>) -> Option<U> {
        self.table.lock().waiting.get(&number).and_then(|waiting| read(&waiting.caller))
    }

    /// The first request for which `read` returns something.
    pub(crate) fn find<U>(&self, read: impl FnMut(&T) -> Option<U>) -> Option<U> {
        self.table.lock().waiting.values().map(|waiting| &waiting.caller).find_map(read)
    }

    /// As [`Pending::find`], but only if `read` returns something for exactly one request.
    pub(crate) fn only<U>(&self, mut read: impl FnMut(u64, &T) -> Option<U>) -> Option<U> {
        let table = self.table.lock();
        let mut found = table.waiting.iter().filter_map(|(number, waiting)| read(*number, &waiting.caller));
        found.next().filter(|_| found.next().is_none())
    }

    /// Removes some requests and cancels them at the server.
    pub(crate) fn withdraw(&self, is_meant: impl Fn(&T) -> bool) -> Vec<Waiting<T, R>> {
        let mut table = self.table.lock();
        let taken: Vec<_> = table.waiting.extract_if(|_, waiting| is_meant(&waiting.caller)).collect();
        drop(table);
        taken.iter().for_each(|(number, _)| self.cancel(*number));
        taken.into_iter().map(|(_, waiting)| waiting).collect()
    }

    /// Takes no more requests. Those in flight may still be answered.
    pub(crate) fn close(&self) {
        self.table.lock().is_closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.table.lock().is_closed
    }

    /// The server has ended: takes no more requests, and removes those in flight.
    pub(crate) fn end(&self) -> impl Iterator<Item = Waiting<T, R>> + use<T, R> {
        let mut table = self.table.lock();
        table.is_closed = true;
        std::mem::take(&mut table.waiting).into_values()
    }

    /// Resolves after this long without requests. From then on new requests are refused.
    pub(crate) async fn unused_for(&self, idle: Duration) {
        loop {
            let seen = self.next.load(Ordering::Relaxed);
            if !self.table.lock().waiting.is_empty() {
                self.quiet.notified().await;
                continue;
            }
            tokio::time::sleep(idle).await;
            let mut table = self.table.lock();
            if table.waiting.is_empty() && self.next.load(Ordering::Relaxed) == seen {
                table.is_closed = true;
                return;
            }
        }
    }

    /// Sends a message; returns `false` if the queue is full or closed.
    pub(crate) fn try_send(&self, message: Bytes) -> bool {
        self.out.try_send(message).is_ok()
    }

    /// Cancels a request at the server.
    pub(crate) fn cancel(&self, number: u64) {
        let id = RequestId::from_number(number);
        let message = message::write_cancelled(&id, "the client no longer waits for the answer");
        self.send_soon(message);
    }

    /// Refuses a question of a server that may not ask its clients, and says why. Pings are answered.
    pub(crate) fn refuse(&self, Request { id, method, .. }: &Request, why: &str) {
        let reply = match method {
            Method::Ping => Ok(RawJson::EMPTY_OBJECT),
            _ => Err(RpcError::of(Reason::MethodNotFound, format!("{method}: {why}"))),
        };
        self.send_soon(message::write_response(id, &reply));
    }

    /// Sends a message without waiting. If the queue is full, a task waits for room, unless too many do so already.
    fn send_soon(&self, message: Bytes) {
        let Err(mpsc::error::TrySendError::Full(message)) = self.out.try_send(message) else { return };
        let Ok(permit) = Arc::clone(&self.parked).try_acquire_owned() else { return };
        let out = self.out.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "ends when the server takes it, or takes nothing more"
        )]
        tokio::spawn(async move {
            let _permit = permit;
            // Fails only if the server has ended, and then it needs no message.
            let _ = out.send(message).await;
        });
    }
}

impl<T, R> InFlight<T, R> {
    /// Its id towards the server.
    pub(crate) fn id(&self) -> RequestId {
        RequestId::from_number(self.number)
    }

    /// Sends the request as soon as the queue has room.
    pub(crate) async fn send(&mut self, message: Bytes) -> Sent {
        tokio::select! {
            biased;
            _ = &mut self.answer => Sent::Ended,
            sent = self.pending.out.send(message) => {
                self.is_sent = sent.is_ok();
                if self.is_sent { Sent::Taken } else { Sent::QueueClosed }
            }
        }
    }
}

impl<T> InFlight<T> {
    /// Sends the request and waits for its answer.
    ///
    /// # Cancel safety
    /// Dropping it cancels the request at the server.
    pub(crate) async fn ask(mut self, message: Bytes) -> Reply {
        match self.send(message).await {
            Sent::Taken => return self.answer().await,
            // Wait for the end, so that by then the sessions know: they may send the request again.
            Sent::QueueClosed => drop(self.answer().await),
            Sent::Ended => {}
        }
        Err(RpcError::refused("The server has ended"))
    }

    /// Waits for the answer.
    pub(crate) async fn answer(&mut self) -> Reply {
        (&mut self.answer).await.unwrap_or_else(|_| Err(gone()))
    }
}

impl<T, R> Drop for InFlight<T, R> {
    fn drop(&mut self) {
        // Answered: then the table has no entry any more.
        if self.answer.is_terminated() {
            return;
        }
        if self.pending.take(self.number).is_some() && self.is_sent {
            self.pending.cancel(self.number);
        }
    }
}

/// The reply, unless the client cancels the request first.
pub(crate) async fn unless_cancelled(context: &CallContext, reply: impl Future<Output = Reply>) -> Reply {
    tokio::select! {
        biased;
        reply = reply => reply,
        () = context.cancelled() => Err(cancelled()),
    }
}

/// Parses one of our numbers.
pub(crate) fn number_of(raw: &[u8]) -> Option<u64> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

pub(crate) fn gone() -> RpcError {
    RpcError::of(Reason::BackendUnavailable, "The server has ended")
}

pub(crate) fn cancelled() -> RpcError {
    RpcError::of(Reason::Cancelled, "The request was cancelled")
}

/// The error for a request whose answer was dropped, because it is too long.
pub(crate) fn too_long() -> RpcError {
    RpcError::of(Reason::EventTooLarge, "The server's answer is longer than a message may be")
}
