//! The verdict of the limits about a request: it passes, waits, or is refused.

use std::time::Duration;

use tenure_protocol::message::REFUSED;
use tenure_protocol::{Error, Method, RawJson, Reply};
use tenure_session::Principal;
use tenure_session::backend::Call;
use tenure_session::rate::{Rate, RateCell, Ticks, rate_limited};

use super::OverLimit;
use super::fair::{FairQueue, NoSlot, Slot};

/// When a client that found no slot may try again. It is a guess, because the length of calls is not known.
const SLOT_RETRY: Duration = Duration::from_secs(1);

/// Room that was taken in cells, to be given back if the request is refused after all.
#[derive(Default)]
pub(super) struct Reserved<'a> {
    cells: [Option<(&'a RateCell, Rate)>; 2],
    more: Vec<(&'a RateCell, Rate)>,
    /// How long the request has to wait for its room.
    pub(super) wait: Duration,
}

impl<'a> Reserved<'a> {
    /// Takes room in a cell. If the cell has no room, all that was taken before is given back.
    pub(super) fn take(
        &mut self,
        cell: &'a RateCell,
        (rate, nodes): (Rate, u32),
        now: Ticks,
        ahead: Duration,
        per: &'static str,
    ) -> Result<(), Error> {
        // Clients are told the rate in the words of the configuration.
        let (whole, rate) = (rate, rate.among(nodes));
        match cell.reserve(&rate, now, 1, ahead) {
            Ok(wait) => {
                self.wait = self.wait.max(wait);
                match self.cells.iter_mut().find(|place| place.is_none()) {
                    Some(place) => *place = Some((cell, rate)),
                    None => self.more.push((cell, rate)),
                }
                Ok(())
            }
            Err(wait) => {
                self.give_back();
                Err(rate_limited(per, &whole, wait))
            }
        }
    }

    fn give_back(&mut self) {
        let cells = std::mem::take(&mut self.cells);
        for (cell, rate) in cells.into_iter().flatten().chain(std::mem::take(&mut self.more)) {
            cell.give_back(&rate, 1);
        }
    }
}

/// Takes a slot, waiting for it as long as there is time left.
pub(super) async fn slot(
    queue: &FairQueue,
    (principal, session): (&Principal, u64),
    patience: Option<Duration>,
    per: &'static str,
) -> Result<Slot, Error> {
    queue.enter(principal, session, patience).await.map_err(|NoSlot| {
        let (slots, ..) = queue.counts();
        rate_limited(per, &format!("{slots} at once"), SLOT_RETRY)
    })
}

/// The reply for a request that is refused.
pub(super) fn refused(error: &Error, call: &Call, over_limit: OverLimit) -> Reply {
    let method = &call.request.method;
    call.context.caller().note_refusal();
    tracing::debug!(reason = error.reason().as_str(), %method, %error, "over a limit");
    match over_limit {
        OverLimit::ToolResult if *method == Method::ToolsCall => Ok(RawJson::of(&serde_json::json!({
            "_meta": { REFUSED: error.data() },
            "content": [{ "type": "text", "text": error.to_string() }],
            "isError": true,
        }))),
        OverLimit::ToolResult | OverLimit::Error => Err(error.to_rpc()),
    }
}
