//! `tenure sessions show`: everything about one session; its problems come first.

use indicatif::HumanBytes;
use tenure_session::port::clock::Time;
use tenure_session::settings::IdleTtl;

use crate::cli::facts::Facts;
use crate::cli::paint::{Paint, Tone};
use crate::cli::rows::{ANONYMOUS, Listed};
use crate::operator::{CallView, Detail, Party, ShownState, StreamView};
use crate::time_text::{ago, date, span, until};

/// The session for people.
pub(super) fn text(detail: &Detail, now: Time, paint: Paint) -> String {
    let row = &detail.row;
    let mut facts = Facts::new(&row.label, &row.key, paint);
    for problem in &detail.problems {
        facts.line(Tone::Odd, &format!("! {problem}"));
    }
    facts.line(Tone::Plain, "");
    let when = |time: u64| format!("{} ({})", date(time), ago(time, now));
    let (state, tone) = row.state();
    facts.add_toned("state", tone, &state);
    facts.add("node", row.node.clone());
    facts.add("owner", Some(row.owner.as_deref().unwrap_or(ANONYMOUS).to_owned()));
    facts.add("backend", row.backend.clone());
    facts.add("revision", row.revision.clone());
    facts.add("phase", row.phase.clone());
    facts.add("client", detail.client.as_ref().map(party));
    facts.add("server", detail.server.as_ref().map(party));
    facts.add("configured as", detail.configured.clone());
    facts.add("created", row.created.map(when));
    facts.add("last used", row.last_used.map(when));
    facts.add("ended", row.ended.map(when));
    let due = row.deadline.filter(|due| *due > now.0).map(|due| until(due, now));
    match row.state {
        ShownState::Dormant => facts.add("expires", due),
        ShownState::Ended => facts.add("forgotten", due),
        // The record of an awake session is older than its last use.
        ShownState::Awake | ShownState::Unreadable => {}
    }
    facts.add("own ttl", own_ttl(detail.settings.ttl));
    facts.add("requests", detail.requests.map(|requests| requests.to_string()));
    facts.add("errors", detail.errors.map(|errors| errors.to_string()));
    facts.add("readers", row.readers.map(|readers| readers.to_string()));
    facts.add("log level", detail.log_level.clone());
    if row.events.is_some() {
        let kept = detail.kept;
        let oldest = kept.oldest.map(|oldest| format!(", the oldest of {}", ago(oldest, now)));
        let size = HumanBytes(kept.bytes as u64);
        facts.add("events kept", Some(format!("{} ({size}){}", kept.events, oldest.unwrap_or_default())));
    }
    facts.add("version", Some(detail.version.to_string()));
    facts.section("requests in flight", detail.in_flight.iter().map(|call| in_flight(call, now)));
    facts.section("streams", detail.streams.iter().map(|known| stream(detail, known)));
    facts.section("subscriptions", detail.subscriptions.clone());
    let metadata = detail.settings.metadata.iter().map(|(name, value)| format!("{name} = {value}"));
    facts.section("metadata", metadata);
    facts.into_text()
}

/// How long a session lives unused, if that was set for it alone.
fn own_ttl(ttl: IdleTtl) -> Option<String> {
    match ttl {
        IdleTtl::Default => None,
        IdleTtl::After(time) => Some(format!("{} without use", span(time))),
        IdleTtl::Never => Some("never expires when it is not used".to_owned()),
    }
}

fn party(party: &Party) -> String {
    format!("{} {}", party.name, party.version).trim_end().to_owned()
}

fn in_flight(call: &CallView, now: Time) -> String {
    let mut words = vec![format!("id {}", call.id), call.title()];
    if let Some(started) = call.started {
        words.push(format!("for {}", span(now.since(Time(started)))));
    }
    if let Some(progressed) = call.progressed {
        words.push(format!("progress {}", ago(progressed, now)));
    }
    if call.asking > 0 {
        words.push("waits for the client".to_owned());
    }
    words.push(match call.stream {
        Some(stream) if call.is_read => format!("on stream {stream}, which is read"),
        Some(stream) => format!("on stream {stream}, which the client does not read"),
        None => "not a stream yet".to_owned(),
    });
    words.join("  ")
}

fn stream(detail: &Detail, known: &StreamView) -> String {
    let mut words = vec![format!("{:<3} last event at {}", known.number, known.last)];
    words.push(match (known.number, known.open) {
        (0, _) => "standalone".to_owned(),
        (_, true) => "open".to_owned(),
        (_, false) => "complete".to_owned(),
    });
    // While the session is awake, they are listed under "requests in flight".
    if detail.row.state != ShownState::Awake {
        let name = |call: &CallView| format!("waits for id {}  {}", call.id, call.title());
        words.extend(known.requests.iter().map(name));
    }
    words.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::{Value, json};

    const NOW: Time = Time(1_764_059_400_000);

    fn shown(changes: Value) -> String {
        let mut detail = json!({
            "key": "4f3a9c01000000000000000000000001", "label": "s-4f3a9c01", "state": "awake",
            "revision": "2025-11-25", "phase": "initialized",
            "created": NOW.0 - 7_200_000, "last_used": NOW.0 - 252_000, "deadline": NOW.0 + 3_600_000,
            "calls": 2, "readers": 1, "events": 3,
            "signs": [], "client": { "name": "agent", "version": "1.2" }, "server": { "name": "demo" },
            "subscriptions": ["demo://notebook"], "metadata": { "team": "blue" },
            "kept": { "events": 3, "bytes": 2048, "oldest": NOW.0 - 300_000 }, "version": 12, "record": {},
        });
        let (Value::Object(detail), Value::Object(changes)) = (&mut detail, changes) else { unreachable!() };
        detail.extend(changes);
        let detail = serde_json::from_value(Value::Object(detail.clone())).unwrap();
        text(&detail, NOW, Paint::of(false))
    }

    #[test]
    fn a_stuck_session_says_so_first() {
        let call = |id: u64, changes: Value| {
            let mut call = json!({ "id": id, "method": "tools/call", "tool": "long_task", "stream": id });
            call.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            call
        };
        expect![[r#"
            s-4f3a9c01  4f3a9c01000000000000000000000001
            ! `tools/call ask_name` (id 7) has waited 4m 12s for the client to answer a question; the client does not read its stream

              state         awake
              owner         anonymous
              revision      2025-11-25
              phase         initialized
              client        agent 1.2
              server        demo
              created       2025-11-25 06:30:00 UTC (2h ago)
              last used     2025-11-25 08:25:48 UTC (4m ago)
              requests      8
              errors        1
              readers       1
              log level     info
              events kept   3 (2.00 KiB), the oldest of 5m ago
              version       12

            requests in flight
              id 7  tools/call long_task  for 4m 12s  waits for the client  on stream 7, which the client does not read
              id 8  tools/call long_task  for 9s  progress 1s ago  on stream 8, which is read

            streams
              0   last event at 4  standalone
              7   last event at 9  open

            subscriptions
              demo://notebook

            metadata
              team = "blue"
        "#]]
        .assert_eq(&shown(json!({
            "signs": ["`tools/call ask_name` (id 7) has waited 4m 12s for the client to answer a question; the client does not read its stream"],
            "requests": 8, "errors": 1, "log_level": "info",
            "in_flight": [
                call(7, json!({ "started": NOW.0 - 252_000, "asking": 1 })),
                call(8, json!({ "started": NOW.0 - 9_000, "progressed": NOW.0 - 1_000, "is_read": true })),
            ],
            "streams": [
                { "number": 0, "open": true, "last": 4 },
                { "number": 7, "open": true, "last": 9, "requests": [call(7, json!({}))] },
            ],
        })));
    }

    #[test]
    fn nothing_that_a_client_wrote_steers_the_terminal_or_fakes_a_line() {
        let evil = "x\u{1b}[2J\u{9b}1m\u{202e}\r\n  state         ended\u{2028}";
        let call = json!({ "id": evil, "method": evil, "tool": evil, "stream": 7 });
        let text = shown(json!({
            "owner": evil, "backend": evil, "revision": evil, "phase": evil, "log_level": evil, "configured": evil,
            "client": { "name": evil, "version": evil }, "server": { "name": evil, "version": evil },
            "signs": [evil], "subscriptions": [evil], "metadata": { evil: evil }, "in_flight": [call],
            "streams": [{ "number": 7, "open": true, "last": 9, "requests": [call] }],
        }));
        let steering: Vec<char> =
            text.chars().filter(|letter| letter.is_control() && *letter != '\n').collect();
        assert_eq!(steering, ['x'; 0], "{text}");
        assert!(!text.contains(['\u{202e}', '\u{2028}']), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("  state ")).count(), 1, "{text}");
    }

    #[test]
    fn a_time_of_its_own_is_shown() {
        let text = shown(json!({ "ttl_ms": 7_200_000 }));
        assert!(text.contains("\n  own ttl       2h without use\n"), "{text}");
        let text = shown(json!({ "ttl_ms": "never" }));
        assert!(text.contains("\n  own ttl       never expires when it is not used\n"), "{text}");
        assert!(!shown(json!({})).contains("own ttl"));
    }

    #[test]
    fn a_dormant_session_tells_what_it_left_open() {
        let text = shown(json!({
            "state": "dormant",
            "streams": [
                { "number": 2, "open": false, "last": 4 },
                { "number": 3, "open": true, "last": 9,
                  "requests": [{ "id": "a", "method": "tools/call", "tool": "count_slowly", "stream": 3 }] },
            ],
        }));
        assert!(text.contains("\n  expires       in 1h\n"), "{text}");
        assert!(text.contains("\n  2   last event at 4  complete\n"), "{text}");
        let open = "\n  3   last event at 9  open  waits for id \"a\"  tools/call count_slowly\n";
        assert!(text.contains(open), "{text}");
    }
}
