//! Passes each message of a child to the request that it belongs to.
//!
//! A response is matched by its id, progress by its token, news by the listen that it names. A log message names no
//! request: it goes to the request that wants log messages if exactly one does, and else it is dropped.

use tenure_protocol::keys::SUBSCRIPTION;
use tenure_protocol::translate::notifications;
use tenure_protocol::{Message, Method, Notification, RawJson, Reason, Response, RpcError, params};
use tenure_session::backend::probe::ProbeAnswer;
use tokio::sync::mpsc;

use super::super::pipes::MessageSink;
use super::super::splice;
use super::traffic::{ModernCall, ModernTraffic};
use crate::pending::{Waiting, gone, number_of, too_long};

impl MessageSink for ModernTraffic {
    async fn hear(&self, message: Message) {
        match message {
            Message::Response(response) => self.answered(response),
            Message::Notification(notification) => self.told(notification),
            // Servers of this era may not ask questions.
            Message::Request(request) => {
                self.pending.refuse(&request, "a server of this era cannot ask the client");
            }
        }
    }

    fn answer_is_too_long(&self, number: u64) {
        if let Some(waiting) = self.pending.take(number) {
            answer(waiting, ProbeAnswer::Nothing(too_long()));
        }
    }

    fn lose(&self) {
        for waiting in self.pending.end() {
            // Calls end as interrupted, because the child may have carried them out. A listen has no effects, so it
            // ends as with a server that is away.
            let error = if waiting.caller.is_listen { gone() } else { RpcError::server_lost() };
            answer(waiting, ProbeAnswer::Nothing(error));
        }
    }

    fn label(&self) -> String {
        self.label.to_string()
    }
}

impl ModernTraffic {
    fn answered(&self, Response { id, outcome }: Response) {
        let Some(waiting) = self.pending.answered(&id) else { return };
        let outcome = match waiting.caller.is_listen {
            // The result names the listen by our number; restore the client's id.
            true => {
                outcome.map(|result| splice::replace_in_meta(&result, SUBSCRIPTION, waiting.caller.id.raw()))
            }
            false => outcome,
        };
        answer(waiting, ProbeAnswer::Said(outcome));
    }

    fn told(&self, Notification { method, params }: Notification) {
        match method {
            Method::Progress => self.progress(params.as_ref()),
            Method::LogMessage => match self.pending.only(|number, call| call.wants_logs.then_some(number)) {
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
        let own = self.pending.of(number, |call| {
            // A request without a client's token has no token of ours.
            call.tokens.as_ref().filter(|tokens| tokens.ours == said).map(|tokens| tokens.own.clone())
        });
        if let Some(own) = own {
            self.pass_on(number, Method::Progress, Some(splice::restore_token(params, &own)));
        }
    }

    /// The server has ended a listen with a cancellation. It should answer the listen, but may send only this.
    fn ended(&self, params: Option<&RawJson>) {
        let number = params::cancelled_id(params).and_then(|id| number_of(id.raw()));
        let Some(number) = number.filter(|number| self.is_listen(*number)) else { return };
        if let Some(waiting) = self.pending.take(number) {
            let end = notifications::end(&waiting.caller.id);
            answer(waiting, ProbeAnswer::Said(Ok(end)));
        }
    }

    /// Passes news to the listen that it names.
    fn news(&self, method: Method, params: Option<RawJson>) {
        let named = params.as_ref().and_then(|params| splice::in_meta(params, SUBSCRIPTION));
        let number = named.and_then(listen_of);
        let own =
            number.and_then(|number| self.pending.of(number, |call| call.is_listen.then(|| call.id.clone())));
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
        self.pending.of(number, |call| call.is_listen.then_some(())).is_some()
    }

    /// Puts a notification into a request's queue. If the queue is full, a listen ends, since its client would not know
    /// what it has missed; any other request loses the notification.
    fn pass_on(&self, number: u64, method: Method, params: Option<RawJson>) {
        let news = self.pending.of(number, |call| Some(call.news.clone()));
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
        if let Some(waiting) = self.pending.take(number) {
            self.pending.cancel(number);
            let error = RpcError::of(Reason::SlowReader, "The client reads its listen stream too slowly");
            answer(waiting, ProbeAnswer::Nothing(error));
        }
    }
}

fn answer(waiting: Waiting<ModernCall, ProbeAnswer>, answer: ProbeAnswer) {
    // The receiver may have been dropped.
    drop(waiting.answer.send(answer));
}

/// The number of the listen that news names. Some servers write every id as a string.
fn listen_of(named: &str) -> Option<u64> {
    number_of(named.trim_matches('"').as_bytes())
}
