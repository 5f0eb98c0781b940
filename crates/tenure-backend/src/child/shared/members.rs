//! All sessions of one shared server, and who of them hears what it says.
//!
//! Progress goes to the request whose token it has, an update to those who watch the resource, a changed list to
//! everybody, a log message to the one request in flight in all, or else to everybody who wants it. Anything else is
//! passed on only if there is a single session, since nobody can tell whose it is.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::{Message, Method, Notification, RawJson, params};
use tenure_session::call::{Fanout, News, Outlet};

use crate::child::pipes::Ear;
use crate::child::shared::levels::Levels;
use crate::child::shared::member::{Member, Said};
use crate::child::shared::topics::Topics;
use crate::child::shared::traffic::Traffic;
use crate::child::splice;
use crate::pending::gone;

pub(super) struct Crowd {
    pub(super) traffic: Arc<Traffic>,
    pub(super) topics: Topics,
    pub(super) levels: Levels,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    all: HashMap<u64, Arc<Member>>,
    next: u64,
    fanouts: Vec<Fanout>,
    /// The server is gone, or was told to go: nobody can join any more.
    is_closed: bool,
    /// The server is gone by itself, and sessions are being told so.
    is_lost: bool,
}

impl Crowd {
    pub(super) fn new(traffic: Arc<Traffic>) -> Arc<Self> {
        let (topics, levels) = (Topics::new(Arc::clone(&traffic)), Levels::new(Arc::clone(&traffic)));
        Arc::new(Self { traffic, topics, levels, members: Mutex::default() })
    }

    /// Takes a session in, unless it is too late for that.
    pub(super) fn join(self: &Arc<Self>, outlet: Outlet, fanout: Fanout) -> Option<Arc<Member>> {
        let member = {
            let mut members = self.members.lock();
            if members.is_closed {
                return None;
            }
            members.next += 1;
            let member = Member::new(members.next, outlet);
            self.levels.join(member.number);
            members.all.insert(member.number, Arc::clone(&member));
            if !members.fanouts.iter().any(|known| known.route() == fanout.route()) {
                members.fanouts.push(fanout);
            }
            member
        };
        let crowd = Arc::clone(self);
        spawn(async move { crowd.levels.settle().await });
        Some(member)
    }

    /// A session has left, or lost its link. Returns whether the server has to go.
    pub(super) fn leave(self: &Arc<Self>, member: &Arc<Member>) -> bool {
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
            let (crowd, member) = (Arc::clone(self), Arc::clone(member));
            spawn(async move { tokio::join!(crowd.levels.settle(), crowd.topics.leave(&member)).1 });
        }
        is_closed
    }

    /// Nobody can join any more, if nobody is there.
    pub(super) fn close_if_empty(&self) -> bool {
        let mut members = self.members.lock();
        members.is_closed |= members.all.is_empty();
        members.is_closed
    }

    /// The server is ended from our side, so everything that waits for it fails. Not if it was lost: then calls fail when
    /// all sessions know of the loss, or one of them would take the failure for the answer of its server.
    pub(super) fn end(&self) {
        if !self.members.lock().is_lost {
            self.traffic.over(&gone());
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.members.lock().is_closed
    }

    fn everybody(&self) -> Vec<Arc<Member>> {
        self.members.lock().all.values().cloned().collect()
    }

    fn told(&self, Notification { method, params }: Notification) {
        match method {
            Method::Progress => self.progress(params.as_ref()),
            Method::LogMessage => self.log(params),
            Method::ResourceUpdated => {
                let Some(uri) = params::subscription_uri(params.as_ref()) else { return };
                for member in self.topics.watchers(&uri) {
                    member.tell(Said::News(None, method.clone(), params.clone()));
                }
            }
            Method::ToolsListChanged => self.changed(News::Tools),
            Method::PromptsListChanged => self.changed(News::Prompts),
            Method::ResourcesListChanged => self.changed(News::Resources),
            // About a question of its own, and those are all refused.
            Method::Cancelled => {}
            _ => match &self.everybody()[..] {
                [only] => only.tell(Said::News(None, method, params)),
                _ => tracing::debug!(%method, "a shared server says something, and nobody can tell to whom"),
            },
        }
    }

    fn progress(&self, params: Option<&RawJson>) {
        let Some(params) = params else { return };
        let Some((number, said)) = splice::Token::read(params) else { return };
        let Some(caller) = self.traffic.caller(number) else { return };
        // A request without a token of its client's has none of ours either.
        let Some(tokens) = caller.tokens.as_ref().filter(|tokens| tokens.ours == said) else { return };
        let params = splice::unmark(params, &tokens.own);
        caller.member.tell(Said::News(Some(caller.context), Method::Progress, Some(params)));
    }

    fn log(&self, params: Option<RawJson>) {
        let level = params::log_level(params.as_ref());
        if let Some(caller) = self.traffic.only_one() {
            if self.levels.lets_pass(caller.member.number, level) {
                caller.member.tell(Said::News(Some(caller.context), Method::LogMessage, params));
            }
            return;
        }
        for member in self.everybody() {
            if self.levels.lets_pass(member.number, level) {
                member.tell(Said::News(None, Method::LogMessage, params.clone()));
            }
        }
    }

    /// Also those are told that are dormant, when they wake.
    fn changed(&self, news: News) {
        let fanouts = self.members.lock().fanouts.clone();
        for fanout in fanouts {
            fanout.list_changed(news);
        }
    }
}

impl Ear for Crowd {
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
        // First, so that whoever is told that the server is gone finds its session without one.
        for member in members.values() {
            member.outlet.link_lost();
        }
        self.traffic.over(&gone());
    }

    fn label(&self) -> String {
        "shared".to_owned()
    }
}

/// What has to be said to the server whether or not anybody waits for it.
pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    #[expect(
        clippy::disallowed_methods,
        reason = "waits for answers of the server, and ends with it at the latest"
    )]
    tokio::spawn(work);
}
