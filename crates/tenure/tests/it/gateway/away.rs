//! A server elsewhere is killed and comes back: `tenure serve --upstream`, with another Tenure in the place of the server.

use std::time::Duration;

use serde_json::json;

use crate::gateway::crashing::{begin, rest};
use crate::gateway::running::Gateway;
use crate::support::wait::within;

/// Whether the server still knows its sessions when it is back, and over which transport it is reached.
const SERVERS: [(&[&str], &str); 3] =
    [(&[], "mcp"), (&["store=memory:"], "mcp"), (&["store=memory:", "doors.sse=true"], "sse")];

#[tokio::test]
async fn a_server_elsewhere_that_is_killed_and_comes_back_is_waited_for() {
    for (settings, path) in SERVERS {
        let mut server = Gateway::start(settings).await;
        let url = format!("upstream.url=http://{}/{path}", server.address);
        let gateway = Gateway::before(&[&url], &[]).await;
        let gate = gateway.folder.path().join("gate");
        let session = gateway.session().await;
        let mut is_safe = begin(&session, 1, "slow_safe", &gate).await;
        let mut is_not = begin(&session, 2, "slow", &gate).await;
        server.kill().await;
        // Asked while it is away. What was not sent is not lost, safe or not.
        let params = json!({ "name": "public_echo", "arguments": { "text": "x" } });
        let (list, call) =
            (session.request(3, "tools/list", &json!({})), session.request(4, "tools/call", &params));
        let (list, call) = (list.send(gateway.address), call.send(gateway.address));
        let mut asked = Box::pin(async { tokio::join!(list, call) });
        let early = tokio::time::timeout(Duration::from_millis(300), &mut asked).await;
        assert!(early.is_err(), "{settings:?} {path}: they wait, not {early:?}");
        // A session can be begun as well.
        let mut begun = Box::pin(gateway.session());
        let early = tokio::time::timeout(Duration::from_millis(100), &mut begun).await;
        assert!(early.is_err(), "{settings:?} {path}: it waits");
        server.start_again().await;
        let (list, call) = within("the answers", asked).await;
        assert!(list.json()["result"]["tools"].is_array(), "{settings:?} {path}: {list:?}");
        assert!(call.json()["result"].is_object(), "{settings:?} {path}: {call:?}");
        within("a session", begun).await;
        assert_eq!(rest(&mut is_not).await, ["error 2 interrupted"], "{settings:?} {path}");
        std::fs::write(&gate, "").unwrap();
        assert_eq!(rest(&mut is_safe).await, ["2", "3", "result 1"], "{settings:?} {path}");
    }
}
