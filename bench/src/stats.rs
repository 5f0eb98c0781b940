//! Medians and spreads of a few samples, and how they read in a table.

use serde::Serialize;

/// The middle of some samples and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` for no samples.
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Spread { median, min, max })
    }

    /// `13.9 (13.7–14.2)`, with so many digits after the point.
    pub(crate) fn cell(&self, digits: usize) -> String {
        format!("{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.min, self.max)
    }
}

/// How some samples compare to others that were taken beside them, each with its own neighbour.
pub(crate) fn beside<T>(
    mine: &[T],
    theirs: &[T],
    figure: impl Fn(&T) -> f64,
    compare: impl Fn(f64, f64) -> f64,
) -> Option<Spread> {
    Spread::of(mine.iter().zip(theirs).map(|(mine, theirs)| compare(figure(mine), figure(theirs))))
}

/// A table cell for samples which may be absent.
pub(crate) fn cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "–".to_owned(), |spread| spread.cell(digits))
}

/// The middle of samples which may be absent.
pub(crate) fn median(spread: Option<Spread>) -> Option<f64> {
    spread.map(|spread| spread.median)
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_median_of_an_even_number_of_samples_lies_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([3.0, 9.0, 5.0]).unwrap().median, 5.0);
    }

    #[test]
    fn no_samples_have_no_spread() {
        assert_eq!(Spread::of([]), None);
    }
}
