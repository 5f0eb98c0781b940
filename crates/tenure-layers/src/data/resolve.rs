//! Finds the state that a call works on: the one that its handle names, or its cookie.

use tenure_protocol::Reply;
use tenure_session::backend::Call;
use tenure_session::id::Principal;
use tenure_session::state::{Fault, Lost, State, StateId};

use crate::data::dialect;
use crate::data::handle_kinds::KindOfState;
use crate::data::handle_tools;
use crate::data::path::{DataShared, Use};
use crate::data::request::{DataRequest, RequestCookie};

/// The state for a tool call, or the answer in place of the call.
pub(super) enum Resolution {
    /// The call can be made, with this state or without one.
    WorksOn(Option<State>),
    /// This is the answer.
    Answered(Reply),
}

impl DataShared {
    /// Finds the state that the call works on. The rare branches are boxed, so that the future of every other call
    /// stays small. `without` answers a call that needs a state and names none.
    pub(super) async fn resolve(
        &self,
        call: &Call,
        use_of: Use,
        lost: Option<(&RequestCookie, Lost)>,
        state: Option<State>,
        without: impl FnOnce(Option<&KindOfState>) -> Reply,
    ) -> Resolution {
        let caller = call.context.caller();
        let kind = match use_of {
            Use::None => return Resolution::WorksOn(state),
            Use::Wrong(error) => return Resolution::Answered(Err(error)),
            Use::Ours { kind, action } => {
                let arguments = DataRequest::read(call.request.params.as_ref())
                    .and_then(|data_request| data_request.arguments);
                let kind = &self.kinds[kind];
                let act = self.act(kind, action, arguments, caller, state.as_ref());
                return Resolution::Answered(Box::pin(act).await);
            }
            Use::Of { kind, handle: Some(handle) } => {
                let on_handle = self.on_handle(&self.kinds[kind], handle, state, &caller.principal);
                return Box::pin(on_handle).await;
            }
            Use::Of { kind, handle: None } => Some(&self.kinds[kind]),
            Use::Any => None,
        };
        if let Some((cookie, lost)) = lost {
            return Resolution::Answered(Err(dialect::lost(cookie.dialect, &self.policy, &cookie.id, lost)));
        }
        match (state, kind) {
            (None, _) => Resolution::Answered(without(kind)),
            (Some(state), Some(kind)) if !state.is_of(&kind.kind) => {
                let (has, needs) = (state.kind(), kind.kind.as_str());
                let words = format!("Your session is a {}, and this tool works on a {needs}.", has.as_str());
                Resolution::Answered(Ok(handle_tools::complaint(&words)))
            }
            (state, _) => Resolution::WorksOn(state),
        }
    }

    /// Whether a call can be made with the state of its cookie, without further checks.
    pub(super) fn stands_on(&self, use_of: &Use, state: &State) -> bool {
        match use_of {
            Use::None | Use::Any => true,
            Use::Of { kind, handle: None } => state.is_of(&self.kinds[*kind].kind),
            Use::Of { handle: Some(_), .. } | Use::Ours { .. } | Use::Wrong(_) => false,
        }
    }

    async fn on_handle(
        &self,
        kind: &KindOfState,
        handle: String,
        state: Option<State>,
        principal: &Principal,
    ) -> Resolution {
        let named = StateId::from_handle(&kind.kind, &handle);
        if let (Some(state), Some(named)) = (&state, named)
            && state.id() != named
        {
            let words = format!(
                "The call names two different things: its {} and the session it is made in. Leave one out.",
                kind.argument()
            );
            return Resolution::Answered(Ok(handle_tools::complaint(&words)));
        }
        match (state, self.by_handle(kind, &handle, principal).await) {
            // Both name the same state. Use the cookie's, so that its cookie reports what the call changed.
            (Some(state), Ok(_)) => Resolution::WorksOn(Some(state)),
            (None, Ok(state)) => Resolution::WorksOn(Some(state)),
            (_, Err(Fault::Lost(lost))) => {
                Resolution::Answered(Ok(handle_tools::missing(kind, &handle, lost)))
            }
            (_, Err(fault)) => Resolution::Answered(Err(fault.to_error().to_rpc())),
        }
    }
}
