//! The last ten minutes, second by second, and the last day, in steps of ten seconds: less than 300 kB.
//!
//! In: the totals, once a second. Out: the counts of each step.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use tenure_session::port::clock::Time;

use super::latency::LatencySnapshot;
use super::view::{History, Rates, Span};

const FINE_STEP_MS: u64 = 1_000;
const COARSE_STEP_MS: u64 = 10_000;
const FINE: usize = 600;
const COARSE: usize = 8_640;

/// Fine steps in a coarse one.
const FINE_OF_COARSE: usize = 10;

/// Numbers that only grow, and the number of sessions in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) refused: u64,
    pub(super) resumes: u64,
    pub(super) awake: u64,
    pub(super) latency: LatencySnapshot,
}

/// The counts of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    calls: u32,
    errors: u32,
    refused: u32,
    resumes: u32,
    awake: u32,
    /// Not a number without answers.
    p50_ms: f32,
    p99_ms: f32,
}

/// The steps so far.
#[derive(Debug, Default)]
pub(super) struct Steps(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    fine: VecDeque<Step>,
    coarse: VecDeque<Step>,
    /// When the last fine step ended, and the last coarse one.
    ended: (Time, Time),
    last: Totals,
    /// The totals at the last fine steps; the oldest is as old as the rates of now are.
    before: VecDeque<Totals>,
    last_coarse: Totals,
    since_coarse: usize,
}

impl Steps {
    /// Ends a step. Called once a second; the clock says when it was.
    pub(super) fn end_step(&self, now: Time, totals: Totals) {
        let kept = &mut *self.0.lock();
        push(&mut kept.fine, FINE, Step::between(&kept.last, &totals));
        push(&mut kept.before, FINE_OF_COARSE, kept.last);
        (kept.last, kept.ended.0) = (totals, now);
        kept.since_coarse += 1;
        if kept.since_coarse >= FINE_OF_COARSE {
            push(&mut kept.coarse, COARSE, Step::between(&kept.last_coarse, &totals));
            (kept.last_coarse, kept.ended.1, kept.since_coarse) = (totals, now, 0);
        }
    }

    /// Averages of the last ten steps.
    pub(super) fn rates(&self) -> Rates {
        let kept = self.0.lock();
        let Some(before) = kept.before.front() else { return Rates::default() };
        #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        let per_s = |now: u64, then: u64| now.saturating_sub(then) as f64 / kept.before.len() as f64;
        let latency = kept.last.latency.since(&before.latency);
        Rates {
            calls_per_s: per_s(kept.last.calls, before.calls),
            errors_per_s: per_s(kept.last.errors, before.errors),
            p50_ms: latency.quantile(0.5),
            p99_ms: latency.quantile(0.99),
            refused_per_s: per_s(kept.last.refused, before.refused),
            resumes_per_s: per_s(kept.last.resumes, before.resumes),
        }
    }

    /// The steps of a span.
    pub(super) fn history(&self, span: Span) -> History {
        let kept = self.0.lock();
        let (steps, step_ms, ended) = match span {
            Span::TenMinutes => (&kept.fine, FINE_STEP_MS, kept.ended.0),
            Span::Day => (&kept.coarse, COARSE_STEP_MS, kept.ended.1),
        };
        let series = |of: fn(&Step) -> f64| {
            steps.iter().map(|step| Some(of(step)).filter(|value| !value.is_nan())).collect::<Vec<_>>()
        };
        let series: BTreeMap<_, _> = [
            ("calls", series(|step| step.calls.into())),
            ("errors", series(|step| step.errors.into())),
            ("p50_ms", series(|step| step.p50_ms.into())),
            ("p99_ms", series(|step| step.p99_ms.into())),
            ("sessions_awake", series(|step| step.awake.into())),
            ("refused", series(|step| step.refused.into())),
            ("resumes", series(|step| step.resumes.into())),
        ]
        .map(|(name, values)| (name.to_owned(), values))
        .into();
        let from = ended.0.saturating_sub(step_ms * steps.len() as u64);
        History { step_ms, from, series }
    }
}

fn push<T>(steps: &mut VecDeque<T>, most: usize, step: T) {
    if steps.len() == most {
        steps.pop_front();
    }
    steps.push_back(step);
}

impl Step {
    fn between(then: &Totals, now: &Totals) -> Self {
        let count = |now: u64, then: u64| u32::try_from(now.saturating_sub(then)).unwrap_or(u32::MAX);
        let latency = now.latency.since(&then.latency);
        #[expect(clippy::cast_possible_truncation, reason = "a time in ms, which is interpolated anyway")]
        let ms = |share| latency.quantile(share).map_or(f32::NAN, |ms| ms as f32);
        Self {
            calls: count(now.calls, then.calls),
            errors: count(now.errors, then.errors),
            refused: count(now.refused, then.refused),
            resumes: count(now.resumes, then.resumes),
            awake: count(now.awake, 0),
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_day_fits_into_two_mebibytes_and_old_steps_go() {
        assert!(size_of::<Step>() * (FINE + COARSE) <= 300 << 10);
        let (steps, mut totals) = (Steps::default(), Totals::default());
        let seconds = 90_000;
        for second in 1..=seconds {
            totals.calls += 3;
            totals.awake = second;
            totals.latency.add(Duration::from_millis(20));
            steps.end_step(Time(second * 1000), totals);
        }
        let fine = steps.history(Span::TenMinutes);
        assert_eq!((fine.step_ms, fine.from), (1_000, (seconds - 600) * 1000));
        assert_eq!(fine.series["calls"], vec![Some(3.0); 600]);
        let day = steps.history(Span::Day);
        assert_eq!(
            (day.step_ms, day.from, day.series["calls"].len()),
            (10_000, (seconds - 86_400) * 1000, 8_640)
        );
        assert_eq!(day.series["calls"][0], Some(30.0));
        assert_eq!(*day.series["sessions_awake"].last().unwrap(), Some(90_000.0));
        assert!(day.series["p99_ms"][0].is_some_and(|ms| (15.0..=20.0).contains(&ms)));
        assert!((steps.rates().calls_per_s - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_step_without_answers_has_no_latency() {
        let steps = Steps::default();
        steps.end_step(Time(1000), Totals { awake: 2, ..Totals::default() });
        let history = steps.history(Span::TenMinutes);
        assert_eq!((&history.series["p50_ms"], &history.series["calls"]), (&vec![None], &vec![Some(0.0)]));
        assert_eq!(serde_json::to_value(&history).unwrap()["series"]["p50_ms"][0], serde_json::Value::Null);
    }
}
