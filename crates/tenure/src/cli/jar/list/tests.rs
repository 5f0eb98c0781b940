//! The list of a jar, with and without secrets.

use expect_test::expect;
use tenure_client::Book;

use super::*;

const NOW: &str = "2026-02-23T14:30:00Z";

fn at() -> (Time, OffsetDateTime) {
    (Time(milliseconds(NOW).unwrap()), OffsetDateTime::parse(NOW, &Rfc3339).unwrap())
}

/// A jar with records that other programs write too.
fn book() -> Book {
    let cookie = |id: &str, expiry: &str, changes: Value| {
        let mut entry = json!({
            "id": id, "cookie": { "sessionId": id, "expiresAt": expiry, "state": "geheim" },
            "hash": "", "updatedAt": "2026-02-23T14:27:00.000000+00:00",
        });
        entry.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        entry
    };
    let later = "2026-02-23T15:00:00Z";
    let root = json!({ "version": 3, "cookies": {
        "url:https://me:geheim@example.com/mcp?key=geheim": {
            "server_identity": "notes", "last_used_id": "sess-bbbbbbbb-geheim-geheim",
            "cookies": [
                cookie("sess-aaaaaaaa-geheim-geheim", later, json!({})),
                cookie("sess-bbbbbbbb-geheim-geheim", later, json!({})),
                cookie("sess-cccccccc-geheim-geheim", "2026-02-23T13:30:00Z", json!({})),
                cookie("sess-dddddddd-geheim-geheim", later, json!({
                    "invalidatedAt": "2026-02-23T14:28:00.000000+00:00", "invalidatedReason": "session_revoked",
                })),
            ],
        },
        "principal:5:alice|cmd:npx -y notes": {
            "principal": "alice", "cookies": [{ "id": "old", "cookie": { "id": "old-geheim", "expiry": "soon" } }],
        },
        "notes": { "cookies": [] },
    } });
    Book::parse(root.to_string().as_bytes()).unwrap()
}

#[test]
fn a_jar_is_shown_by_server_and_without_secrets() {
    let (now, moment) = at();
    let texts = book()
        .records()
        .iter()
        .map(|it| render(it, now, moment, Sight::Safe, Paint::of(false)))
        .collect::<Vec<_>>();
    let text = texts.join("\n");
    assert!(!text.contains("geheim"), "{text}");
    expect![[r#"
        notes
          SESSION  STATE  UPDATED  EXPIRES

        npx -y notes  for alice
          SESSION  STATE   UPDATED  EXPIRES
          old-g…   in use  -        soon

        https://…@example.com/mcp?…  notes
          SESSION        STATE                          UPDATED  EXPIRES
          sess-ddddddd…  invalidated (session_revoked)  3m ago   in 30m
          sess-ccccccc…  expired                        3m ago   1h ago
          sess-bbbbbbb…  in use                         3m ago   in 30m
          sess-aaaaaaa…  active                         3m ago   in 30m
    "#]]
    .assert_eq(&text);
}

#[test]
fn secrets_are_shown_to_those_who_ask() {
    let (now, moment) = at();
    let record = &book().records()[2];
    let text = render(record, now, moment, Sight::Secrets, Paint::of(false));
    assert!(text.contains("https://me:geheim@example.com/mcp?key=geheim"), "{text}");
    assert!(text.contains("sess-bbbbbbbb-geheim-geheim"), "{text}");
    let line = &json_lines(record, moment, Sight::Secrets)[0];
    assert_eq!(line["cookie"]["state"], "geheim");
}

#[test]
fn json_says_the_same() {
    let (_, moment) = at();
    let records = book().records();
    let lines: Vec<_> = records.iter().flat_map(|record| json_lines(record, moment, Sight::Safe)).collect();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    assert!(!text.contains("geheim"), "{text}");
    expect![[r#"
        {"expires":"soon","in_use":true,"principal":"alice","server":null,"session":"old-g…","state":"active","target":"npx -y notes","updated":null}
        {"expires":"2026-02-23T15:00:00Z","in_use":false,"invalidated":"2026-02-23T14:28:00.000000+00:00","reason":"session_revoked","server":"notes","session":"sess-ddddddd…","state":"invalidated","target":"https://…@example.com/mcp?…","updated":"2026-02-23T14:27:00.000000+00:00"}
        {"expires":"2026-02-23T13:30:00Z","in_use":false,"server":"notes","session":"sess-ccccccc…","state":"expired","target":"https://…@example.com/mcp?…","updated":"2026-02-23T14:27:00.000000+00:00"}
        {"expires":"2026-02-23T15:00:00Z","in_use":true,"server":"notes","session":"sess-bbbbbbb…","state":"active","target":"https://…@example.com/mcp?…","updated":"2026-02-23T14:27:00.000000+00:00"}
        {"expires":"2026-02-23T15:00:00Z","in_use":false,"server":"notes","session":"sess-aaaaaaa…","state":"active","target":"https://…@example.com/mcp?…","updated":"2026-02-23T14:27:00.000000+00:00"}
    "#]].assert_eq(&text);
}
