//! The messages between rmcp's loop and a session, and which request each of them belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use ::rmcp::transport::Transport;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, GetExtensions, JsonRpcMessage,
    NumberOrString, ProgressToken, RequestId, ServerJsonRpcMessage, ServerNotification, ServerRequest,
};
use rmcp::service::{OriginatingRequestId, RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use tenure_protocol::{RawJson, Reason, Reply, RpcError};
use tenure_session::call::{CallContext, Outlet};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::convert::{answered, mcp_error, spoken};

/// A message to rmcp's loop. Boxed, because the type is large and the queue allocates room for many.
pub(super) type Inbound = Box<ClientJsonRpcMessage>;

/// The session's side of rmcp's loop.
pub(super) struct LoopTraffic {
    outlet: Outlet,
    inbound: mpsc::Sender<Inbound>,
    state: std::sync::Mutex<RmcpLoopState>,
}

#[derive(Default)]
struct RmcpLoopState {
    in_place: Option<Arc<CallContext>>,
    looped: HashMap<RequestId, LoopedCall>,
    next: i64,
    /// Questions to the client in flight, by rmcp's id; dropping a handle withdraws the question.
    asking: HashMap<RequestId, AbortOnDropHandle<()>>,
    closed: bool,
}

struct LoopedCall {
    context: Arc<CallContext>,
    answer: oneshot::Sender<Reply>,
}

impl LoopTraffic {
    pub(super) fn new(outlet: Outlet, inbound: mpsc::Sender<Inbound>) -> Self {
        Self { outlet, inbound, state: std::sync::Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, RmcpLoopState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Registers a request that is called in place; `None` if another request is in flight.
    pub(super) fn call_in_place(self: &Arc<Self>, context: &Arc<CallContext>) -> Option<InPlace> {
        let mut state = self.state();
        if state.in_place.is_some() || !state.looped.is_empty() {
            return None;
        }
        state.in_place = Some(Arc::clone(context));
        Some(InPlace(Arc::clone(self)))
    }

    /// Registers a request that goes through rmcp's loop.
    pub(super) fn call_through_loop(
        self: &Arc<Self>,
        context: &Arc<CallContext>,
    ) -> (ThroughLoop, RequestId) {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state();
        state.next += 1;
        let id = NumberOrString::Number(state.next);
        state.looped.insert(id.clone(), LoopedCall { context: Arc::clone(context), answer });
        let entered =
            ThroughLoop { traffic: Arc::clone(self), id: id.clone(), context: Arc::clone(context), answered };
        (entered, id)
    }

    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.looped.clear();
        state.asking.clear();
    }

    /// The outlet of the request that rmcp's loop named, or the outlet for a message without a named request. `None`
    /// if the named request is over: its questions must not go to another request.
    fn outlet_of(&self, origin: Option<&RequestId>) -> Option<Outlet> {
        let state = self.state();
        match origin {
            Some(id) => state.looped.get(id).map(|looped| looped.context.outlet()),
            None => {
                Some(state.in_place.as_ref().map_or_else(|| self.outlet.clone(), |context| context.outlet()))
            }
        }
    }

    /// The outlet for a log message: the request's if exactly one is in flight, else the session's.
    fn outlet_of_only(&self) -> Outlet {
        let state = self.state();
        let mut contexts = state.in_place.iter().chain(state.looped.values().map(|looped| &looped.context));
        match (contexts.next(), contexts.next()) {
            (Some(only), None) => only.outlet(),
            _ => self.outlet.clone(),
        }
    }

    /// The outlet of the request that carries this progress token.
    ///
    /// Compared as values, because a client may write its token with escapes that rmcp does not.
    fn outlet_of_token(&self, token: &ProgressToken) -> Outlet {
        let state = self.state();
        let mut contexts = state.in_place.iter().chain(state.looped.values().map(|looped| &looped.context));
        let owner = contexts.find(|context| {
            let own = context.progress_token();
            own.is_some_and(|own| own.read::<ProgressToken>().is_ok_and(|own| own == *token))
        });
        owner.map_or_else(|| self.outlet.clone(), |context| context.outlet())
    }

    fn answered(&self, id: &RequestId, reply: Reply) {
        if let Some(looped) = self.state().looped.remove(id) {
            // Fails if the client withdrew the request.
            drop(looped.answer.send(reply));
        }
    }

    /// Asks the client on behalf of a handler and sends the answer into the loop.
    fn ask(self: &Arc<Self>, id: RequestId, request: &ServerRequest) {
        let origin = request.extensions().get::<OriginatingRequestId>().map(|origin| origin.0.clone());
        let outlet = self.outlet_of(origin.as_ref());
        let spoken = spoken(request);
        let traffic = Arc::clone(self);
        let asking = id.clone();
        let task = async move {
            let answer = match (outlet, spoken) {
                (Some(outlet), Some((method, params))) => outlet.ask(&method, params.as_ref()).await,
                (None, _) => Err(RpcError::of(Reason::Cancelled, "The request that asks this is over")),
                (_, None) => Err(RpcError::of(Reason::Internal, "a request without a method")),
            };
            let message = answered(id.clone(), answer);
            // Fails only if the loop has ended, and then no handler waits.
            drop(traffic.inbound.send(Box::new(message)).await);
            // Dropping our own handle here is harmless: this task has nothing left to do.
            traffic.state().asking.remove(&id);
        };
        let mut state = self.state();
        if !state.closed {
            state.asking.insert(asking, AbortOnDropHandle::new(spawn(task)));
        }
    }

    async fn say(self: &Arc<Self>, notification: ServerNotification) {
        let outlet = match &notification {
            ServerNotification::ProgressNotification(progress) => {
                self.outlet_of_token(&progress.params.progress_token)
            }
            ServerNotification::LoggingMessageNotification(_) => self.outlet_of_only(),
            ServerNotification::CancelledNotification(cancelled) => {
                // The handler withdraws a question; dropping the handle tells the client.
                if let Some(id) = &cancelled.params.request_id {
                    drop(self.state().asking.remove(id));
                }
                return;
            }
            _ => self.outlet.clone(),
        };
        let Some((method, params)) = spoken(&notification) else { return };
        if let Err(error) = outlet.notify(&method, params.as_ref()).await {
            tracing::debug!(%error, %method, "could not pass on a notification");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "owned by the traffic, which aborts it when the link closes")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(task)
}

/// The registration of the request that is called in place; dropping it ends the registration.
pub(super) struct InPlace(Arc<LoopTraffic>);

impl Drop for InPlace {
    fn drop(&mut self) {
        self.0.state().in_place = None;
    }
}

/// A request in flight in rmcp's loop; dropping it cancels the request there.
pub(super) struct ThroughLoop {
    traffic: Arc<LoopTraffic>,
    id: RequestId,
    context: Arc<CallContext>,
    answered: oneshot::Receiver<Reply>,
}

impl ThroughLoop {
    pub(super) async fn answer(mut self) -> Reply {
        let gone = || Err(RpcError::of(Reason::BackendUnavailable, "The server has stopped"));
        tokio::select! {
            answered = &mut self.answered => return answered.unwrap_or_else(|_| gone()),
            () = self.context.cancelled() => {}
        }
        Err(RpcError::of(Reason::Cancelled, "The request was cancelled"))
    }
}

impl Drop for ThroughLoop {
    fn drop(&mut self) {
        if self.traffic.state().looped.remove(&self.id).is_none() {
            return;
        }
        // Unanswered: the request was withdrawn or timed out, or the session is over.
        let params = CancelledNotificationParam::new(Some(self.id.clone()), None);
        let notification = CancelledNotification::new(params);
        let message = Box::new(JsonRpcMessage::notification(notification.into()));
        if let Err(mpsc::error::TrySendError::Full(message)) = self.traffic.inbound.try_send(message) {
            let inbound = self.traffic.inbound.clone();
            // The task ends with the loop at the latest, which closes the queue.
            drop(spawn(async move { drop(inbound.send(message).await) }));
        }
    }
}

/// The transport of rmcp's loop.
pub(super) struct LoopTransport {
    pub(super) traffic: Arc<LoopTraffic>,
    pub(super) inbound: mpsc::Receiver<Inbound>,
}

impl Transport<RoleServer> for LoopTransport {
    type Error = std::convert::Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let traffic = Arc::clone(&self.traffic);
        // Register questions here, in order, and not in the future, which may run later.
        let notification = match message {
            ServerJsonRpcMessage::Request(request) => {
                traffic.ask(request.id.clone(), &request.request);
                None
            }
            ServerJsonRpcMessage::Response(response) => {
                traffic.answered(&response.id, Ok(RawJson::of(&response.result)));
                None
            }
            ServerJsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    traffic.answered(id, Err(mcp_error(&error.error)));
                }
                None
            }
            ServerJsonRpcMessage::Notification(notification) => Some(notification.notification),
        };
        async move {
            if let Some(notification) = notification {
                traffic.say(notification).await;
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.inbound.recv().await.map(|message| *message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.traffic.close();
        Ok(())
    }
}
