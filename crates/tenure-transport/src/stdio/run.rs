//! A stdio connection from its first byte to its last.
//!
//! It ends when the client closes its end, when the output cannot be written, when something else ends the session, or
//! when it is told to stop. It always ends in the same steps: requests in flight get a grace period and are then
//! interrupted, queued messages are written, the session is deleted.

use std::time::Duration;

use tenure_protocol::Kind;
use tenure_session::call::{Caller, Collect};
use tenure_session::exchange::Exchanges;
use tenure_session::{Principal, Sessions};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lines::InputLines;
use super::output;
use crate::duplex::{DuplexConnection, DuplexSettings, MAX_WAITING};
use crate::observe::{Observers, OpenCalls};

/// How long the client may take to read the last lines when everything else is done.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long the store may take to delete the session.
const DELETE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves one client over a pair of byte streams.
#[derive(Debug)]
pub struct Stdio {
    sessions: Sessions,
    exchanges: Option<Exchanges>,
    max_line_bytes: usize,
    grace: Duration,
    observers: Observers,
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StdioEnd {
    /// The client closed its end.
    InputClosed,
    /// The output cannot be written.
    OutputClosed,
    /// Something other than this connection ended the session.
    SessionOver,
    /// It was told to stop.
    Stopped,
}

impl Stdio {
    /// Serves a client with these sessions, which are shut down with the connection. `max_line_bytes` bounds a line of
    /// the input; `grace` is the time that requests in flight get at the end.
    pub fn new(sessions: Sessions, max_line_bytes: usize, grace: Duration) -> Self {
        Self { sessions, exchanges: None, max_line_bytes, grace, observers: Observers::default() }
    }

    /// Serves requests without a session too; these exchanges are shut down with the connection as well.
    #[must_use]
    pub fn with_exchanges(self, exchanges: Exchanges) -> Self {
        Self { exchanges: Some(exchanges), ..self }
    }

    /// Tells these of the client's requests.
    #[must_use]
    pub fn with_observers(self, observers: Observers) -> Self {
        Self { observers, ..self }
    }

    /// Serves until the connection ends. The grace period is cut short once both have happened: the client has closed
    /// its end, and the connection was told to stop.
    ///
    /// # Cancel safety
    /// Dropping it drops all requests in flight; the session is left to expire.
    pub async fn run<R, W>(self, input: R, output: W, stop: CancellationToken)
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let mut connection =
            DuplexConnection::new(self.sessions.clone(), sender, self.settings(), stop.clone());
        if let Some(exchanges) = &self.exchanges {
            connection = connection.with_exchanges(exchanges.clone());
        }
        let tasks = connection.tasks.clone();
        let _kill_on_drop = tasks.kill.clone().drop_guard();
        let unread = CancellationToken::new();
        let writer = tasks.writer(output::write(output, receiver), unread.clone());
        let mut lines = InputLines::new(input, self.max_line_bytes);
        let mut reading = Box::pin(connection.read(&mut lines));
        let end = tokio::select! {
            () = &mut reading => StdioEnd::InputClosed,
            () = unread.cancelled() => StdioEnd::OutputClosed,
            () = tasks.over.cancelled() => StdioEnd::SessionOver,
            () = stop.cancelled() => StdioEnd::Stopped,
        };
        tracing::debug!(?end, "the connection ends");
        let deadline = Instant::now() + self.grace;
        let hurried = if end == StdioEnd::Stopped {
            // The client may still answer questions and cancel its requests; new requests are refused.
            self.drain(end, reading).await
        } else {
            drop(reading);
            connection.gone();
            self.drain(end, stop.cancelled()).await
        };

        // Every request is answered. The standalone stream closes once its messages were queued.
        tasks.leaving.cancel();
        self.sessions.drain();
        tasks.running.close();
        let soon = Instant::now() + LAST_WORDS;
        let last = if hurried { soon } else { deadline.max(soon) };
        if tokio::time::timeout_at(last, tasks.running.wait()).await.is_err() {
            tracing::info!("the client did not read everything in time");
            tasks.kill.cancel();
        }
        self.delete_session(&connection).await;
        // Dropping the last sender ends the writer.
        drop(connection);
        if tokio::time::timeout_at(last.max(Instant::now()), writer).await.is_err() {
            tracing::info!("the client did not read everything in time");
        }
    }

    fn settings(&self) -> DuplexSettings {
        let caller = Caller { collect: Collect::Here, ..Caller::anonymous("stdio") };
        let calls = OpenCalls::of(&self.observers, &caller, "stdio", self.sessions.route());
        DuplexSettings { caller, max_bytes: self.max_line_bytes, returns: None, calls }
    }

    /// Lets requests in flight finish, until `hurry` resolves. Returns whether it did.
    async fn drain(&self, end: StdioEnd, hurry: impl Future<Output = ()>) -> bool {
        // The end of the session has answered all its requests.
        let grace = if end == StdioEnd::SessionOver { Duration::ZERO } else { self.grace };
        let (interrupted, hurried) = tokio::select! {
            interrupted = self.shut_down(grace) => (interrupted, false),
            () = hurry => (self.shut_down(Duration::ZERO).await, true),
        };
        if interrupted > 0 {
            tracing::warn!(interrupted, "requests were interrupted");
        }
        hurried
    }

    /// Shuts down sessions and exchanges; returns how many requests were interrupted.
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

    /// Deletes the session, because its client cannot come back to it.
    async fn delete_session(&self, connection: &DuplexConnection) {
        let Some(session) = connection.session() else { return };
        let deleting = self.sessions.delete(session.id(), &Principal::ANONYMOUS);
        match tokio::time::timeout(DELETE_TIMEOUT, deleting).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if matches!(error.kind(), Kind::Gone | Kind::NotFound) => {}
            Ok(Err(error)) => {
                tracing::warn!(session = session.label(), %error, "the session is left to expire");
            }
            Err(_) => tracing::warn!(session = session.label(), "the session is left to expire"),
        }
    }
}
