//! The layer as a transport: executes the steps of the engine.
//!
//! rmcp's service loop calls `send` and polls `receive` from one task, and may drop the future of `receive` at any
//! await. So all work in progress is kept in fields, and the next call of `receive` continues it.

use std::collections::HashMap;

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Either},
    stream::FuturesUnordered,
};
use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
    time::{Duration, Instant},
};

use super::{
    engine::{Engine, Outgoing, Step},
    handle::{SessionCommand, SessionHandle},
    holder::Holder,
    options::SessionOptions,
    saving::Saving,
    tap::{Tap, TapReader},
};
use crate::jar::JarServer;

/// How long a new expiry may wait before it is written.
const REFRESH_WITHIN: Duration = Duration::from_secs(1);

/// A client transport that keeps a data session. Pass it to `serve` like any other transport.
///
/// Results are delivered unchanged, with the cookie in their `_meta`.
pub struct SessionTransport<T: Transport<RoleClient>> {
    pub(super) inner: T,
    pub(super) engine: Engine,
    commands: mpsc::Receiver<SessionCommand>,
    /// Messages that `receive` is sending: our own requests, and requests whose `send` was held.
    sending: FuturesUnordered<BoxFuture<'static, SendOutcome>>,
    /// The requests whose `send` waits for a session.
    held: HashMap<RequestId, oneshot::Sender<Result<(), T::Error>>>,
    saving: Saving,
    refresh_due: Option<Instant>,
}

/// The outcome of a message that `receive` sent.
enum SendOutcome {
    Fine,
    Failed(RequestId, String),
}

enum TransportEvent {
    Incoming(Option<Box<ServerJsonRpcMessage>>),
    Command(SessionCommand),
    Sent(SendOutcome),
    Saved,
    Due,
}

impl<R, W> SessionTransport<AsyncRwTransport<RoleClient, TapReader<R>, W>>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Keeps a session over lines of JSON: a pipe, a socket, a child's standard streams.
    pub fn over_lines(
        read: R,
        write: W,
        server: JarServer,
        options: SessionOptions,
    ) -> (Self, SessionHandle) {
        let tap = Tap::default();
        let lines = AsyncRwTransport::new_client(TapReader::new(read, tap.clone()), write);
        Self::new(lines, tap, server, options)
    }
}

impl<T: Transport<RoleClient>> SessionTransport<T> {
    /// Keeps a session over another transport, which passes the messages that it reads to the tap. If the tap gets
    /// none, only offers of the strawman are found, because rmcp's types leave out the others.
    pub fn new(inner: T, tap: Tap, server: JarServer, options: SessionOptions) -> (Self, SessionHandle) {
        let (sessions, commands, view) = SessionHandle::new();
        let saving = Saving::new(options.jar.clone());
        let holder = Holder::new(options.jar.clone(), server, view);
        let transport = Self {
            inner,
            engine: Engine::new(options, holder, tap),
            commands,
            sending: FuturesUnordered::new(),
            held: HashMap::new(),
            saving,
            refresh_due: None,
        };
        (transport, sessions)
    }

    /// Executes steps until one has to wait for the jar, or is a message for the client.
    fn run_steps(&mut self) -> Option<ServerJsonRpcMessage> {
        while !self.saving.is_running() {
            match self.engine.next_step()? {
                Step::Save(server, entries) => {
                    self.saving.start(server, entries);
                    if !self.saving.is_running() {
                        self.engine.saved();
                    }
                }
                Step::Deliver(message) => return Some(*message),
                Step::Tell(tell) => tell(),
                Step::Send(id, message) => {
                    let sent = self.inner.send(*message);
                    let report = |result: Result<(), T::Error>| match result {
                        Ok(()) => SendOutcome::Fine,
                        Err(error) => SendOutcome::Failed(id, error.to_string()),
                    };
                    self.sending.push(sent.map(report).boxed());
                }
                Step::Release(id, message) => {
                    let sent = self.inner.send(*message);
                    let holder = self.held.remove(&id);
                    let report = move |result| {
                        // If the receiver is gone, the client above is gone too.
                        let _ = holder.map(|holder| holder.send(result));
                        SendOutcome::Fine
                    };
                    self.sending.push(sent.map(report).boxed());
                }
                Step::Abandon(id) => drop(self.held.remove(&id)),
            }
        }
        None
    }

    fn on_event(&mut self, event: TransportEvent, now: Instant) {
        match event {
            // `receive` handles the end of the stream.
            TransportEvent::Incoming(None) | TransportEvent::Sent(SendOutcome::Fine) => {}
            TransportEvent::Saved => self.engine.saved(),
            TransportEvent::Incoming(Some(message)) => self.engine.incoming(*message, now),
            TransportEvent::Command(command) => self.engine.command(command, now),
            TransportEvent::Sent(SendOutcome::Failed(id, error)) => self.engine.send_failed(&id, &error),
            TransportEvent::Due => {
                self.engine.give_up(now);
                if self.refresh_due.is_some_and(|due| due <= now) {
                    self.engine.save_all();
                }
            }
        }
        self.engine.save_urgent();
        self.refresh_due =
            self.engine.holder.has_refresh().then(|| self.refresh_due.unwrap_or(now + REFRESH_WITHIN));
    }

    fn next_due(&self) -> Option<Instant> {
        self.engine.deadline().into_iter().chain(self.refresh_due).min()
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for SessionTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        match self.engine.outgoing(item, Instant::now()) {
            Outgoing::Pass(message) => Either::Left(self.inner.send(*message)),
            Outgoing::Hold(id) => {
                let (holder, released) = oneshot::channel();
                self.held.insert(id, holder);
                // Dropped if the request was cancelled or the connection is gone; the client above learns that
                // elsewhere.
                Either::Right(Either::Left(released.map(|result| result.unwrap_or(Ok(())))))
            }
            Outgoing::Swallow => Either::Right(Either::Right(std::future::ready(Ok(())))),
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.run_steps() {
                return Some(message);
            }
            let due = self.next_due();
            // Nothing is received while the jar is written, because a message would have to wait for the write anyway.
            let saving = self.saving.is_running();
            let event = tokio::select! {
                biased;
                () = self.saving.done(), if saving => TransportEvent::Saved,
                Some(sent) = self.sending.next(), if !self.sending.is_empty() => TransportEvent::Sent(sent),
                Some(command) = self.commands.recv() => TransportEvent::Command(command),
                message = self.inner.receive(), if !saving => TransportEvent::Incoming(message.map(Box::new)),
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => TransportEvent::Due,
            };
            if matches!(event, TransportEvent::Incoming(None)) {
                return None;
            }
            self.on_event(event, Instant::now());
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.saving.done().await;
        self.engine.save_all();
        while let Some(step) = self.engine.next_step() {
            match step {
                Step::Save(server, entries) => {
                    self.saving.start(server, entries);
                    self.saving.done().await;
                }
                Step::Tell(tell) => tell(),
                // The client above is gone, and nothing more is sent.
                Step::Deliver(_) | Step::Send(..) | Step::Release(..) | Step::Abandon(_) => {}
            }
        }
        self.inner.close().await
    }
}

impl<T: Transport<RoleClient>> Drop for SessionTransport<T> {
    fn drop(&mut self) {
        // A closed transport has nothing left to write. One that is dropped with its runtime may have entries left,
        // and no task can wait for a write any more.
        self.engine.save_all();
        while let Some(step) = self.engine.next_step() {
            if let Step::Save(server, entries) = step {
                self.saving.write_now(&server, &entries);
            }
        }
    }
}

impl<T: Transport<RoleClient>> std::fmt::Debug for SessionTransport<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionTransport").field("over", &T::name()).finish_non_exhaustive()
    }
}
