//! Doors that are closed are no doors.

use serde_json::json;

use super::support::{ALL, get_sse, shake};
use crate::support::client::Ask;
use crate::support::node::{demo, demo_with};
use crate::support::session::{Session, request};

#[tokio::test]
async fn a_closed_door_is_like_any_path_that_is_not_there() {
    let node = demo().await;
    let nothing = Ask::new("GET", "/nothing").send(node.address()).await.text();
    let list = request(1, "tools/list", &json!({})).to_string();
    for ask in [
        get_sse(),
        Ask::new("GET", "/mcp/sse").header("Accept", "text/event-stream"),
        Ask::post_to("/sse", &list),
        Ask::post_to("/rpc", &list),
        Ask::post_to("/messages?sessionId=0123456789abcdef0123456789abcdef", &list),
    ] {
        let response = ask.clone().send(node.address()).await;
        assert_eq!((response.status(), response.text()), (404, nothing.clone()), "{ask:?}");
    }
    assert!(shake(node.address(), &[]).await.is_err());
}

#[tokio::test]
async fn each_door_opens_alone() {
    for (key, value) in ALL {
        let node = demo_with(&[(key, value)]).await;
        let mut open = Vec::new();
        for (key, method, path) in [
            ("doors.sse", "GET", "/sse"),
            ("doors.rpc", "POST", "/rpc"),
            ("doors.post_sse", "POST", "/sse"),
            ("doors.mcp_sse", "GET", "/mcp/sse"),
            ("doors.websocket", "GET", "/ws"),
        ] {
            // Whatever else an open door may find wrong with it, the path and the method are right.
            let ask =
                Ask::new(method, path).header("Accept", "text/event-stream").header("Content-Type", "text/x");
            let head = ask.begin(node.address()).await.head().await;
            if !matches!(head.status, 404 | 405) {
                open.push(key);
            }
        }
        assert_eq!(open, [*key]);
    }
}

#[tokio::test]
async fn the_alias_of_get_is_the_same_stream() {
    let node = demo_with(&[("doors.mcp_sse", "true")]).await;
    let session = Session::start(node.address()).await;
    let alias = || Ask::new("GET", "/mcp/sse").header("Accept", "text/event-stream");
    let mut stream = alias().header("Mcp-Session-Id", &session.id).open(node.address()).await;
    stream.event().await.unwrap();
    // A stream has one reader: another one at the other path takes its place.
    let mut other = session.listen().await;
    other.event().await.unwrap();
    assert_eq!(stream.items().await, [""; 0]);
    assert_eq!(alias().send(node.address()).await.fault().0, 400);
    let posted = Ask::post_to("/mcp/sse", "{}").send(node.address()).await;
    assert_eq!((posted.status(), posted.header("allow")), (405, Some("GET")));
}
