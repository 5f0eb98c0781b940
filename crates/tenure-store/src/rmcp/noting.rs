//! rmcp's own sessions, with a note in the store of every request that has no answer yet.

use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionHandle, LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{
    EventStore, RestoreOutcome, ServerSseMessage, SessionId,
};

use super::RmcpStore;
use super::names::EventName;

/// rmcp's [`LocalSessionManager`] with its events in a [`RmcpStore`], and with an answer for every request.
///
/// A request that was under way when the process was killed is answered when its client resumes the stream: with
/// error −31010 and `data.reason = "interrupted"`. With the event store alone the client would wait until it gives
/// up, because rmcp does not tell an event store which request a stream is for. This costs one more write per
/// request.
///
/// Only one process at a time may use the engine, as with a store on disk: a request that is noted in the store but not
/// running in this process counts as cut off. This needs the priming events that rmcp sends unless
/// `SessionConfig::sse_retry` is `None`: without one, a stream has no event id before its first message.
///
/// ```
/// # use std::sync::Arc;
/// # use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
/// # use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
/// # use tenure_store::{memory::Memory, rmcp::{RmcpSessions, RmcpStore}};
/// let store = Arc::new(RmcpStore::new(Arc::new(Memory::new())));
/// let sessions = RmcpSessions::new(LocalSessionManager::default(), &store);
/// let mut config = StreamableHttpServerConfig::default();
/// config.session_store = Some(store);
/// ```
#[derive(Debug)]
pub struct RmcpSessions {
    sessions: LocalSessionManager,
    store: RmcpStore,
}

impl RmcpSessions {
    /// Wraps rmcp's sessions and keeps their events in this store.
    pub fn new(sessions: LocalSessionManager, store: &RmcpStore) -> Self {
        Self { sessions: sessions.with_event_store(Arc::new(store.clone())), store: store.clone() }
    }

    async fn handle(&self, id: &SessionId) -> Result<LocalSessionHandle, LocalSessionManagerError> {
        let handle = self.sessions.sessions.read().await.get(id).cloned();
        handle.ok_or_else(|| LocalSessionManagerError::SessionNotFound(id.clone()))
    }
}

impl SessionManager for RmcpSessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        self.sessions.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.sessions.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.sessions.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        let closed = self.sessions.close_session(id).await;
        self.store.forget_calls(id);
        closed
    }

    /// Does the same two steps as rmcp, and notes the request between them: after the second step the answer could come
    /// before the note, and the note would stay for ever.
    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let handle = self.handle(id).await?;
        let mut channel = handle.establish_request_wise_channel().await?;
        // rmcp stores the priming event before it returns the channel.
        let first = channel.inner.try_recv().ok();
        let name = first.as_ref().and_then(|event| EventName::parse(event.event_id.as_deref()?));
        if let (ClientJsonRpcMessage::Request(request), Some(name)) = (&message, name)
            && let Err(error) = self.store.note(id, name.log, request.id.clone()).await
        {
            tracing::warn!(log = ?name.log, %error, "could not note a request; after a kill it gets no answer");
        }
        handle.push_message(message, channel.http_request_id).await?;
        let rest = stream::poll_fn(move |context| channel.inner.poll_recv(context));
        Ok(stream::iter(first).chain(rest))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.sessions.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.sessions.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.sessions.resume(id, last_event_id).await
    }

    async fn restore_session(&self, id: SessionId) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        self.sessions.restore_session(id).await
    }

    fn event_store(&self) -> Option<Arc<dyn EventStore>> {
        self.sessions.event_store()
    }
}
