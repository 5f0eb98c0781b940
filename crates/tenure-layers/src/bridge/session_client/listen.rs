//! One listen to a modern server, from its request and acknowledgement until it ends or is dropped.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::notifications::{self, Filter};
use tenure_protocol::{Error, Method, RawJson, Reason, Reply, Request, RequestId, Revision, RpcError};
use tenure_session::backend::Call;
use tenure_session::call::{CallContext, Client, Origin};
use tenure_session::id::Route;
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::bridge::session_client::session_feed::SessionListener;

/// The timeout of a listen: so long that silence never ends it.
const QUIET: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A listen that the server has acknowledged. Dropping it closes it.
pub(super) struct UpstreamListen {
    pub(super) asked: Filter,
    pub(super) honoured: Filter,
    pub(super) began: Instant,
    ended: oneshot::Receiver<Reply>,
    _task: AbortOnDropHandle<()>,
}

impl UpstreamListen {
    /// Resolves when the server has ended the listen.
    pub(super) async fn ended(&mut self) {
        // The reason makes no difference: no notification follows.
        drop((&mut self.ended).await);
    }
}

/// The listening client, as the server sees it.
pub(super) struct ListenClient {
    listener: Weak<SessionListener>,
    acknowledged: Mutex<Option<oneshot::Sender<Filter>>>,
    cancellation: CancellationToken,
    capabilities: RawJson,
    info: Option<RawJson>,
    revision: Revision,
    label: String,
    route: Route,
}

impl ListenClient {
    /// Opens a listen and waits until it is acknowledged.
    ///
    /// # Errors
    /// When the server answers otherwise, or breaks off.
    ///
    /// # Cancel safety
    /// Dropping the future closes the listen.
    #[expect(clippy::disallowed_methods, reason = "the task ends with the listen that holds it")]
    pub(super) async fn begin(
        listener: &Arc<SessionListener>,
        asked: &Filter,
    ) -> Result<UpstreamListen, RpcError> {
        let params = listener.declared.params(&Method::Listen, Some(&asked.listen()), None, None)?;
        let request = Request { id: listener.server.next_id(), method: Method::Listen, params: Some(params) };
        let (acknowledge, acknowledged) = oneshot::channel();
        let client: Arc<dyn Client> = Arc::new(Self {
            listener: Arc::downgrade(listener),
            acknowledged: Mutex::new(Some(acknowledge)),
            cancellation: CancellationToken::new(),
            capabilities: listener.declared.capabilities.clone(),
            info: listener.declared.info.clone(),
            revision: listener.revision,
            label: listener.label.clone(),
            route: listener.route.clone(),
        });
        let context = CallContext::new(client, &request, listener.caller.clone());
        let answer = listener.server.respond(Call { request, context });
        let (end, mut ended) = oneshot::channel();
        let task = tokio::spawn(async move { drop(end.send(answer.await)) });
        let task = AbortOnDropHandle::new(task);
        tokio::select! {
            biased;
            Ok(honoured) = acknowledged => {
                // A server may acknowledge only what was asked for.
                let honoured = honoured.within(asked);
                Ok(UpstreamListen { asked: asked.clone(), honoured, began: Instant::now(), ended, _task: task })
            }
            end = &mut ended => Err(match end {
                Ok(Err(error)) => error,
                _ => RpcError::of(Reason::BackendUnavailable, "The server ended a listen at once"),
            }),
        }
    }
}

impl Client for ListenClient {
    fn notify(
        self: Arc<Self>,
        _: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<(), Error>> {
        if *method == Method::Acknowledged {
            // An unreadable acknowledgement honours nothing.
            let honoured = Filter::read(params).unwrap_or_default();
            if let Some(acknowledge) = self.acknowledged.lock().take() {
                drop(acknowledge.send(honoured));
            }
            return Box::pin(std::future::ready(Ok(())));
        }
        let Some(listener) = self.listener.upgrade() else {
            return Box::pin(std::future::ready(Ok(())));
        };
        let (method, params) = (method.clone(), notifications::to_legacy(params));
        Box::pin(async move { listener.hear(&method, params).await })
    }

    fn ask(
        self: Arc<Self>,
        _: &Origin,
        method: &Method,
        _: Option<&RawJson>,
    ) -> BoxFuture<Result<RawJson, RpcError>> {
        let refusal = tenure_protocol::translate::questions::refusal(method);
        Box::pin(std::future::ready(refusal))
    }

    fn cancellation(&self, _: &RequestId, _: u64) -> Option<CancellationToken> {
        Some(self.cancellation.clone())
    }

    fn capabilities(&self) -> RawJson {
        self.capabilities.clone()
    }

    fn client_info(&self) -> Option<RawJson> {
        self.info.clone()
    }

    fn protocol(&self) -> &'static str {
        MODERN
    }

    fn revision(&self) -> Revision {
        self.revision
    }

    fn timeout(&self) -> Duration {
        QUIET
    }

    fn started(&self) -> Time {
        Time::default()
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn route(&self) -> &Route {
        &self.route
    }
}
