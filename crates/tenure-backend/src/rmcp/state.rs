//! The state that a request works on, as tools written for rmcp get it: as one of their arguments.
//!
//! The state is chosen before the handler is called: the call's data session or its handle names it. A tool that is
//! declared to use a kind of state is never called without one.

use std::marker::PhantomData;
use std::sync::Arc;

use ::rmcp::ErrorData;
use rmcp::handler::server::common::{AsRequestContext, FromContextPart};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_protocol::{Reason, RpcError};
use tenure_session::State;
use tenure_session::call::CallContext;
use tenure_session::state::{Edition, Fault};

use super::convert::error_data;

/// The state that a request works on, holding a `T`.
#[derive(Clone)]
pub struct DataState<T> {
    state: State,
    holds: PhantomData<fn() -> T>,
}

/// The state that a request works on, if it names one.
#[derive(Clone, Debug)]
pub struct MaybeState<T>(pub Option<DataState<T>>);

impl<T: Serialize + DeserializeOwned + Default> DataState<T> {
    /// The value, and its edition.
    ///
    /// # Errors
    /// When it does not hold a `T`.
    pub fn get(&self) -> Result<(T, Edition), ErrorData> {
        self.state.get().map_err(told)
    }

    /// Replaces the value, if it still has the edition that the caller saw.
    ///
    /// # Errors
    /// When the edition is another (`data.reason` is `conflict`), when the state is over, or the store fails.
    pub async fn update(&self, seen: Edition, value: &T) -> Result<Edition, ErrorData> {
        self.state.update(seen, value).await.map_err(told)
    }

    /// Changes the value; if another change comes first, tries again.
    ///
    /// # Errors
    /// The error of `change`, and then nothing is changed; or when the state is over, or the store fails.
    pub async fn change<R>(
        &self,
        change: impl FnMut(&mut T) -> Result<R, ErrorData>,
    ) -> Result<R, ErrorData> {
        self.state.change(change).await.map_err(told)?
    }

    /// Deletes the state. The answer to the call tells the client that its cookie has ended.
    ///
    /// # Errors
    /// When it is over already, or the store fails.
    pub async fn delete(&self) -> Result<(), ErrorData> {
        self.state.delete().await.map_err(told)
    }

    /// The state itself.
    pub fn state(&self) -> &State {
        &self.state
    }
}

fn told(fault: Fault) -> ErrorData {
    error_data(&fault.to_error().to_rpc())
}

fn state_of<T>(context: &mut impl AsRequestContext) -> Option<DataState<T>> {
    let ours = context.as_request_context().extensions.get::<Arc<CallContext>>()?;
    let state = ours.state()?.clone();
    Some(DataState { state, holds: PhantomData })
}

impl<C: AsRequestContext, T> FromContextPart<C> for DataState<T> {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        let sentence = "Session required. Call session/create or session/resume first.";
        state_of(context).ok_or_else(|| error_data(&RpcError::of(Reason::SessionRequired, sentence)))
    }
}

impl<C: AsRequestContext, T> FromContextPart<C> for MaybeState<T> {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        Ok(Self(state_of(context)))
    }
}

impl<T> std::fmt::Debug for DataState<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state.fmt(f)
    }
}
