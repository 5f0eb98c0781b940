//! The layer as a transport: carries out what the engine decides.
//!
//! rmcp's service loop calls `send` and polls `receive` from one task and drops the latter's future at any
//! await. So everything that takes time is kept in fields here, and `receive` goes on with it when it is
//! called again.

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
    handle::{Command, Sessions},
    holder::Holder,
    options::Options,
    saving::Saving,
    tap::{Tap, TapReader},
};
use crate::jar::Server;

/// How long a mere change of the expiry may wait to be written.
const REFRESH_WITHIN: Duration = Duration::from_secs(1);

/// A client transport that keeps a data session. Hand it to `serve`, as any other transport.
///
/// Results are handed on as they came, with the cookie in their `_meta`.
pub struct SessionTransport<T: Transport<RoleClient>> {
    pub(super) inner: T,
    pub(super) engine: Engine,
    commands: mpsc::Receiver<Command>,
    /// What `receive` is sending, for itself or for a `send` that was held.
    sending: FuturesUnordered<BoxFuture<'static, Sent>>,
    /// Those whose `send` waits for a session.
    held: HashMap<RequestId, oneshot::Sender<Result<(), T::Error>>>,
    saving: Saving,
    refresh_due: Option<Instant>,
}

/// What came of something that `receive` sent.
enum Sent {
    Fine,
    Failed(RequestId, String),
}

enum Event {
    Incoming(Option<Box<ServerJsonRpcMessage>>),
    Command(Command),
    Sent(Sent),
    Saved,
    Due,
}

impl<R, W> SessionTransport<AsyncRwTransport<RoleClient, TapReader<R>, W>>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Keeps a session over lines of JSON: a pipe, a socket, a child's standard streams.
    pub fn over_lines(read: R, write: W, server: Server, options: Options) -> (Self, Sessions) {
        let tap = Tap::default();
        let lines = AsyncRwTransport::new_client(TapReader::new(read, tap.clone()), write);
        Self::new(lines, tap, server, options)
    }
}

impl<T: Transport<RoleClient>> SessionTransport<T> {
    /// Keeps a session over another transport, which shows what it reads to the tap. With a tap that is shown
    /// nothing only the strawman's offers are seen, since rmcp's types leave out the others.
    pub fn new(inner: T, tap: Tap, server: Server, options: Options) -> (Self, Sessions) {
        let (sessions, commands, view) = Sessions::new();
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

    /// Carries out steps until one of them waits for the jar, or is a message for the client.
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
                        Ok(()) => Sent::Fine,
                        Err(error) => Sent::Failed(id, error.to_string()),
                    };
                    self.sending.push(sent.map(report).boxed());
                }
                Step::Release(id, message) => {
                    let sent = self.inner.send(*message);
                    let holder = self.held.remove(&id);
                    let report = move |result| {
                        // If it is not waited for, the client above has gone.
                        let _ = holder.map(|holder| holder.send(result));
                        Sent::Fine
                    };
                    self.sending.push(sent.map(report).boxed());
                }
                Step::Abandon(id) => drop(self.held.remove(&id)),
            }
        }
        None
    }

    fn on_event(&mut self, event: Event, now: Instant) {
        match event {
            // The end of the stream is for `receive` to tell.
            Event::Incoming(None) | Event::Sent(Sent::Fine) => {}
            Event::Saved => self.engine.saved(),
            Event::Incoming(Some(message)) => self.engine.incoming(*message, now),
            Event::Command(command) => self.engine.command(command, now),
            Event::Sent(Sent::Failed(id, error)) => self.engine.send_failed(&id, &error),
            Event::Due => {
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
                // Dropped: cancelled, or the connection is gone, which the client above hears otherwise.
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
            // Nothing is read while the jar is written: what is read would have to wait for it anyway.
            let saving = self.saving.is_running();
            let event = tokio::select! {
                biased;
                () = self.saving.done(), if saving => Event::Saved,
                Some(sent) = self.sending.next(), if !self.sending.is_empty() => Event::Sent(sent),
                Some(command) = self.commands.recv() => Event::Command(command),
                message = self.inner.receive(), if !saving => Event::Incoming(message.map(Box::new)),
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Event::Due,
            };
            if matches!(event, Event::Incoming(None)) {
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
                // There is nobody left to hear it.
                Step::Deliver(_) | Step::Send(..) | Step::Release(..) | Step::Abandon(_) => {}
            }
        }
        self.inner.close().await
    }
}

impl<T: Transport<RoleClient>> Drop for SessionTransport<T> {
    fn drop(&mut self) {
        // A transport that was closed has nothing left to write. One that is dropped with its runtime has,
        // and nobody can wait for it any more.
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
