//! A connection that carries a whole session, from its first message to the end of the session.
//!
//! When the connection breaks, the session waits a while for its client and is then deleted; requests in flight go on
//! meanwhile. A client that closes the connection properly ends the session at once. When the server stops, requests in
//! flight get their answers, the connection is closed, and the session waits in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tenure_protocol::{Error, Kind};
use tenure_session::call::{Caller, Collect};
use tenure_session::{Session, SessionId, Sessions, UsableUntil};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::duplex::{Cursor, DuplexConnection, DuplexSettings, Input, Outgoing, Tasks};
use crate::http::access::{Opener, Sender};
use crate::http::doors::keeper::Doorkeeper;
use crate::http::doors::presence::{Lease, Presence};
use crate::http::endpoint::Endpoint;
use crate::observe::OpenCalls;

/// How long the cursor of a client is kept when `linger` is not set.
const CURSOR_KEPT: Duration = Duration::from_secs(30 * 60);

/// How long the store may take to delete a session.
const DELETE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client may take to open a session.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the client may take to read the last messages of a session that is over.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A connection with its session, ready to run.
pub(super) struct DoorConnection {
    keeper: Doorkeeper,
    sessions: Sessions,
    settings: DuplexSettings,
    presence: Presence,
    tasks: Tasks,
    usable_until: Arc<UsableUntil>,
    /// The credentials that opened it; `None` if the endpoint asks for none.
    opener: Option<Opener>,
    /// The session to resume, and the cursor to resume it from.
    resumed: Option<(Arc<Session>, Option<Cursor>)>,
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DoorEnd {
    /// The client closed it properly.
    Closed,
    /// The connection broke, or the client does not read.
    Broken,
    /// Something other than this connection ended the session.
    SessionOver,
    /// Another connection has taken the session over.
    Replaced,
    /// The server stops.
    Stopped,
    /// The client opened no session.
    Silent,
    /// The client's credentials have expired, or were taken back.
    Expired,
}

/// Tells the writer why the connection ends.
#[derive(Clone, Debug, Default)]
pub(super) struct EndSignal(Arc<AtomicU8>);

impl EndSignal {
    fn set(&self, end: DoorEnd) {
        self.0.store(end as u8, Ordering::Release);
    }

    pub(super) fn get(&self) -> DoorEnd {
        let ends = [
            DoorEnd::Closed,
            DoorEnd::Broken,
            DoorEnd::SessionOver,
            DoorEnd::Replaced,
            DoorEnd::Stopped,
            DoorEnd::Silent,
            DoorEnd::Expired,
        ];
        ends.into_iter().find(|end| *end as u8 == self.0.load(Ordering::Acquire)).unwrap_or(DoorEnd::Closed)
    }
}

/// An input that knows whether the client closed it properly.
pub(super) trait ClosableInput: Input {
    /// Whether the client closed the connection properly.
    fn was_closed(&self) -> bool;

    /// Everything was written; waits until the client has closed its side.
    fn finish(&mut self) -> impl Future<Output = ()> + Send;
}

/// The session that a client wants to come back to.
pub(super) struct Claim {
    pub(super) id: SessionId,
    pub(super) cursor: Option<Cursor>,
    pub(super) lease: Lease,
}

impl DoorConnection {
    /// Prepares a connection: with a new session, or with the claimed one.
    ///
    /// # Errors
    /// When the claimed session is over, or belongs to another caller, or is in use at another node.
    pub(super) async fn prepare(
        keeper: &Doorkeeper,
        endpoint: &Endpoint,
        (caller, sender): (Caller, &Sender<'_>),
        claim: Option<Claim>,
    ) -> Result<Self, Error> {
        let (sessions, max_bytes) = (endpoint.sessions(), endpoint.rules().max_body_bytes);
        let usable_until = Arc::<UsableUntil>::default();
        sender.extends(&usable_until);
        let (id, resumed, lease) = match claim {
            None => (SessionId::random(), None, Lease::Own),
            Some(claim) => {
                let session = Box::pin(endpoint.claimed(&claim.id, &caller, sender)).await?;
                session.touch();
                (claim.id, Some((session, claim.cursor)), claim.lease)
            }
        };
        let (presence, left_at) = keeper.presences().enter(id.key(), lease).await;
        // The client's own cursor is more exact than the one that the old connection left.
        let resumed = resumed.map(|(session, cursor)| (session, cursor.or(left_at)));
        // Clients at these doors wait for an answer on the same connection.
        let caller = Caller { collect: Collect::Here, ..caller };
        let transport = if caller.transport == "websocket" { "websocket" } else { "sse" };
        let calls = OpenCalls::of(&endpoint.rules().observers, &caller, transport, sessions.route());
        let settings = DuplexSettings { caller, max_bytes, returns: Some(id), calls };
        let tasks = Tasks::default();
        if resumed.is_some() {
            tasks.opened.cancel();
        }
        Ok(Self {
            keeper: keeper.clone(),
            sessions: sessions.clone(),
            settings,
            presence,
            tasks,
            usable_until,
            opener: endpoint.opener(sender),
            resumed,
        })
    }

    /// The id of the session, for its owner.
    pub(super) fn id(&self) -> SessionId {
        self.settings.returns.expect("`prepare` sets the id")
    }

    /// Until when the client's credentials are good.
    pub(super) fn usable_until(&self) -> Arc<UsableUntil> {
        Arc::clone(&self.usable_until)
    }

    /// Cancelled when the session is open.
    pub(super) fn opened(&self) -> CancellationToken {
        self.tasks.opened.clone()
    }

    /// Whether the session ends with its client.
    pub(super) fn is_own(&self) -> bool {
        self.presence.lease == Lease::Own
    }

    /// The cursor that the writer starts from.
    pub(super) fn cursor(&self) -> Cursor {
        self.resumed.as_ref().and_then(|(_, cursor)| cursor.clone()).unwrap_or_default()
    }

    /// Serves until the connection ends, then keeps or deletes the session. `written` resolves when the writer has
    /// ended, with the client's cursor.
    ///
    /// # Cancel safety
    /// Dropping it drops the connection; the session is left to expire.
    pub(super) async fn run(
        mut self,
        mut input: impl ClosableInput,
        output: mpsc::Sender<Outgoing>,
        end_signal: EndSignal,
        written: impl Future<Output = Cursor>,
    ) {
        let stop = self.keeper.stopping().clone();
        let tasks = self.tasks.clone();
        let mut connection =
            DuplexConnection::new(self.sessions.clone(), output.clone(), self.settings.clone(), stop.clone());
        connection.tasks = tasks.clone();
        let _kill_on_drop = tasks.kill.clone().drop_guard();
        if let Some((session, cursor)) = self.resumed.take() {
            // The resume waits for room in the output queue. If the connection has to end meanwhile, the `select!`
            // below finds the reason.
            tokio::select! {
                () = connection.resume(session, cursor.as_ref()) => {}
                () = output.closed() => {}
                () = self.presence.replaced.cancelled() => {}
                () = stop.cancelled() => {}
            }
        }
        let mut reading = Box::pin(connection.read(&mut input));
        let silent = async {
            if tokio::time::timeout(OPEN_TIMEOUT, tasks.opened.cancelled()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        };
        let expired = async {
            match &self.opener {
                Some(opener) => opener.ended(&self.usable_until).await,
                None => std::future::pending().await,
            }
        };
        let end = tokio::select! {
            () = &mut reading => None,
            () = expired => Some(DoorEnd::Expired),
            () = output.closed() => Some(DoorEnd::Broken),
            () = tasks.over.cancelled() => Some(DoorEnd::SessionOver),
            () = self.presence.replaced.cancelled() => Some(DoorEnd::Replaced),
            () = stop.cancelled() => Some(DoorEnd::Stopped),
            () = silent => Some(DoorEnd::Silent),
        };
        if end == Some(DoorEnd::Stopped) {
            // The client may still answer questions and cancel its requests; new requests are refused. Requests in
            // flight end when the sessions do.
            tasks.leaving.cancel();
            tasks.running.close();
            tokio::select! {
                () = tasks.running.wait() => {}
                () = &mut reading => {}
                () = output.closed() => {}
            }
        }
        drop(reading);
        let end = end.unwrap_or(if input.was_closed() { DoorEnd::Closed } else { DoorEnd::Broken });
        tracing::debug!(?end, "a door connection ends");
        end_signal.set(end);
        if end == DoorEnd::SessionOver {
            // The end of the session has answered all its requests; let the answers be queued.
            tasks.running.close();
            drop(tokio::time::timeout(LAST_WORDS, tasks.running.wait()).await);
        }
        let session = connection.session().map(Arc::clone);
        connection.gone();
        tasks.kill.cancel();
        tasks.running.close();
        tasks.running.wait().await;
        // They hold the session, which may go dormant while it waits for its client.
        self.settings.calls.end_all();
        // Dropping the last sender ends the writer.
        drop((connection, output));
        let cursor = written.await;
        if end != DoorEnd::Broken {
            input.finish().await;
        }
        drop(input);
        self.presence.let_go(cursor);
        self.settle_session(end, session, &stop).await;
    }

    /// Keeps or deletes the session after the connection has ended.
    async fn settle_session(self, end: DoorEnd, session: Option<Arc<Session>>, stop: &CancellationToken) {
        let Some(session) = session else { return };
        if matches!(end, DoorEnd::Stopped | DoorEnd::SessionOver | DoorEnd::Replaced) {
            return;
        }
        // Dropped before the wait, so that the session may go dormant.
        let id = *session.id();
        drop(session);
        let linger = self.keeper.doors().linger;
        if matches!(end, DoorEnd::Broken | DoorEnd::Expired) {
            // The cursor is kept as long as this waits, so it also waits for a session that it must not delete.
            tokio::select! {
                () = tokio::time::sleep(linger.unwrap_or(CURSOR_KEPT)) => {}
                () = self.presence.replaced.cancelled() => return,
                () = stop.cancelled() => return,
            }
        }
        let comes_back = matches!(end, DoorEnd::Broken | DoorEnd::Expired);
        let may_delete = self.presence.lease != Lease::Guest && (!comes_back || linger.is_some());
        if may_delete {
            self.delete_session(&id).await;
        }
    }

    /// Deletes the session, because its client does not come back.
    async fn delete_session(self, id: &SessionId) {
        let Self { sessions, presence, settings, .. } = self;
        if !presence.leave() {
            return;
        }
        let label = id.key().label();
        match tokio::time::timeout(DELETE_TIMEOUT, sessions.delete(id, &settings.caller.principal)).await {
            Ok(Ok(())) => {
                tracing::debug!(session = label, "the session was deleted, because its client is gone")
            }
            Ok(Err(error)) if matches!(error.kind(), Kind::Gone | Kind::NotFound) => {}
            Ok(Err(error)) => tracing::warn!(session = label, %error, "the session is left to expire"),
            Err(_) => tracing::warn!(session = label, "the session is left to expire"),
        }
    }
}
