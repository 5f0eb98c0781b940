//! The same store with another command: sessions never move to another server unnoticed.

use serde_json::json;

use crate::gateway::running::{Gateway, echo};

const DEMO: [&str; 6] = [env!("CARGO_BIN_EXE_tenure"), "stdio", "--store", "memory:", "--log-level", "warn"];

#[tokio::test]
async fn a_session_waits_in_the_store_until_its_own_server_is_back() {
    let mut gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    assert_eq!(session.tool(1, "public_echo", &json!({ "text": "on" })).await.status(), 200);

    gateway.stop().await;
    gateway.start_another(&[], &DEMO).await;
    let refused = session.tool(2, "public_echo", &json!({ "text": "on" })).await;
    assert_eq!(refused.status(), 404, "the client begins a new session: {refused:?}");
    assert_eq!(refused.json()["error"]["data"]["reason"], "session_of_other_server");
    let warning = gateway
        .logged("the refusal", |line| line["message"] == "a session of another server was refused")
        .await;
    assert_eq!(warning["level"], "WARN");
    let text = |name: &str| warning[name].as_str().unwrap().to_owned();
    assert!(text("was").starts_with("echo-stdio (echo_stdio, "), "{warning}");
    assert!(text("is").starts_with("tenure-demo (tenure, "), "{warning}");
    assert!(text("hint").contains("session.other_server"), "{warning}");

    gateway.stop().await;
    gateway.start_another(&[], &[&echo()]).await;
    assert_eq!(session.tool(3, "public_echo", &json!({ "text": "on" })).await.status(), 200);
}

#[tokio::test]
async fn another_command_of_the_same_server_goes_on_with_its_sessions() {
    let mut gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    gateway.stop().await;
    gateway.start_another(&[], &[&echo(), "--one-more-argument"]).await;
    assert_eq!(session.tool(1, "public_echo", &json!({ "text": "on" })).await.status(), 200);
    let told = "the server of a session is configured in another way now";
    let line = gateway.logged("that it changed", |line| line["message"] == told).await;
    assert_eq!(line["level"], "INFO");
}

#[tokio::test]
async fn a_session_moves_to_another_server_with_a_warning_if_that_is_wanted() {
    let mut gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    gateway.stop().await;
    gateway.start_another(&["session.other_server=warn"], &DEMO).await;
    assert_eq!(session.tool(1, "echo", &json!({ "message": "on" })).await.status(), 200);
    let told = "a session goes on with another server than it was begun with";
    let line = gateway.logged("that it moved", |line| line["message"] == told).await;
    assert_eq!(line["level"], "WARN");
}
