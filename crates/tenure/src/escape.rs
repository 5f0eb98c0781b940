//! The one place that makes foreign texts harmless for a terminal.
//!
//! A client chooses its name and a server the texts of its tools, and an operator sees both on a terminal. A control
//! character can move the cursor, clear the screen or fake a line; a bidi override changes the order of letters. Here
//! they are escaped, as in `\u001b`, which in JSON has the same meaning. Fields of tables and reports pass [`plain`],
//! longer texts [`plain_lines`], and all output to a terminal or to the log passes [`painted`] last.

use std::borrow::Cow;
use std::io::{self, Write};

/// A text for one line: everything that controls a terminal is escaped, also line breaks.
pub(crate) fn plain(text: &str) -> String {
    spelled(text, |_| false).into_owned()
}

/// A text of several lines, such as a tool's answer: line breaks and tabs stay.
pub(crate) fn plain_lines(text: &str) -> Cow<'_, str> {
    spelled(text, is_layout)
}

/// Our own output, which may contain foreign texts: colours, line breaks and tabs stay.
pub(crate) fn painted(text: &str) -> Cow<'_, str> {
    with_colours(text, is_layout)
}

/// Makes the lines of the log harmless. Each write is one line: only its last line break is ours.
pub(crate) struct HarmlessLines<W>(pub(crate) W);

impl<W: Write> Write for HarmlessLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let (line, end) = text.strip_suffix('\n').map_or((&*text, ""), |line| (line, "\n"));
        let line = with_colours(line, |letter| letter == '\t');
        // With one write, or the lines of several threads would mix.
        self.0.write_all(&[line.as_bytes(), end.as_bytes()].concat())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn is_layout(letter: char) -> bool {
    matches!(letter, '\n' | '\t')
}

/// Whether a character controls the terminal instead of appearing on it.
fn steers(letter: char) -> bool {
    let turns = matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(letter, '\u{2028}' | '\u{2029}');
    letter.is_control() || turns || breaks
}

fn spelled(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_harmless = |letter: char| !steers(letter) || stays(letter);
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_harmless(letter) {
            out.push(letter);
        } else {
            out.push_str(&format!("\\u{:04x}", u32::from(letter)));
        }
    }
    Cow::Owned(out)
}

fn with_colours(text: &str, stays: impl Fn(char) -> bool + Copy) -> Cow<'_, str> {
    const BEGIN: &str = "\x1b[";
    if !text.contains(BEGIN) {
        return spelled(text, stays);
    }
    let mut parts = text.split(BEGIN);
    let mut out = spelled(parts.next().unwrap_or_default(), stays).into_owned();
    for part in parts {
        let digits = part.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
        // A colour is the only sequence that ends like this.
        let colour = if part[digits..].starts_with('m') { digits + 1 } else { 0 };
        if colour > 0 {
            out.push_str(BEGIN);
            out.push_str(&part[..colour]);
        } else {
            out.push_str(&spelled(BEGIN, stays));
        }
        out.push_str(&spelled(&part[colour..], stays));
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_steers_a_terminal_is_spelled_out() {
        let table = [
            ("agent 1.2", "agent 1.2"),
            ("żółw 🐢 日本", "żółw 🐢 日本"),
            ("a\x1b]0;title\x07b", r"a\u001b]0;title\u0007b"),
            ("a\x1b[2Jb\u{9b}2J", r"a\u001b[2Jb\u009b2J"),
            ("ok\r\nowner\talice", r"ok\u000d\u000aowner\u0009alice"),
            ("\u{7f}\u{8}", r"\u007f\u0008"),
            ("abc\u{202e}txt.exe\u{2069}", r"abc\u202etxt.exe\u2069"),
            ("\u{200f}\u{61c}\u{2028}", r"\u200f\u061c\u2028"),
        ];
        for (text, expected) in table {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn a_text_of_several_lines_keeps_them() {
        assert_eq!(plain_lines("one\n\ttwo\x1b[31m\r\n"), "one\n\ttwo\\u001b[31m\\u000d\n");
        assert!(matches!(plain_lines("one\n\ttwo\n"), Cow::Borrowed(_)), "most texts are not copied");
    }

    #[test]
    fn of_all_sequences_only_colours_pass_at_the_end() {
        let text = "\x1b[1mname\x1b[0m \x1b[38;5;1mred\n\x1b[2J\x1b[31\x1b]8;;x\x07\u{202e}\x1b[";
        let expected =
            "\x1b[1mname\x1b[0m \x1b[38;5;1mred\n\\u001b[2J\\u001b[31\\u001b]8;;x\\u0007\\u202e\\u001b[";
        assert_eq!(painted(text), expected);
    }

    #[test]
    fn a_value_in_json_is_the_same_when_it_was_spelled_out() {
        let value = serde_json::json!({ "name": "a\u{9b}\u{202e}\u{7f}b" });
        let printed = plain_lines(&format!("{value:#}\n")).into_owned();
        assert!(printed.is_ascii(), "{printed}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).unwrap(), value);
    }

    #[test]
    fn a_foreign_value_cannot_begin_another_line_of_the_log() {
        let mut out = Vec::new();
        let line = "\x1b[32mINFO\x1b[0m child says line=a\r\n ERROR forged \u{202e}\n";
        assert_eq!(HarmlessLines(&mut out).write(line.as_bytes()).unwrap(), line.len());
        let expected = "\x1b[32mINFO\x1b[0m child says line=a\\u000d\\u000a ERROR forged \\u202e\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
