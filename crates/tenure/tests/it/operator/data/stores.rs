//! Data sessions in checks, backups, copies and exports of a store.

use serde_json::{Value, json};

use super::support::Client;
use crate::cli::process::Server;
use crate::operator::place::{Place, stop, url};

#[tokio::test]
async fn data_sessions_are_checked_backed_up_and_copied_with_the_store() {
    let place = Place::new();
    let server = place.serve().await;
    let client = Client::begin(server.address(), "notes").await;
    client.note("hello").await;
    let revoked = Client::begin(server.address(), "revoked").await;
    let name = place.data_rows(&[]).await.into_iter().find(|row| row["label"] == "revoked").unwrap();
    place.data(&["revoke", name["name"].as_str().unwrap()]).await;
    let said = place.run(&["store", "backup", "monday"]).await;
    let last = said.err.lines().last().unwrap();
    assert!(last.starts_with("backed up 2 sessions and 2 data sessions to `"), "{last}");
    stop(server).await;

    let checked = place.told(&["store", "check"]).await;
    assert!(
        checked.contains("` is sound\n  2 sessions, 2 data sessions, 0 tasks, 1 other record, "),
        "{checked}"
    );
    let report: Value = serde_json::from_str(&place.told(&["store", "check", "--json"]).await).unwrap();
    assert_eq!(report["totals"]["data_sessions"], 2);
    place.told(&["store", "new-key", "--output", "key"]).await;
    let copied = place.run(&["store", "copy", &place.url(), "disk:sealed", "--to-key-file", "key"]).await;
    assert!(copied.err.contains("copied 4 records, "), "{}", copied.err);

    let key = place.beside("key");
    for (store, more) in [("monday", &[][..]), ("sealed", &["--store-key-file", key.to_str().unwrap()])] {
        let store = url(&place.beside(store));
        let server = Server::start(&[&["--store", &store][..], more].concat()).await;
        let at = async |id: &str| Client::given(server.address(), id).await;
        assert_eq!(at(&client.id).await.notes().await, json!(["hello"]), "{store}");
        assert_eq!(at(&revoked.id).await.refusal().await, "session_revoked", "{store}");
        stop(server).await;
    }
}

#[tokio::test]
async fn an_export_says_that_data_sessions_are_not_in_it() {
    let place = Place::new();
    let server = place.serve().await;
    let client = Client::begin(server.address(), "notes").await;
    let missing = "not exported: 1 data session, which only a backup or a copy of the store carries\n";
    let said = place.run(&["sessions", "export"]).await;
    assert_eq!((said.out.lines().count(), said.err.as_str()), (1, missing));
    let said = place.run(&["sessions", "export", "--output", "all.jsonl"]).await;
    assert!(said.err.ends_with(missing), "{}", said.err);
    let label = crate::operator::place::label(&client.session);
    assert_eq!(place.run(&["sessions", "export", &label]).await.err, "", "one session is one session");
    stop(server).await;
    let said = place.run(&["sessions", "import", "all.jsonl", "--store", "disk:other"]).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    let said = place.run(&["sessions", "data", "list", "--store", "disk:other"]).await;
    assert_eq!(said.err, "no data sessions\n");
}
