//! A request of a modern client, as the server of the session sees it that the request was given.
//!
//! Progress goes on under the client's own token, log messages as they are (whoever runs the exchange knows which of
//! them the client wants), and questions to the client, if it declared that it can be asked them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_protocol::translate::capabilities::Relayed;
use tenure_protocol::translate::progress::Series;
use tenure_protocol::translate::{codes, questions, tasks};
use tenure_protocol::{Error, Method, RawJson, Revision, RpcError};
use tenure_session::call::{CallContext, Stage};
use tenure_session::id::{Principal, Route};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tokio_util::sync::CancellationToken;

use crate::bridge::modern_client::pooled_client::{Seat, ourselves};
use crate::bridge::modern_client::pooled_session::Slot;

/// A request and the session that it has.
pub(super) struct Turn {
    seat: Arc<Seat>,
    revision: Revision,
    /// The client's.
    context: CallContext,
    /// Our token for the progress and the client's, if it has one.
    tokens: Option<(RawJson, RawJson)>,
    series: Arc<Mutex<Series>>,
    /// The first question that the client did not declare it could be asked.
    lacking: Arc<Mutex<Option<RpcError>>>,
}

impl Turn {
    pub(super) fn new(
        slot: &Slot,
        context: &CallContext,
        tokens: Option<(RawJson, RawJson)>,
        series: Arc<Mutex<Series>>,
    ) -> Self {
        let (seat, revision) = (Arc::clone(&slot.seat), slot.revision);
        Self { seat, revision, context: context.clone(), tokens, series, lacking: Arc::default() }
    }

    pub(super) fn context(&self) -> &CallContext {
        &self.context
    }

    /// The error for the client if the server needed more of it than it declared.
    pub(super) fn lacking(&self) -> Option<RpcError> {
        self.lacking.lock().clone()
    }

    /// Whether something that the server said outside of any request is about this one.
    pub(super) fn concerns(&self, method: &Method, params: Option<&RawJson>) -> bool {
        match (method, &self.tokens) {
            (Method::LogMessage, _) => true,
            (Method::Progress, Some((ours, _))) => token_in(params).is_some_and(|token| token == *ours),
            _ => false,
        }
    }
}

/// The token that progress is told under.
fn token_in(params: Option<&RawJson>) -> Option<RawJson> {
    #[derive(Deserialize)]
    struct Told<'a> {
        #[serde(rename = "progressToken", borrow)]
        token: &'a RawValue,
    }
    params?.read::<Told<'_>>().ok().map(|told| RawJson::of(&told.token))
}

fn done<T: Send + 'static>(outcome: T) -> BoxFuture<T> {
    Box::pin(std::future::ready(outcome))
}

impl Stage for Turn {
    fn notify(&self, method: &Method, params: Option<&RawJson>) -> BoxFuture<Result<(), Error>> {
        let params = match (method, params, &self.tokens) {
            (Method::LogMessage, params, _) => params.cloned(),
            (Method::Progress, Some(params), Some((_, token))) => {
                match self.series.lock().tell(params, token) {
                    Some(params) => Some(params),
                    None => return done(Ok(())),
                }
            }
            _ => {
                if !self.seat.tell(method, params) {
                    tracing::debug!(session = self.label(), %method, "a message for nobody");
                }
                return done(Ok(()));
            }
        };
        let (context, method) = (self.context.clone(), method.clone());
        Box::pin(async move { context.notify(&method, params.as_ref()).await })
    }

    fn ask(&self, method: &Method, params: Option<&RawJson>) -> BoxFuture<Result<RawJson, RpcError>> {
        let question = questions::of_server(method, params, 1).map(|(question, _)| question);
        let Some(question) = question.filter(|_| questions::may_be_asked(self.context.method())) else {
            return done(questions::refusal(method));
        };
        if !self.seat.key.relayed.allows(&question) {
            let required = Relayed::needed_by(&question).object();
            let words = format!("The client did not declare what the server's {method} needs");
            let lacking = codes::missing_capability(&words, &required);
            let refusal = codes::to_legacy(method, &lacking);
            self.lacking.lock().get_or_insert(lacking);
            return done(Err(refusal));
        }
        let (context, method, params) = (self.context.clone(), method.clone(), params.cloned());
        let (revision, lacking) = (self.revision, Arc::clone(&self.lacking));
        Box::pin(async move {
            match context.ask(&method, params.as_ref()).await {
                Ok(answer) => {
                    let answer = questions::answer_for(&method, &answer, revision);
                    Ok(tasks::related(&answer, params.as_ref()))
                }
                Err(error) => {
                    if error.code() == codes::MISSING_CAPABILITY {
                        lacking.lock().get_or_insert_with(|| error.clone());
                    }
                    Err(codes::to_legacy(&method, &error))
                }
            }
        })
    }

    fn cancellation(&self) -> CancellationToken {
        self.context.cancellation()
    }

    fn capabilities(&self) -> RawJson {
        self.seat.key.relayed.object()
    }

    fn client_info(&self) -> Option<RawJson> {
        Some(ourselves())
    }

    fn protocol(&self) -> &'static str {
        self.revision.as_str()
    }

    fn revision(&self) -> Revision {
        self.revision
    }

    fn timeout(&self) -> Duration {
        self.context.timeout()
    }

    fn started(&self) -> Time {
        self.context.started()
    }

    fn label(&self) -> &str {
        self.seat.label()
    }

    fn route(&self) -> &Route {
        self.context.route()
    }

    fn principal(&self) -> Principal {
        self.context.caller().principal.clone()
    }
}
