//! Passes each message of a child to the request that it belongs to.
//!
//! A response is matched by its id, progress by its token, news by the listen that it names. A log message names no
//! request: it goes to the request that wants log messages if exactly one does, and else it is dropped.

use serde_json::value::RawValue;
use tenure_protocol::keys::SUBSCRIPTION;
use tenure_protocol::translate::notifications;
use tenure_protocol::{
    Message, Method, Notification, RawJson, Reason, Request, Response, RpcError, message, params,
};
use tenure_session::backend::probe::ProbeAnswer;
use tokio::sync::mpsc;

use super::super::pipes::MessageSink;
use super::super::splice;
use super::traffic::ModernTraffic;
use crate::pending::{gone, line};

impl MessageSink for ModernTraffic {
    async fn hear(&self, message: Message) {
        match message {
            Message::Response(response) => self.answered(response),
            Message::Notification(notification) => self.told(notification),
            Message::Request(request) => self.refuse(&request),
        }
    }

    fn answer_is_too_long(&self, number: u64) {
        if let Some(waiting) = self.take(number) {
            let words = "The server's answer is longer than a line may be";
            waiting.answer(ProbeAnswer::Nothing(RpcError::of(Reason::EventTooLarge, words)));
        }
    }

    fn lose(&self) {
        let calls = {
            let mut state = self.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.calls)
        };
        for (_, waiting) in calls {
            // Calls end as interrupted, because the child may have carried them out. A listen has no effects, so it
            // ends as with a server that is away.
            let error = if waiting.is_listen { gone() } else { RpcError::server_lost() };
            waiting.answer(ProbeAnswer::Nothing(error));
        }
    }

    fn label(&self) -> String {
        self.label.to_string()
    }
}

impl ModernTraffic {
    fn answered(&self, Response { id, outcome }: Response) {
        let Some(waiting) = number_of(id.raw()).and_then(|number| self.take(number)) else {
            return tracing::debug!(
                label = &*self.label,
                ?id,
                "the server answered a request that is not in flight; dropped"
            );
        };
        let outcome = match waiting.is_listen {
            // The result names the listen by our number; restore the client's id.
            true => outcome.map(|result| splice::replace_in_meta(&result, SUBSCRIPTION, waiting.id.raw())),
            false => outcome,
        };
        waiting.answer(ProbeAnswer::Said(outcome));
    }

    fn told(&self, Notification { method, params }: Notification) {
        match method {
            Method::Progress => self.progress(params.as_ref()),
            Method::LogMessage => match self.only_one_for_logs() {
                Some(number) => self.pass_on(number, method, params),
                None => {
                    tracing::debug!(
                        label = &*self.label,
                        "a log message that no single request wants; dropped"
                    );
                }
            },
            Method::Cancelled => self.ended(params.as_ref()),
            _ => self.news(method, params),
        }
    }

    fn progress(&self, params: Option<&RawJson>) {
        let Some(params) = params else { return };
        let Some((number, said)) = splice::Token::read(params) else { return };
        let own = self.state.lock().calls.get(&number).and_then(|waiting| {
            // A request without a client's token has no token of ours.
            let tokens = waiting.tokens.as_ref().filter(|tokens| tokens.ours == said)?;
            Some(tokens.own.clone())
        });
        if let Some(own) = own {
            self.pass_on(number, Method::Progress, Some(splice::restore_token(params, &own)));
        }
    }

    /// The only request in flight that wants log messages.
    fn only_one_for_logs(&self) -> Option<u64> {
        let state = self.state.lock();
        let mut wanting = state.calls.iter().filter(|(_, waiting)| waiting.wants_logs);
        match (wanting.next(), wanting.next()) {
            (Some((number, _)), None) => Some(*number),
            _ => None,
        }
    }

    /// The server has ended a listen with a cancellation. It should answer the listen, but may send only this.
    fn ended(&self, params: Option<&RawJson>) {
        let number = params::cancelled_id(params).and_then(|id| number_of(id.raw()));
        let Some(number) = number.filter(|number| self.is_listen(*number)) else { return };
        if let Some(waiting) = self.take(number) {
            let end = notifications::end(&waiting.id);
            waiting.answer(ProbeAnswer::Said(Ok(end)));
        }
    }

    /// Passes news to the listen that it names.
    fn news(&self, method: Method, params: Option<RawJson>) {
        let named = params.as_ref().and_then(|params| splice::in_meta(params, SUBSCRIPTION));
        let number = named.and_then(listen_of);
        let own = number.and_then(|number| {
            let state = self.state.lock();
            state.calls.get(&number).filter(|waiting| waiting.is_listen).map(|waiting| waiting.id.clone())
        });
        match (number, params, own) {
            (Some(number), Some(params), Some(own)) => {
                self.pass_on(number, method, Some(splice::replace_in_meta(&params, SUBSCRIPTION, own.raw())));
            }
            _ => tracing::debug!(
                label = &*self.label, %method,
                "news that names no listen in flight; dropped"
            ),
        }
    }

    fn is_listen(&self, number: u64) -> bool {
        self.state.lock().calls.get(&number).is_some_and(|waiting| waiting.is_listen)
    }

    /// Puts a notification into a request's queue. If the queue is full, a listen ends, since its client would not know
    /// what it has missed; any other request loses the notification.
    fn pass_on(&self, number: u64, method: Method, params: Option<RawJson>) {
        let news = self.state.lock().calls.get(&number).map(|waiting| waiting.news.clone());
        let Some(Err(mpsc::error::TrySendError::Full((method, _)))) =
            news.map(|news| news.try_send((method, params)))
        else {
            return;
        };
        if !self.is_listen(number) {
            return tracing::debug!(
                label = &*self.label, %method,
                "the queue of a request is full; dropped a message"
            );
        }
        if let Some(waiting) = self.take(number) {
            self.cancel(number);
            let error = RpcError::of(Reason::SlowReader, "The client reads its listen stream too slowly");
            waiting.answer(ProbeAnswer::Nothing(error));
        }
    }

    /// Servers of this era may not ask questions. If the queue to the child is full, it gets no answer.
    fn refuse(&self, Request { id, method, .. }: &Request) {
        let reply = match method {
            Method::Ping => Ok(RawJson::EMPTY_OBJECT),
            _ => Err(RpcError::of(
                Reason::MethodNotFound,
                format!("{method}: a server of this era cannot ask the client"),
            )),
        };
        let _ = self.out.try_send(line(&message::write_response(id, &reply)));
    }
}

/// Parses one of our request numbers.
fn number_of(raw: &[u8]) -> Option<u64> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// The number of the listen that news names. Some servers write every id as a string.
fn listen_of(named: &RawValue) -> Option<u64> {
    number_of(named.get().trim_matches('"').as_bytes())
}
