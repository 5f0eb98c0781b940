//! A session as its server sees it: the [`Client`] of its requests.
//!
//! In: notifications, questions and progress of the server. Out: messages on the session's streams.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::params::{self, LogLevel};
use tenure_protocol::{Error, Method, RawJson, RequestId, Revision, RpcError, message};
use tokio_util::sync::CancellationToken;

use crate::call::{CallSession, Client, Origin};
use crate::id::{Principal, Route};
use crate::port::BoxFuture;
use crate::port::clock::Time;
use crate::session::live_session::Session;

impl Session {
    /// The params of `initialize`.
    pub(crate) fn initialize(&self) -> RawJson {
        self.state.lock().initialize.clone()
    }

    /// Passes on a notification of the server, unless the client has not asked for it or already has it.
    pub(super) async fn pass_on(
        self: &Arc<Self>,
        origin: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> Result<(), Error> {
        match method {
            Method::LogMessage => {
                let wanted = self.state.lock().log_level.unwrap_or(LogLevel::Debug);
                if params::log_level(params).is_some_and(|level| level < wanted) {
                    return Ok(());
                }
            }
            Method::Progress => {
                if let Origin::Call { id, number } = origin {
                    let now = self.inner.clock.now();
                    let mut state = self.state.lock();
                    if let Some(call) = state.calls.get_mut(id).filter(|call| call.number == *number) {
                        call.goes_on(now);
                        if call.repeats_progress(params) {
                            return Ok(());
                        }
                    }
                }
            }
            _ => {}
        }
        self.emit(origin, message::write_notification(method, params)).await
    }
}

impl Client for Session {
    fn notify(
        self: Arc<Self>,
        origin: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<(), Error>> {
        let (origin, method, params) = (origin.clone(), method.clone(), params.cloned());
        Box::pin(async move { self.pass_on(&origin, &method, params.as_ref()).await })
    }

    fn ask(
        self: Arc<Self>,
        origin: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<RawJson, RpcError>> {
        let (origin, method, params) = (origin.clone(), method.clone(), params.cloned());
        Box::pin(async move { self.put_question(origin, &method, params.as_ref()).await })
    }

    fn cancellation(&self, id: &RequestId, number: u64) -> Option<CancellationToken> {
        self.cancel_token(id, number)
    }

    fn capabilities(&self) -> RawJson {
        #[derive(serde::Deserialize)]
        struct RawCapabilities<'a> {
            #[serde(borrow)]
            capabilities: &'a serde_json::value::RawValue,
        }
        let initialize = self.initialize();
        let read = initialize.read::<RawCapabilities<'_>>();
        read.map_or(RawJson::EMPTY_OBJECT, |params| RawJson::of(&params.capabilities))
    }

    fn client_info(&self) -> Option<RawJson> {
        #[derive(serde::Deserialize)]
        struct RawClientInfo<'a> {
            #[serde(rename = "clientInfo", borrow)]
            client_info: &'a serde_json::value::RawValue,
        }
        let initialize = self.initialize();
        initialize.read::<RawClientInfo<'_>>().ok().map(|params| RawJson::of(&params.client_info))
    }

    fn protocol(&self) -> &'static str {
        Session::revision(self).as_str()
    }

    fn revision(&self) -> Revision {
        Session::revision(self)
    }

    fn timeout(&self) -> Duration {
        self.inner.limits.request_timeout
    }

    fn started(&self) -> Time {
        self.inner.clock.now()
    }

    fn label(&self) -> &str {
        Session::label(self)
    }

    fn route(&self) -> &Route {
        &self.route
    }

    fn principal(&self) -> Principal {
        self.owner.clone()
    }

    fn session(self: Arc<Self>) -> Option<CallSession> {
        Some(CallSession::new(self))
    }

    fn watches(&self, uri: &str) -> bool {
        self.state.lock().subscriptions.contains(uri)
    }

    fn begins_again(&self, id: &RequestId, number: u64) {
        let mut state = self.state.lock();
        if let Some(call) = state.calls.get_mut(id).filter(|call| call.number == number) {
            call.is_again = true;
        }
    }

    fn goes_on(&self, id: &RequestId, number: u64) {
        let now = self.inner.clock.now();
        let mut state = self.state.lock();
        if let Some(call) = state.calls.get_mut(id).filter(|call| call.number == number) {
            call.goes_on(now);
        }
    }

    fn close_connection(self: Arc<Self>, id: &RequestId, number: u64) {
        let mut state = self.state.lock();
        if !state.revision.may_close_early() {
            return;
        }
        if let Ok(stream) = self.stream_of(&mut state, id, number) {
            self.close_connection_of(&mut state, stream);
        }
        drop(state);
        self.flush();
    }

    fn link_lost(self: Arc<Self>, link: u64) {
        self.lost_link(link);
    }
}
