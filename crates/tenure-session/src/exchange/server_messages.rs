//! What the server behind says and asks during a call, and what it may know of its client.

use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::json::object::{self, Object};
use tenure_protocol::modern::meta::Level;
use tenure_protocol::modern::validate::Streams;
use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::notifications::{self, Filter};
use tenure_protocol::{Error, Method, RawJson, Reason, Revision, RpcError, message, params};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::{Became, News, Stage, TaskWish};
use crate::exchange::call::{Work, client_gone, wake};
use crate::id::{Principal, Route};
use crate::port::BoxFuture;
use crate::port::clock::Time;

impl Work {
    /// What becomes of a notification of the server.
    fn sort(&self, method: &Method, params: Option<&RawJson>) -> Option<Bytes> {
        if self.is_listen() {
            let params = match method {
                Method::Acknowledged => self.with_watched(params),
                _ => None,
            }
            .or_else(|| params.cloned());
            return is_news(method).then(|| message::write_notification(method, params.as_ref()));
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
                tracing::debug!(%method, "dropped: it belongs to no exchange");
                None
            }
        }
    }

    /// The params of an acknowledgement with the tasks of ours that the listen hears of.
    fn with_watched(&self, params: Option<&RawJson>) -> Option<RawJson> {
        let ids = RawJson::of(&Some(&self.state.lock().watched).filter(|ids| !ids.is_empty())?);
        let mut object = Object::read(object::text(params?))?;
        let mut heard = object.get("notifications").and_then(Object::read)?;
        heard.set("taskIds", object::text(&ids));
        let heard = heard.write().into_owned();
        object.set("notifications", heard);
        Some(RawJson::trusted(object.write().into_owned()))
    }

    /// Tells the client of a listen that was cut off what it may have missed meanwhile. It waits for no room: there are
    /// no more of these messages than a listen may watch things.
    fn say_that_all_may_have_changed(&self, acknowledgement: Option<&RawJson>) {
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
        state.said_bytes += messages.iter().map(Bytes::len).sum::<usize>();
        state.said.extend(messages);
        state.count_said();
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }

    /// News is no part of the answer to a request; it goes to whoever listens.
    fn tell(&self, news: News) -> Option<Bytes> {
        self.fanout.list_changed(news);
        None
    }

    /// Puts a message in front of the reader.
    fn say(&self, message: Bytes) -> Result<(), Unsaid> {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(Unsaid::Over);
        }
        if state.parked_until.is_some()
            || state.task.is_some()
            || state.attempt.streams == Streams::No
            || state.end.is_some()
        {
            // Nobody is there to hear it.
            return Ok(());
        }
        let bytes = state.said_bytes + message.len();
        let is_full = state.said.len() >= self.limits.max_waiting
            || bytes > self.limits.max_waiting_bytes
            || !state.may_hold(bytes);
        if is_full && !state.said.is_empty() {
            return Err(Unsaid::NoRoom(message));
        }
        state.said_bytes = bytes;
        state.said.push_back(message);
        state.count_said();
        // What comes first on a listen is its acknowledgement.
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

/// Why a message was not said.
enum Unsaid {
    /// The reader has too much to read already.
    NoRoom(Bytes),
    /// There is no reader any more, nor will be.
    Over,
}

impl Unsaid {
    fn is_over() -> Error {
        Error::new(Reason::Cancelled, "The request is over")
    }
}

/// The params of a progress report under the token of the attempt that hears it.
fn with_token(params: &RawJson, token: &RawJson) -> RawJson {
    let Some(mut object) = Object::read(object::text(params)) else { return params.clone() };
    if object.get("progressToken") == Some(object::text(token)) {
        return params.clone();
    }
    object.set("progressToken", object::text(token));
    object::kept(params, object.write())
}

/// What may come on the stream of a listen.
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

impl Stage for Work {
    fn notify(&self, method: &Method, params: Option<&RawJson>) -> BoxFuture<Result<(), Error>> {
        let done = |result| Box::pin(std::future::ready(result));
        let Some(message) = self.sort(method, params) else {
            // Also whoever says what nobody wants to hear is told that it need not go on.
            return done(if self.state.lock().is_over { Err(Unsaid::is_over()) } else { Ok(()) });
        };
        let limit = self.limits.max_event_bytes;
        if message.len() > limit {
            let error = Error::new(Reason::EventTooLarge, format!("A message is larger than {limit} bytes"));
            return done(Err(error.with("limit", limit)));
        }
        let mut message = match self.say(message) {
            Ok(()) => {
                if self.is_resumed && *method == Method::Acknowledged {
                    self.say_that_all_may_have_changed(params);
                }
                return done(Ok(()));
            }
            Err(Unsaid::Over) => return done(Err(Unsaid::is_over())),
            Err(Unsaid::NoRoom(message)) => message,
        };
        let me = Weak::clone(&self.me);
        Box::pin(async move {
            loop {
                let me = me.upgrade().ok_or_else(Unsaid::is_over)?;
                let room = me.room.notified();
                tokio::pin!(room);
                // Before the queue is looked at, so that the reader's next step is not missed.
                room.as_mut().enable();
                match me.say(message) {
                    Ok(()) => return Ok(()),
                    Err(Unsaid::Over) => return Err(Unsaid::is_over()),
                    Err(Unsaid::NoRoom(back)) => message = back,
                }
                room.await;
            }
        })
    }

    fn ask(&self, method: &Method, params: Option<&RawJson>) -> BoxFuture<Result<RawJson, RpcError>> {
        match self.put(method, params) {
            Err(reply) => Box::pin(std::future::ready(reply)),
            Ok(answered) => Box::pin(async move { answered.await.unwrap_or_else(|_| Err(client_gone())) }),
        }
    }

    fn cancellation(&self) -> CancellationToken {
        let token = self.cancellation.get_or_init(CancellationToken::new).clone();
        // It may have been over before there was a token.
        if self.state.lock().is_over {
            token.cancel();
        }
        token
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
