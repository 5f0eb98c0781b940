//! Shutdown of a server: the order in which its parts end.
//!
//! The server goes on serving until every running request is done that the next process could not go on with, or until
//! the grace period is over. Then new requests wait, open requests are written to the store, the store is closed, and
//! the next process may open it. Only then the servers behind and the listening socket are released: no client waits
//! for them, however long that takes.

use std::time::Duration;

use tenure_session::port::store::StoreDurability;
use tenure_transport::serve::Stages;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::control::HandOver;
use crate::socket::AfterUs;
use crate::wire::Runtimes;

/// The least time for requests that arrived while the shutdown waited for older ones.
const LATE_GRACE: Duration = Duration::from_secs(2);

/// The least time between telling clients not to reuse their connections and closing those. A client that is idle for
/// all that time, and sends just when its connection closes, has to send again.
const NOTICE: Duration = Duration::from_millis(250);

/// How long the connections that were accepted last may take to send their first request.
const FIRST_REQUEST: Duration = Duration::from_millis(100);

/// The parts of a node that have to end.
pub(crate) struct NodeParts {
    pub(crate) runtimes: Runtimes,
    pub(crate) stages: Stages,
    pub(crate) control: ControlEnd,
    /// The socket, if the node has its own.
    pub(crate) socket: Option<(HandOver, AfterUs)>,
    pub(crate) grace: Duration,
}

/// Ends the control socket. Its file is removed before the store is closed, while the folder is still ours.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlEnd {
    /// Cancelled when the control socket has to end.
    pub(crate) over: CancellationToken,
    /// Cancelled when it has ended.
    pub(crate) ended: CancellationToken,
}

/// Waits for `leaving`, then ends all parts, in order.
///
/// # Cancel safety
/// Parts that have ended stay ended; the others end with the process.
pub(crate) async fn wind_down(parts: NodeParts) {
    let NodeParts { runtimes, stages, control, socket, grace } = parts;
    let Runtimes { sessions, exchanges, states, store, limits, audit, cluster, traces, .. } = runtimes;
    stages.leaving.cancelled().await;
    if let Some(cluster) = &cluster {
        cluster.roster.set_draining();
    }
    let began = Instant::now();
    let deadline = began + grace;
    // Another process has the socket too, and will accept the connections that this one does not.
    let is_shared = socket
        .as_ref()
        .is_some_and(|(hand_over, after_us)| hand_over.is_asked() || *after_us == AfterUs::StaysOpen);
    let hand_over = socket.as_ref().map(|(hand_over, _)| hand_over);
    let late = LATE_GRACE.min(grace / 4);

    // Clients of sessions of other nodes wait here too.
    let relayed = async |limit| {
        if let Some(cluster) = &cluster {
            cluster.relay.calm(limit).await;
        }
    };
    // If nothing outlives this process, running requests without a session are finished and new ones are refused.
    let outlives_us = cluster.is_some() || store.store.capabilities().durability != StoreDurability::Process;
    let has_takers = cluster.as_ref().is_some_and(|cluster| !cluster.roster.takers().is_empty());
    let mut interrupted = 0;
    if outlives_us {
        if is_shared {
            sessions.hand_over();
            exchanges.are_followed();
        } else {
            sessions.drain();
            if has_takers {
                // Another node runs the calls of clients that come back.
                exchanges.are_followed();
            }
        }
        tokio::join!(exchanges.finish(deadline - late), sessions.calm(grace - late), relayed(grace - late));
    } else {
        exchanges.drain();
        sessions.drain();
        (interrupted, (), ()) =
            tokio::join!(exchanges.shut_down(grace), sessions.calm(grace - late), relayed(grace - late));
    }

    if is_shared {
        // Idle connections are not closed but passed to the next process.
        if let Some(successor) = hand_over.and_then(HandOver::successor) {
            stages.pass_on(successor);
        }
        tokio::time::sleep_until(began + NOTICE.min(grace)).await;
        stages.shut.cancel();
        stages.heard(FIRST_REQUEST).await;
    }
    if has_takers {
        // A load balancer and clients with idle connections have that long to notice.
        tokio::time::sleep_until(began + NOTICE.min(grace)).await;
        stages.heard(FIRST_REQUEST).await;
    }
    let closing = Instant::now();
    stages.stop.cancel();
    // A request of which only the head has arrived would otherwise find its session settled.
    stages.received(late).await;
    let left = (deadline - Instant::now()).max(late);
    let others = async { if outlives_us { exchanges.leave(Instant::now() + left).await } else { 0 } };
    let (of_sessions, others) = tokio::join!(sessions.settle(left), others);
    interrupted += of_sessions + others;
    // Requests that were held until their sessions were free get their answers from the next owners.
    relayed((deadline - Instant::now()).max(late)).await;
    if interrupted > 0 {
        tracing::warn!(interrupted, "requests were still running at the end of the grace period");
    }
    states.stop().await;
    // Once more, because calls were counted until now.
    limits.tend().await;
    control.over.cancel();
    control.ended.cancelled().await;
    if !is_shared {
        // From here on no client can be served.
        hand_over.inspect(|hand_over| hand_over.withdraw());
        stages.shut.cancel();
    }
    if let Some(cluster) = &cluster {
        // The sessions are settled: peers find their next owners at once.
        cluster.leave().await;
    }
    store.close().await;
    if let Some(audit) = audit {
        // Before the next process may go on: it opens the same log.
        audit.close().await;
    }
    if let Some(hand_over) = hand_over {
        hand_over.release().await;
    }
    tracing::info!(took = ?closing.elapsed(), "the store is closed");

    tokio::join!(sessions.close(), exchanges.close());
    traces.close();
}
