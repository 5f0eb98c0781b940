//! A connection that carries a whole session, from its first message to the end of the session.
//!
//! When the connection breaks, the session waits for its client a while and is then ended; requests in flight go on
//! meanwhile. A client that says goodbye ends it at once. When the server stops, requests in flight get their answers,
//! the connection is closed, and the session waits in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tenure_protocol::{Error, Kind};
use tenure_session::call::{Caller, Collect};
use tenure_session::{Session, SessionId, Sessions};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::duplex::{Connection, Cursor, Input, Manner, Outgoing, Tasks};
use crate::http::doors::keeper::Doorkeeper;
use crate::http::doors::presence::{Lease, Presence};

/// For how long it is remembered how far a client got, where sessions wait as long as any.
const KEEP_COUNT: Duration = Duration::from_secs(30 * 60);

/// How long the store may take to note the end of a session.
const BURIAL: Duration = Duration::from_secs(5);

/// How long a client may take to open a session.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the client gets to read the last messages of a session that is over.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A connection that is about to talk.
pub(super) struct Talking {
    keeper: Doorkeeper,
    sessions: Sessions,
    manner: Manner,
    presence: Presence,
    tasks: Tasks,
    /// The session to go on with, and from where.
    resumed: Option<(Arc<Session>, Option<Cursor>)>,
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The client said goodbye.
    Goodbye,
    /// The connection broke, or nobody reads what is written.
    Broken,
    /// The session was ended by somebody else.
    SessionOver,
    /// Another connection has taken the session over.
    Replaced,
    /// The server stops.
    Stopped,
    /// The client opened no session.
    Silent,
}

/// How a connection ended, told to the one who writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Farewell(Arc<AtomicU8>);

impl Farewell {
    fn set(&self, end: End) {
        self.0.store(end as u8, Ordering::Release);
    }

    pub(super) fn get(&self) -> End {
        let ends = [End::Goodbye, End::Broken, End::SessionOver, End::Replaced, End::Stopped, End::Silent];
        ends.into_iter().find(|end| *end as u8 == self.0.load(Ordering::Acquire)).unwrap_or(End::Goodbye)
    }
}

/// Input that knows whether its end was meant.
pub(super) trait Parting: Input {
    /// Whether the client said goodbye.
    fn said_goodbye(&self) -> bool;

    /// Everything was said; lets the client say goodbye.
    fn finish(&mut self) -> impl Future<Output = ()> + Send;
}

/// Which session a client names.
pub(super) struct Claim {
    pub(super) id: SessionId,
    pub(super) cursor: Option<Cursor>,
    pub(super) lease: Lease,
}

impl Talking {
    /// Gets ready to talk: in a new session, or in the one that is claimed.
    ///
    /// # Errors
    /// When the claimed session is not the caller's, or over.
    pub(super) async fn prepare(
        keeper: &Doorkeeper,
        sessions: &Sessions,
        caller: Caller,
        max_bytes: usize,
        claim: Option<Claim>,
    ) -> Result<Self, Error> {
        let (id, resumed, lease) = match claim {
            None => (SessionId::random(), None, Lease::Own),
            Some(claim) => {
                let session = sessions.find_within(|| caller.share(), &claim.id, &caller.principal).await?;
                session.touch();
                (claim.id, Some((session, claim.cursor)), claim.lease)
            }
        };
        let (presence, left_at) = keeper.presences().enter(id.key(), lease).await;
        // What the client says of itself is better than what we think of it.
        let resumed = resumed.map(|(session, cursor)| (session, cursor.or(left_at)));
        // Clients at these doors wait on the connection that they asked on.
        let caller = Caller { collect: Collect::Here, ..caller };
        let manner = Manner { caller, max_bytes, returns: Some(id) };
        let tasks = Tasks::default();
        if resumed.is_some() {
            tasks.opened.cancel();
        }
        Ok(Self { keeper: keeper.clone(), sessions: sessions.clone(), manner, presence, tasks, resumed })
    }

    /// The id of the session, for its owner.
    pub(super) fn id(&self) -> SessionId {
        self.manner.returns.expect("a talk has a session that can be come back to")
    }

    /// Cancelled when the session is there.
    pub(super) fn opened(&self) -> CancellationToken {
        self.tasks.opened.clone()
    }

    /// Whether the session ends with its client.
    pub(super) fn is_own(&self) -> bool {
        self.presence.lease == Lease::Own
    }

    /// Where the one who writes begins to count.
    pub(super) fn cursor(&self) -> Cursor {
        self.resumed.as_ref().and_then(|(_, cursor)| cursor.clone()).unwrap_or_default()
    }

    /// Talks until the connection ends, and sees to the session after it. `written` ends with the one who writes, and
    /// says how far the client got.
    ///
    /// # Cancel safety
    /// Dropping it drops the connection; the session is left to expire.
    pub(super) async fn run(
        mut self,
        mut input: impl Parting,
        output: mpsc::Sender<Outgoing>,
        farewell: Farewell,
        written: impl Future<Output = Cursor>,
    ) {
        let stop = self.keeper.stopping().clone();
        let tasks = self.tasks.clone();
        let mut connection =
            Connection::new(self.sessions.clone(), output.clone(), self.manner.clone(), stop.clone());
        connection.tasks = tasks.clone();
        let _kill_on_drop = tasks.kill.clone().drop_guard();
        if let Some((session, cursor)) = self.resumed.take() {
            // It waits for room in the queue; whoever has reason not to is heard right below.
            tokio::select! {
                () = connection.resume(session, cursor.as_ref()) => {}
                () = output.closed() => {}
                () = self.presence.replaced.cancelled() => {}
                () = stop.cancelled() => {}
            }
        }
        let mut reading = Box::pin(connection.read(&mut input));
        let silent = async {
            if tokio::time::timeout(PATIENCE, tasks.opened.cancelled()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        };
        let end = tokio::select! {
            () = &mut reading => None,
            () = output.closed() => Some(End::Broken),
            () = tasks.over.cancelled() => Some(End::SessionOver),
            () = self.presence.replaced.cancelled() => Some(End::Replaced),
            () = stop.cancelled() => Some(End::Stopped),
            () = silent => Some(End::Silent),
        };
        if end == Some(End::Stopped) {
            // The client may still answer what it is asked and withdraw what it asked; what it asks anew is refused.
            // Everything in flight ends when the sessions do.
            tasks.leaving.cancel();
            tasks.running.close();
            tokio::select! {
                () = tasks.running.wait() => {}
                () = &mut reading => {}
                () = output.closed() => {}
            }
        }
        drop(reading);
        let end = end.unwrap_or(if input.said_goodbye() { End::Goodbye } else { End::Broken });
        tracing::debug!(?end, "a talk ends");
        farewell.set(end);
        if end == End::SessionOver {
            // All was answered with the session's end.
            tasks.running.close();
            drop(tokio::time::timeout(LAST_WORDS, tasks.running.wait()).await);
        }
        let session = connection.session().map(Arc::clone);
        connection.gone();
        tasks.kill.cancel();
        tasks.running.close();
        tasks.running.wait().await;
        // With the last sender the one who writes comes to his end.
        drop((connection, output));
        let cursor = written.await;
        if end != End::Broken {
            input.finish().await;
        }
        drop(input);
        self.presence.let_go(cursor);
        self.afterwards(end, session, &stop).await;
    }

    /// What becomes of the session.
    async fn afterwards(self, end: End, session: Option<Arc<Session>>, stop: &CancellationToken) {
        let Some(session) = session else { return };
        if matches!(end, End::Stopped | End::SessionOver | End::Replaced) {
            return;
        }
        // Not held meanwhile, so that it may go dormant.
        let id = *session.id();
        drop(session);
        let linger = self.keeper.doors().linger;
        if end == End::Broken {
            // How far the client got is known as long as this waits, also if the session is not ours to end.
            tokio::select! {
                () = tokio::time::sleep(linger.unwrap_or(KEEP_COUNT)) => {}
                () = self.presence.replaced.cancelled() => return,
                () = stop.cancelled() => return,
            }
        }
        let is_ours = self.presence.lease != Lease::Guest && (end != End::Broken || linger.is_some());
        if is_ours {
            self.bury(&id).await;
        }
    }

    /// The client does not come back.
    async fn bury(self, id: &SessionId) {
        let Self { sessions, presence, manner, .. } = self;
        if !presence.leave() {
            return;
        }
        let label = id.key().label();
        match tokio::time::timeout(BURIAL, sessions.delete(id, &manner.caller.principal)).await {
            Ok(Ok(())) => tracing::debug!(session = label, "ended: its client is gone"),
            Ok(Err(error)) if matches!(error.kind(), Kind::Gone | Kind::NotFound) => {}
            Ok(Err(error)) => tracing::warn!(session = label, %error, "the session is left to expire"),
            Err(_) => tracing::warn!(session = label, "the session is left to expire"),
        }
    }
}
