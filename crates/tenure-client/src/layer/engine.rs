//! Decides, without I/O, what each message means for the session.
//!
//! In: the messages of the client above and of the server. Outgoing requests get the cookie, or wait while a session
//! is being created; incoming answers are read for cookies and refusals. Out: a queue of steps, which the transport
//! executes in order.

use std::collections::{HashMap, VecDeque};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, RequestId, RequestMetaObject,
    ServerJsonRpcMessage, ServerResult,
};
use tokio::time::Instant;

use super::{
    holder::{Holder, JarEntry},
    message::{self, Attached},
    options::{Attach, Create, Recreate, SessionOptions},
    own::{NoAnswer, OwnRequest},
    tap::Tap,
};
use crate::{
    cookie::{Object, SessionCookie},
    dialect::{self, Offer, SessionRefusal},
    jar::JarServer,
};

/// The most requests that wait for a session; further ones are sent without one.
const MAX_WAITING: usize = 1024;

pub(super) struct Engine {
    pub(super) options: SessionOptions,
    pub(super) holder: Holder,
    pub(super) offer: Option<Offer>,
    pub(super) tap: Tap,
    /// The server's answer to our greeting. The client's own greeting gets the same answer.
    pub(super) greeting: Option<ServerResult>,
    /// The `_meta` of every request, if the server is of the modern era.
    pub(super) modern_meta: Option<Object>,
    /// The `_meta` of the client's own `server/discover`, for a client that greets by itself.
    pub(super) discovery_meta: Option<RequestMetaObject>,
    /// The client's requests in flight that carry a cookie, or would if there were one.
    pending: HashMap<RequestId, PendingCall>,
    /// Our own requests in flight.
    pub(super) own: HashMap<RequestId, OwnRequest>,
    /// Our own request for the session that other requests wait for.
    pub(super) creating: Option<RequestId>,
    /// There is a new session that may not be in the jar yet. Nothing is sent with it before it is there: if the
    /// process crashed, the session would be lost with all that was done in it.
    fresh: bool,
    waiting: Vec<HeldRequest>,
    steps: VecDeque<Step>,
    own_ids: u64,
}

/// One action of the transport.
pub(super) enum Step {
    /// Write this to the jar before any later step.
    Save(JarServer, Vec<JarEntry>),
    /// Deliver this to the client above.
    Deliver(Box<ServerJsonRpcMessage>),
    /// Answer a caller of the handle.
    Tell(Box<dyn FnOnce() + Send>),
    /// Send this, and report a failure to the engine.
    Send(RequestId, Box<ClientJsonRpcMessage>),
    /// Send the held request with this id.
    Release(RequestId, Box<ClientJsonRpcMessage>),
    /// Drop the held request with this id: it was cancelled.
    Abandon(RequestId),
}

/// How a message of the client above is handled.
pub(super) enum Outgoing {
    /// Send it now.
    Pass(Box<ClientJsonRpcMessage>),
    /// Hold it until there is a session; a later step releases it.
    Hold(RequestId),
    /// It was answered here; send nothing.
    Swallow,
}

struct PendingCall {
    method: String,
    sent: Option<SessionCookie>,
    /// The request without a cookie, as long as it may be repeated.
    kept: Option<ClientRequest>,
    repeat: Option<Repeat>,
}

/// A request that is repeated: the client's id for it, and the refusal to deliver if the repetition fails.
struct Repeat {
    id: RequestId,
    refusal: Box<ServerJsonRpcMessage>,
}

enum HeldRequest {
    First(RequestId, ClientRequest),
    Again(Repeat, ClientRequest),
}

impl Engine {
    pub(super) fn new(options: SessionOptions, holder: Holder, tap: Tap) -> Self {
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

    /// Handles a message of the client above.
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
            self.waiting.push(HeldRequest::First(id.clone(), request));
            return Outgoing::Hold(id);
        }
        Outgoing::Pass(Box::new(self.send_out(id, request, None)))
    }

    /// Handles a message of the server.
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

    /// Handles a failed `Send` step.
    pub(super) fn send_failed(&mut self, id: &RequestId, error: &str) {
        if let Some(own) = self.own.remove(id) {
            self.unanswered(id, own, &NoAnswer::NotSent(error.to_owned()));
        } else if let Some(PendingCall { repeat: Some(repeat), .. }) = self.pending.remove(id) {
            tracing::warn!(error, "cannot repeat a request that was refused for lack of a session");
            self.deliver(*repeat.refusal);
        }
    }

    pub(super) fn next_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// Adds a step that writes all open entries to the jar.
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
        // rmcp uses numbers as ids, and reads a string of digits as a number; so any other string can only be ours.
        self.own_ids += 1;
        RequestId::String(format!("tenure-session-{}", self.own_ids).into())
    }

    /// Uses a session that the server has just sent.
    pub(super) fn adopt(&mut self, cookie: SessionCookie) {
        self.fresh = true;
        self.holder.adopt(cookie);
    }

    /// Handles the end of the last `Save`, successful or not.
    pub(super) fn saved(&mut self) {
        self.save_urgent();
        self.fresh &= self.steps.iter().any(|step| matches!(step, Step::Save(..)));
        self.release();
    }

    /// Handles the end of a creation, successful or not, and releases the requests that waited for it.
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
                HeldRequest::First(id, request) => {
                    let message = self.send_out(id.clone(), request, None);
                    self.steps.push_back(Step::Release(id, Box::new(message)));
                }
                HeldRequest::Again(repeat, request) if self.holder.current().is_some() => {
                    self.repeat(repeat, request);
                }
                HeldRequest::Again(repeat, _) => self.deliver(*repeat.refusal),
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
                // In the later draft, a program's own request for a new session must not carry a cookie.
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
        let pending = PendingCall { method: request.method().to_owned(), sent, kept, repeat };
        self.pending.insert(id.clone(), pending);
        ClientJsonRpcMessage::request(request, id)
    }

    fn client_answered(
        &mut self,
        id: RequestId,
        pending: PendingCall,
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

    fn read_cookie(&mut self, sent: Option<&SessionCookie>, result: &ServerResult, now: Instant) {
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
        pending: PendingCall,
        refusal: SessionRefusal,
        answer: ServerJsonRpcMessage,
        now: Instant,
    ) {
        // If the request had a cookie, any refusal means that the cookie is invalid: strawman servers have one code for
        // both cases, and a server that requires a session although it got one does not know that one.
        if let Some(sent) = &pending.sent {
            let reason = match refusal {
                SessionRefusal::Gone(why) => why.as_str(),
                SessionRefusal::Required | SessionRefusal::Either => "session_required",
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
        self.waiting.push(HeldRequest::Again(repeat, request));
        // Another request may have been refused earlier, and its new session may be there already.
        if self.holder.current().is_none() && self.creating.is_none() {
            self.start_creating(now);
        }
        self.release();
    }

    fn repeat(&mut self, repeat: Repeat, request: ClientRequest) {
        // With a new id, because an id must not be used twice.
        let id = self.next_own_id();
        let message = self.send_out(id.clone(), request, Some(repeat));
        self.send(id, message);
    }

    fn cancel(&mut self, id: &RequestId) -> Cancel {
        let waits = |waiting: &HeldRequest| match waiting {
            HeldRequest::First(waiting, _) => waiting == id,
            HeldRequest::Again(repeat, _) => repeat.id == *id,
        };
        if let Some(index) = self.waiting.iter().position(waits) {
            if let HeldRequest::First(id, _) = self.waiting.swap_remove(index) {
                self.steps.push_back(Step::Abandon(id));
            }
            return Cancel::NeverSent;
        }
        let repeats = |pending: &PendingCall| pending.repeat.as_ref().is_some_and(|repeat| repeat.id == *id);
        let as_sent = self.pending.iter().find(|(_, pending)| repeats(pending)).map(|(id, _)| id.clone());
        let as_sent = as_sent.unwrap_or_else(|| id.clone());
        self.pending.remove(&as_sent);
        Cancel::InFlight(as_sent)
    }

    pub(super) fn deliver(&mut self, message: ServerJsonRpcMessage) {
        self.save_urgent();
        self.steps.push_back(Step::Deliver(Box::new(message)));
    }

    /// Adds a step that writes the urgent entries to the jar.
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
