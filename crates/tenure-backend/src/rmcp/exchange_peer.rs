//! What a handler says while it answers a request that belongs to no session.
//!
//! rmcp's loop runs for nothing but the `Peer` that it makes, one loop for each request: so whatever comes out of it is
//! of that request. Questions and messages go through the context of the call, news go to everybody. Once the request
//! is over nobody hears what a task says that the handler left behind.

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

/// Answers on their way into rmcp's loop.
const ANSWERS: usize = 4;

/// The call's side of rmcp's loop.
pub(super) struct Voice {
    context: Arc<CallContext>,
    fanout: Fanout,
    answers: mpsc::Sender<Inbound>,
    state: parking_lot::Mutex<State>,
}

#[derive(Default)]
struct State {
    is_over: bool,
    /// Questions to the client under way, by rmcp's id.
    asking: HashMap<RequestId, AbortHandle>,
}

impl Voice {
    /// A voice, and the transport that rmcp's loop speaks through.
    pub(super) fn new(context: Arc<CallContext>, fanout: Fanout) -> (Arc<Self>, Line) {
        let (answers, inbound) = mpsc::channel(ANSWERS);
        let voice = Arc::new(Self { context, fanout, answers, state: parking_lot::Mutex::default() });
        (Arc::clone(&voice), Line { voice, inbound })
    }

    /// The request is over: open questions are withdrawn, and nothing more is heard.
    pub(super) fn close(&self) {
        let asking = {
            let mut state = self.state.lock();
            state.is_over = true;
            std::mem::take(&mut state.asking)
        };
        asking.into_values().for_each(|question| question.abort());
    }

    /// Asks the client on behalf of the handler and brings the answer back into the loop.
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
            // Whoever took the question back does not wait for an answer.
            let Ok(answer) = Abortable::new(asked, registration).await else { return };
            self.state.lock().asking.remove(&id);
            // The loop has ended: nobody waits for the answer.
            drop(self.answers.send(Box::new(answered(id, answer))).await);
        }
    }

    async fn say(self: Arc<Self>, notification: ServerNotification) {
        // Whoever serves a listen says for which one; other news are for all.
        let listens = notification.get_meta().subscription_id().is_some();
        if self.told(&notification, listens) {
            return;
        }
        let Some((method, mut params)) = spoken(&notification) else { return };
        if listens {
            // As its client wrote it, which rmcp may not have been able to.
            params = Some(notifications::to_modern(params.as_ref(), self.context.request_id()));
        }
        if let Err(error) = self.context.notify(&method, params.as_ref()).await {
            tracing::debug!(%error, %method, "a notification that nobody can hear");
        }
    }

    /// Deals with what is not said to the client, and says whether it was that.
    fn told(&self, notification: &ServerNotification, listens: bool) -> bool {
        // Held meanwhile, so that no news comes from a request that is over.
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

/// The transport that rmcp's loop sees.
pub(super) struct Line {
    voice: Arc<Voice>,
    inbound: mpsc::Receiver<Inbound>,
}

impl Transport<RoleServer> for Line {
    type Error = std::convert::Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let voice = Arc::clone(&self.voice);
        // Questions are entered here, in order, and not in the future, which may run later. The loop carries the
        // future out in a task that ends with it.
        let (asking, saying) = match message {
            ServerJsonRpcMessage::Request(request) => (Some(voice.ask(request.id, &request.request)), None),
            ServerJsonRpcMessage::Notification(notification) => {
                (None, Some(voice.say(notification.notification)))
            }
            // Nobody asks this loop anything.
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
        self.voice.close();
        Ok(())
    }
}

/// The service of rmcp's loop, which is never asked anything: the handler is called in place.
pub(super) struct Unasked;

impl Service<RoleServer> for Unasked {
    async fn handle_request(
        &self,
        _: ClientRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        Err(ErrorData::internal_error("nobody is here", None))
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
