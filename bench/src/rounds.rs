//! Rows that are measured in interleaved rounds, and how they compare.
//!
//! The speed of a shared machine changes within seconds. So every round measures every row once, and a ratio or a
//! difference is taken within a round, where both rows saw the same machine; tables show the median over the rounds.

use std::fmt::Display;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::progress;
use crate::stats::{Spread, beside};

/// A row, and what was measured of it in each round.
#[derive(Debug, Serialize)]
pub(crate) struct Sampled<C, F> {
    #[serde(flatten)]
    pub(crate) case: C,
    pub(crate) rounds: Vec<F>,
}

/// Measures every case once in each round. Each round starts at another case, so that none is always the one after a
/// heavy neighbour.
pub(crate) async fn interleave<C: Display, F: Display>(
    question: &str,
    rounds: usize,
    cases: Vec<C>,
    measure: impl AsyncFn(&C) -> Result<F>,
) -> Result<Vec<Sampled<C, F>>> {
    let mut rows: Vec<_> = cases.into_iter().map(|case| Sampled { case, rounds: Vec::new() }).collect();
    for round in 0..rounds {
        for place in order(round, rows.len()) {
            let case = &rows[place].case;
            let figures = measure(case).await.with_context(|| format!("measure {question} of `{case}`"))?;
            progress::note(&format!("{question} {}/{rounds} {case}: {figures}", round + 1));
            rows[place].rounds.push(figures);
        }
    }
    Ok(rows)
}

fn order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| (step + round) % count)
}

impl<C, F> Sampled<C, F> {
    pub(crate) fn spread(&self, figure: impl Fn(&F) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(figure))
    }

    /// Round by round, divided by another row.
    pub(crate) fn ratio(&self, other: Option<&Self>, figure: impl Fn(&F) -> f64) -> Option<Spread> {
        beside(&self.rounds, &other?.rounds, figure, |mine, theirs| mine / theirs)
    }

    /// Round by round, on top of another row.
    pub(crate) fn added(&self, other: Option<&Self>, figure: impl Fn(&F) -> f64) -> Option<Spread> {
        beside(&self.rounds, &other?.rounds, figure, |mine, theirs| mine - theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn each_round_starts_at_another_row() {
        assert_eq!(order(0, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(order(1, 3).collect::<Vec<_>>(), [1, 2, 0]);
    }
}
