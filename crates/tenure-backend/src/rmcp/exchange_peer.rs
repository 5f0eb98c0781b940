//! The messages of a handler while it answers a request without a session.
//!
//! Each request has an rmcp loop of its own, which runs only to make the `Peer`. So every message of the loop belongs
//! to that request. Questions and messages go through the context of the call, news goes to all clients. Once the
//! request has ended, messages from tasks that the handler left running are dropped.

use std::collections::HashMap;
use std::sync::Arc;

use ::rmcp::ErrorData;
use ::rmcp::transport::Transport;
use futures_util::future::{AbortHandle, Abortable};
use rmcp::model::{
    ClientNotification, ClientRequest, GetMeta, RequestId, ServerConfig, ServerJsonRpcMessage,
    ServerNotification, ServerRequest, ServerResult,
};
use rmcp::service::{
    NotificationContext, RequestContext, RoleServer, RxJsonRpcMessage, Service, TxJsonRpcMessage,
};
use tenure_protocol::translate::notifications;
use tenure_protocol::{Reason, RpcError};
use tenure_session::call::{CallContext, Fanout, News};
use tokio::sync::mpsc;

use crate::rmcp::convert::{answered, spoken};
use crate::rmcp::traffic::Inbound;

/// Capacity of the queue of answers into rmcp's loop.
const ANSWERS: usize = 4;

/// The call's side of rmcp's loop.
pub(super) struct ExchangePeer {
    context: Arc<CallContext>,
    fanout: Fanout,
    answers: mpsc::Sender<Inbound>,
    state: parking_lot::Mutex<ExchangePeerState>,
}

#[derive(Default)]
struct ExchangePeerState {
    is_over: bool,
    /// Questions to the client in flight, by rmcp's id.
    asking: HashMap<RequestId, AbortHandle>,
}

impl ExchangePeer {
    /// A peer, and the transport for rmcp's loop.
    pub(super) fn new(context: Arc<CallContext>, fanout: Fanout) -> (Arc<Self>, ExchangeTransport) {
        let (answers, inbound) = mpsc::channel(ANSWERS);
        let peer = Arc::new(Self { context, fanout, answers, state: parking_lot::Mutex::default() });
        (Arc::clone(&peer), ExchangeTransport { peer, inbound })
    }

    /// The request is over: withdraws open questions and drops all later messages.
    pub(super) fn close(&self) {
        let asking = {
            let mut state = self.state.lock();
            state.is_over = true;
            std::mem::take(&mut state.asking)
        };
        asking.into_values().for_each(|question| question.abort());
    }

    /// Asks the client on behalf of the handler and sends the answer into the loop.
    fn ask(self: Arc<Self>, id: RequestId, request: &ServerRequest) -> impl Future<Output = ()> + use<> {
        let spoken = spoken(request);
        let (handle, registration) = AbortHandle::new_pair();
        {
            let mut state = self.state.lock();
            match state.is_over {
                true => handle.abort(),
                false => drop(state.asking.insert(id.clone(), handle)),
            }
        }
        async move {
            let asked = async {
                let unreadable = || RpcError::of(Reason::Internal, "a request without a method");
                let (method, params) = spoken.ok_or_else(unreadable)?;
                self.context.ask(&method, params.as_ref()).await
            };
            // The question was withdrawn, so the handler waits for no answer.
            let Ok(answer) = Abortable::new(asked, registration).await else { return };
            self.state.lock().asking.remove(&id);
            // Fails only if the loop has ended, and then no handler waits.
            drop(self.answers.send(Box::new(answered(id, answer))).await);
        }
    }

    async fn say(self: Arc<Self>, notification: ServerNotification) {
        // A handler that serves a listen names it; news without a name is for all clients.
        let listens = notification.get_meta().subscription_id().is_some();
        if self.told(&notification, listens) {
            return;
        }
        let Some((method, mut params)) = spoken(&notification) else { return };
        if listens {
            // Write the id exactly as the client did; rmcp may have written it in another form.
            params = Some(notifications::to_modern(params.as_ref(), self.context.request_id()));
        }
        if let Err(error) = self.context.notify(&method, params.as_ref()).await {
            tracing::debug!(%error, %method, "could not pass on a notification");
        }
    }

    /// Handles notifications that are not for this client alone. Returns whether this was one.
    fn told(&self, notification: &ServerNotification, listens: bool) -> bool {
        // Hold the lock until the end, so that no news goes out after the request is over.
        let mut state = self.state.lock();
        if state.is_over {
            return true;
        }
        match notification {
            ServerNotification::CancelledNotification(cancelled) => {
                let id = cancelled.params.request_id.as_ref();
                if let Some(question) = id.and_then(|id| state.asking.remove(id)) {
                    question.abort();
                }
            }
            _ if listens => return false,
            ServerNotification::ToolListChangedNotification(_) => {
                self.everywhere().list_changed(News::Tools);
            }
            ServerNotification::PromptListChangedNotification(_) => {
                self.everywhere().list_changed(News::Prompts);
            }
            ServerNotification::ResourceListChangedNotification(_) => {
                self.everywhere().list_changed(News::Resources);
            }
            ServerNotification::ResourceUpdatedNotification(updated) => {
                self.everywhere().resource_updated(&updated.params.uri);
            }
            _ => return false,
        }
        true
    }

    fn everywhere(&self) -> Fanout {
        self.fanout.on(self.context.route().clone())
    }
}

/// The transport of rmcp's loop.
pub(super) struct ExchangeTransport {
    peer: Arc<ExchangePeer>,
    inbound: mpsc::Receiver<Inbound>,
}

impl Transport<RoleServer> for ExchangeTransport {
    type Error = std::convert::Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let peer = Arc::clone(&self.peer);
        // Register questions here, in order, and not in the future, which may run later. The loop runs the future in a
        // task that ends with the loop.
        let (asking, saying) = match message {
            ServerJsonRpcMessage::Request(request) => (Some(peer.ask(request.id, &request.request)), None),
            ServerJsonRpcMessage::Notification(notification) => {
                (None, Some(peer.say(notification.notification)))
            }
            // No request is ever sent into this loop.
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => (None, None),
        };
        async move {
            if let Some(asking) = asking {
                asking.await;
            }
            if let Some(saying) = saying {
                saying.await;
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.inbound.recv().await.map(|message| *message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.peer.close();
        Ok(())
    }
}

/// The service of rmcp's loop. It never gets a request, because the handler is called in place.
pub(super) struct UnusedService;

impl Service<RoleServer> for UnusedService {
    async fn handle_request(
        &self,
        _: ClientRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        Err(ErrorData::internal_error("this service takes no requests", None))
    }

    async fn handle_notification(
        &self,
        _: ClientNotification,
        _: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::default()
    }
}
