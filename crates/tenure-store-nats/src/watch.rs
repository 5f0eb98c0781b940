//! Looks every second whether the engine answers, and whether it still has this cluster. Every stream is asked, since one
//! that came back empty must not be written to. Whether the engine answers is decided by one of them, in turn: a stream
//! that elects its leader does not make the engine count as away.
//!
//! Out: [`Health`](crate::health::Health). An engine that comes back without the data is never written to: its sessions
//! would be unknown, and what ended would begin anew.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::connect::is_new_enough;
use crate::founding;
use crate::parts::Parts;

const EVERY: Duration = Duration::from_secs(1);
const ONE_PROBE: Duration = Duration::from_millis(1500);
/// Probes without an answer until the engine counts as away: one may fall into an election.
const PROBES: u32 = 2;

/// Watches until the store is closed.
pub(crate) async fn watch(parts: Arc<Parts>, id: String, closed: CancellationToken) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut failed, mut since, mut turn) = (0, Instant::now(), 0);
    loop {
        tokio::select! {
            () = closed.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let health = &parts.wire.health;
        // Events of the connection can be lost when there are many.
        health.set_connected(parts.wire.client.connection_state() == State::Connected);
        let began = Instant::now();
        let probed = tokio::select! {
            () = closed.cancelled() => return,
            probed = founding::probe(&parts.wire, &parts.names, &id, turn, began + ONE_PROBE) => probed,
        };
        // It may have connected to another server since.
        let version = parts.wire.client.server_info().version;
        match probed {
            Ok(None) if !is_new_enough(&version) => {
                health.is_foreign(format!(
                    "a server of the engine is NATS {version}, and has to be 2.12 or newer"
                ));
            }
            Ok(None) => {
                health.is_well();
                (failed, turn) = (0, turn + 1);
            }
            Ok(Some(what)) => {
                health.is_foreign(what);
                failed = 0;
            }
            Err(_) => {
                if failed == 0 {
                    since = began;
                }
                failed += 1;
                if failed == PROBES {
                    tracing::debug!(since = ?since.elapsed(), "probes of the NATS engine fail");
                    health.is_away(if health.is_connected() {
                        "the NATS engine has no leader, or does not answer".to_owned()
                    } else {
                        "there is no connection to the NATS engine".to_owned()
                    });
                }
            }
        }
    }
}
