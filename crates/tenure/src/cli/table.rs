//! A table on a terminal: columns as wide as their longest field, without counting colour codes.

use super::paint::{Paint, Tone};
use crate::escape::plain;

/// One field of a table.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

/// One column: its title, and the field that a row has in it.
pub(super) struct Column<'a, Row> {
    title: &'static str,
    side: Side,
    is_optional: bool,
    cell: Box<dyn Fn(&Row) -> Cell + 'a>,
}

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Left,
    Right,
}

/// The field for an unknown value.
const UNKNOWN: &str = "-";

impl Cell {
    /// A field on one line. Control characters are escaped, because many texts come from clients and servers.
    pub(super) fn new(text: impl AsRef<str>) -> Self {
        Self { text: plain(text.as_ref()), tone: Tone::Plain }
    }

    pub(super) fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// A column of texts.
pub(super) fn left<'a, Row, C: Into<Cell>>(
    title: &'static str,
    cell: impl Fn(&Row) -> C + 'a,
) -> Column<'a, Row> {
    Column { title, side: Side::Left, is_optional: false, cell: Box::new(move |row| cell(row).into()) }
}

/// A column of numbers.
pub(super) fn right<'a, Row, C: Into<Cell>>(
    title: &'static str,
    cell: impl Fn(&Row) -> C + 'a,
) -> Column<'a, Row> {
    Column { side: Side::Right, ..left(title, cell) }
}

/// The text of a value that may be unknown.
pub(super) fn known(text: Option<impl ToString>) -> String {
    text.map_or_else(|| UNKNOWN.to_owned(), |text| text.to_string())
}

impl<Row> Column<'_, Row> {
    /// The column is left out if no row has a value in it.
    pub(super) fn if_known(self) -> Self {
        Self { is_optional: true, ..self }
    }
}

/// The lines of the table, the titles first.
pub(super) fn table<Row>(columns: &[Column<'_, Row>], rows: &[Row], paint: Paint) -> String {
    let width = |text: &str| text.chars().count();
    let mut lines = vec![String::new(); rows.len() + 1];
    for column in columns {
        let title = Cell::new(column.title).tone(Tone::Quiet);
        let cells: Vec<_> = std::iter::once(title).chain(rows.iter().map(&column.cell)).collect();
        if column.is_optional && cells[1..].iter().all(|cell| cell.text == UNKNOWN) {
            continue;
        }
        let widest = cells.iter().map(|cell| width(&cell.text)).max().unwrap_or(0);
        for (line, cell) in lines.iter_mut().zip(cells) {
            let gap = " ".repeat(widest - width(&cell.text));
            let field = paint.tint(cell.tone, &cell.text);
            match column.side {
                Side::Left => line.push_str(&format!("{field}{gap}  ")),
                Side::Right => line.push_str(&format!("{gap}{field}  ")),
            }
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(paint: Paint) -> String {
        type Row = (&'static str, usize, &'static str, Tone);
        let columns = [
            left("NAME", |row: &Row| row.0),
            left("BACKEND", |_| UNKNOWN).if_known(),
            right("COUNT", |row: &Row| row.1.to_string()),
            left("STATE", |row: &Row| Cell::new(row.2).tone(row.3)),
        ];
        table(&columns, &[("żółw", 7, "awake", Tone::Good), ("a", 1_000_000, "", Tone::Bad)], paint)
    }

    #[test]
    fn a_field_neither_steers_the_terminal_nor_fakes_a_row() {
        let columns =
            [left("CLIENT", |name: &&str| Cell::new(name).tone(Tone::Title)), left("STATE", |_| "awake")];
        let forged = "me\u{1b}[2J\u{202e}\ns-00000001  agent";
        expect_test::expect![[r"
            CLIENT                                    STATE
            me\u001b[2J\u202e\u000as-00000001  agent  awake
        "]]
        .assert_eq(&table(&columns, &[forged], Paint::of(false)));
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
