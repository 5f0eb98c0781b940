//! A table on a terminal: columns as wide as their longest field, without counting colour codes.

use super::paint::{Paint, Tone};
use crate::foreign::plain;

/// One field of a table.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Left,
    Right,
}

impl Cell {
    /// A field on one line. Control characters are escaped, because many texts come from clients and servers.
    pub(super) fn new(text: impl AsRef<str>) -> Self {
        Self { text: plain(text.as_ref()), tone: Tone::Plain }
    }

    pub(super) fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

/// The lines of the table, the titles first.
pub(super) fn table(titles: &[(&str, Side)], rows: &[Vec<Cell>], paint: Paint) -> String {
    let width = |text: &str| text.chars().count();
    let widths: Vec<_> = (0..titles.len())
        .map(|column| {
            let fields = rows.iter().map(|row| width(&row[column].text));
            fields.max().unwrap_or(0).max(width(titles[column].0))
        })
        .collect();
    let titled = titles.iter().map(|(title, _)| Cell::new(*title).tone(Tone::Quiet)).collect();
    let mut text = String::new();
    for row in std::iter::once(&titled).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let gap = " ".repeat(widths[column] - width(&cell.text));
            let field = paint.tint(cell.tone, &cell.text);
            match titles[column].1 {
                Side::Left => line.push_str(&format!("{field}{gap}")),
                Side::Right => line.push_str(&format!("{gap}{field}")),
            }
            line.push_str("  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(paint: Paint) -> String {
        let titles = [("NAME", Side::Left), ("COUNT", Side::Right), ("STATE", Side::Left)];
        let row = |name: &str, count: &str, state: &str, tone| {
            vec![Cell::new(name), Cell::new(count), Cell::new(state).tone(tone)]
        };
        table(&titles, &[row("żółw", "7", "awake", Tone::Good), row("a", "1000000", "", Tone::Bad)], paint)
    }

    #[test]
    fn a_field_neither_steers_the_terminal_nor_fakes_a_row() {
        let titles = [("CLIENT", Side::Left), ("STATE", Side::Left)];
        let forged = Cell::new("me\u{1b}[2J\u{202e}\ns-00000001  agent").tone(Tone::Title);
        expect_test::expect![[r"
            CLIENT                                    STATE
            me\u001b[2J\u202e\u000as-00000001  agent  awake
        "]]
        .assert_eq(&table(&titles, &[vec![forged, Cell::new("awake")]], Paint::of(false)));
    }

    #[test]
    fn columns_line_up_with_colours_and_without() {
        expect_test::expect![[r"
            NAME    COUNT  STATE
            żółw        7  awake
            a     1000000
        "]]
        .assert_eq(&example(Paint::of(false)));
        let coloured = example(Paint::of(true));
        assert!(coloured.contains("\x1b[32mawake\x1b[0m"), "{coloured:?}");
        let lines: Vec<_> =
            coloured.lines().map(|line| line.replace("\x1b[2m", "").replace("\x1b[0m", "")).collect();
        assert_eq!(lines[0], "NAME    COUNT  STATE");
    }
}
