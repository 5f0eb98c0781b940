//! One modern request on a pooled session: the client that the session's server sees.
//!
//! Progress is passed on under the client's own token, log messages unchanged (the exchange runtime filters them by the
//! client's level), and questions to the client, if it declared the capability that they need.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_protocol::translate::capabilities::Relayed;
use tenure_protocol::translate::progress::Series;
use tenure_protocol::translate::{codes, questions, tasks};
use tenure_protocol::{Error, Method, RawJson, RequestId, Revision, RpcError};
use tenure_session::call::{CallContext, Client, Origin};
use tenure_session::id::{Principal, Route};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tokio_util::sync::CancellationToken;

use crate::bridge::modern_client::pooled_client::{PooledClient, ourselves};
use crate::bridge::modern_client::pooled_session::PooledSession;

/// A request on the session that it leases.
pub(super) struct PooledRequest {
    client: Arc<PooledClient>,
    revision: Revision,
    /// The context of the client's request.
    context: CallContext,
    /// Our progress token and the client's, if the client sent one.
    tokens: Option<(RawJson, RawJson)>,
    series: Arc<Mutex<Series>>,
    /// The error for the first question that needs a capability which the client did not declare.
    lacking: Arc<Mutex<Option<RpcError>>>,
}

impl PooledRequest {
    pub(super) fn new(
        session: &PooledSession,
        context: &CallContext,
        tokens: Option<(RawJson, RawJson)>,
        series: Arc<Mutex<Series>>,
    ) -> Self {
        let (client, revision) = (Arc::clone(&session.client), session.revision);
        Self { client, revision, context: context.clone(), tokens, series, lacking: Arc::default() }
    }

    pub(super) fn context(&self) -> &CallContext {
        &self.context
    }

    /// The error for the client, if the server needed a capability that the client did not declare.
    pub(super) fn lacking(&self) -> Option<RpcError> {
        self.lacking.lock().clone()
    }

    /// Whether a message that the server sent outside of any request is about this one.
    pub(super) fn concerns(&self, method: &Method, params: Option<&RawJson>) -> bool {
        match (method, &self.tokens) {
            (Method::LogMessage, _) => true,
            (Method::Progress, Some((ours, _))) => token_in(params).is_some_and(|token| token == *ours),
            _ => false,
        }
    }
}

/// The token of a progress notification.
fn token_in(params: Option<&RawJson>) -> Option<RawJson> {
    #[derive(Deserialize)]
    struct ProgressTokenMember<'a> {
        #[serde(rename = "progressToken", borrow)]
        token: &'a RawValue,
    }
    params?.read::<ProgressTokenMember<'_>>().ok().map(|told| RawJson::of(&told.token))
}

fn done<T: Send + 'static>(outcome: T) -> BoxFuture<T> {
    Box::pin(std::future::ready(outcome))
}

impl Client for PooledRequest {
    fn notify(
        self: Arc<Self>,
        _: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<(), Error>> {
        let params = match (method, params, &self.tokens) {
            (Method::LogMessage, params, _) => params.cloned(),
            (Method::Progress, Some(params), Some((_, token))) => {
                match self.series.lock().tell(params, token) {
                    Some(params) => Some(params),
                    None => return done(Ok(())),
                }
            }
            _ => {
                if !self.client.tell(method, params) {
                    tracing::debug!(session = self.label(), %method, "dropped a message that belongs to no request");
                }
                return done(Ok(()));
            }
        };
        let (context, method) = (self.context.clone(), method.clone());
        Box::pin(async move { context.notify(&method, params.as_ref()).await })
    }

    fn ask(
        self: Arc<Self>,
        _: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<RawJson, RpcError>> {
        let question = questions::of_server(method, params, 1).map(|(question, _)| question);
        let Some(question) = question.filter(|_| questions::may_be_asked(self.context.method())) else {
            return done(questions::refusal(method));
        };
        if !self.client.key.relayed.allows(&question) {
            let required = Relayed::needed_by(&question).object();
            let words = format!("The client did not declare the capability that the server's {method} needs");
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

    fn cancellation(&self, _: &RequestId, _: u64) -> Option<CancellationToken> {
        Some(self.context.cancellation())
    }

    fn capabilities(&self) -> RawJson {
        self.client.key.relayed.object()
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
        self.client.label()
    }

    fn route(&self) -> &Route {
        self.context.route()
    }

    fn principal(&self) -> Principal {
        self.context.caller().principal.clone()
    }
}
