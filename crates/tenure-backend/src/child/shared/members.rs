//! All sessions of one shared server, and which of them gets which message of the server.
//!
//! Progress goes to the request whose token it has, an update to the sessions that watch the resource, a changed list
//! to all sessions. A log message goes to the request in flight if there is exactly one, else to all sessions that
//! want its level. Any other message is passed on only if there is a single session, because it does not say for whom
//! it is.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::{Message, Method, Notification, RawJson, params};
use tenure_session::call::{Fanout, News, Outlet};

use crate::child::pipes::MessageSink;
use crate::child::shared::levels::Levels;
use crate::child::shared::member::{MemberMessage, MemberSession};
use crate::child::shared::topics::Topics;
use crate::child::shared::traffic::SharedTraffic;
use crate::child::splice;

pub(super) struct ServerMembers {
    pub(super) traffic: Arc<SharedTraffic>,
    pub(super) topics: Topics,
    pub(super) levels: Levels,
    members: Mutex<MemberTable>,
}

#[derive(Default)]
struct MemberTable {
    all: HashMap<u64, Arc<MemberSession>>,
    next: u64,
    fanouts: Vec<Fanout>,
    /// The server has ended, or was told to end: no session can join any more.
    is_closed: bool,
    /// The server ended by itself, and the sessions are being told.
    is_lost: bool,
}

impl ServerMembers {
    pub(super) fn new(traffic: Arc<SharedTraffic>) -> Arc<Self> {
        let (topics, levels) = (Topics::new(Arc::clone(&traffic)), Levels::new(Arc::clone(&traffic)));
        Arc::new(Self { traffic, topics, levels, members: Mutex::default() })
    }

    /// Adds a session; `None` if the server has ended or is ending.
    pub(super) fn join(self: &Arc<Self>, outlet: Outlet, fanout: Fanout) -> Option<Arc<MemberSession>> {
        let member = {
            let mut members = self.members.lock();
            if members.is_closed {
                return None;
            }
            members.next += 1;
            let member = MemberSession::new(members.next, outlet);
            self.levels.join(member.number);
            members.all.insert(member.number, Arc::clone(&member));
            if !members.fanouts.iter().any(|known| known.route() == fanout.route()) {
                members.fanouts.push(fanout);
            }
            member
        };
        let this = Arc::clone(self);
        spawn(async move { this.levels.settle().await });
        Some(member)
    }

    /// A session has left, or lost its link. Returns whether the server has to end.
    pub(super) fn leave(self: &Arc<Self>, member: &Arc<MemberSession>) -> bool {
        member.leave();
        let is_closed = {
            let mut members = self.members.lock();
            members.all.remove(&member.number);
            members.is_closed |= members.all.is_empty();
            members.is_closed
        };
        self.traffic.withdraw(member);
        self.levels.leave(member.number);
        if !is_closed {
            let (this, member) = (Arc::clone(self), Arc::clone(member));
            spawn(async move { tokio::join!(this.levels.settle(), this.topics.leave(&member)).1 });
        }
        is_closed
    }

    /// Closes the server to new sessions if it has none. Returns whether it is closed.
    pub(super) fn close_if_empty(&self) -> bool {
        let mut members = self.members.lock();
        members.is_closed |= members.all.is_empty();
        members.is_closed
    }

    /// We end the server, so all requests in flight fail. If the server was lost, they fail only after all sessions
    /// know of the loss; otherwise a session would take the failure for the server's answer.
    pub(super) fn end(&self) {
        if !self.members.lock().is_lost {
            self.traffic.over();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.members.lock().is_closed
    }

    fn all_members(&self) -> Vec<Arc<MemberSession>> {
        self.members.lock().all.values().cloned().collect()
    }

    fn told(&self, Notification { method, params }: Notification) {
        match method {
            Method::Progress => self.progress(params.as_ref()),
            Method::LogMessage => self.log(params),
            Method::ResourceUpdated => {
                let Some(uri) = params::subscription_uri(params.as_ref()) else { return };
                for member in self.topics.watchers(&uri) {
                    member.tell(MemberMessage::News(None, method.clone(), params.clone()));
                }
            }
            Method::ToolsListChanged => self.changed(News::Tools),
            Method::PromptsListChanged => self.changed(News::Prompts),
            Method::ResourcesListChanged => self.changed(News::Resources),
            // The server cancels a question of its own, and we have refused all of those.
            Method::Cancelled => {}
            _ => match &self.all_members()[..] {
                [only] => only.tell(MemberMessage::News(None, method, params)),
                _ => tracing::debug!(
                    %method,
                    "a shared server sent a notification that does not say for which session it is; dropped"
                ),
            },
        }
    }

    fn progress(&self, params: Option<&RawJson>) {
        let Some(params) = params else { return };
        let Some((number, said)) = splice::Token::read(params) else { return };
        let Some(caller) = self.traffic.caller(number) else { return };
        // A request without a client's token has no token of ours.
        let Some(tokens) = caller.tokens.as_ref().filter(|tokens| tokens.ours == said) else { return };
        let params = splice::restore_token(params, &tokens.own);
        caller.member.tell(MemberMessage::News(Some(caller.context), Method::Progress, Some(params)));
    }

    fn log(&self, params: Option<RawJson>) {
        let level = params::log_level(params.as_ref());
        if let Some(caller) = self.traffic.only_one() {
            if self.levels.lets_pass(caller.member.number, level) {
                caller.member.tell(MemberMessage::News(Some(caller.context), Method::LogMessage, params));
            }
            return;
        }
        for member in self.all_members() {
            if self.levels.lets_pass(member.number, level) {
                member.tell(MemberMessage::News(None, Method::LogMessage, params.clone()));
            }
        }
    }

    /// Tells all sessions; dormant sessions are told when they wake.
    fn changed(&self, news: News) {
        let fanouts = self.members.lock().fanouts.clone();
        for fanout in fanouts {
            fanout.list_changed(news);
        }
    }
}

impl MessageSink for ServerMembers {
    async fn hear(&self, message: Message) {
        match message {
            Message::Response(response) => self.traffic.answered(response),
            Message::Notification(notification) => self.told(notification),
            Message::Request(request) => self.traffic.refuse(&request),
        }
    }

    fn answer_is_too_long(&self, number: u64) {
        self.traffic.answer_is_too_long(number);
    }

    fn lose(&self) {
        let members = {
            let mut members = self.members.lock();
            members.is_closed = true;
            members.is_lost = true;
            std::mem::take(&mut members.all)
        };
        // Before the calls fail: a caller that sees its call fail must find its session without a link.
        for member in members.values() {
            member.outlet.link_lost();
        }
        self.traffic.over();
    }

    fn label(&self) -> String {
        "shared".to_owned()
    }
}

/// Spawns work for the server that has to finish even if its request is dropped.
pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    #[expect(
        clippy::disallowed_methods,
        reason = "waits for answers of the server, and ends with it at the latest"
    )]
    tokio::spawn(work);
}
