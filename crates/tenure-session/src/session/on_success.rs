//! What a request changes in its session once the server has accepted it: the log level, or a watched resource.
//!
//! In: requests of the client, and that they succeeded. Out: the state of the session, and its record.

use std::sync::Arc;

use tenure_protocol::params::{self, LogLevel};
use tenure_protocol::{Method, Reason, Request, RequestId, RpcError};

use crate::session::live_session::{Session, SessionState};

/// The change to the session's state when a request succeeds.
pub(super) enum OnSuccess {
    Nothing,
    Subscribe(Box<str>),
    Unsubscribe(Box<str>),
    SetLevel(LogLevel),
}

/// The change that a request makes.
pub(super) fn on_success(request: &Request) -> OnSuccess {
    let uri = || params::subscription_uri(request.params.as_ref()).map(String::into_boxed_str);
    let found = match request.method {
        Method::ResourcesSubscribe => uri().map(OnSuccess::Subscribe),
        Method::ResourcesUnsubscribe => uri().map(OnSuccess::Unsubscribe),
        Method::LoggingSetLevel => params::log_level(request.params.as_ref()).map(OnSuccess::SetLevel),
        _ => None,
    };
    found.unwrap_or(OnSuccess::Nothing)
}

impl Session {
    /// Applies the change that a request makes, after the server has accepted it.
    pub(super) fn apply_on_success(
        self: &Arc<Self>,
        id: &RequestId,
        on_success: &OnSuccess,
    ) -> Result<(), RpcError> {
        let mut state = self.state.lock();
        if !state.can_apply(on_success, id) {
            return Err(RpcError::of(Reason::NotSubscribed, "The session does not watch this resource"));
        }
        self.remember(&mut state, on_success);
        Ok(())
    }

    fn remember(self: &Arc<Self>, state: &mut SessionState, on_success: &OnSuccess) {
        if state.end.is_some() || state.is_given_up {
            return;
        }
        match on_success {
            OnSuccess::Nothing => return,
            OnSuccess::SetLevel(level) => state.log_level = Some(*level),
            OnSuccess::Subscribe(uri) => {
                self.inner.watchers.add(uri, self.id);
                state.subscriptions.insert(uri.clone());
            }
            OnSuccess::Unsubscribe(uri) => {
                self.inner.watchers.remove(uri, &self.id);
                state.subscriptions.remove(uri);
            }
        }
        self.save(state);
    }
}

impl SessionState {
    /// False for an unsubscribe from a resource that has no subscription. A request that runs a second time may have
    /// removed the subscription in its first run. The server is asked first in any case, because it may not support
    /// subscriptions at all.
    fn can_apply(&self, on_success: &OnSuccess, id: &RequestId) -> bool {
        match on_success {
            OnSuccess::Unsubscribe(uri) => {
                self.subscriptions.contains(uri) || self.calls.get(id).is_some_and(|call| call.is_again)
            }
            OnSuccess::Nothing | OnSuccess::SetLevel(_) | OnSuccess::Subscribe(_) => true,
        }
    }
}
