//! Cache of the eras that a server serves, and single-flight for the request that finds out.
//!
//! In: the verdict of each answer. Out: the verdict for an era. A verdict holds until it expires or an answer
//! contradicts it. Every server serves some era, so a `No` for both eras counts as unknown. While an era is unknown,
//! the first caller probes and the others wait for it; if the probe learns nothing or takes long, each caller goes on
//! alone.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::Era;
use tenure_protocol::translate::evidence::Verdict;
use tenure_session::port::clock::{Clock, Time};
use tokio::sync::watch;

/// How long a caller waits for another caller's probe: longer than the time in which a program must answer a probe.
const PATIENCE: Duration = Duration::from_secs(20);

/// A verdict as a sentence for the log.
fn in_words(era: Era, verdict: Verdict) -> &'static str {
    match (era, verdict) {
        (Era::Legacy, Verdict::No) => {
            "the server behind does not serve sessions (revisions up to 2025-11-25)"
        }
        (Era::Legacy, _) => "the server behind serves sessions (revisions up to 2025-11-25)",
        (Era::Modern, Verdict::No) => "the server behind does not serve revision 2026-07-28",
        (Era::Modern, _) => "the server behind serves revision 2026-07-28",
    }
}

/// The verdicts on one server.
pub(super) struct EraCache {
    clock: Arc<dyn Clock>,
    ttl: Duration,
    halves: [Half; 2],
}

#[derive(Default)]
struct Half {
    known: Mutex<Option<(Verdict, Time)>>,
    /// Set while a caller probes; closed when its permit is dropped.
    probe: Mutex<Option<watch::Receiver<()>>>,
}

impl EraCache {
    pub(super) fn new(clock: Arc<dyn Clock>, ttl: Duration) -> Self {
        Self { clock, ttl, halves: Default::default() }
    }

    /// Whether the server serves an era.
    pub(super) fn of(&self, era: Era) -> Verdict {
        match (self.known(era), self.known(other(era))) {
            (Verdict::No, Verdict::No) => Verdict::Unknown,
            (verdict, _) => verdict,
        }
    }

    /// Stores the verdict of an answer. `Unknown` changes nothing.
    pub(super) fn note(&self, era: Era, verdict: Verdict) {
        if verdict == Verdict::Unknown {
            return;
        }
        let until = self.clock.now().after(self.ttl);
        let before = self.half(era).known.lock().replace((verdict, until));
        if before.is_none_or(|(before, _)| before != verdict) {
            tracing::debug!("{}", in_words(era, verdict));
        }
    }

    /// Forgets a verdict that the server does not serve an era.
    pub(super) fn doubt(&self, era: Era) {
        self.half(era).known.lock().take_if(|(verdict, _)| *verdict == Verdict::No);
    }

    /// Gives the first caller a permit to probe an unknown era; it lasts until it is dropped. Other callers wait for
    /// the end of that probe and get `None`, as callers do when the era is known.
    ///
    /// # Cancel safety
    /// Nothing is lost: a caller that is dropped while it probes lets the next caller probe.
    pub(super) async fn probe_permit(self: &Arc<Self>, era: Era) -> Option<ProbePermit> {
        if self.of(era) != Verdict::Unknown {
            return None;
        }
        let mut probe = {
            let mut running = self.half(era).probe.lock();
            match &*running {
                Some(probe) => probe.clone(),
                None => {
                    let (end, probe) = watch::channel(());
                    *running = Some(probe);
                    return Some(ProbePermit { era_cache: Arc::clone(self), era, _end: end });
                }
            }
        };
        // The channel only closes, when the permit is dropped. The timeout is for a holder that is delayed itself.
        drop(tokio::time::timeout(PATIENCE, probe.changed()).await);
        None
    }

    fn known(&self, era: Era) -> Verdict {
        match *self.half(era).known.lock() {
            Some((verdict, until)) if self.clock.now() < until => verdict,
            _ => Verdict::Unknown,
        }
    }

    fn half(&self, era: Era) -> &Half {
        &self.halves[era as usize]
    }
}

fn other(era: Era) -> Era {
    match era {
        Era::Legacy => Era::Modern,
        Era::Modern => Era::Legacy,
    }
}

/// The permit to probe one era.
pub(super) struct ProbePermit {
    era_cache: Arc<EraCache>,
    era: Era,
    _end: watch::Sender<()>,
}

impl Drop for ProbePermit {
    fn drop(&mut self) {
        // Cleared before the waiting callers wake: `_end` is dropped after this, and its drop wakes them.
        *self.era_cache.half(self.era).probe.lock() = None;
    }
}
