//! What goes back and forth between rmcp's loop and a session, and which request each message is of.

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

/// A message to rmcp's loop. Boxed, because a queue keeps room for many and the type is large.
pub(super) type Inbound = Box<ClientJsonRpcMessage>;

/// The session's side of rmcp's loop.
pub(super) struct Traffic {
    outlet: Outlet,
    inbound: mpsc::Sender<Inbound>,
    state: std::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
    in_place: Option<Arc<CallContext>>,
    looped: HashMap<RequestId, Looped>,
    next: i64,
    /// Questions to the client under way, by rmcp's id; dropping one withdraws it.
    asking: HashMap<RequestId, AbortOnDropHandle<()>>,
    closed: bool,
}

struct Looped {
    context: Arc<CallContext>,
    answer: oneshot::Sender<Reply>,
}

impl Traffic {
    pub(super) fn new(outlet: Outlet, inbound: mpsc::Sender<Inbound>) -> Self {
        Self { outlet, inbound, state: std::sync::Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes the one place for a request that is called in place, if no other request is in flight.
    pub(super) fn call_in_place(self: &Arc<Self>, context: &Arc<CallContext>) -> Option<InPlace> {
        let mut state = self.state();
        if state.in_place.is_some() || !state.looped.is_empty() {
            return None;
        }
        state.in_place = Some(Arc::clone(context));
        Some(InPlace(Arc::clone(self)))
    }

    /// Enters a request that goes through rmcp's loop.
    pub(super) fn call_through_loop(
        self: &Arc<Self>,
        context: &Arc<CallContext>,
    ) -> (ThroughLoop, RequestId) {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state();
        state.next += 1;
        let id = NumberOrString::Number(state.next);
        state.looped.insert(id.clone(), Looped { context: Arc::clone(context), answer });
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

    /// The outlet for a message that rmcp's loop tied to a request, or that nothing is known of. None if
    /// the request is over: its questions must not end up with another.
    fn outlet_of(&self, origin: Option<&RequestId>) -> Option<Outlet> {
        let state = self.state();
        match origin {
            Some(id) => state.looped.get(id).map(|looped| looped.context.outlet()),
            None => {
                Some(state.in_place.as_ref().map_or_else(|| self.outlet.clone(), |context| context.outlet()))
            }
        }
    }

    /// The outlet for a log message: that of the only request in flight, if there is just one.
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
            // Nobody waits any more if the client withdrew the request.
            drop(looped.answer.send(reply));
        }
    }

    /// Asks the client on behalf of a handler and brings the answer back into the loop.
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
            // The loop has ended: nobody waits for the answer.
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
                // The handler takes a question back; dropping it tells the client.
                if let Some(id) = &cancelled.params.request_id {
                    drop(self.state().asking.remove(id));
                }
                return;
            }
            _ => self.outlet.clone(),
        };
        let Some((method, params)) = spoken(&notification) else { return };
        if let Err(error) = outlet.notify(&method, params.as_ref()).await {
            tracing::debug!(%error, %method, "a notification that nobody can hear");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "owned by the traffic, which aborts it when the link closes")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(task)
}

/// The one place for a request that is called in place.
pub(super) struct InPlace(Arc<Traffic>);

impl Drop for InPlace {
    fn drop(&mut self) {
        self.0.state().in_place = None;
    }
}

/// A request under way in rmcp's loop.
pub(super) struct ThroughLoop {
    traffic: Arc<Traffic>,
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
        // Nobody waits for the answer any more: withdrawn, timed out, or the session is over.
        let params = CancelledNotificationParam::new(Some(self.id.clone()), None);
        let notification = CancelledNotification::new(params);
        let message = Box::new(JsonRpcMessage::notification(notification.into()));
        if let Err(mpsc::error::TrySendError::Full(message)) = self.traffic.inbound.try_send(message) {
            let inbound = self.traffic.inbound.clone();
            // It ends with the loop at the latest, whose end closes the queue.
            drop(spawn(async move { drop(inbound.send(message).await) }));
        }
    }
}

/// The transport that rmcp's loop sees.
pub(super) struct Wire {
    pub(super) traffic: Arc<Traffic>,
    pub(super) inbound: mpsc::Receiver<Inbound>,
}

impl Transport<RoleServer> for Wire {
    type Error = std::convert::Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let traffic = Arc::clone(&self.traffic);
        // Requests are entered here, in order, and not in the future, which may run later.
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
