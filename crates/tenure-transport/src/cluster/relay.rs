//! Sends requests to other nodes.
//!
//! In: a request, and the node that has its session. Out: the head of that node's answer and a body that is read as it
//! comes. It does not decide where a session is, and does not repeat a request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use tenure_session::cluster::Roster;
use tenure_session::id::NodeId;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::links::{Links, PeerBody, SendFailure};
use super::peer_key::PeerKey;
use super::relayed_head::RelayedHead;

/// How often it is checked whether the nodes to which there are connections are still there.
const LOOKS: Duration = Duration::from_millis(500);

/// The way to the other nodes. Cheap to clone.
#[derive(Clone)]
pub struct Relay(Arc<RelayInner>);

struct RelayInner {
    roster: Roster,
    links: Links,
    /// Cancelled when clients have to be sent to other nodes.
    stop: CancellationToken,
    /// Cancelled when nothing is sent to other nodes any more.
    closed: CancellationToken,
    /// Answers that their clients can get over their connections alone.
    pending: TaskTracker,
}

impl Relay {
    /// The way to the nodes of this roster. `stop` is cancelled when this node ends its streams. Must be called within
    /// a tokio runtime; its tasks are of `tasks`, and end when `close` is called.
    pub fn start(roster: Roster, key: PeerKey, stop: CancellationToken, tasks: &TaskTracker) -> Self {
        let (closed, pending) = (CancellationToken::new(), TaskTracker::new());
        let links = Links::new(key, Arc::new(roster.clone()), tasks.clone(), closed.clone());
        let relay = Self(Arc::new(RelayInner { roster, links, stop, closed, pending }));
        let weak = Arc::downgrade(&relay.0);
        let closed = relay.0.closed.clone();
        tasks.spawn(async move {
            while closed.run_until_cancelled(tokio::time::sleep(LOOKS)).await.is_some() {
                let Some(relay) = weak.upgrade() else { return };
                for node in relay.links.nodes() {
                    // A late list may leave a node out that is there; a write tells.
                    if relay.roster.peer(node).is_none()
                        && relay.roster.find_gone(node).await.is_ok_and(|is_gone| is_gone)
                    {
                        tracing::debug!(?node, "a node is gone; its connections are closed");
                        relay.links.close(node);
                    }
                }
            }
        });
        relay
    }

    /// Waits until no client waits here for an answer that it could not get elsewhere, at most this long.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn calm(&self, limit: Duration) {
        self.0.pending.close();
        if tokio::time::timeout(limit, self.0.pending.wait()).await.is_err() {
            let answers = self.0.pending.len();
            tracing::warn!(
                answers,
                "answers of other nodes were still awaited at the end of the grace period"
            );
        }
    }

    /// To be held as long as a client waits for an answer that it cannot get elsewhere.
    pub(crate) fn pending(&self) -> TaskTrackerToken {
        self.0.pending.token()
    }

    /// Closes the connections to other nodes.
    pub fn close(&self) {
        self.0.closed.cancel();
    }

    /// Cancelled when nothing is sent to other nodes any more.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.0.closed
    }

    /// The connections to the nodes.
    pub(super) fn links(&self) -> &Links {
        &self.0.links
    }

    /// The nodes.
    pub(crate) fn roster(&self) -> &Roster {
        &self.0.roster
    }

    /// Whether a node has said that it stops soon.
    pub(crate) fn is_draining(&self, node: NodeId) -> bool {
        self.0.roster.peer(node).is_some_and(|info| info.is_draining)
    }

    /// Cancelled when clients have to be sent to other nodes.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// Sends a request to a node, and waits for the head of its answer. How long that takes is up to the node: it answers as
    /// late as it would answer a client of its own. If it is lost, its connections end.
    ///
    /// # Cancel safety
    /// Dropping it withdraws the request, as a client does that hangs up.
    pub(crate) async fn send(
        &self,
        node: NodeId,
        head: &RelayedHead,
        (method, headers, body): (Method, HeaderMap, Bytes),
    ) -> Result<Response<PeerBody>, SendFailure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_static("https://peer.invalid/");
        *request.headers_mut() = headers;
        head.write(request.headers_mut())
            .ok_or(SendFailure::NotSent("the sender has no name for a header"))?;
        self.0.links.send(node, request).await
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("node", &self.0.roster.node()).finish_non_exhaustive()
    }
}
