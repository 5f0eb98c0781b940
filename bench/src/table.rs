//! Tables in Markdown, written column by column.

use std::fmt::Display;

use crate::latency::{Latency, micros};
use crate::rounds::Sampled;
use crate::stats::{Spread, cell};

/// A table in the making: each column says its head and the cell of a row.
#[derive(Debug)]
pub(crate) struct Table<'a, R> {
    rows: Vec<&'a R>,
    head: String,
    rule: String,
    lines: Vec<String>,
}

impl<'a, R> Table<'a, R> {
    pub(crate) fn of(rows: impl IntoIterator<Item = &'a R>) -> Table<'a, R> {
        let rows: Vec<_> = rows.into_iter().collect();
        let lines = vec!["|".to_owned(); rows.len()];
        Table { rows, head: "|".to_owned(), rule: "|".to_owned(), lines }
    }

    /// A column of words.
    pub(crate) fn text<T: Display>(self, head: &str, cell: impl Fn(&'a R) -> T) -> Self {
        self.column(head, "---|", cell)
    }

    /// A column of numbers, which are aligned to the right.
    pub(crate) fn number<T: Display>(self, head: &str, cell: impl Fn(&'a R) -> T) -> Self {
        self.column(head, "---:|", cell)
    }

    /// A column of samples, which may be absent, with so many digits after the point.
    pub(crate) fn samples(
        self,
        head: &str,
        digits: usize,
        samples: impl Fn(&'a R) -> Option<Spread>,
    ) -> Self {
        self.number(head, |row| cell(samples(row), digits))
    }

    /// Five columns of latencies in microseconds; the first is their number.
    pub(crate) fn latencies(self, head: &str, latency: impl Fn(&'a R) -> &'a Latency) -> Self {
        self.number(head, |row| latency(row).samples)
            .number("mean", |row| micros(latency(row).mean_us))
            .number("p50", |row| micros(latency(row).p50_us))
            .number("p99", |row| micros(latency(row).p99_us))
            .number("max", |row| micros(latency(row).max_us))
    }

    fn column<T: Display>(mut self, head: &str, rule: &str, cell: impl Fn(&'a R) -> T) -> Self {
        self.head += &if head.is_empty() { " |".to_owned() } else { format!(" {head} |") };
        self.rule += rule;
        for (row, line) in self.rows.iter().zip(&mut self.lines) {
            *line += &format!(" {} |", cell(row));
        }
        self
    }

    pub(crate) fn markdown(self) -> String {
        let lines = [self.head, self.rule].into_iter().chain(self.lines);
        lines.map(|line| line + "\n").collect()
    }
}

impl<'a, C, F> Table<'a, Sampled<C, F>> {
    /// A column of one figure of each round.
    pub(crate) fn spread(self, head: &str, digits: usize, figure: impl Fn(&F) -> f64) -> Self {
        self.samples(head, digits, |row| row.spread(&figure))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use crate::rounds::Sampled;

    #[test]
    fn a_table_has_a_head_a_rule_and_a_line_for_each_row() {
        let rows = [Sampled { case: "a", rounds: vec![1.0, 3.0] }, Sampled { case: "b", rounds: vec![] }];
        let table = Table::of(&rows).text("row", |row| row.case).spread("ms", 1, |round| *round);
        assert_eq!(table.markdown(), "| row | ms |\n|---|---:|\n| a | 2.0 (1.0–3.0) |\n| b | – |\n");
    }
}
