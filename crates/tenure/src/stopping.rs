//! The way down of a server: in which order its parts end.
//!
//! Everything is served until nothing is in flight that could not be left to the next process, or the grace is over.
//! Then requests are held, what is open is written down, the store is closed, and the next process may open it. Only
//! then the servers behind are let go, and the listening socket: however long that takes, no client waits for it.

use std::time::Duration;

use tenure_session::exchange::Exchanges;
use tenure_session::port::store::Durability;
use tenure_session::session::Sessions;
use tenure_session::state::States;
use tenure_transport::serve::Stages;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::control::HandOver;
use crate::socket::AfterUs;
use crate::wire::Opened;

/// What requests get at least that came while older ones were waited for.
const LATE_GRACE: Duration = Duration::from_secs(2);

/// How long clients are told not to use their connections again before those are closed, where nothing else is waited
/// for. One that is quiet all that time, and sends just when its connection closes, has to send again.
const NOTICE: Duration = Duration::from_millis(250);

/// How long the first request of a connection may take that was accepted last of all.
const FIRST_REQUEST: Duration = Duration::from_millis(100);

/// What has to end.
pub(crate) struct Parts {
    pub(crate) sessions: Sessions,
    pub(crate) exchanges: Exchanges,
    pub(crate) states: States,
    pub(crate) store: Opened,
    pub(crate) stages: Stages,
    pub(crate) control: ControlEnd,
    /// The socket, if it is our own.
    pub(crate) socket: Option<(HandOver, AfterUs)>,
    pub(crate) grace: Duration,
}

/// The end of the control socket. Its file goes while the store's folder is still ours.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlEnd {
    /// Told when it has to end.
    pub(crate) over: CancellationToken,
    /// Said when it has ended.
    pub(crate) ended: CancellationToken,
}

/// Waits until `leaving`, and then ends everything, in order.
///
/// # Cancel safety
/// What has ended stays so; the rest is left to the end of the process.
pub(crate) async fn wind_down(parts: Parts) {
    let Parts { sessions, exchanges, states, store, stages, control, socket, grace } = parts;
    stages.leaving.cancelled().await;
    let began = Instant::now();
    let deadline = began + grace;
    // Somebody else has the socket, and connections that are not accepted here wait for that one.
    let is_shared = socket
        .as_ref()
        .is_some_and(|(hand_over, after_us)| hand_over.is_asked() || *after_us == AfterUs::StaysOpen);
    let hand_over = socket.as_ref().map(|(hand_over, _)| hand_over);
    let late = LATE_GRACE.min(grace / 4);

    // Where nothing outlives this process, requests without a session are finished, and others refused.
    let outlives_us = store.store.capabilities().durability != Durability::Process;
    let mut interrupted = 0;
    if outlives_us {
        if is_shared {
            sessions.hand_over();
            exchanges.are_followed();
        } else {
            sessions.drain();
        }
        tokio::join!(exchanges.finish(deadline - late), sessions.calm(grace - late));
    } else {
        exchanges.drain();
        sessions.drain();
        (interrupted, ()) = tokio::join!(exchanges.shut_down(grace), sessions.calm(grace - late));
    }

    if is_shared {
        // Connections between two requests are not closed, but go on in the next process.
        if let Some(successor) = hand_over.and_then(HandOver::successor) {
            stages.pass_on(successor);
        }
        tokio::time::sleep_until(began + NOTICE.min(grace)).await;
        stages.shut.cancel();
        stages.heard(FIRST_REQUEST).await;
    }
    let closing = Instant::now();
    stages.stop.cancel();
    // A request of which only the head has come would find everything settled.
    stages.received(late).await;
    let left = (deadline - Instant::now()).max(late);
    let others = async { if outlives_us { exchanges.leave(Instant::now() + left).await } else { 0 } };
    let (of_sessions, others) = tokio::join!(sessions.settle(left), others);
    interrupted += of_sessions + others;
    if interrupted > 0 {
        tracing::warn!(interrupted, "requests were still running at the end of the grace period");
    }
    states.stop().await;
    control.over.cancel();
    control.ended.cancelled().await;
    if !is_shared {
        // No client could be served any more.
        hand_over.inspect(|hand_over| hand_over.withdraw());
        stages.shut.cancel();
    }
    store.close().await;
    if let Some(hand_over) = hand_over {
        hand_over.release().await;
    }
    tracing::info!(took = ?closing.elapsed(), "the store is closed");

    tokio::join!(sessions.close(), exchanges.close());
}
