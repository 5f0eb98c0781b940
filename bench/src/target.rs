//! What a figure is held against, and whether it holds.

use serde::Serialize;

use crate::table::Table;

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// One line of a table of targets.
#[derive(Debug, Serialize)]
pub(crate) struct Target {
    what: String,
    unit: &'static str,
    bound: Bound,
    measured: Option<f64>,
    met: Option<bool>,
}

impl Target {
    pub(crate) fn at_most(
        what: impl Into<String>,
        bound: f64,
        unit: &'static str,
        measured: Option<f64>,
    ) -> Self {
        let met = measured.map(|measured| measured <= bound);
        Target { what: what.into(), unit, bound: Bound::AtMost(bound), measured, met }
    }

    pub(crate) fn at_least(
        what: impl Into<String>,
        bound: f64,
        unit: &'static str,
        measured: Option<f64>,
    ) -> Self {
        let met = measured.map(|measured| measured >= bound);
        Target { what: what.into(), unit, bound: Bound::AtLeast(bound), measured, met }
    }
}

/// What does not hold, a line for each. A target that was not measured does not hold.
pub(crate) fn missed(targets: &[Target]) -> Vec<String> {
    let missed = targets.iter().filter(|target| target.met != Some(true));
    missed
        .map(|target| match target.measured {
            Some(measured) => format!("{}: {measured:.3}{}", target.what, target.unit),
            None => format!("{}: not measured", target.what),
        })
        .collect()
}

/// The table of targets; empty without targets.
pub(crate) fn table(targets: &[Target]) -> String {
    if targets.is_empty() {
        return String::new();
    }
    let unit = |target: &Target| match target.unit {
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    let table = Table::of(targets)
        .text("target", |target| &target.what)
        .number("bound", |target| match target.bound {
            Bound::AtMost(bound) => format!("≤ {bound}{}", unit(target)),
            Bound::AtLeast(bound) => format!("≥ {bound}{}", unit(target)),
        })
        .number("measured", |target| match target.measured {
            Some(measured) => format!("{measured:.2}{}", unit(target)),
            None => "–".to_owned(),
        })
        .text("", |target| match target.met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        });
    format!("\n{}", table.markdown())
}

#[cfg(test)]
mod tests {
    use super::{Target, missed, table};

    #[test]
    fn a_missed_target_stands_out_and_an_unmeasured_one_is_not_met() {
        let targets = [
            Target::at_most("time", 5.0, "ms", Some(5.0)),
            Target::at_least("ratio", 0.3, "", Some(0.29)),
            Target::at_most("memory", 1024.0, "B", None),
        ];
        assert_eq!(missed(&targets), ["ratio: 0.290", "memory: not measured"]);
        let text = table(&targets);
        assert!(text.contains("| time | ≤ 5 ms | 5.00 ms | met |"), "{text}");
        assert!(text.contains("| ratio | ≥ 0.3 | 0.29 | **missed** |"), "{text}");
        assert!(text.contains("| memory | ≤ 1024 B | – | not measured |"), "{text}");
        assert_eq!(table(&[]), "");
    }
}
