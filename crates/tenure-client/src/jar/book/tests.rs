//! Tests of the operations on cookies, and of the file that they produce.

use expect_test::expect;
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::Book;
use crate::{
    clock,
    cookie::{DataSessionId, SessionCookie},
    dialect::Dialect,
    error::ClientErrorKind,
    jar::JarServer,
};

fn at(second: u32) -> OffsetDateTime {
    clock::parse(&format!("2026-03-01T12:{:02}:{:02}Z", second / 60, second % 60)).unwrap()
}

fn cookie(fields: Value) -> SessionCookie {
    let Value::Object(fields) = fields else { panic!("an object") };
    SessionCookie::from_stored(&fields).unwrap()
}

fn strawman(id: &str) -> SessionCookie {
    cookie(json!({ "id": id }))
}

fn server() -> JarServer {
    JarServer::url("https://example.com/mcp").with_identity("client-notes").with_name("s")
}

fn active(book: &Book) -> Option<String> {
    book.active(&server(), Dialect::Strawman, at(1000)).map(|cookie| cookie.id().reveal().to_owned())
}

#[test]
fn the_file_is_the_one_that_other_programs_read() {
    let mut book = Book::default();
    book.keep_as_used(
        &server(),
        &cookie(json!({"sessionId": "sess-1", "state": "x", "expiresAt": "2026-11-15T18:21:30Z"})),
        at(1),
    );
    book.keep(&server(), &strawman("sess-2"), at(2));
    book.invalidate(&server(), &DataSessionId::new("sess-2"), "session_not_found", at(3));
    book.keep_as_used(
        &JarServer::command("npx", &["notes".to_owned()], None).with_principal("alice"),
        &strawman("c"),
        at(4),
    );
    expect![[r#"
        {
          "cookies": {
            "principal:5:alice|cmd:npx notes": {
              "cookies": [
                {
                  "cookie": {
                    "id": "c"
                  },
                  "hash": "cf9b3160c4a5a9fac6789866c5920602fc6bb2cae40553b3a1641a2f3dbd2bd6",
                  "id": "c",
                  "updatedAt": "2026-03-01T12:00:04.000000+00:00"
                }
              ],
              "last_used_id": "c",
              "principal": "alice",
              "server_name": "cmd:npx notes",
              "target": "cmd:npx notes"
            },
            "url:https://example.com/mcp": {
              "cookies": [
                {
                  "cookie": {
                    "expiresAt": "2026-11-15T18:21:30Z",
                    "sessionId": "sess-1",
                    "state": "x"
                  },
                  "hash": "e169dd874315a49a1c755757e9a9820a4913f357dd60ccd5c55fa3d883ceea97",
                  "id": "sess-1",
                  "updatedAt": "2026-03-01T12:00:01.000000+00:00"
                },
                {
                  "cookie": {
                    "id": "sess-2"
                  },
                  "hash": "c80315e3d87bbe8ca52ee20b1eadf98a1c84347b82c329fe5371ac103780f70f",
                  "id": "sess-2",
                  "invalidatedAt": "2026-03-01T12:00:03.000000+00:00",
                  "invalidatedReason": "session_not_found",
                  "updatedAt": "2026-03-01T12:00:02.000000+00:00"
                }
              ],
              "last_used_id": "sess-1",
              "server_identity": "client-notes",
              "server_name": "s",
              "target": "url:https://example.com/mcp"
            }
          },
          "version": 3
        }
    "#]]
    .assert_eq(&book.to_text());
}

#[test]
fn a_jar_of_the_version_before_is_read_and_what_is_unknown_stays() {
    let text = json!({
        "version": 2, "note": "mine",
        "cookies": {
            "client-notes": {
                "server_name": "s", "server_identity": "client-notes", "last_used_id": "a", "colour": "red",
                "cookies": [
                    {"id": "a", "cookie": {"id": "a", "expiry": "2030-01-01T00:00:00Z", "data": {}}, "hash": "old",
                     "updatedAt": "2026-02-24T10:00:00.000001+00:00", "pinned": true},
                    {"broken": 1}, 7
                ]
            },
            "odd": "not a record"
        }
    });
    let mut book = Book::parse(text.to_string().as_bytes()).unwrap();
    let notes = JarServer::named("s").with_identity("client-notes");
    assert_eq!(book.active(&notes, Dialect::Strawman, at(0)).unwrap().id().reveal(), "a");
    assert_eq!(book.active(&notes, Dialect::Draft, at(0)), None, "the cookie is of the other dialect");
    assert_eq!(book.active(&server(), Dialect::Strawman, at(0)), None, "a URL is not a name");

    book.keep_as_used(&notes, &strawman("a"), at(5));
    let written: Value = serde_json::from_str(&book.to_text()).unwrap();
    assert_eq!(written["version"], 3);
    assert_eq!(written["note"], "mine");
    assert_eq!(written["cookies"]["odd"], "not a record");
    let record = &written["cookies"]["client-notes"];
    assert_eq!(record["colour"], "red");
    assert_eq!(record["cookies"][0]["pinned"], true);
    assert_eq!(record["cookies"][0]["cookie"], json!({"id": "a"}));
    assert_eq!(record["cookies"][1], json!({"broken": 1}));
}

#[test]
fn what_cannot_be_a_jar_is_told_from_what_a_newer_program_wrote() {
    for (text, kind) in [
        ("", ClientErrorKind::Invalid),
        ("{\"version\": 3, \"cookies\": {", ClientErrorKind::Invalid),
        ("[]", ClientErrorKind::Invalid),
        ("{}", ClientErrorKind::Invalid),
        ("{\"version\": 1, \"cookies\": {}}", ClientErrorKind::Invalid),
        ("{\"version\": \"3\", \"cookies\": {}}", ClientErrorKind::Invalid),
        ("{\"version\": 3, \"cookies\": []}", ClientErrorKind::Invalid),
        ("{\"version\": 4, \"cookies\": {}}", ClientErrorKind::Jar),
        ("{\"version\": 4}", ClientErrorKind::Jar),
    ] {
        assert_eq!(Book::parse(text.as_bytes()).unwrap_err().kind(), kind, "{text}");
    }
}

#[test]
fn the_active_cookie_is_the_last_used_else_the_newest() {
    let mut book = Book::default();
    assert_eq!(active(&book), None);
    book.keep_as_used(&server(), &strawman("first"), at(1));
    book.keep(&server(), &strawman("second"), at(2));
    assert_eq!(active(&book).as_deref(), Some("first"));

    book.invalidate(&server(), &DataSessionId::new("first"), "session_revoked", at(3));
    assert_eq!(active(&book).as_deref(), Some("second"));
    book.keep(&server(), &strawman("third"), at(2));
    assert_eq!(active(&book).as_deref(), Some("third"), "as new as the second, but later");

    book.select(&server(), &DataSessionId::new("second"));
    assert_eq!(active(&book).as_deref(), Some("second"));
    book.forget(&server(), &DataSessionId::new("second"));
    assert_eq!(active(&book).as_deref(), Some("third"));
    book.forget_server(&server());
    assert_eq!(active(&book), None);
}

#[test]
fn an_expired_cookie_is_passed_over_even_if_it_was_used_last() {
    let mut book = Book::default();
    book.keep(&server(), &strawman("fresh"), at(1));
    book.keep_as_used(&server(), &cookie(json!({"id": "stale", "expiry": "2026-03-01T11:59:59Z"})), at(2));
    assert_eq!(active(&book).as_deref(), Some("fresh"));
    let found = |id: &str, now| book.find(&server(), Dialect::Strawman, &DataSessionId::new(id), now);
    assert_eq!(found("stale", at(0)), None, "nor is it found by its id");
    assert!(found("fresh", at(0)).is_some());
}

#[test]
fn a_cookie_that_the_server_gives_again_is_good_again() {
    let mut book = Book::default();
    book.keep_as_used(&server(), &strawman("a"), at(1));
    book.invalidate(&server(), &DataSessionId::new("a"), "session_not_found", at(2));
    assert_eq!(book.find(&server(), Dialect::Strawman, &DataSessionId::new("a"), at(2)), None);
    book.keep_as_used(&server(), &strawman("a"), at(3));
    assert_eq!(active(&book).as_deref(), Some("a"));
}

#[test]
fn principals_do_not_share_cookies() {
    let mut book = Book::default();
    let (alice, bob) = (server().with_principal("alice"), server().with_principal("bob"));
    book.keep_as_used(&alice, &strawman("of-alice"), at(1));
    assert!(book.active(&alice, Dialect::Strawman, at(2)).is_some());
    assert_eq!(book.active(&bob, Dialect::Strawman, at(2)), None);
    assert_eq!(book.active(&server(), Dialect::Strawman, at(2)), None);
}

#[test]
fn the_jar_does_not_grow_for_ever() {
    let mut book = Book::default();
    for number in 0..200 {
        book.keep_as_used(&server(), &strawman(&format!("s{number}")), at(number));
        if number == 150 {
            book.invalidate(&server(), &DataSessionId::new("s149"), "session_expired", at(number));
        }
    }
    let kept = &book.records()[0].cookies;
    assert_eq!(kept.len(), super::MAX_COOKIES_PER_SERVER);
    assert_eq!(kept.last().unwrap().cookie.id().reveal(), "s199");
    assert!(kept.iter().all(|kept| kept.cookie.id().reveal() != "s149"), "what is over goes first");
}

#[derive(Clone, Debug)]
enum Act {
    Keep { server: usize, id: usize },
    Use { server: usize, id: usize },
    Invalidate { server: usize, id: usize },
    Forget { server: usize, id: usize },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = (0..4, 0..3usize, 0..4usize).prop_map(|(what, server, id)| match what {
        0 => Act::Keep { server, id },
        1 => Act::Use { server, id },
        2 => Act::Invalidate { server, id },
        _ => Act::Forget { server, id },
    });
    vec(act, 0..40)
}

/// The expected state of a session in the jar: unknown, valid or invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
enum Known {
    #[default]
    No,
    Good,
    Bad,
}

proptest! {
    /// In any order of the acts of several programs, only the acts on a server change its cookies, the file can be read
    /// back, and unknown entries stay.
    #[test]
    fn acts_on_one_server_never_touch_another(acts in acts()) {
        let servers = [JarServer::url("u:1"), JarServer::named("n"), JarServer::url("u:1").with_principal("p")];
        let mut text = json!({"version": 3, "cookies": {"else": {"kept": [1]}}, "also": {"kept": true}}).to_string();
        let mut model = [[Known::No; 4]; 3];
        let mut last_used = [None; 3];
        for (second, act) in acts.iter().enumerate() {
            // Every act is its own process: it reads the file that the last one wrote.
            let mut book = Book::parse(text.as_bytes()).unwrap();
            let now = at(u32::try_from(second).unwrap());
            let name = |id: &usize| format!("id{id}");
            match act {
                Act::Keep { server, id } => {
                    book.keep(&servers[*server], &strawman(&name(id)), now);
                    model[*server][*id] = Known::Good;
                }
                Act::Use { server, id } => {
                    book.keep_as_used(&servers[*server], &strawman(&name(id)), now);
                    model[*server][*id] = Known::Good;
                    last_used[*server] = Some(*id);
                }
                Act::Invalidate { server, id } => {
                    book.invalidate(&servers[*server], &DataSessionId::new(name(id)), "r", now);
                    if model[*server][*id] != Known::No {
                        model[*server][*id] = Known::Bad;
                    }
                    last_used[*server] = last_used[*server].filter(|last| last != id);
                }
                Act::Forget { server, id } => {
                    book.forget(&servers[*server], &DataSessionId::new(name(id)));
                    model[*server][*id] = Known::No;
                    last_used[*server] = last_used[*server].filter(|last| last != id);
                }
            }
            text = book.to_text();
        }
        let book = Book::parse(text.as_bytes()).unwrap();
        for (index, server) in servers.iter().enumerate() {
            let record = book.records().into_iter().find(|record| Some(&record.key) == server.key().as_ref());
            for (id, expected) in model[index].iter().enumerate() {
                let kept = record.iter().flat_map(|r| &r.cookies).find(|k| k.cookie.id().reveal() == format!("id{id}"));
                let known = kept.map_or(Known::No, |kept| if kept.invalidated.is_some() { Known::Bad } else { Known::Good });
                prop_assert_eq!(known, *expected);
            }
            let active = book.active(server, Dialect::Strawman, at(1000)).map(|c| c.id().reveal().to_owned());
            match last_used[index] {
                Some(id) => prop_assert_eq!(active, Some(format!("id{id}"))),
                None => prop_assert_eq!(active.is_some(), model[index].contains(&Known::Good)),
            }
        }
        let written: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&written["cookies"]["else"], &json!({"kept": [1]}));
        prop_assert_eq!(&written["also"], &json!({"kept": true}));
    }
}
