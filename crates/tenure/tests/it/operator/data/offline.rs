//! The same commands on a store whose server was killed.

use serde_json::{Value, json};

use super::support::Client;
use crate::operator::place::{Place, kill, stop};
use crate::support::wait::within;

#[tokio::test]
async fn everything_works_without_a_server_and_counts_when_one_starts() {
    let place = Place::new();
    let server = place.serve().await;
    let address = server.address();
    let (kept, cleared) = (Client::begin(address, "kept").await, Client::begin(address, "cleared").await);
    let revoked = Client::begin(address, "revoked").await;
    for client in [&kept, &cleared, &revoked] {
        client.note("hello").await;
    }
    kill(server).await;

    let rows = place.data_rows(&["--state", "active"]).await;
    assert_eq!(rows.len(), 3);
    let name = |label: &str| {
        let row = rows.iter().find(|row| row["label"] == label).unwrap();
        row["name"].as_str().unwrap().to_owned()
    };
    let shown = place.data(&["show", &name("kept"), "--data"]).await;
    assert!(shown.contains("\"hello\""), "{shown}");
    assert_eq!(place.data(&["clear", &name("cleared")]).await, format!("cleared {}\n", name("cleared")));
    assert_eq!(place.data(&["revoke", &name("revoked")]).await, format!("revoked {}\n", name("revoked")));
    let said = place.data(&["resume", &name("kept")]).await;
    assert!(said.starts_with(&format!("resumed {}; it expires in ", name("kept"))), "{said}");
    let made = place.data(&["create", "--data", r#"{"notes":["prepared"]}"#]).await;
    let copy = place.data(&["create", "--copy-of", &name("kept")]).await;

    let server = place.serve().await;
    let at = async |id: &str| Client::given(server.address(), id).await;
    assert_eq!(at(&kept.id).await.notes().await, json!(["hello"]));
    assert_eq!(at(&cleared.id).await.notes().await, json!([]));
    assert_eq!(at(&revoked.id).await.refusal().await, "session_revoked");
    assert_eq!(at(&made).await.notes().await, json!(["prepared"]));
    assert_eq!(at(&copy).await.notes().await, json!(["hello"]));
}

#[tokio::test]
async fn looking_removes_nothing_and_what_has_expired_can_be_brought_back() {
    let place = Place::new();
    let server = place.serve_with(&["--set", "data_sessions.idle_ttl=1s"]).await;
    Client::begin(server.address(), "notes").await;
    kill(server).await;
    let expired = async { while place.data_rows(&["--state", "expired"]).await.is_empty() {} };
    within("it expires", expired).await;
    // With no retention a server would remove it; a look does not.
    let config = place.beside("tenure.toml");
    std::fs::write(&config, "[data_sessions]\nretention = \"0s\"\n").unwrap();
    let rows = place.data_rows(&["--config", config.to_str().unwrap()]).await;
    assert_eq!((rows.len(), &rows[0]["state"], &rows[0]["end"]), (1, &json!("ended"), &json!("expired")));
    let name = place.data_name().await;
    let said = place.data(&["resume", &name]).await;
    assert!(said.starts_with(&format!("recovered {name}; it expires ")), "{said}");
}

#[tokio::test]
async fn only_the_demo_is_taken_to_work_on_workspaces() {
    let place = Place::new();
    stop(place.serve().await).await;
    for (config, kind) in [
        ("", "workspace"),
        ("[upstream]\nurl = \"http://127.0.0.1:1/mcp\"\n", "session"),
        ("[child]\ncommand = [\"notes\"]\n", "session"),
        ("[[backend]]\nname = \"notes\"\ncommand = [\"notes\"]\n", "session"),
    ] {
        std::fs::write(place.beside("tenure.toml"), config).unwrap();
        let made = place.data(&["create", "--json", "--config", "tenure.toml"]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        assert_eq!(made["kind"], kind, "{config}");
    }
}
