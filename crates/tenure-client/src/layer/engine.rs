//! What every message means for the session, decided without I/O.
//!
//! Outgoing requests get the cookie, or wait while a session is being made. Incoming answers are read for
//! cookies and refusals. What follows from either is a queue of steps, carried out in order by the transport.

use std::collections::{HashMap, VecDeque};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, RequestId, RequestMetaObject,
    ServerJsonRpcMessage, ServerResult,
};
use tokio::time::Instant;

use super::{
    holder::{Entry, Holder},
    message::{self, Attached},
    options::{Attach, Create, Options, Recreate},
    own::{OwnRequest, Unanswered},
    tap::Tap,
};
use crate::{
    cookie::{Cookie, Object},
    dialect::{self, Offer, Refusal},
    jar::Server,
};

/// How many requests wait for a session; more go out without one.
const MAX_WAITING: usize = 1024;

pub(super) struct Engine {
    pub(super) options: Options,
    pub(super) holder: Holder,
    pub(super) offer: Option<Offer>,
    pub(super) tap: Tap,
    /// The server's answer to our greeting, with which the client's own is answered.
    pub(super) greeting: Option<ServerResult>,
    /// The `_meta` of every request, if the server is of the modern era.
    pub(super) modern_meta: Option<Object>,
    /// The `_meta` of a `server/discover` of the client's own, for one that greets by itself.
    pub(super) discovery_meta: Option<RequestMetaObject>,
    /// The client's requests in flight that carry a cookie or could have.
    pending: HashMap<RequestId, Pending>,
    /// Ours.
    pub(super) own: HashMap<RequestId, OwnRequest>,
    /// The request of ours that makes the session for which others wait.
    pub(super) creating: Option<RequestId>,
    /// A session was made that may not be in the jar yet. Nothing is sent with it until it is: what is done
    /// in a session that is lost with the process is lost as well.
    fresh: bool,
    waiting: Vec<Waiting>,
    steps: VecDeque<Step>,
    own_ids: u64,
}

/// What the transport has to do.
pub(super) enum Step {
    /// Enter this in the jar, before any later step.
    Save(Server, Vec<Entry>),
    /// Hand this to the client above.
    Deliver(Box<ServerJsonRpcMessage>),
    /// Tell a caller of the handle.
    Tell(Box<dyn FnOnce() + Send>),
    /// Send this, and report if that fails.
    Send(RequestId, Box<ClientJsonRpcMessage>),
    /// Send what was held under this id.
    Release(RequestId, Box<ClientJsonRpcMessage>),
    /// What was held under this id is not wanted any more.
    Abandon(RequestId),
}

/// What becomes of a message of the client above.
pub(super) enum Outgoing {
    /// It goes out now.
    Pass(Box<ClientJsonRpcMessage>),
    /// It waits for a session; a later step names it.
    Hold(RequestId),
    /// It has been dealt with.
    Swallow,
}

struct Pending {
    method: String,
    sent: Option<Cookie>,
    /// The request without a cookie, while it may still be repeated.
    kept: Option<ClientRequest>,
    repeat: Option<Repeat>,
}

/// What a request repeats: the client's id for it, and the refusal to hand on if repeating fails.
struct Repeat {
    id: RequestId,
    refusal: Box<ServerJsonRpcMessage>,
}

enum Waiting {
    First(RequestId, ClientRequest),
    Again(Repeat, ClientRequest),
}

impl Engine {
    pub(super) fn new(options: Options, holder: Holder, tap: Tap) -> Self {
        Self {
            options,
            holder,
            offer: None,
            tap,
            greeting: None,
            modern_meta: None,
            discovery_meta: None,
            pending: HashMap::new(),
            own: HashMap::new(),
            creating: None,
            fresh: false,
            waiting: Vec::new(),
            steps: VecDeque::new(),
            own_ids: 0,
        }
    }

    /// The client above sends a message.
    pub(super) fn outgoing(&mut self, message: ClientJsonRpcMessage, now: Instant) -> Outgoing {
        let message = match message {
            JsonRpcMessage::Request(request) => {
                return self.outgoing_request(request.id, request.request, now);
            }
            JsonRpcMessage::Notification(mut notification) => {
                match &mut notification.notification {
                    ClientNotification::InitializedNotification(_) => self.make_first_session(now),
                    ClientNotification::CancelledNotification(cancelled) => {
                        if let Some(id) = &mut cancelled.params.request_id {
                            match self.cancel(id) {
                                Cancel::InFlight(as_sent) => *id = as_sent,
                                Cancel::NeverSent => return Outgoing::Swallow,
                            }
                        }
                    }
                    _ => {}
                }
                JsonRpcMessage::Notification(notification)
            }
            message => message,
        };
        Outgoing::Pass(Box::new(message))
    }

    fn outgoing_request(&mut self, id: RequestId, mut request: ClientRequest, now: Instant) -> Outgoing {
        if self.is_answered_by_greeting(&id, &request, now) {
            return Outgoing::Swallow;
        }
        self.note_discovery(&request);
        self.declare_extension(&mut request);
        if !self.carries_cookie(&request) {
            return Outgoing::Pass(Box::new(ClientJsonRpcMessage::request(request, id)));
        }
        if (self.creating.is_some() || self.fresh) && self.waiting.len() < MAX_WAITING {
            self.waiting.push(Waiting::First(id.clone(), request));
            return Outgoing::Hold(id);
        }
        Outgoing::Pass(Box::new(self.send_out(id, request, None)))
    }

    /// The server sent a message.
    pub(super) fn incoming(&mut self, message: ServerJsonRpcMessage, now: Instant) {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let Some(id) = id else { return self.deliver(message) };
        if let Some(own) = self.own.remove(&id) {
            return self.answered(&id, own, message, now);
        }
        let sent_as = if self.pending.contains_key(&id) { Some(id) } else { message::numeric(&id) };
        if let Some((id, pending)) = sent_as.and_then(|id| self.pending.remove_entry(&id)) {
            return self.client_answered(id, pending, message, now);
        }
        if let JsonRpcMessage::Response(response) = &message {
            self.overhear(&response.result, now);
        }
        self.deliver(message);
    }

    /// The transport could not send what a step told it to.
    pub(super) fn send_failed(&mut self, id: &RequestId, error: &str) {
        if let Some(own) = self.own.remove(id) {
            self.unanswered(id, own, &Unanswered::NotSent(error.to_owned()));
        } else if let Some(Pending { repeat: Some(repeat), .. }) = self.pending.remove(id) {
            tracing::warn!(error, "cannot repeat a request that was refused for want of a session");
            self.deliver(*repeat.refusal);
        }
    }

    pub(super) fn next_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// Enters in the jar what could wait until now.
    pub(super) fn save_all(&mut self) {
        let entries = self.holder.take_all();
        if !entries.is_empty() {
            self.steps.push_back(Step::Save(self.holder.server().clone(), entries));
        }
    }

    pub(super) fn tell(&mut self, tell: impl FnOnce() + Send + 'static) {
        self.save_urgent();
        self.steps.push_back(Step::Tell(Box::new(tell)));
    }

    pub(super) fn send(&mut self, id: RequestId, message: ClientJsonRpcMessage) {
        self.save_urgent();
        self.steps.push_back(Step::Send(id, Box::new(message)));
    }

    pub(super) fn next_own_id(&mut self) -> RequestId {
        // rmcp counts in numbers, and takes texts that are numbers for numbers: a text that is none is ours.
        self.own_ids += 1;
        RequestId::String(format!("tenure-session-{}", self.own_ids).into())
    }

    /// Goes on with a session that the server has just given.
    pub(super) fn adopt(&mut self, cookie: Cookie) {
        self.fresh = true;
        self.holder.adopt(cookie);
    }

    /// What the last `Save` said is in the jar, or could not be entered.
    pub(super) fn saved(&mut self) {
        self.save_urgent();
        self.fresh &= self.steps.iter().any(|step| matches!(step, Step::Save(..)));
        self.release();
    }

    /// The session that others waited for is there, or will not be.
    pub(super) fn creation_ended(&mut self) {
        self.creating = None;
        self.release();
    }

    fn release(&mut self) {
        if self.creating.is_some() || self.fresh {
            return;
        }
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::First(id, request) => {
                    let message = self.send_out(id.clone(), request, None);
                    self.steps.push_back(Step::Release(id, Box::new(message)));
                }
                Waiting::Again(repeat, request) if self.holder.current().is_some() => {
                    self.repeat(repeat, request);
                }
                Waiting::Again(repeat, _) => self.deliver(*repeat.refusal),
            }
        }
    }

    pub(super) fn make_first_session(&mut self, now: Instant) {
        if self.options.create == Create::WhenOffered && self.holder.current().is_none() && self.can_create()
        {
            self.start_creating(now);
        }
    }

    fn can_create(&self) -> bool {
        self.offer.as_ref().is_some_and(|offer| offer.includes("create"))
    }

    fn carries_cookie(&self, request: &ClientRequest) -> bool {
        self.offer.is_some()
            && match (self.options.attach, request) {
                (
                    _,
                    ClientRequest::CallToolRequest(_)
                    | ClientRequest::ReadResourceRequest(_)
                    | ClientRequest::GetPromptRequest(_),
                ) => true,
                (Attach::Uses, _)
                | (_, ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)) => false,
                // A program that asks for a session by itself must not name one, in the later draft.
                (Attach::AllRequests, ClientRequest::CustomRequest(custom)) => {
                    !custom.method.ends_with("/create")
                }
                (Attach::AllRequests, _) => true,
            }
    }

    fn may_repeat(&self) -> bool {
        self.can_create()
            && (self.options.create != Create::Never || self.options.recreate == Recreate::AfterLoss)
    }

    fn send_out(
        &mut self,
        id: RequestId,
        mut request: ClientRequest,
        repeat: Option<Repeat>,
    ) -> ClientJsonRpcMessage {
        let Some(offer) = &self.offer else { return ClientJsonRpcMessage::request(request, id) };
        let mut kept = (repeat.is_none() && self.may_repeat()).then(|| request.clone());
        let sent = match message::attach(&mut request, offer.dialect, self.holder.current()) {
            Attached::ByUs => self.holder.current().cloned(),
            Attached::ByProgram(cookie) => {
                kept = None;
                cookie
            }
        };
        let pending = Pending { method: request.method().to_owned(), sent, kept, repeat };
        self.pending.insert(id.clone(), pending);
        ClientJsonRpcMessage::request(request, id)
    }

    fn client_answered(
        &mut self,
        id: RequestId,
        pending: Pending,
        answer: ServerJsonRpcMessage,
        now: Instant,
    ) {
        let refusal = match &answer {
            JsonRpcMessage::Response(response) => {
                self.read_cookie(pending.sent.as_ref(), &response.result, now);
                message::tool_refusal(&response.result)
            }
            JsonRpcMessage::Error(error) => {
                let error = &error.error;
                dialect::of_error(&pending.method, error.code.0, &error.message, error.data.as_ref())
            }
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let answer = match &pending.repeat {
            Some(repeat) => message::renamed(answer, repeat.id.clone()),
            None => answer,
        };
        match refusal {
            Some(refusal) => self.refused(id, pending, refusal, answer, now),
            None => self.deliver(answer),
        }
    }

    fn read_cookie(&mut self, sent: Option<&Cookie>, result: &ServerResult, now: Instant) {
        let Some(offer) = &self.offer else { return };
        let change = dialect::change(offer.dialect, self.holder.latest(sent), message::meta(result));
        let revoked = change == dialect::Change::Revoked && sent.is_some();
        self.holder.apply(sent, change);
        if revoked
            && self.options.recreate == Recreate::AfterLoss
            && self.holder.current().is_none()
            && self.creating.is_none()
            && self.can_create()
        {
            self.start_creating(now);
        }
    }

    fn refused(
        &mut self,
        id: RequestId,
        pending: Pending,
        refusal: Refusal,
        answer: ServerJsonRpcMessage,
        now: Instant,
    ) {
        // With a cookie any refusal means that it is of no use: servers of the strawman have one code for
        // both, and one that asks for a session although it got one does not know the one it got.
        if let Some(sent) = &pending.sent {
            let reason = match refusal {
                Refusal::Gone(why) => why.as_str(),
                Refusal::Required | Refusal::Either => "session_required",
            };
            self.holder.lose(sent.id(), reason);
        }
        let wanted = match &pending.sent {
            None => self.options.create != Create::Never,
            Some(_) => self.options.recreate == Recreate::AfterLoss,
        };
        let Some(request) = pending.kept.filter(|_| wanted) else { return self.deliver(answer) };
        if self.waiting.len() >= MAX_WAITING {
            return self.deliver(answer);
        }
        let repeat = Repeat { id, refusal: Box::new(answer) };
        self.waiting.push(Waiting::Again(repeat, request));
        // Another request may have been refused as well, and its session be there already.
        if self.holder.current().is_none() && self.creating.is_none() {
            self.start_creating(now);
        }
        self.release();
    }

    fn repeat(&mut self, repeat: Repeat, request: ClientRequest) {
        // Under a new id: one that was used before must not be used again.
        let id = self.next_own_id();
        let message = self.send_out(id.clone(), request, Some(repeat));
        self.send(id, message);
    }

    fn cancel(&mut self, id: &RequestId) -> Cancel {
        let waits = |waiting: &Waiting| match waiting {
            Waiting::First(waiting, _) => waiting == id,
            Waiting::Again(repeat, _) => repeat.id == *id,
        };
        if let Some(index) = self.waiting.iter().position(waits) {
            if let Waiting::First(id, _) = self.waiting.swap_remove(index) {
                self.steps.push_back(Step::Abandon(id));
            }
            return Cancel::NeverSent;
        }
        let repeats = |pending: &Pending| pending.repeat.as_ref().is_some_and(|repeat| repeat.id == *id);
        let as_sent = self.pending.iter().find(|(_, pending)| repeats(pending)).map(|(id, _)| id.clone());
        let as_sent = as_sent.unwrap_or_else(|| id.clone());
        self.pending.remove(&as_sent);
        Cancel::InFlight(as_sent)
    }

    pub(super) fn deliver(&mut self, message: ServerJsonRpcMessage) {
        self.save_urgent();
        self.steps.push_back(Step::Deliver(Box::new(message)));
    }

    /// Enters in the jar what must not wait.
    pub(super) fn save_urgent(&mut self) {
        let entries = self.holder.take_urgent();
        if !entries.is_empty() {
            self.steps.push_back(Step::Save(self.holder.server().clone(), entries));
        }
    }
}

enum Cancel {
    InFlight(RequestId),
    NeverSent,
}
