//! Who hears of changes where rmcp serves alone: everybody with an open listen.

use rmcp::ErrorData;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::SubscriptionContext;
use tokio::sync::broadcast;

use super::{Context, failed};
use crate::catalog;

/// Something that changed, or is said to have.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Tools,
    Prompts,
    Watched,
}

/// Carries changes to all listeners. A listener that is more than 16 behind misses some; none here is that slow.
#[derive(Clone)]
pub(crate) struct Newsroom(broadcast::Sender<Change>);

impl Newsroom {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(16).0)
    }

    /// Tells one listen what it wants to hear, until it ends.
    pub(super) async fn tell(&self, context: &SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.0.subscribe();
        let (sink, wanted) = (context.sink(), context.accepted());
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            let watches =
                || wanted.resource_subscriptions.iter().flatten().any(|uri| uri == catalog::WATCHED);
            let told = match change {
                Ok(Change::Tools) if wanted.tools_list_changed == Some(true) => {
                    sink.notify_tool_list_changed().await
                }
                Ok(Change::Prompts) if wanted.prompts_list_changed == Some(true) => {
                    sink.notify_prompt_list_changed().await
                }
                Ok(Change::Watched) if watches() => sink.notify_resource_updated(catalog::WATCHED).await,
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => Ok(()),
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            };
            told.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        }
    }
}

/// Tells all clients: through the newsroom, or else through the peer that serves us.
pub(super) async fn publish(
    context: &Context,
    newsroom: Option<&Newsroom>,
    change: Change,
) -> Result<(), ErrorData> {
    if let Some(newsroom) = newsroom {
        // It fails if there is no listener, and then nothing has to be done.
        drop(newsroom.0.send(change));
    }
    if newsroom.is_some() && super::is_modern(context) {
        return Ok(());
    }
    let peer = &context.peer;
    match change {
        Change::Tools => peer.notify_tool_list_changed().await,
        Change::Prompts => peer.notify_prompt_list_changed().await,
        Change::Watched => {
            peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(catalog::WATCHED)).await
        }
    }
    .map_err(failed)
}
