//! A connection from its first byte to its last.
//!
//! It ends when the client closes its end, when nobody reads what is written, when the session is ended by somebody
//! else, or when it is told to stop. The way down is the same each time: what is in flight gets a grace period and is
//! interrupted after it, what was said is written, the session is deleted.

use std::time::Duration;

use tenure_protocol::Kind;
use tenure_session::call::{Caller, Collect};
use tenure_session::exchange::Exchanges;
use tenure_session::{Principal, Sessions};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lines::Lines;
use super::output;
use crate::duplex::{Connection, MAX_WAITING, Manner};

/// What the client gets to read the last lines when everything else is done.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long the store may take to note the end of the session.
const BURIAL: Duration = Duration::from_secs(5);

/// Serves one client over a pair of byte streams.
#[derive(Debug)]
pub struct Stdio {
    sessions: Sessions,
    exchanges: Option<Exchanges>,
    max_line_bytes: usize,
    grace: Duration,
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The client closed its end.
    InputClosed,
    /// Nobody reads what is written.
    OutputClosed,
    /// The session was ended by somebody else.
    SessionOver,
    /// It was told to stop.
    Stopped,
}

impl Stdio {
    /// A connection of these sessions; they are shut down with it. A line may have so many bytes, and at the end
    /// requests in flight have so much time.
    pub fn new(sessions: Sessions, max_line_bytes: usize, grace: Duration) -> Self {
        Self { sessions, exchanges: None, max_line_bytes, grace }
    }

    /// The same for requests without a session too; they are shut down with it as well.
    #[must_use]
    pub fn with_exchanges(self, exchanges: Exchanges) -> Self {
        Self { exchanges: Some(exchanges), ..self }
    }

    /// Serves until the connection ends. The grace period is over early when nobody is left who wants it: when it is
    /// told to stop and the client has closed its end, whichever comes first.
    ///
    /// # Cancel safety
    /// Dropping it drops everything that is under way; the session is left to expire.
    pub async fn run<R, W>(self, input: R, output: W, stop: CancellationToken)
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let mut connection = Connection::new(self.sessions.clone(), sender, self.manner(), stop.clone());
        if let Some(exchanges) = &self.exchanges {
            connection = connection.with_exchanges(exchanges.clone());
        }
        let tasks = connection.tasks.clone();
        let _kill_on_drop = tasks.kill.clone().drop_guard();
        let unread = CancellationToken::new();
        let writer = tasks.writer(output::write(output, receiver), unread.clone());
        let mut lines = Lines::new(input, self.max_line_bytes);
        let mut reading = Box::pin(connection.read(&mut lines));
        let end = tokio::select! {
            () = &mut reading => End::InputClosed,
            () = unread.cancelled() => End::OutputClosed,
            () = tasks.over.cancelled() => End::SessionOver,
            () = stop.cancelled() => End::Stopped,
        };
        tracing::debug!(?end, "the connection ends");
        let deadline = Instant::now() + self.grace;
        let hurried = if end == End::Stopped {
            // The client may still answer what it is asked, and withdraw what it asked; the rest is refused.
            self.drain(end, reading).await
        } else {
            drop(reading);
            connection.gone();
            self.drain(end, stop.cancelled()).await
        };

        // Everything is answered. The stream of news closes once more when all of it was taken.
        tasks.leaving.cancel();
        self.sessions.drain();
        tasks.running.close();
        let soon = Instant::now() + LAST_WORDS;
        let last = if hurried { soon } else { deadline.max(soon) };
        if tokio::time::timeout_at(last, tasks.running.wait()).await.is_err() {
            tracing::info!("the client did not read everything in time");
            tasks.kill.cancel();
        }
        self.bury(&connection).await;
        // With the last sender the writer comes to its end.
        drop(connection);
        if tokio::time::timeout_at(last.max(Instant::now()), writer).await.is_err() {
            tracing::info!("the client did not read everything in time");
        }
    }

    fn manner(&self) -> Manner {
        let caller = Caller { collect: Collect::Here, ..Caller::anonymous("stdio") };
        Manner { caller, max_bytes: self.max_line_bytes, returns: None }
    }

    /// Lets what is in flight finish, until there is reason to hurry. Returns whether there was.
    async fn drain(&self, end: End, hurry: impl Future<Output = ()>) -> bool {
        // Where the session is over, everything was answered with it.
        let grace = if end == End::SessionOver { Duration::ZERO } else { self.grace };
        let (interrupted, hurried) = tokio::select! {
            interrupted = self.shut_down(grace) => (interrupted, false),
            () = hurry => (self.shut_down(Duration::ZERO).await, true),
        };
        if interrupted > 0 {
            tracing::warn!(interrupted, "requests were interrupted");
        }
        hurried
    }

    /// Shuts everything down; returns how many requests were interrupted.
    async fn shut_down(&self, grace: Duration) -> usize {
        let others = async {
            match &self.exchanges {
                Some(exchanges) => exchanges.shut_down(grace).await,
                None => 0,
            }
        };
        let (interrupted, others) = tokio::join!(self.sessions.shut_down(grace), others);
        if let Some(exchanges) = &self.exchanges {
            exchanges.close().await;
        }
        interrupted + others
    }

    /// Nobody can come back to the session, so it is deleted.
    async fn bury(&self, connection: &Connection) {
        let Some(session) = connection.session() else { return };
        let deleting = self.sessions.delete(session.id(), &Principal::ANONYMOUS);
        match tokio::time::timeout(BURIAL, deleting).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if matches!(error.kind(), Kind::Gone | Kind::NotFound) => {}
            Ok(Err(error)) => {
                tracing::warn!(session = session.label(), %error, "the session is left to expire");
            }
            Err(_) => tracing::warn!(session = session.label(), "the session is left to expire"),
        }
    }
}
