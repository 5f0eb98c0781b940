//! Tests of the handle: commands of a program about its sessions.

use serde_json::{Value, json};
use tenure_client::{ClientErrorKind, Create, DataSessionId, Jar, SessionOptions};

use crate::layer::support::{SEP, STRAWMAN, connect, cookie, current, in_jar, options, round, sep, strawman};

fn by_hand(jar: &Jar) -> SessionOptions {
    SessionOptions { create: Create::Never, ..SessionOptions::new(jar.clone()) }
}

#[tokio::test(start_paused = true)]
async fn create_and_delete_in_the_strawman() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(strawman(), by_hand(&jar)).await;
    let sessions = client.sessions().clone();
    let (session, ()) = tokio::join!(sessions.create(Some("l".to_owned()), Some(json!({"k": 1}))), async {
        let request = wire.next_of("session/create").await;
        assert_eq!(request["params"], json!({"hints": {"label": "l", "data": {"k": 1}}}));
        wire.result(&request, json!({"id": "a", "expiry": "e", "data": {"k": 1}})).await;
    });
    let session = session.unwrap();
    assert_eq!((session.id.reveal(), session.data), ("a", Some(json!({"k": 1}))));
    assert_eq!(in_jar(&jar, "a").as_deref(), Some("used"));

    let (deleted, ()) = tokio::join!(sessions.delete(), async {
        let request = wire.next_of("session/delete").await;
        let held = json!({"id": "a", "expiry": "e", "data": {"k": 1}});
        assert_eq!(request["params"], json!({"id": "a", "_meta": {STRAWMAN: held}}));
        wire.result(&request, json!({"deleted": true, "_meta": {STRAWMAN: null}})).await;
    });
    deleted.unwrap();
    assert_eq!((current(&client), in_jar(&jar, "a")), (None, None));
    assert_eq!(sessions.delete().await.unwrap_err().kind(), ClientErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn delete_in_the_later_draft() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(sep(), SessionOptions::new(jar.clone())).await;
    wire.create(json!({"sessionId": "a", "expiresAt": "e", "state": "s"})).await;
    round(&client, &mut wire, Value::Null).await;
    let (deleted, ()) = tokio::join!(client.sessions().delete(), async {
        let request = wire.next_of("sessions/delete").await;
        assert_eq!(request["params"], json!({"_meta": {SEP: {"sessionId": "a", "state": "s"}}}));
        wire.result(&request, json!({})).await;
    });
    deleted.unwrap();
    assert_eq!((current(&client), in_jar(&jar, "a")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_gone_counts_as_deleted_but_a_refusal_does_not() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(sep(), SessionOptions::new(jar.clone())).await;
    wire.create(json!({"sessionId": "a"})).await;
    round(&client, &mut wire, Value::Null).await;
    for (code, kind) in [
        (-32000, Some(ClientErrorKind::Refused)),
        (-32601, Some(ClientErrorKind::Unsupported)),
        (-32043, None),
    ] {
        let (deleted, ()) = tokio::join!(client.sessions().delete(), async {
            let request = wire.next_of("sessions/delete").await;
            wire.error(&request, code, "no session a here").await;
        });
        assert_eq!(deleted.as_ref().err().map(tenure_client::Error::kind), kind);
        assert_eq!(current(&client).is_some(), kind.is_some());
    }
    assert_eq!(in_jar(&jar, "a"), None);
}

#[tokio::test(start_paused = true)]
async fn resume_asks_where_it_can() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(strawman(), by_hand(&jar)).await;
    let sessions = client.sessions().clone();
    let (session, ()) = tokio::join!(sessions.resume(DataSessionId::new("a")), async {
        let request = wire.next_of("session/resume").await;
        assert_eq!(request["params"], json!({"id": "a"}));
        wire.result(&request, json!({"id": "a", "_meta": {STRAWMAN: {"id": "a", "data": 7}}})).await;
    });
    assert_eq!(session.unwrap().data, Some(json!(7)));
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, STRAWMAN), &json!({"id": "a", "data": 7}));

    let (session, ()) = tokio::join!(sessions.resume(DataSessionId::new("geheim")), async {
        let request = wire.next_of("session/resume").await;
        wire.error(&request, -32002, "Session not found: geheim").await;
    });
    let error = session.unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::NotFound);
    assert!(!format!("{error} {error:?}").contains("geheim"), "{error:?}");
    assert_eq!(current(&client).as_deref(), Some("a"), "the one in use stays in use");
}

#[tokio::test(start_paused = true)]
async fn resume_uses_the_id_where_it_cannot_ask() {
    for (capabilities, key, expected) in [
        (sep(), SEP, json!({"sessionId": "a"})),
        (json!({"experimental": {"session": {"features": ["create"]}}}), STRAWMAN, json!({"id": "a"})),
    ] {
        let (client, mut wire) = connect(capabilities, by_hand(&Jar::in_memory())).await;
        client.sessions().resume(DataSessionId::new("a")).await.unwrap();
        let request = round(&client, &mut wire, Value::Null).await;
        assert_eq!(cookie(&request, key), &expected);
    }
}

#[tokio::test(start_paused = true)]
async fn list_follows_pages_in_the_strawman_and_reads_the_jar_in_the_later_draft() {
    let (client, mut wire) = connect(strawman(), by_hand(&Jar::in_memory())).await;
    let (listed, ()) = tokio::join!(client.sessions().list(), async {
        let request = wire.next_of("session/list").await;
        assert_eq!(request["params"], json!({}));
        wire.result(&request, json!({"sessions": [{"id": "a"}], "nextCursor": "2"})).await;
        let request = wire.next_of("session/list").await;
        assert_eq!(request["params"], json!({"cursor": "2"}));
        wire.result(&request, json!({"sessions": [{"id": "b", "expiry": "e"}]})).await;
    });
    let ids: Vec<_> = listed.unwrap().iter().map(|session| session.id.reveal().to_owned()).collect();
    assert_eq!(ids, ["a", "b"]);

    let (client, mut wire) = connect(sep(), options()).await;
    wire.create(json!({"sessionId": "s"})).await;
    round(&client, &mut wire, Value::Null).await;
    let listed = client.sessions().list().await.unwrap();
    assert_eq!(listed.iter().map(|session| session.id.reveal()).collect::<Vec<_>>(), ["s"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_without_end_is_not_followed_for_ever() {
    let (client, mut wire) = connect(strawman(), by_hand(&Jar::in_memory())).await;
    let (listed, ()) = tokio::join!(client.sessions().list(), async {
        for page in 0..100 {
            let request = wire.next_of("session/list").await;
            wire.result(&request, json!({"sessions": [{"id": format!("s{page}")}], "nextCursor": "on"}))
                .await;
        }
    });
    assert_eq!(listed.unwrap().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn recover_is_for_the_strawman() {
    let (client, mut wire) = connect(strawman(), by_hand(&Jar::in_memory())).await;
    let (session, ()) = tokio::join!(client.sessions().recover(DataSessionId::new("a")), async {
        let request = wire.next_of("session/recover").await;
        assert_eq!(request["params"], json!({"id": "a"}));
        wire.result(&request, json!({"id": "a", "recovered": true, "_meta": {STRAWMAN: {"id": "a"}}})).await;
    });
    session.unwrap();
    assert_eq!(current(&client).as_deref(), Some("a"));

    let (client, _wire) = connect(sep(), by_hand(&Jar::in_memory())).await;
    let error = client.sessions().recover(DataSessionId::new("a")).await.unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::Unsupported);
}

#[tokio::test(start_paused = true)]
async fn select_and_clear_are_between_the_program_and_its_jar() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(sep(), by_hand(&jar)).await;
    let sessions = client.sessions().clone();
    for id in ["a", "b"] {
        let (made, _) =
            tokio::join!(sessions.create(None, None), wire.create(json!({"sessionId": id, "state": id})));
        made.unwrap();
    }
    assert_eq!(current(&client).as_deref(), Some("b"));
    sessions.select(DataSessionId::new("a")).await.unwrap();
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, SEP), &json!({"sessionId": "a", "state": "a"}));
    assert_eq!(in_jar(&jar, "a").as_deref(), Some("used"));
    assert_eq!(sessions.select(DataSessionId::new("c")).await.unwrap_err().kind(), ClientErrorKind::NotFound);
    assert_eq!(current(&client).as_deref(), Some("a"));

    sessions.clear().await.unwrap();
    let request = round(&client, &mut wire, Value::Null).await;
    assert!(cookie(&request, SEP).is_null());
    assert_eq!((in_jar(&jar, "a"), in_jar(&jar, "b")), (None, None));
    client.close().await.unwrap();
    assert_eq!(wire.rest().await, [Value::Null; 0], "the server is not told");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_sessions_has_none_to_handle() {
    let (client, _wire) = connect(json!({}), options()).await;
    let sessions = client.sessions();
    assert_eq!(sessions.create(None, None).await.unwrap_err().kind(), ClientErrorKind::Unsupported);
    assert_eq!(sessions.list().await.unwrap_err().kind(), ClientErrorKind::Unsupported);
    assert_eq!(sessions.delete().await.unwrap_err().kind(), ClientErrorKind::Unsupported);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_an_answer_hears_of_time_and_of_the_end() {
    let (client, mut wire) = connect(strawman(), by_hand(&Jar::in_memory())).await;
    let sessions = client.sessions().clone();
    let (made, ()) = tokio::join!(sessions.create(None, None), async {
        let request = wire.next_of("session/create").await;
        let cancelled = wire.next_of("notifications/cancelled").await;
        assert_eq!(cancelled["params"]["requestId"], request["id"]);
    });
    assert_eq!(made.unwrap_err().kind(), ClientErrorKind::TimedOut);

    let (made, ()) = tokio::join!(sessions.create(None, None), async {
        wire.next_of("session/create").await;
        drop(wire);
    });
    assert_eq!(made.unwrap_err().kind(), ClientErrorKind::Closed);
    client.into_parts().0.waiting().await.unwrap();
    assert_eq!(sessions.create(None, None).await.unwrap_err().kind(), ClientErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_program_can_wait_for_its_session_to_change() {
    let (client, mut wire) = connect(strawman(), by_hand(&Jar::in_memory())).await;
    let mut watching = client.sessions().clone();
    watching.changed().await.unwrap();
    assert_eq!(watching.current(), None, "the first change is the handshake");
    let (seen, made, _) = tokio::join!(
        watching.changed(),
        client.sessions().create(None, None),
        wire.create(json!({"id": "a"}))
    );
    seen.unwrap();
    made.unwrap();
    assert_eq!(current(&client).as_deref(), Some("a"));
}
