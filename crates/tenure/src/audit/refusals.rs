//! Limits how many refusals are recorded one by one: a caller can cause them at will, and must not fill the disk.
//!
//! In: a refusal and the time. Out: whether it is recorded by itself, and of the interval before how many of each caller were not.
//! A caller is a principal, or the address of one without a name. All callers together have a bound too, and what is remembered
//! of them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tenure_session::port::clock::Time;

use super::record::{PrincipalRecord, Record};

/// At most this many refusals of a caller, and of all callers, are recorded one by one in this interval.
const MOST: u64 = 100;
const MOST_IN_ALL: u64 = 1000;
const WHILE: Duration = Duration::from_secs(60);

/// How many callers are told apart in an interval. The refusals of others are counted together.
const CALLERS: usize = 1000;

/// How many ids of requests are remembered whose calls were recorded. Each is there for a moment.
const TOLD: usize = 1024;

/// The refusals of this interval.
#[derive(Default)]
pub(super) struct Refusals {
    since: Time,
    recorded: u64,
    callers: HashMap<Whose, Count>,
    others: u64,
    told: HashSet<Box<str>>,
}

/// A refused caller.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Whose {
    principal: Option<PrincipalRecord>,
    /// Only of those without a name: a principal is the same wherever it is.
    remote: Option<Box<str>>,
}

#[derive(Default)]
struct Count {
    recorded: u64,
    left_out: u64,
}

/// Refusals that were not recorded one by one. Without a caller they are those of several.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct LeftOut {
    pub(super) principal: Option<PrincipalRecord>,
    pub(super) remote: Option<Box<str>>,
    pub(super) count: u64,
}

impl Refusals {
    /// Counts a refusal. Returns whether it is recorded by itself, and the refusals left out in an interval that is over.
    pub(super) fn count(&mut self, record: &Record, now: Time) -> (bool, Vec<LeftOut>) {
        let left_out = if self.is_over(now) { self.end() } else { Vec::new() };
        if left_out.is_empty() && self.callers.is_empty() {
            self.since = now;
        }
        let whose = Whose::of(record);
        if !self.callers.contains_key(&whose) && self.callers.len() >= CALLERS {
            self.others += 1;
            return (false, left_out);
        }
        let count = self.callers.entry(whose).or_default();
        let is_recorded = count.recorded < MOST && self.recorded < MOST_IN_ALL;
        match is_recorded {
            true => (count.recorded, self.recorded) = (count.recorded + 1, self.recorded + 1),
            false => count.left_out += 1,
        }
        (is_recorded, left_out)
    }

    /// Whether refusals of this caller are no longer recorded in this interval; if so, how many were, and how long that lasts.
    pub(super) fn too_often(&self, record: &Record, now: Time) -> Option<(u64, Duration)> {
        if self.is_over(now) {
            return None;
        }
        let count = self.callers.get(&Whose::of(record)).filter(|count| count.recorded >= MOST)?;
        Some((count.recorded, WHILE.saturating_sub(now.since(self.since))))
    }

    /// Ends the interval. Returns the refusals that were left out.
    pub(super) fn end(&mut self) -> Vec<LeftOut> {
        let (callers, others) = (std::mem::take(&mut self.callers), std::mem::take(&mut self.others));
        (self.since, self.recorded) = (Time(0), 0);
        let of_callers = callers.into_iter().filter(|(_, count)| count.left_out > 0);
        let of_callers = of_callers.map(|(Whose { principal, remote }, count)| LeftOut {
            principal,
            remote,
            count: count.left_out,
        });
        let of_others = (others > 0).then_some(LeftOut { principal: None, remote: None, count: others });
        of_callers.chain(of_others).collect()
    }

    /// The call of this request was recorded, so the request is not.
    pub(super) fn was_told(&mut self, id: Box<str>) {
        if self.told.len() >= TOLD {
            self.told.clear();
        }
        self.told.insert(id);
    }

    /// Whether the call of this request was recorded.
    pub(super) fn is_told(&mut self, id: &str) -> bool {
        self.told.remove(id)
    }

    fn is_over(&self, now: Time) -> bool {
        now.since(self.since) >= WHILE || now < self.since
    }
}

impl Whose {
    fn of(record: &Record) -> Self {
        let principal = record.principal.clone();
        let has_name = principal.as_ref().is_some_and(PrincipalRecord::has_name);
        Self { principal, remote: record.remote.clone().filter(|_| !has_name) }
    }
}

#[cfg(test)]
mod tests {
    use tenure_session::Principal;

    use super::super::record::Event;
    use super::*;

    fn refusal(principal: &Principal, remote: &str) -> Record {
        let mut record = Record::new(Event::Refused, Time(0));
        record.principal = Some(PrincipalRecord::of(principal));
        record.remote = Some(remote.into());
        record
    }

    fn named(name: &str) -> Record {
        refusal(&Principal::named(name), "10.0.0.1")
    }

    fn recorded(refusals: &mut Refusals, record: &Record, times: u64, now: Time) -> u64 {
        (0..times).map(|_| u64::from(refusals.count(record, now).0)).sum()
    }

    #[test]
    fn of_a_caller_so_many_are_recorded_and_then_how_many_more_there_were() {
        let (mut refusals, start) = (Refusals::default(), Time(1_000_000));
        assert_eq!(recorded(&mut refusals, &named("corp:alice"), 1000, start), MOST);
        assert_eq!(recorded(&mut refusals, &named("corp:bob"), 3, start), 3, "another caller has its own");
        let later = Time(start.0 + 59_999);
        assert_eq!(recorded(&mut refusals, &named("corp:alice"), 5, later), 0);
        let (is_recorded, left_out) = refusals.count(&named("corp:bob"), Time(start.0 + 60_000));
        let of_alice = LeftOut { principal: named("corp:alice").principal, remote: None, count: 905 };
        assert_eq!((is_recorded, left_out), (true, vec![of_alice]));
        assert_eq!(refusals.end(), [], "what was told is not told again");
    }

    #[test]
    fn callers_without_a_name_are_told_apart_by_their_addresses() {
        let (mut refusals, now) = (Refusals::default(), Time(5));
        let (one, other) =
            (refusal(&Principal::ANONYMOUS, "10.0.0.1"), refusal(&Principal::ANONYMOUS, "10.0.0.2"));
        assert_eq!(recorded(&mut refusals, &one, 200, now), MOST);
        assert_eq!(recorded(&mut refusals, &other, 1, now), 1);
        let moved = refusal(&Principal::named("corp:alice"), "10.0.0.3");
        assert_eq!(recorded(&mut refusals, &named("corp:alice"), 60, now), 60);
        assert_eq!(recorded(&mut refusals, &moved, 60, now), 40, "a principal is the same wherever it is");
    }

    #[test]
    fn many_callers_are_bounded_together() {
        let (mut refusals, now) = (Refusals::default(), Time(5));
        let all: u64 = (0..5000).map(|n| recorded(&mut refusals, &named(&format!("corp:{n}")), 2, now)).sum();
        assert_eq!(all, MOST_IN_ALL);
        assert_eq!(refusals.callers.len(), CALLERS);
        let left_out = refusals.end();
        assert_eq!(left_out.iter().map(|left| left.count).sum::<u64>(), 10_000 - MOST_IN_ALL);
        assert!(left_out.len() <= CALLERS + 1);
    }

    #[test]
    fn a_caller_whose_refusals_are_not_recorded_any_more_is_known_until_the_interval_is_over() {
        let (mut refusals, start) = (Refusals::default(), Time(1_000_000));
        let alice = named("corp:alice");
        recorded(&mut refusals, &alice, MOST - 1, start);
        assert_eq!(refusals.too_often(&alice, start), None);
        recorded(&mut refusals, &alice, 1, start);
        let at = Time(start.0 + 20_000);
        assert_eq!(refusals.too_often(&alice, at), Some((MOST, Duration::from_secs(40))));
        assert_eq!(refusals.too_often(&named("corp:bob"), at), None);
        assert_eq!(refusals.too_often(&alice, Time(start.0 + 60_000)), None);
        assert_eq!(refusals.too_often(&alice, Time(start.0 - 1)), None, "a clock that was set back");
    }

    #[test]
    fn a_call_and_its_request_are_one_refusal() {
        let mut refusals = Refusals::default();
        refusals.was_told("first".into());
        refusals.count(&named("corp:alice"), Time(1_000_000));
        assert!(refusals.is_told("first"), "also if an interval ends in between");
        for n in 0..10_000 {
            refusals.was_told(format!("call-{n}").into());
        }
        assert!(refusals.told.len() <= TOLD);
        assert!(refusals.is_told("call-9999") && !refusals.is_told("call-9999"));
    }
}
