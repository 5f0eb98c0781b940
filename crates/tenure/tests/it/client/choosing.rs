//! `tenure jar`: which session is used, and which are let go of.

use expect_test::expect_file;
use serde_json::json;

use super::home::Home;

#[tokio::test]
async fn sessions_are_chosen_put_aside_and_brought_back() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    let mut said = String::new();
    let mut tell = |typed: &str, text: &str| said.push_str(&format!("$ tenure {typed}\n{text}\n"));

    home.call(&[url, "notebook_append", "text=first"]).await;
    let first = home.ids(&[]).await.remove(0);
    tell("jar new URL", &home.told(&["jar", "new", url]).await);
    assert_eq!(home.call(&[url, "notebook_read"]).await, json!({ "notes": [] }));
    home.call(&[url, "notebook_append", "text=second"]).await;
    tell("jar use URL ID", &home.told(&["jar", "use", url, &first[..12]]).await);
    assert_eq!(home.call(&[url, "notebook_read"]).await, json!({ "notes": ["first"] }));
    tell("jar clear URL", &home.told(&["jar", "clear", url]).await);
    tell("jar clear URL", &home.run(&["jar", "clear", url]).await.err);
    assert_eq!(home.sessions(&[]).await.iter().filter(|row| row["reason"] == "cleared").count(), 2);
    assert_eq!(home.call(&[url, "notebook_read"]).await, json!({ "notes": [] }), "a third");
    tell("jar use URL ID", &home.told(&["jar", "use", url, &first[..12]]).await);
    assert_eq!(home.call(&[url, "notebook_read"]).await, json!({ "notes": ["first"] }));
    tell("jar list", &home.told(&["jar", "list"]).await);
    tell("jar forget URL ID", &home.told(&["jar", "forget", url, &first[..12]]).await);
    assert_eq!(home.ids(&[]).await.len(), 2);
    tell("jar forget URL", &home.told(&["jar", "forget", url]).await);
    tell("jar forget URL", &home.run(&["jar", "forget", url]).await.err);
    tell("jar list", &home.run(&["jar", "list"]).await.err);
    expect_file!["snapshots/jar.txt"].assert_eq(&ages(&home.plain(&said)));

    // Sessions that were forgotten here live on there.
    assert_eq!(home.call(&[url, "notebook_read", "--session", &first]).await, json!({ "notes": ["first"] }));
}

#[tokio::test]
async fn what_is_deleted_is_gone_at_the_server_as_well() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    for _ in 0..3 {
        home.told(&["jar", "new", url]).await;
    }
    home.told(&["jar", "clear", url]).await;
    home.told(&["jar", "new", url]).await;
    let ids = home.ids(&[]).await;
    assert_eq!(
        home.told(&["jar", "forget", url, &ids[0], "--delete"]).await,
        format!("deleted 1 session of `{url}`\n")
    );
    assert_eq!(
        home.told(&["jar", "forget", url, "--delete"]).await,
        format!("deleted 3 sessions of `{url}`\n")
    );
    assert!(home.ids(&[]).await.is_empty());
    for id in &ids {
        let refused = home.refused(&["call", url, "notebook_read", "--session", id]).await;
        assert!(refused.contains("it was deleted"), "{refused}");
    }
}

#[tokio::test]
async fn principals_do_not_share_sessions() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    home.call(&[url, "notebook_append", "text=alice's", "--principal", "alice"]).await;
    assert_eq!(home.call(&[url, "notebook_read"]).await, json!({ "notes": [] }));
    let read = home.call(&[url, "notebook_read", "--principal", "alice"]).await;
    assert_eq!(read, json!({ "notes": ["alice's"] }));
    assert_eq!(home.ids(&[]).await.len(), 2);
    assert_eq!(home.ids(&["--principal", "alice"]).await.len(), 1);
}

#[tokio::test]
async fn no_secret_is_shown_unless_it_is_asked_for() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    let said = home.run(&["call", url, "notebook_append", "text=x", "--raw", "--verbose"]).await;
    let id = home.ids(&[]).await.remove(0);
    let secret = &id[13..];
    assert!(!said.out.contains(secret) && !said.err.contains(secret), "{} {}", said.out, said.err);
    for arguments in [&["jar", "list"][..], &["jar", "list", "--json"], &["jar", "use", url, &id]] {
        let out = home.told(arguments).await;
        assert!(out.contains(&id[..12]) && !out.contains(secret), "{out}");
    }
    assert!(home.told(&["jar", "list", "--show-secrets"]).await.contains(&id));
}

#[tokio::test]
async fn what_the_server_refused_is_tried_again_on_demand_and_what_has_expired_is_not() {
    let home = Home::new();
    let cookie =
        |id: &str, expiry: &str| json!({ "id": id, "cookie": { "sessionId": id, "expiresAt": expiry } });
    let mut refused = cookie("sess-aaaa1111", "2999-01-01T00:00:00Z");
    refused["invalidatedAt"] = json!("2026-01-01T00:00:00.000000+00:00");
    refused["invalidatedReason"] = json!("session_not_found");
    let cookies = [refused, cookie("sess-bbbb1111", "2001-01-01T00:00:00Z"), cookie("sess-bbbb2222", "soon")];
    let jar = json!({ "version": 3, "cookies": { "url:http://localhost/mcp": { "cookies": cookies } } });
    std::fs::write(home.jar(), jar.to_string()).unwrap();
    let _ = home.run(&["jar", "list"]).await;

    let url = "http://localhost/mcp";
    let mut all = String::new();
    for (typed, code) in [("sess-aaaa", 0), ("sess-bbbb1", 1), ("sess-bbbb", 1), ("sess-cccc", 1), ("…", 1)]
    {
        let said = home.run(&["jar", "use", url, typed]).await;
        assert_eq!(said.code, Some(code), "{}", said.err);
        all.push_str(&format!("$ tenure jar use URL {typed}\n{}{}\n", said.err, said.out));
    }
    expect_file!["snapshots/jar_use.txt"].assert_eq(&all);
    assert_eq!(home.sessions(&[]).await.iter().filter(|row| row["in_use"] == true).count(), 1);
}

#[tokio::test]
async fn a_jar_of_a_later_version_is_left_alone() {
    let home = Home::new();
    std::fs::write(home.jar(), r#"{"version":99,"cookies":{}}"#).unwrap();
    let refused = home.refused(&["jar", "list"]).await;
    expect_file!["snapshots/jar_too_new.txt"].assert_eq(&refused);
    // That is found before anything connects.
    assert_eq!(home.refused(&["call", "http://127.0.0.1:1/mcp", "x"]).await, refused);
    assert_eq!(std::fs::read_to_string(home.jar()).unwrap(), r#"{"version":99,"cookies":{}}"#);
}

/// Ages as of a run that takes no time.
fn ages(text: &str) -> String {
    (1..10).fold(text.to_owned(), |text, seconds| text.replace(&format!("{seconds}s ago"), "now   "))
}
