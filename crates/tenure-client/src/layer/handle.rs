//! The handle by which a program looks at the session in use and changes it.

use std::fmt;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    cookie::{Cookie, SessionId},
    dialect::Dialect,
    error::{Error, Kind},
};

/// How many commands may wait; more wait to be taken.
pub(super) const COMMANDS: usize = 16;

/// A data session, as its cookie describes it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The dialect in which the server speaks of it.
    pub dialect: Dialect,
    /// When the server says that it ends, in the server's words.
    pub expires_at: Option<String>,
    /// What the server keeps in the cookie: `data` in the strawman, `state` in the later draft.
    pub data: Option<Value>,
}

/// Looks at and changes the session of one connection. Clones speak of the same connection.
#[derive(Clone, Debug)]
pub struct Sessions {
    commands: mpsc::Sender<Command>,
    view: watch::Receiver<View>,
}

/// What a handle sees without asking.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    pub(super) dialect: Option<Dialect>,
    pub(super) current: Option<Session>,
}

type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What a handle asks the engine to do.
#[derive(Debug)]
pub(super) enum Command {
    Create { label: Option<String>, data: Option<Value>, reply: Reply<Session> },
    Resume { id: SessionId, reply: Reply<Session> },
    Recover { id: SessionId, reply: Reply<Session> },
    Select { id: SessionId, reply: Reply<Session> },
    Delete { reply: Reply<()> },
    List { reply: Reply<Vec<Session>> },
    Clear { reply: Reply<()> },
}

impl Sessions {
    pub(super) fn new() -> (Self, mpsc::Receiver<Command>, watch::Sender<View>) {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let (sender, view) = watch::channel(View::default());
        (Self { commands, view }, receiver, sender)
    }

    /// The session whose cookie goes with requests now.
    pub fn current(&self) -> Option<Session> {
        self.view.borrow().current.clone()
    }

    /// The dialect that is spoken with the server; `None` if it offers no sessions.
    pub fn dialect(&self) -> Option<Dialect> {
        self.view.borrow().dialect
    }

    /// Waits until the session in use is another one than when this was last called on this handle.
    ///
    /// # Errors
    ///
    /// `Kind::Closed` if the connection is closed.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost.
    pub async fn changed(&mut self) -> Result<(), Error> {
        self.view.changed().await.map_err(|_closed| closed())
    }

    /// Asks the server for a new session and goes on with it. Label and data are hints, which the later draft
    /// does not have.
    ///
    /// # Errors
    ///
    /// `Kind::Unsupported`, `Kind::Refused`, `Kind::TimedOut` or `Kind::Closed`.
    ///
    /// # Cancel safety
    ///
    /// The session is created and used even if nobody waits for it any more. So it is with all methods here.
    pub async fn create(&self, label: Option<String>, data: Option<Value>) -> Result<Session, Error> {
        self.ask(|reply| Command::Create { label, data, reply }).await
    }

    /// Goes on with a session that is known by its id. Where the dialect has no such request, its cookie from
    /// the jar, or else its bare id, is used from now on, and the server says what it thinks of it then.
    ///
    /// # Errors
    ///
    /// `Kind::NotFound` if the server does not know it; else as `create`.
    pub async fn resume(&self, id: SessionId) -> Result<Session, Error> {
        self.ask(|reply| Command::Resume { id, reply }).await
    }

    /// Asks the server for a session back whose time is over, and goes on with it.
    ///
    /// # Errors
    ///
    /// `Kind::NotFound` if it cannot be had; `Kind::Unsupported` in the later draft; else as `create`.
    pub async fn recover(&self, id: SessionId) -> Result<Session, Error> {
        self.ask(|reply| Command::Recover { id, reply }).await
    }

    /// Goes on with a session from the jar, without asking the server.
    ///
    /// # Errors
    ///
    /// `Kind::NotFound` if the jar does not hold it, or it was found to be of no use.
    pub async fn select(&self, id: SessionId) -> Result<Session, Error> {
        self.ask(|reply| Command::Select { id, reply }).await
    }

    /// Asks the server to end the session in use, and forgets it. One that the server does not know any more
    /// counts as ended.
    ///
    /// # Errors
    ///
    /// `Kind::NotFound` if none is in use; else as `create`.
    pub async fn delete(&self) -> Result<(), Error> {
        self.ask(|reply| Command::Delete { reply }).await
    }

    /// The sessions that the server knows of us; in the later draft, which cannot ask, those in the jar.
    ///
    /// # Errors
    ///
    /// As `create`.
    pub async fn list(&self) -> Result<Vec<Session>, Error> {
        self.ask(|reply| Command::List { reply }).await
    }

    /// Forgets all sessions of this server, here and in the jar, without asking it. They go on living there.
    ///
    /// # Errors
    ///
    /// `Kind::Closed` if the connection is closed.
    pub async fn clear(&self) -> Result<(), Error> {
        self.ask(|reply| Command::Clear { reply }).await
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_closed| closed())?;
        answer.await.map_err(|_closed| closed())?
    }
}

impl Session {
    pub(super) fn of(cookie: &Cookie) -> Self {
        let data = match cookie.dialect() {
            Dialect::Strawman => "data",
            Dialect::Sep | Dialect::Extension => "state",
        };
        Self {
            id: cookie.id().clone(),
            dialect: cookie.dialect(),
            expires_at: cookie.expiry().map(str::to_owned),
            data: cookie.reveal().get(data).cloned(),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("dialect", &self.dialect)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

pub(super) fn closed() -> Error {
    Error::new(Kind::Closed, "the connection is closed")
}
