//! The layer's own requests: what they are for, and what their answers do.

use rmcp::model::{ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use serde_json::Value;
use tokio::{sync::oneshot, time::Instant};

use super::{
    engine::Engine,
    handle::{Command, Session},
    message,
};
use crate::{
    cookie::{Cookie, SessionId},
    dialect::{self, Call, Dialect, Refusal},
    error::{Error, Kind},
};

/// A server that never ends its list is not listened to for ever.
const MAX_PAGES: usize = 100;

type Reply<T> = oneshot::Sender<Result<T, Error>>;

pub(super) struct OwnRequest {
    method: &'static str,
    purpose: Purpose,
    pub(super) deadline: Instant,
}

enum Purpose {
    /// Make a session; others may wait for it.
    Create(Option<Reply<Session>>),
    /// Get back a session that is known by its id.
    Return(SessionId, Reply<Session>),
    Delete(Cookie, Reply<()>),
    List {
        found: Vec<Cookie>,
        pages: usize,
        reply: Reply<Vec<Session>>,
    },
}

/// Why a request of ours has no answer.
pub(super) enum Unanswered {
    NotSent(String),
    TimedOut,
}

impl Engine {
    /// Makes the session for which requests wait.
    pub(super) fn start_creating(&mut self, now: Instant) {
        let Some(dialect) = self.offer.as_ref().map(|offer| offer.dialect) else { return };
        let call = dialect::create(dialect, self.options.label.as_deref(), self.options.data.as_ref());
        self.creating = Some(self.ask(call, Purpose::Create(None), now));
    }

    /// The handle wants something done.
    pub(super) fn command(&mut self, command: Command, now: Instant) {
        let Some(dialect) = self.offer.as_ref().map(|offer| offer.dialect) else {
            return self.unsupported(command, "the server offers no sessions");
        };
        match command {
            Command::Create { label, data, reply } => {
                let call = dialect::create(dialect, label.as_deref(), data.as_ref());
                self.ask(call, Purpose::Create(Some(reply)), now);
            }
            Command::Resume { id, reply } => {
                match dialect::resume(dialect, &id).filter(|_| self.offers("resume")) {
                    Some(call) => {
                        self.ask(call, Purpose::Return(id, reply), now);
                    }
                    None => {
                        let cookie = self.holder.stored(&id).unwrap_or_else(|| Cookie::of_id(dialect, &id));
                        let session = Session::of(&cookie);
                        self.adopt(cookie);
                        self.reply(reply, Ok(session));
                    }
                }
            }
            Command::Recover { id, reply } => match dialect::recover(dialect, &id) {
                Some(call) => {
                    self.ask(call, Purpose::Return(id, reply), now);
                }
                None => {
                    self.unsupported(Command::Recover { id, reply }, "the server cannot recover sessions")
                }
            },
            Command::Select { id, reply } => {
                let stored = self.holder.stored(&id);
                let result = match stored {
                    Some(cookie) => {
                        let session = Session::of(&cookie);
                        self.holder.select(cookie);
                        Ok(session)
                    }
                    None => Err(Error::new(Kind::NotFound, "the jar holds no such session of this server")),
                };
                self.reply(reply, result);
            }
            Command::Delete { reply } => match self.holder.current().cloned() {
                Some(cookie) => {
                    self.ask(dialect::delete(dialect, &cookie), Purpose::Delete(cookie, reply), now);
                }
                None => self.reply(reply, Err(Error::new(Kind::NotFound, "no session is in use"))),
            },
            Command::List { reply } => match dialect::list(dialect, None) {
                Some(call) => {
                    self.ask(call, Purpose::List { found: Vec::new(), pages: 0, reply }, now);
                }
                None => {
                    let stored = self.holder.all_stored();
                    self.reply(reply, Ok(stored));
                }
            },
            Command::Clear { reply } => {
                self.holder.forget_all();
                self.reply(reply, Ok(()));
            }
        }
    }

    /// The next moment at which a request of ours has waited long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.own.values().map(|own| own.deadline).min()
    }

    pub(super) fn give_up(&mut self, now: Instant) {
        let late: Vec<_> =
            self.own.iter().filter(|(_, own)| own.deadline <= now).map(|(id, _)| id.clone()).collect();
        for id in late {
            if let Some(own) = self.own.remove(&id) {
                self.send(id.clone(), message::cancellation(id.clone(), "no answer in time"));
                self.unanswered(&id, own, &Unanswered::TimedOut);
            }
        }
    }

    /// The server answered a request of ours.
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

    /// A request of ours will get no answer.
    pub(super) fn unanswered(&mut self, id: &RequestId, own: OwnRequest, why: &Unanswered) {
        let method = own.method;
        let error = match why {
            Unanswered::NotSent(error) => {
                Error::with_source(Kind::Closed, format!("send `{method}`"), error.clone())
            }
            Unanswered::TimedOut => Error::new(Kind::TimedOut, format!("no answer to `{method}` in time")),
        };
        match own.purpose {
            Purpose::Create(reply) => self.created(id, reply, Err(error)),
            Purpose::Return(_, reply) => self.reply(reply, Err(error)),
            Purpose::Delete(_, reply) => self.reply(reply, Err(error)),
            Purpose::List { reply, .. } => self.reply(reply, Err(error)),
        }
    }

    fn ask(&mut self, call: Call, purpose: Purpose, now: Instant) -> RequestId {
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

    /// A session that the server gave, or did not.
    fn took(
        &mut self,
        dialect: Dialect,
        method: &'static str,
        result: Result<Value, ErrorData>,
        wanted: Option<&SessionId>,
    ) -> Result<Session, Error> {
        match result {
            Ok(result) => {
                let cookie = dialect::created(dialect, &result).ok_or_else(|| {
                    Error::new(Kind::Invalid, format!("the answer to `{method}` names no session"))
                })?;
                let session = Session::of(&cookie);
                self.adopt(cookie);
                Ok(session)
            }
            Err(error) => {
                if let (Some(wanted), Some(refusal)) = (wanted, refusal(method, &error)) {
                    let reason = match refusal {
                        Refusal::Gone(why) => why.as_str(),
                        Refusal::Required | Refusal::Either => "session_not_found",
                    };
                    self.holder.lose(wanted, reason);
                }
                Err(refused(method, &error, wanted))
            }
        }
    }

    fn created(&mut self, id: &RequestId, reply: Option<Reply<Session>>, made: Result<Session, Error>) {
        if self.creating.as_ref() == Some(id) {
            if let Err(error) = &made {
                tracing::warn!(%error, "no session could be made, going on without");
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
        mut found: Vec<Cookie>,
        pages: usize,
        reply: Reply<Vec<Session>>,
        now: Instant,
    ) {
        let Some(page) = dialect::page(dialect, result) else {
            return self.reply(reply, Err(Error::new(Kind::Invalid, "the answer holds no list of sessions")));
        };
        found.extend(page.sessions);
        let next = page.next.filter(|_| pages + 1 < MAX_PAGES);
        match next.and_then(|cursor| dialect::list(dialect, Some(&cursor))) {
            Some(call) => {
                self.ask(call, Purpose::List { found, pages: pages + 1, reply }, now);
            }
            None => self.reply(reply, Ok(found.iter().map(Session::of).collect())),
        }
    }

    fn unsupported(&mut self, command: Command, why: &'static str) {
        let error = Error::new(Kind::Unsupported, why);
        match command {
            Command::Create { reply, .. }
            | Command::Resume { reply, .. }
            | Command::Recover { reply, .. }
            | Command::Select { reply, .. } => self.reply(reply, Err(error)),
            Command::Delete { reply } | Command::Clear { reply } => self.reply(reply, Err(error)),
            Command::List { reply } => self.reply(reply, Err(error)),
        }
    }

    /// A caller that does not wait any more is no reason to complain.
    fn reply<T: Send + 'static>(&mut self, reply: Reply<T>, result: Result<T, Error>) {
        self.tell(move || drop(reply.send(result)));
    }
}

fn refusal(method: &str, error: &ErrorData) -> Option<Refusal> {
    dialect::of_error(method, error.code.0, &error.message, error.data.as_ref())
}

fn refused(method: &'static str, error: &ErrorData, id: Option<&SessionId>) -> Error {
    const METHOD_NOT_FOUND: i32 = -32601;
    if error.code.0 == METHOD_NOT_FOUND {
        return Error::new(Kind::Unsupported, format!("the server does not know `{method}`"));
    }
    let kind = if refusal(method, error).is_some() { Kind::NotFound } else { Kind::Refused };
    // Servers like to repeat the id, and errors are logged.
    let said = id.map_or_else(|| error.message.to_string(), |id| error.message.replace(id.reveal(), "…"));
    Error::new(kind, format!("`{method}` was refused: {said} ({})", error.code.0))
}
