//! `tenure sessions data show`: everything about a data session except its secret names.

use indicatif::HumanBytes;
use serde::Serialize;
use serde_json::value::RawValue;
use tenure_session::port::clock::Time;

use crate::cli::facts::Facts;
use crate::cli::paint::{Paint, Tone};
use crate::cli::rows::{ANONYMOUS, Listed};
use crate::operator::{Contents, DataDetail, DataState};
use crate::time_text::{ago, date, span, until};

/// Bytes on a line of hex.
const HEX_LINE: usize = 32;

/// A data session as JSON. Contents that are JSON are in `data`, unchanged; others are in `contents`.
#[derive(Serialize)]
pub(super) struct JsonForm {
    #[serde(flatten)]
    detail: DataDetail,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

impl JsonForm {
    pub(super) fn of(mut detail: DataDetail) -> Self {
        let data: Option<Box<RawValue>> = match &detail.contents {
            Some(Contents::Text(text)) => serde_json::from_str(text).ok(),
            Some(Contents::Hex(_)) | None => None,
        };
        detail.contents = detail.contents.filter(|_| data.is_none());
        Self { detail, data }
    }
}

/// The data session for people.
pub(super) fn text(detail: &DataDetail, now: Time, paint: Paint) -> String {
    let row = &detail.row;
    let mut facts = Facts::new(&row.name, &row.key, paint);
    facts.line(Tone::Plain, "");
    let before = |time: u64| format!("{} ({})", date(time), ago(time, now));
    let behind = |time: u64| format!("{} ({})", date(time), until(time, now));
    let (state, tone) = row.state();
    facts.add_toned("state", tone, &state);
    facts.add("kind", row.kind.clone());
    facts.add("owner", Some(row.owner.as_deref().unwrap_or(ANONYMOUS).to_owned()));
    facts.add("label", row.label.clone());
    facts.add("created", row.created.map(before));
    facts.add("last used", row.last_used.map(before));
    match row.state {
        DataState::Active => facts.add("expires", Some(row.expires.map_or("never".to_owned(), behind))),
        DataState::Expired => {
            facts.add("expired", row.ended.map(before));
            facts.add("kept", row.forgotten.map(|at| format!("until {}", behind(at))));
        }
        DataState::Ended => {
            facts.add("ended", row.ended.map(before));
            facts.add("forgotten", row.forgotten.filter(|at| *at > now.0).map(|at| until(at, now)));
        }
        DataState::Unreadable => {}
    }
    if row.state != DataState::Ended {
        let idle = detail.idle_ttl_ms.map(|idle| span(std::time::Duration::from_millis(idle)));
        facts.add("may be idle", idle.map(|idle| format!("for {idle}")));
        facts.add("greatest age", detail.ends.map(behind));
    }
    facts.add("holds", row.bytes.map(|bytes| HumanBytes(bytes).to_string()));
    facts.add("edition", row.edition.map(|edition| edition.to_string()));
    facts.add("hints", detail.hints.as_ref().map(ToString::to_string));
    let lines = detail.contents.as_ref().map(lines).unwrap_or_default();
    let is_empty = detail.contents.is_some() && lines.is_empty();
    facts.section("data", lines);
    let mut text = facts.into_text();
    if is_empty {
        text.push_str(&format!("\n{}  none\n", paint.tint(Tone::Title, "data")));
    }
    text
}

/// The contents, line by line.
fn lines(contents: &Contents) -> Vec<String> {
    match contents {
        Contents::Hex(digits) => {
            let digits: Vec<_> = digits.chars().collect();
            digits.chunks(HEX_LINE * 2).map(|line| line.iter().collect()).collect()
        }
        Contents::Text(text) => {
            let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
            let text = if is_json { indented(text) } else { text.clone() };
            text.lines().map(str::to_owned).collect()
        }
    }
}

/// JSON with a line for each member. Numbers and the order of members stay as they were written.
fn indented(json: &str) -> String {
    let (mut text, mut depth) = (String::new(), 0_usize);
    let mut letters = json.chars().peekable();
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.push_str(&"  ".repeat(depth));
    };
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                text.push('"');
                while let Some(letter) = letters.next() {
                    text.push(letter);
                    match letter {
                        '\\' => text.extend(letters.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '{' | '[' => {
                text.push(letter);
                while letters.next_if(char::is_ascii_whitespace).is_some() {}
                match letters.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => text.push(end),
                    None => {
                        depth += 1;
                        line(&mut text, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
                text.push(letter);
            }
            ',' => {
                text.push(',');
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            letter if letter.is_ascii_whitespace() => {}
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::{Value, json};

    const NOW: Time = Time(1_764_059_400_000);

    fn detail(changes: &Value) -> DataDetail {
        let mut detail = json!({
            "key": "0000000000000000000000004f3a9c01", "name": "d-4f3a9c01", "state": "active",
            "kind": "workspace", "label": "notes", "created": NOW.0 - 7_200_000, "last_used": NOW.0 - 252_000,
            "expires": NOW.0 + 1_548_000, "bytes": 2048, "edition": 12, "idle_ttl_ms": 1_800_000,
            "ends": NOW.0 + 86_400_000, "hints": { "title": "notes" },
        });
        detail.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(detail).unwrap()
    }

    fn shown(changes: &Value) -> String {
        text(&detail(changes), NOW, Paint::of(false))
    }

    #[test]
    fn an_active_one_says_how_long_it_lasts_and_what_it_holds() {
        let held =
            r#"{"counter": 1.50,"notes":["a \\\" b, {}:[\u001b]", {}, [ ]],"big":123456789012345678901}"#;
        expect![[r#"
            d-4f3a9c01  0000000000000000000000004f3a9c01

              state         active
              kind          workspace
              owner         anonymous
              label         notes
              created       2025-11-25 06:30:00 UTC (2h ago)
              last used     2025-11-25 08:25:48 UTC (4m ago)
              expires       2025-11-25 08:55:48 UTC (in 25m)
              may be idle   for 30m
              greatest age  2025-11-26 08:30:00 UTC (in 1d)
              holds         2.00 KiB
              edition       12
              hints         {"title":"notes"}

            data
              {
                "counter": 1.50,
                "notes": [
                  "a \\\" b, {}:[\u001b]",
                  {},
                  []
                ],
                "big": 123456789012345678901
              }
        "#]]
        .assert_eq(&shown(&json!({ "contents": { "text": held } })));
    }

    #[test]
    fn one_that_has_expired_says_how_long_it_is_kept() {
        expect![[r#"
            d-4f3a9c01  0000000000000000000000004f3a9c01

              state         expired
              kind          workspace
              owner         anonymous
              created       2025-11-25 06:30:00 UTC (2h ago)
              last used     2025-11-25 08:25:48 UTC (4m ago)
              expired       2025-11-25 08:29:00 UTC (1m ago)
              kept          until 2025-11-25 10:30:00 UTC (in 2h)
              may be idle   for 30m
              holds         2.00 KiB
              edition       12

            data  none
        "#]]
        .assert_eq(&shown(&json!({
            "state": "expired", "ended": NOW.0 - 60_000, "forgotten": NOW.0 + 7_200_000, "expires": null,
            "ends": null, "hints": null, "label": null, "contents": { "text": "" },
        })));
    }

    #[test]
    fn what_is_no_json_is_shown_without_steering_the_terminal() {
        let text = shown(&json!({ "contents": { "text": "one\u{1b}[2J\ntwo\u{9b}" } }));
        assert!(text.ends_with("data\n  one\\u001b[2J\n  two\\u009b\n"), "{text}");
        let text = shown(&json!({ "contents": { "hex": "00ff".repeat(20) } }));
        assert!(
            text.ends_with(&format!("data\n  {}\n  {}\n", "00ff".repeat(16), "00ff".repeat(4))),
            "{text}"
        );
    }

    #[test]
    fn json_holds_what_is_json_as_it_is() {
        let shown = |contents: Value| {
            serde_json::to_string_pretty(&JsonForm::of(detail(&json!({ "contents": contents })))).unwrap()
        };
        let text = shown(json!({ "text": "{\"b\": 1.50, \"a\": 2}" }));
        assert!(text.contains("\"data\": {\"b\": 1.50, \"a\": 2}") && !text.contains("contents"), "{text}");
        let read: Value = serde_json::from_str(&shown(json!({ "hex": "ff" }))).unwrap();
        assert_eq!((&read["contents"]["hex"], read.get("data")), (&json!("ff"), None));
    }
}
