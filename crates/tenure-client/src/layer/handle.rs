//! The handle with which a program reads and changes the session in use.

use std::fmt;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    cookie::{DataSessionId, SessionCookie},
    dialect::Dialect,
    error::{ClientErrorKind, Error},
};

/// The capacity of the queue of commands. Callers wait while it is full.
pub(super) const COMMANDS: usize = 16;

/// A data session, as described by its cookie.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct DataSession {
    /// Its id.
    pub id: DataSessionId,
    /// The dialect that the server uses for it.
    pub dialect: Dialect,
    /// When it ends, as the server wrote it.
    pub expires_at: Option<String>,
    /// The server's data in the cookie: `state` in the later draft, which has nothing else, and `data` in the others.
    pub data: Option<Value>,
}

/// Reads and changes the session of one connection. Clones belong to the same connection.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    commands: mpsc::Sender<SessionCommand>,
    view: watch::Receiver<View>,
}

/// The part of the state that a handle reads without a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    pub(super) dialect: Option<Dialect>,
    pub(super) current: Option<DataSession>,
}

/// Takes the answer to a command.
pub(super) type ReplySender<T> = oneshot::Sender<Result<T, Error>>;

/// A command of a handle to the engine.
#[derive(Debug)]
pub(super) enum SessionCommand {
    Create { label: Option<String>, data: Option<Value>, reply: ReplySender<DataSession> },
    Resume { id: DataSessionId, reply: ReplySender<DataSession> },
    Recover { id: DataSessionId, reply: ReplySender<DataSession> },
    Select { id: DataSessionId, reply: ReplySender<DataSession> },
    Delete { reply: ReplySender<()> },
    List { reply: ReplySender<Vec<DataSession>> },
    Clear { reply: ReplySender<()> },
}

impl SessionHandle {
    pub(super) fn new() -> (Self, mpsc::Receiver<SessionCommand>, watch::Sender<View>) {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let (sender, view) = watch::channel(View::default());
        (Self { commands, view }, receiver, sender)
    }

    /// The session whose cookie is sent with requests now.
    pub fn current(&self) -> Option<DataSession> {
        self.view.borrow().current.clone()
    }

    /// The dialect that is used with the server; `None` if it offers no sessions.
    pub fn dialect(&self) -> Option<Dialect> {
        self.view.borrow().dialect
    }

    /// Waits until the session in use has changed since the last call on this handle.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::Closed` if the connection is closed.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost.
    pub async fn changed(&mut self) -> Result<(), Error> {
        self.view.changed().await.map_err(|_closed| closed())
    }

    /// Asks the server for a new session and uses it from then on. Label and data are hints, which the later draft does
    /// not have.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::Unsupported`, `ClientErrorKind::Refused`, `ClientErrorKind::TimedOut` or
    /// `ClientErrorKind::Closed`.
    ///
    /// # Cancel safety
    ///
    /// The session is created and used even if the caller no longer waits. The same is true for all methods here.
    pub async fn create(&self, label: Option<String>, data: Option<Value>) -> Result<DataSession, Error> {
        self.ask(|reply| SessionCommand::Create { label, data, reply }).await
    }

    /// Continues a session by its id. If the dialect or the server has no such request, the cookie from the jar, or
    /// else the id alone, is used from now on, and a later request shows whether the server accepts it.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::NotFound` if the server does not know it; else as `create`.
    pub async fn resume(&self, id: DataSessionId) -> Result<DataSession, Error> {
        self.ask(|reply| SessionCommand::Resume { id, reply }).await
    }

    /// Asks the server to bring back an expired session, and uses it from then on.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::NotFound` if the server cannot bring it back; `ClientErrorKind::Unsupported` in the later
    /// draft; else as `create`.
    pub async fn recover(&self, id: DataSessionId) -> Result<DataSession, Error> {
        self.ask(|reply| SessionCommand::Recover { id, reply }).await
    }

    /// Continues a session from the jar, without a request to the server.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::NotFound` if it is not in the jar, or was invalidated.
    pub async fn select(&self, id: DataSessionId) -> Result<DataSession, Error> {
        self.ask(|reply| SessionCommand::Select { id, reply }).await
    }

    /// Asks the server to end the session in use, and forgets it. A session that the server no longer knows counts as
    /// ended.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::NotFound` if no session is in use; else as `create`.
    pub async fn delete(&self) -> Result<(), Error> {
        self.ask(|reply| SessionCommand::Delete { reply }).await
    }

    /// Our sessions at the server; in the later draft, which has no such request, those in the jar.
    ///
    /// # Errors
    ///
    /// As `create`.
    pub async fn list(&self) -> Result<Vec<DataSession>, Error> {
        self.ask(|reply| SessionCommand::List { reply }).await
    }

    /// Forgets all sessions of this server, here and in the jar, without a request to it. They go on at the server.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::Closed` if the connection is closed.
    pub async fn clear(&self) -> Result<(), Error> {
        self.ask(|reply| SessionCommand::Clear { reply }).await
    }

    async fn ask<T>(&self, command: impl FnOnce(ReplySender<T>) -> SessionCommand) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_closed| closed())?;
        answer.await.map_err(|_closed| closed())?
    }
}

impl DataSession {
    pub(super) fn of(cookie: &SessionCookie) -> Self {
        let data = match cookie.dialect() {
            Dialect::Strawman | Dialect::Extension => "data",
            Dialect::Draft => "state",
        };
        Self {
            id: cookie.id().clone(),
            dialect: cookie.dialect(),
            expires_at: cookie.expiry().map(str::to_owned),
            data: cookie.reveal().get(data).cloned(),
        }
    }
}

impl fmt::Debug for DataSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataSession")
            .field("id", &self.id)
            .field("dialect", &self.dialect)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

pub(super) fn closed() -> Error {
    Error::new(ClientErrorKind::Closed, "the connection is closed")
}
