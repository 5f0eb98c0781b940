//! The requests of many exchanges that are in flight at one child.
//!
//! Every request has a number of ours, which is its id towards the child and, if the client wants progress, part of our
//! progress token. Each request has its own queue for the child's messages (`hear`), so that no request waits for
//! another client.

use std::sync::Arc;

use bytes::Bytes;
use tenure_protocol::keys::LEVEL;
use tenure_protocol::{Method, RawJson, RequestId, RpcError, message};
use tenure_session::backend::Call;
use tenure_session::backend::probe::ProbeAnswer;
use tenure_session::call::CallContext;
use tokio::sync::mpsc;

use super::super::splice::{self, TokenPair};
use crate::pending::{Pending, Sent};

/// Capacity of one request's queue. When it is full, notifications are dropped, and a listen ends.
const NEWS: usize = 256;

pub(super) struct ModernTraffic {
    pub(super) pending: Arc<Pending<ModernCall, ProbeAnswer>>,
    pub(super) label: Box<str>,
}

/// The request that waits.
pub(super) struct ModernCall {
    /// The client's id for it.
    pub(super) id: RequestId,
    pub(super) is_listen: bool,
    pub(super) wants_logs: bool,
    pub(super) tokens: Option<TokenPair>,
    pub(super) news: mpsc::Sender<CallNotification>,
}

/// A notification that belongs to a request.
pub(super) type CallNotification = (Method, Option<RawJson>);

impl ModernTraffic {
    pub(super) fn new(out: mpsc::Sender<Bytes>, label: &str) -> Arc<Self> {
        Arc::new(Self { pending: Pending::new(out, 1), label: label.into() })
    }

    /// Sends a request and waits for its answer. Replaces only the id and the progress token. `None`: the child did
    /// not take the request.
    ///
    /// # Cancel safety
    /// Dropping it cancels the request at the child.
    pub(super) async fn carry(&self, Call { request, context }: &Call) -> Option<ProbeAnswer> {
        let number = self.pending.number();
        let (params, tokens) = match splice::replace_token(request.params.clone(), number) {
            Ok(marked) => marked,
            Err(error) => return Some(ProbeAnswer::NotAsked(error)),
        };
        let (news, mut heard) = mpsc::channel(NEWS);
        let level = params.as_ref().and_then(|params| splice::in_meta(params, LEVEL));
        let call = ModernCall {
            id: request.id.clone(),
            is_listen: request.method == Method::Listen,
            wants_logs: level.is_some_and(|level| level != "null"),
            tokens,
            news,
        };
        let mut entered = self.pending.enter(number, call)?;
        let text = message::write_request(&entered.id(), &request.method, params.as_ref());
        match entered.send(text).await {
            Sent::Taken => {}
            Sent::Ended => return None,
            Sent::QueueClosed => {
                // The child may still answer earlier requests.
                self.pending.close();
                return None;
            }
        }
        let answer = loop {
            tokio::select! {
                biased;
                Some(said) = heard.recv() => tell(context, said).await,
                answer = &mut entered.answer => break answer,
            }
        };
        // Pass on the notifications that came before the answer first.
        while let Ok(said) = heard.try_recv() {
            tell(context, said).await;
        }
        Some(answer.unwrap_or_else(|_| ProbeAnswer::Nothing(RpcError::server_lost())))
    }
}

async fn tell(context: &CallContext, (method, params): CallNotification) {
    if let Err(error) = context.notify(&method, params.as_ref()).await {
        tracing::debug!(%method, %error, "could not pass on a message");
    }
}
