//! What a call works on: the state that its handle names, or its cookie.

use tenure_protocol::Reply;
use tenure_session::backend::Call;
use tenure_session::id::Principal;
use tenure_session::state::{Fault, Lost, State, StateId};

use crate::data::backend::{Shared, Use};
use crate::data::handle_kinds::KindOfState;
use crate::data::handle_tools;
use crate::data::request::{Asked, Cookie};

/// What a tool call is to work on, or why it cannot be made.
pub(super) enum Footing {
    /// The call can be made, with this state or with none.
    Firm(Option<State>),
    /// This is the answer.
    Answered(Reply),
}

impl Shared {
    /// What the call works on: what its handle names, or its cookie. What takes more than a look is in a box, so that
    /// other calls need not carry the room for it. `without` answers a call that names nothing and has to.
    pub(super) async fn footing(
        &self,
        call: &Call,
        use_of: Use,
        lost: Option<(&Cookie, Lost)>,
        state: Option<State>,
        without: impl FnOnce(Option<&KindOfState>) -> Reply,
    ) -> Footing {
        let caller = call.context.caller();
        let kind = match use_of {
            Use::None => return Footing::Firm(state),
            Use::Wrong(error) => return Footing::Answered(Err(error)),
            Use::Ours { kind, deed } => {
                let arguments = Asked::read(call.request.params.as_ref()).and_then(|asked| asked.arguments);
                let kind = &self.kinds[kind];
                let act = self.act(kind, deed, arguments, caller, state.as_ref());
                return Footing::Answered(Box::pin(act).await);
            }
            Use::Of { kind, handle: Some(handle) } => {
                let on_handle = self.on_handle(&self.kinds[kind], handle, state, &caller.principal);
                return Box::pin(on_handle).await;
            }
            Use::Of { kind, handle: None } => Some(&self.kinds[kind]),
            Use::Any => None,
        };
        if let Some((cookie, lost)) = lost {
            return Footing::Answered(Err(cookie.dialect.lost(&self.policy, &cookie.id, lost)));
        }
        match (state, kind) {
            (None, _) => Footing::Answered(without(kind)),
            (Some(state), Some(kind)) if !state.is_of(&kind.kind) => {
                let (has, needs) = (state.kind(), kind.kind.as_str());
                let words = format!("Your session is a {}, and this tool works on a {needs}.", has.as_str());
                Footing::Answered(Ok(handle_tools::complaint(&words)))
            }
            (state, _) => Footing::Firm(state),
        }
    }

    /// Whether a call can be made with the state of its cookie, and nothing more has to be looked at.
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
    ) -> Footing {
        let named = StateId::from_handle(&kind.kind, &handle);
        if let (Some(state), Some(named)) = (&state, named)
            && state.id() != named
        {
            let words = format!(
                "The call names two different things: its {} and the session it is made in. Leave one out.",
                kind.argument()
            );
            return Footing::Answered(Ok(handle_tools::complaint(&words)));
        }
        match (state, self.by_handle(kind, &handle, principal).await) {
            // The same one, so that its cookie says what the call made of it.
            (Some(state), Ok(_)) => Footing::Firm(Some(state)),
            (None, Ok(state)) => Footing::Firm(Some(state)),
            (_, Err(Fault::Lost(lost))) => Footing::Answered(Ok(handle_tools::missing(kind, &handle, lost))),
            (_, Err(fault)) => Footing::Answered(Err(fault.to_error().to_rpc())),
        }
    }
}
