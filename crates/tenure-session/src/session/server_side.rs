//! What the contexts of requests and the outlets of links need of their session.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::params::{self, LogLevel};
use tenure_protocol::{Error, Method, RawJson, Request, RequestId, message};

use crate::call::{CallContext, Caller};
use crate::id::Route;
use crate::session::session::Session;
use crate::session::stream::Origin;

impl Session {
    /// The params of `initialize`.
    pub(crate) fn initialize(&self) -> RawJson {
        self.state.lock().initialize.clone()
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.inner.limits.request_timeout
    }

    /// Whether the client subscribed to this.
    pub(crate) fn watches(&self, uri: &str) -> bool {
        self.state.lock().subscriptions.contains(uri)
    }

    /// The context of a request of our own.
    pub(crate) fn inquiry(self: &Arc<Self>, request: &Request) -> CallContext {
        let caller = Caller { principal: self.owner.clone(), ..Caller::anonymous("wake") };
        // No request in flight has this number, so whatever else the server says about it goes nowhere.
        CallContext::new(Arc::clone(self), request, 0, caller, self.inner.clock.now())
    }

    /// A request in flight is sent to a server once more.
    pub(crate) fn begins_again(&self, id: &RequestId, number: u64) {
        let mut state = self.state.lock();
        if let Some(call) = state.calls.get_mut(id).filter(|call| call.number == number) {
            call.is_again = true;
        }
    }

    /// Somebody works on a request in flight.
    pub(crate) fn goes_on(&self, id: &RequestId, number: u64) {
        let now = self.inner.clock.now();
        let mut state = self.state.lock();
        if let Some(call) = state.calls.get_mut(id).filter(|call| call.number == number) {
            call.goes_on(now);
        }
    }

    /// Closes the connection that waits for the answer to a request, if the revision knows that.
    pub(crate) fn close_connection_of(self: &Arc<Self>, id: &RequestId, number: u64) {
        let mut state = self.state.lock();
        if !state.revision.may_close_early() {
            return;
        }
        if let Ok(stream) = self.stream_of(&mut state, id, number) {
            self.close_connection(&mut state, stream);
        }
        drop(state);
        self.flush();
    }

    /// Passes a notification of the server on, unless the client does not want it.
    pub(crate) async fn notify(
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
