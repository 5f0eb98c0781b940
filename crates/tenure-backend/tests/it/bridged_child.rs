//! Exchanges on a child process that knows only sessions: the process is told when a client leaves.

#![cfg(unix)]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_backend::child::{ChildBackend, ChildCommand, ChildLimits};
use tenure_layers::bridge::{ExchangesOnSessions, PoolLimits};
use tenure_session::backend::Responder;
use tenure_testkit::fake_client::FakeClient;

/// Does the handshake, sends a log message when a call comes, and writes the next line that it reads to a file.
const SERVER: &str = r#"
read -r initialize
echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}'
read -r initialized
read -r call
echo '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"begun"}}'
read -r next
echo "$next" > heard.new
mv heard.new heard
"#;

#[tokio::test]
async fn a_process_is_told_when_its_caller_no_longer_waits() {
    let folder = std::env::temp_dir().join(format!("tenure-bridged-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = ChildCommand::new("sh", ["-c", SERVER]);
    command.folder = Some(folder.clone());
    command.limits = ChildLimits { warm: 0, ..ChildLimits::default() };
    let bridge = ExchangesOnSessions::new(Arc::new(ChildBackend::new(command, None)), PoolLimits::default());
    let client = FakeClient::new(json!({}));
    let mut call = bridge.respond(client.call(1, "tools/call", json!({ "name": "t" })));
    tokio::select! {
        reply = &mut call => panic!("{reply:?}"),
        (_, begun) = client.hear() => assert_eq!(begun["data"], "begun"),
    }
    drop(call);
    assert_eq!(bridge.sessions(), 0);
    // Resolves when the process has ended.
    tokio::time::timeout(Duration::from_secs(10), bridge.close()).await.unwrap();
    let heard: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("heard")).unwrap()).unwrap();
    assert_eq!(
        (&heard["method"], &heard["params"]["requestId"]),
        (&json!("notifications/cancelled"), &json!(1))
    );
    std::fs::remove_dir_all(folder).unwrap();
}
