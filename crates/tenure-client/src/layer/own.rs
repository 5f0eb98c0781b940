//! The layer's own requests: their purposes, and the effects of their answers.

use rmcp::model::{ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    engine::Engine,
    handle::{DataSession, ReplySender, SessionCommand},
    message,
};
use crate::{
    cookie::{DataSessionId, SessionCookie},
    dialect::{self, Dialect, DialectRequest, SessionRefusal},
    error::{ClientErrorKind, Error},
};

/// The most pages of one list, because a server could send pages without end.
const MAX_PAGES: usize = 100;

pub(super) struct OwnRequest {
    method: &'static str,
    purpose: Purpose,
    pub(super) deadline: Instant,
}

enum Purpose {
    /// Create a session; requests may wait for it.
    Create(Option<ReplySender<DataSession>>),
    /// Resume or recover a session by its id.
    Return(DataSessionId, ReplySender<DataSession>),
    Delete(SessionCookie, ReplySender<()>),
    List {
        found: Vec<SessionCookie>,
        pages: usize,
        reply: ReplySender<Vec<DataSession>>,
    },
}

/// Why one of our requests gets no answer.
pub(super) enum NoAnswer {
    NotSent(String),
    TimedOut,
}

impl Engine {
    /// Asks for the session that requests wait for.
    pub(super) fn start_creating(&mut self, now: Instant) {
        let Some(dialect) = self.offer.as_ref().map(|offer| offer.dialect) else { return };
        let call = dialect::create(dialect, self.options.label.as_deref(), self.options.data.as_ref());
        self.creating = Some(self.ask(call, Purpose::Create(None), now));
    }

    /// Handles a command of the handle.
    pub(super) fn command(&mut self, command: SessionCommand, now: Instant) {
        let Some(dialect) = self.offer.as_ref().map(|offer| offer.dialect) else {
            return self.unsupported(command, "the server offers no sessions");
        };
        match command {
            SessionCommand::Create { label, data, reply } => {
                let call = dialect::create(dialect, label.as_deref(), data.as_ref());
                self.ask(call, Purpose::Create(Some(reply)), now);
            }
            SessionCommand::Resume { id, reply } => {
                match dialect::resume(dialect, &id).filter(|_| self.offers("resume")) {
                    Some(call) => {
                        self.ask(call, Purpose::Return(id, reply), now);
                    }
                    None => {
                        let cookie =
                            self.holder.stored(&id).unwrap_or_else(|| SessionCookie::of_id(dialect, &id));
                        let session = DataSession::of(&cookie);
                        self.adopt(cookie);
                        self.reply(reply, Ok(session));
                    }
                }
            }
            SessionCommand::Recover { id, reply } => match dialect::recover(dialect, &id) {
                Some(call) => {
                    self.ask(call, Purpose::Return(id, reply), now);
                }
                None => self
                    .unsupported(SessionCommand::Recover { id, reply }, "the server cannot recover sessions"),
            },
            SessionCommand::Select { id, reply } => {
                let stored = self.holder.stored(&id);
                let result = match stored {
                    Some(cookie) => {
                        let session = DataSession::of(&cookie);
                        self.holder.select(cookie);
                        Ok(session)
                    }
                    None => Err(Error::new(
                        ClientErrorKind::NotFound,
                        "the jar holds no such session of this server",
                    )),
                };
                self.reply(reply, result);
            }
            SessionCommand::Delete { reply } => match self.holder.current().cloned() {
                Some(cookie) => {
                    self.ask(dialect::delete(dialect, &cookie), Purpose::Delete(cookie, reply), now);
                }
                None => self.reply(reply, Err(Error::new(ClientErrorKind::NotFound, "no session is in use"))),
            },
            SessionCommand::List { reply } => match dialect::list(dialect, None) {
                Some(call) => {
                    self.ask(call, Purpose::List { found: Vec::new(), pages: 0, reply }, now);
                }
                None => {
                    let stored = self.holder.all_stored();
                    self.reply(reply, Ok(stored));
                }
            },
            SessionCommand::Clear { reply } => {
                self.holder.forget_all();
                self.reply(reply, Ok(()));
            }
        }
    }

    /// The next time limit of our own requests.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.own.values().map(|own| own.deadline).min()
    }

    pub(super) fn give_up(&mut self, now: Instant) {
        let late: Vec<_> =
            self.own.iter().filter(|(_, own)| own.deadline <= now).map(|(id, _)| id.clone()).collect();
        for id in late {
            if let Some(own) = self.own.remove(&id) {
                self.send(id.clone(), message::cancellation(id.clone(), "no answer in time"));
                self.unanswered(&id, own, &NoAnswer::TimedOut);
            }
        }
    }

    /// Handles the server's answer to one of our requests.
    pub(super) fn answered(
        &mut self,
        id: &RequestId,
        own: OwnRequest,
        answer: ServerJsonRpcMessage,
        now: Instant,
    ) {
        let result = match answer {
            JsonRpcMessage::Response(response) => {
                Ok(serde_json::to_value(&response.result).unwrap_or_default())
            }
            JsonRpcMessage::Error(error) => Err(error.error),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => return,
        };
        let Some(dialect) = self.offer.as_ref().map(|offer| offer.dialect) else { return };
        match own.purpose {
            Purpose::Create(reply) => {
                let made = self.took(dialect, own.method, result, None);
                self.created(id, reply, made);
            }
            Purpose::Return(wanted, reply) => {
                let returned = self.took(dialect, own.method, result, Some(&wanted));
                self.reply(reply, returned);
            }
            Purpose::Delete(cookie, reply) => {
                let ended = match result {
                    Ok(_) => Ok(()),
                    Err(error) => match refusal(own.method, &error) {
                        Some(_) => Ok(()),
                        None => Err(refused(own.method, &error, Some(cookie.id()))),
                    },
                };
                if ended.is_ok() {
                    self.holder.forget(cookie.id());
                }
                self.reply(reply, ended);
            }
            Purpose::List { found, pages, reply } => match result {
                Ok(result) => self.listed(dialect, &result, found, pages, reply, now),
                Err(error) => self.reply(reply, Err(refused(own.method, &error, None))),
            },
        }
    }

    /// Handles one of our requests that will get no answer.
    pub(super) fn unanswered(&mut self, id: &RequestId, own: OwnRequest, why: &NoAnswer) {
        let method = own.method;
        let error = match why {
            NoAnswer::NotSent(error) => {
                Error::with_source(ClientErrorKind::Closed, format!("send `{method}`"), error.clone())
            }
            NoAnswer::TimedOut => {
                Error::new(ClientErrorKind::TimedOut, format!("no answer to `{method}` in time"))
            }
        };
        match own.purpose {
            Purpose::Create(reply) => self.created(id, reply, Err(error)),
            Purpose::Return(_, reply) => self.reply(reply, Err(error)),
            Purpose::Delete(_, reply) => self.reply(reply, Err(error)),
            Purpose::List { reply, .. } => self.reply(reply, Err(error)),
        }
    }

    fn ask(&mut self, call: DialectRequest, purpose: Purpose, now: Instant) -> RequestId {
        let id = self.next_own_id();
        let deadline = now + self.options.answer_within;
        self.own.insert(id.clone(), OwnRequest { method: call.method, purpose, deadline });
        let request = message::request(call, id.clone(), self.modern_meta.as_ref());
        self.send(id.clone(), request);
        id
    }

    fn offers(&self, feature: &str) -> bool {
        self.offer.as_ref().is_some_and(|offer| offer.includes(feature))
    }

    /// Uses the session in the answer, or returns why the answer has no session.
    fn took(
        &mut self,
        dialect: Dialect,
        method: &'static str,
        result: Result<Value, ErrorData>,
        wanted: Option<&DataSessionId>,
    ) -> Result<DataSession, Error> {
        match result {
            Ok(result) => {
                let cookie = dialect::created(dialect, &result).ok_or_else(|| {
                    Error::new(ClientErrorKind::Invalid, format!("the answer to `{method}` names no session"))
                })?;
                let session = DataSession::of(&cookie);
                self.adopt(cookie);
                Ok(session)
            }
            Err(error) => {
                if let (Some(wanted), Some(refusal)) = (wanted, refusal(method, &error)) {
                    let reason = match refusal {
                        SessionRefusal::Gone(why) => why.as_str(),
                        SessionRefusal::Required | SessionRefusal::Either => "session_not_found",
                    };
                    self.holder.lose(wanted, reason);
                }
                Err(refused(method, &error, wanted))
            }
        }
    }

    fn created(
        &mut self,
        id: &RequestId,
        reply: Option<ReplySender<DataSession>>,
        made: Result<DataSession, Error>,
    ) {
        if self.creating.as_ref() == Some(id) {
            if let Err(error) = &made {
                tracing::warn!(%error, "cannot create a session, continuing without one");
            }
            self.creation_ended();
        }
        if let Some(reply) = reply {
            self.reply(reply, made);
        }
    }

    fn listed(
        &mut self,
        dialect: Dialect,
        result: &Value,
        mut found: Vec<SessionCookie>,
        pages: usize,
        reply: ReplySender<Vec<DataSession>>,
        now: Instant,
    ) {
        let Some(page) = dialect::page(dialect, result) else {
            return self.reply(
                reply,
                Err(Error::new(ClientErrorKind::Invalid, "the answer holds no list of sessions")),
            );
        };
        found.extend(page.sessions);
        let next = page.next.filter(|_| pages + 1 < MAX_PAGES);
        match next.and_then(|cursor| dialect::list(dialect, Some(&cursor))) {
            Some(call) => {
                self.ask(call, Purpose::List { found, pages: pages + 1, reply }, now);
            }
            None => self.reply(reply, Ok(found.iter().map(DataSession::of).collect())),
        }
    }

    fn unsupported(&mut self, command: SessionCommand, why: &'static str) {
        let error = Error::new(ClientErrorKind::Unsupported, why);
        match command {
            SessionCommand::Create { reply, .. }
            | SessionCommand::Resume { reply, .. }
            | SessionCommand::Recover { reply, .. }
            | SessionCommand::Select { reply, .. } => self.reply(reply, Err(error)),
            SessionCommand::Delete { reply } | SessionCommand::Clear { reply } => {
                self.reply(reply, Err(error))
            }
            SessionCommand::List { reply } => self.reply(reply, Err(error)),
        }
    }

    /// Sends the result to the caller. A caller that no longer waits is ignored.
    fn reply<T: Send + 'static>(&mut self, reply: ReplySender<T>, result: Result<T, Error>) {
        self.tell(move || drop(reply.send(result)));
    }
}

fn refusal(method: &str, error: &ErrorData) -> Option<SessionRefusal> {
    dialect::of_error(method, error.code.0, &error.message, error.data.as_ref())
}

fn refused(method: &'static str, error: &ErrorData, id: Option<&DataSessionId>) -> Error {
    const METHOD_NOT_FOUND: i32 = -32601;
    if error.code.0 == METHOD_NOT_FOUND {
        return Error::new(ClientErrorKind::Unsupported, format!("the server does not know `{method}`"));
    }
    let kind =
        if refusal(method, error).is_some() { ClientErrorKind::NotFound } else { ClientErrorKind::Refused };
    // Many servers repeat the id in their text, and errors are logged.
    let said = id.map_or_else(|| error.message.to_string(), |id| error.message.replace(id.reveal(), "…"));
    Error::new(kind, format!("`{method}` was refused: {said} ({})", error.code.0))
}
