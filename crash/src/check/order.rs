//! Checks that the answers of a session fit one order, whichever nodes gave them.
//!
//! Two counters serve: one in the workspace, which all nodes share, and one in the memory of the session's link, which is
//! made anew with each link. An answer that does not fit comes from a node that does not know the session as it is: it was
//! the owner no more, or read something old.

use std::collections::HashMap;

use tokio::time::Instant;

use super::{CheckFault, FaultKind};

/// When a call was sent, and when its answer came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
}

/// The counter in a workspace: every increment that is answered has a number of its own, and later calls have later ones.
#[derive(Debug, Default)]
pub(crate) struct CounterCheck {
    /// How many increments were sent, answered or not.
    sent: u64,
    /// The answered increments.
    increments: Vec<(Interval, u64)>,
}

impl CounterCheck {
    /// An increment is about to be sent.
    pub(crate) fn sending(&mut self) {
        self.sent += 1;
    }

    /// An increment was answered with this number.
    pub(crate) fn incremented(&mut self, at: Interval, value: u64) -> Result<(), CheckFault> {
        if self.increments.iter().any(|(_, known)| *known == value) {
            let detail = format!("two increments were answered with {value}");
            return Err(CheckFault::new(FaultKind::Stale, detail));
        }
        // An increment that was sent after this one was answered has a higher number.
        if let Some((_, later)) =
            self.increments.iter().find(|(other, known)| other.sent > at.answered && *known < value)
        {
            let detail = format!("a later increment was answered with {later}, this one with {value}");
            return Err(CheckFault::new(FaultKind::Stale, detail));
        }
        self.read(at, value.saturating_sub(1))?;
        self.is_sent(value)?;
        self.increments.push((at, value));
        Ok(())
    }

    /// The counter was read.
    pub(crate) fn read(&self, at: Interval, value: u64) -> Result<(), CheckFault> {
        let before = self.increments.iter().filter(|(other, _)| other.answered < at.sent);
        let least = before.map(|(_, known)| *known).max().unwrap_or_default();
        if value < least {
            let detail = format!("{value} was read after {least} was answered");
            return Err(CheckFault::new(FaultKind::Stale, detail));
        }
        self.is_sent(value)
    }

    fn is_sent(&self, value: u64) -> Result<(), CheckFault> {
        if value <= self.sent {
            return Ok(());
        }
        let detail = format!("the counter is {value}, but only {} increments were sent", self.sent);
        Err(CheckFault::new(FaultKind::TwoRuns, detail))
    }
}

/// The counter in the memory of the session's link: once a call is answered by a later link, no call that is sent then is
/// answered by an earlier one.
#[derive(Debug, Default)]
pub(crate) struct LinkCheck {
    links: HashMap<String, LinkAnswers>,
}

#[derive(Debug)]
struct LinkAnswers {
    first_answered: Instant,
    last_sent: Instant,
    answers: Vec<(Interval, u64)>,
}

impl LinkCheck {
    /// A call was answered by this link, with this number.
    pub(crate) fn answered(&mut self, at: Interval, link: &str, value: u64) -> Result<(), CheckFault> {
        let seen = self.links.entry(link.to_owned()).or_insert(LinkAnswers {
            first_answered: at.answered,
            last_sent: at.sent,
            answers: Vec::new(),
        });
        seen.first_answered = seen.first_answered.min(at.answered);
        seen.last_sent = seen.last_sent.max(at.sent);
        let crossed = seen.answers.iter().find(|(other, known)| {
            *known == value
                || (other.answered < at.sent && *known > value)
                || (at.answered < other.sent && *known < value)
        });
        if let Some((_, known)) = crossed {
            let detail = format!("link {link} counted {known} and then {value}");
            return Err(CheckFault::new(FaultKind::Stale, detail));
        }
        seen.answers.push((at, value));
        let seen = &self.links[link];
        // A link comes both before and after another one only if two nodes served the session at a time.
        let both_ways = self.links.iter().find(|(name, other)| {
            *name != link && seen.first_answered < other.last_sent && other.first_answered < seen.last_sent
        });
        match both_ways {
            None => Ok(()),
            Some((other, _)) => {
                let detail = format!("links {link} and {other} answered in turns");
                Err(CheckFault::new(FaultKind::Stale, detail))
            }
        }
    }
}

/// Checks the notes in a notebook against the notes that were sent: each at most once, the acknowledged ones at least once.
pub(crate) fn notes<'a>(
    found: &[&str],
    acknowledged: impl Iterator<Item = &'a str>,
    is_sent: impl Fn(&str) -> bool,
) -> Result<(), CheckFault> {
    let mut runs: HashMap<&str, u64> = HashMap::new();
    for note in found {
        *runs.entry(note).or_default() += 1;
    }
    if let Some((note, times)) = runs.iter().find(|(_, times)| **times > 1) {
        let detail = format!("the note `{note}` was written {times} times");
        return Err(CheckFault::new(FaultKind::TwoRuns, detail));
    }
    if let Some(note) = found.iter().find(|note| !is_sent(note)) {
        let detail = format!("the note `{note}` was written in another notebook");
        return Err(CheckFault::new(FaultKind::WrongStream, detail));
    }
    let missing: Vec<&str> = acknowledged.filter(|note| !runs.contains_key(note)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(CheckFault::new(FaultKind::StateLost, format!("acknowledged, and not there: {}", missing.join(", "))))
}
