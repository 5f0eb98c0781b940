//! Which eras a server is of, as far as its answers have told, and who finds out.
//!
//! A verdict holds until it expires or an answer says otherwise. That a server is of no era at all cannot be, so
//! such a pair of verdicts is none. Those who need to know what nobody knows yet wait for the first of them, who
//! finds out; if that one learns nothing, or takes long, each goes on alone.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::translate::evidence::Verdict;
use tenure_session::port::clock::{Clock, Time};
use tokio::sync::watch;

/// How long anybody waits for another to find out: longer than a program has to say that it is modern.
const PATIENCE: Duration = Duration::from_secs(20);

/// One of the two halves of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Era {
    /// With sessions.
    Legacy,
    /// Without.
    Modern,
}

/// What an answer has told, as a sentence.
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

/// What is known about a server.
pub(super) struct Verdicts {
    clock: Arc<dyn Clock>,
    ttl: Duration,
    halves: [Half; 2],
}

#[derive(Default)]
struct Half {
    known: Mutex<Option<(Verdict, Time)>>,
    /// Somebody is finding out.
    probe: Mutex<Option<watch::Receiver<()>>>,
}

impl Verdicts {
    pub(super) fn new(clock: Arc<dyn Clock>, ttl: Duration) -> Self {
        Self { clock, ttl, halves: Default::default() }
    }

    /// Whether the server is of an era.
    pub(super) fn of(&self, era: Era) -> Verdict {
        match (self.known(era), self.known(era.other())) {
            (Verdict::No, Verdict::No) => Verdict::Unknown,
            (verdict, _) => verdict,
        }
    }

    /// Takes down what an answer says; one that says nothing changes nothing.
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

    /// It is no longer believed that the server is not of an era.
    pub(super) fn doubt(&self, era: Era) {
        self.half(era).known.lock().take_if(|(verdict, _)| *verdict == Verdict::No);
    }

    /// Waits until it is known whether the server is of an era, or until it is the caller's turn to find out. The
    /// turn lasts as long as what is given back.
    ///
    /// # Cancel safety
    /// Nothing is lost: who finds out and is dropped lets the next one.
    pub(super) async fn turn(self: &Arc<Self>, era: Era) -> Option<Turn> {
        if self.of(era) != Verdict::Unknown {
            return None;
        }
        let mut probe = {
            let mut slot = self.half(era).probe.lock();
            match &*slot {
                Some(probe) => probe.clone(),
                None => {
                    let (end, probe) = watch::channel(());
                    *slot = Some(probe);
                    return Some(Turn { verdicts: Arc::clone(self), era, _end: end });
                }
            }
        };
        // It only ever ends, with its turn. Who holds that may be held up by something of its own.
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

impl Era {
    fn other(self) -> Self {
        match self {
            Self::Legacy => Self::Modern,
            Self::Modern => Self::Legacy,
        }
    }
}

/// The turn to find out.
pub(super) struct Turn {
    verdicts: Arc<Verdicts>,
    era: Era,
    _end: watch::Sender<()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Before those who wait are woken, which the sender does as the last of this to go.
        *self.verdicts.half(self.era).probe.lock() = None;
    }
}
