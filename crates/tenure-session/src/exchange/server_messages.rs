//! The server's messages and questions during a call: [`Client`] for an exchange.
//!
//! In: notifications and questions of the server. Out: queued messages for the current attempt, news for listens, and
//! the client's answers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::json::object::{self, Object};
use tenure_protocol::modern::meta::Level;
use tenure_protocol::modern::validate::StreamSupport;
use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::notifications::{self, Filter};
use tenure_protocol::{Error, Method, RawJson, Reason, RequestId, Revision, RpcError, message, params};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::{Became, Client, News, Origin, TaskWish};
use crate::exchange::call::{ActiveCall, client_gone, wake};
use crate::id::{Principal, Route};
use crate::port::BoxFuture;
use crate::port::clock::Time;
use crate::port::observer::{Happened, answer_word};

impl ActiveCall {
    /// Tells the observer what happened to the call.
    fn tell_observer(&self, what: Happened<'_>) {
        let observer = self.fanout.observer();
        observer.tell(self.label(), &self.caller.principal, self.fanout.route().name(), what);
    }

    /// Decides on a notification of the server. Returns the message for the client, if the client gets one.
    fn sort(&self, method: &Method, params: Option<&RawJson>) -> Option<Bytes> {
        if self.is_listen() {
            let params = match method {
                Method::Acknowledged => self.with_watched(params),
                _ => None,
            }
            .or_else(|| params.cloned());
            if !is_news(method) {
                return None;
            }
            let params = match params {
                Some(params) => Some(self.with_task_names(method, params)?),
                None => None,
            };
            return Some(message::write_notification(method, params.as_ref()));
        }
        match method {
            Method::Progress => {
                let mut state = self.state.lock();
                state.progressed = Some(Instant::now());
                if let Some(heard) = state.heard
                    && params::progress_value(params).is_none_or(|progress| progress <= heard)
                {
                    return None;
                }
                state.reported = params.cloned();
                let token = state.attempt.meta.token.as_ref()?;
                Some(message::write_notification(method, Some(&with_token(params?, token))))
            }
            Method::LogMessage => {
                let Some(Level::From(wanted)) = self.state.lock().attempt.meta.level else { return None };
                let is_wanted = params::log_level(params).is_none_or(|level| level >= wanted);
                is_wanted.then(|| message::write_notification(method, params))
            }
            Method::ToolsListChanged => self.tell(News::Tools),
            Method::PromptsListChanged => self.tell(News::Prompts),
            Method::ResourcesListChanged => self.tell(News::Resources),
            Method::ResourceUpdated => {
                if let Some(uri) = params::subscription_uri(params) {
                    self.fanout.resource_updated(&uri);
                }
                None
            }
            method => {
                tracing::debug!(%method, "dropped a notification that does not exist in an exchange");
                None
            }
        }
    }

    /// Adds the ids of our tasks that the listen watches to the params of an acknowledgement.
    fn with_watched(&self, params: Option<&RawJson>) -> Option<RawJson> {
        let ids = RawJson::of(&Some(&self.state.lock().watched).filter(|ids| !ids.is_empty())?);
        let mut object = Object::read(object::text(params?))?;
        let mut heard = object.get("notifications").and_then(Object::read)?;
        heard.set("taskIds", object::text(&ids));
        let heard = heard.write().into_owned();
        object.set("notifications", heard);
        Some(RawJson::trusted(object.write().into_owned()))
    }

    /// Reports everything that a listen watches as changed, after it was cut off. It does not wait for room in the
    /// queue: there is at most one message for each watched item.
    fn report_all_as_changed(&self, acknowledgement: Option<&RawJson>) {
        let Ok(filter) = Filter::read(acknowledgement) else { return };
        let id = &self.request.id;
        let lists = [
            (filter.tools, News::Tools),
            (filter.prompts, News::Prompts),
            (filter.resources, News::Resources),
        ];
        let lists = lists.into_iter().filter(|(is_watched, _)| *is_watched).map(|(_, news)| {
            message::write_notification(&news.method(), Some(&notifications::to_modern(None, id)))
        });
        let resources = filter.uris.iter().map(|uri| {
            let params = RawJson::of(&serde_json::json!({ "uri": uri }));
            message::write_notification(
                &Method::ResourceUpdated,
                Some(&notifications::to_modern(Some(&params), id)),
            )
        });
        let messages: Vec<Bytes> = lists.chain(resources).collect();
        let mut state = self.state.lock();
        state.queue_bytes += messages.iter().map(Bytes::len).sum::<usize>();
        state.queue.extend(messages);
        state.count_queue();
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }

    /// Sends news to all listens. It is not part of the answer to this request.
    fn tell(&self, news: News) -> Option<Bytes> {
        self.fanout.list_changed(news);
        None
    }

    /// Adds a message to the queue of the current attempt.
    fn enqueue(&self, message: Bytes) -> Result<(), NotQueued> {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(NotQueued::Over);
        }
        if state.parked_until.is_some()
            || state.task.is_some()
            || state.attempt.streams == StreamSupport::No
            || state.end.is_some()
        {
            // No attempt could deliver it, so it is dropped.
            return Ok(());
        }
        let bytes = state.queue_bytes + message.len();
        let is_full = state.queue.len() >= self.limits.max_waiting
            || bytes > self.limits.max_waiting_bytes
            || !state.may_hold(bytes);
        if is_full && !state.queue.is_empty() {
            return Err(NotQueued::NoRoom(message));
        }
        state.queue_bytes = bytes;
        state.queue.push_back(message);
        state.count_queue();
        // The first message of a listen is its acknowledgement.
        let acknowledges = self.is_listen() && !std::mem::replace(&mut state.is_acknowledged, true);
        let waker = state.waker.take();
        drop(state);
        if acknowledges {
            self.room.notify_waiters();
        }
        wake(waker);
        Ok(())
    }
}

/// Why a message was not queued.
enum NotQueued {
    /// The queue is full.
    NoRoom(Bytes),
    /// The call is over.
    Over,
}

impl NotQueued {
    fn is_over() -> Error {
        Error::new(Reason::Cancelled, "The request is over")
    }
}

/// The params of a progress report with the token of the current attempt.
fn with_token(params: &RawJson, token: &RawJson) -> RawJson {
    let Some(mut object) = Object::read(object::text(params)) else { return params.clone() };
    if object.get("progressToken") == Some(object::text(token)) {
        return params.clone();
    }
    object.set("progressToken", object::text(token));
    object::kept(params, object.write())
}

/// Whether a notification may be sent on the stream of a listen.
fn is_news(method: &Method) -> bool {
    matches!(
        method,
        Method::Acknowledged
            | Method::ToolsListChanged
            | Method::PromptsListChanged
            | Method::ResourcesListChanged
            | Method::ResourceUpdated
            | Method::TaskChanged
    )
}

impl ActiveCall {
    /// Cancelled when the call is over.
    pub(super) fn token(&self) -> CancellationToken {
        let token = self.cancellation.get_or_init(CancellationToken::new).clone();
        // The call may have ended before the token was made.
        if self.state.lock().is_over {
            token.cancel();
        }
        token
    }
}

impl Client for ActiveCall {
    fn notify(
        self: Arc<Self>,
        _: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<(), Error>> {
        let done = |result| Box::pin(std::future::ready(result));
        let Some(message) = self.sort(method, params) else {
            // The server is told that the call is over even if the client would not get this message.
            return done(if self.state.lock().is_over { Err(NotQueued::is_over()) } else { Ok(()) });
        };
        let limit = self.limits.max_event_bytes;
        if message.len() > limit {
            let error = Error::new(Reason::EventTooLarge, format!("A message is larger than {limit} bytes"));
            return done(Err(error.with("limit", limit)));
        }
        let mut message = match self.enqueue(message) {
            Ok(()) => {
                if self.is_resumed && *method == Method::Acknowledged {
                    self.report_all_as_changed(params);
                }
                return done(Ok(()));
            }
            Err(NotQueued::Over) => return done(Err(NotQueued::is_over())),
            Err(NotQueued::NoRoom(message)) => message,
        };
        let me = Weak::clone(&self.me);
        Box::pin(async move {
            loop {
                let me = me.upgrade().ok_or_else(NotQueued::is_over)?;
                let room = me.room.notified();
                tokio::pin!(room);
                // Registered before the queue is checked, so that no free room is missed.
                room.as_mut().enable();
                match me.enqueue(message) {
                    Ok(()) => return Ok(()),
                    Err(NotQueued::Over) => return Err(NotQueued::is_over()),
                    Err(NotQueued::NoRoom(back)) => message = back,
                }
                room.await;
            }
        })
    }

    fn ask(
        self: Arc<Self>,
        _: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<RawJson, RpcError>> {
        match self.put(method, params) {
            Err(reply) => Box::pin(std::future::ready(reply)),
            Ok(answered) => {
                let method = method.clone();
                self.tell_observer(Happened::Asked { method: &method });
                Box::pin(async move {
                    let reply = answered.await.unwrap_or_else(|_| Err(client_gone()));
                    self.tell_observer(Happened::Answered { method: &method, how: answer_word(&reply) });
                    reply
                })
            }
        }
    }

    fn cancellation(&self, _: &RequestId, _: u64) -> Option<CancellationToken> {
        Some(self.token())
    }

    fn capabilities(&self) -> RawJson {
        self.state.lock().attempt.meta.capabilities.raw().clone()
    }

    fn client_info(&self) -> Option<RawJson> {
        self.state.lock().attempt.meta.info.clone()
    }

    fn protocol(&self) -> &'static str {
        MODERN
    }

    fn revision(&self) -> Revision {
        Revision::LATEST
    }

    fn timeout(&self) -> Duration {
        self.limits.request_timeout
    }

    fn started(&self) -> Time {
        self.started
    }

    fn label(&self) -> &str {
        self.label.get_or_init(|| format!("x-{}", self.number).into())
    }

    fn route(&self) -> &Route {
        self.fanout.route()
    }

    fn principal(&self) -> Principal {
        self.caller.principal.clone()
    }

    fn become_task(&self, wish: TaskWish) -> BoxFuture<Result<Became, RpcError>> {
        match self.wish(wish) {
            Err(became) => Box::pin(std::future::ready(Ok(became))),
            Ok(answered) => Box::pin(async move { answered.await.map_err(|_| client_gone())? }),
        }
    }
}
