//! Streams follow the tokens of their owner.

use std::time::Duration;

use serde_json::json;

use super::world::{Bearing, World, now};

#[tokio::test]
async fn au5_an_expired_token_is_refused_and_the_session_goes_on_with_the_next_one() {
    let world = World::start().await;
    // Good for less than the leeway of clocks: it counts as expired from the beginning.
    let long_gone = world.token_with("alice", &json!({ "exp": now().0 - 31 }));
    let good = world.token("alice");
    let session = world.session(&good).await;
    for _ in 0..10 {
        let refused = world.send(session.request(1, "ping", &json!({})).bearer(&long_gone)).await;
        assert_eq!(refused.status(), 401);
        assert!(refused.header("www-authenticate").unwrap().contains("The access token expired"));
        let fresh = world.token_with("alice", &json!({ "jti": format!("{:?}", std::time::Instant::now()) }));
        assert_eq!(world.send(session.request(1, "ping", &json!({})).bearer(&fresh)).await.status(), 200);
    }
}

#[tokio::test]
async fn au5_a_stream_ends_after_the_newest_token_and_its_client_comes_back() {
    let world = World::with("stream_grace = \"1s\"\n").await;
    let token = world.token_with("alice", &json!({ "exp": now().0 - 26 }));
    let session = world.session(&token).await;
    let mut listening = session.get().bearer(&token).open(world.address()).await;
    // Tokens are accepted for 30 seconds more than they say, and the grace comes after that. A newer token, on another
    // request, keeps the stream for two seconds more.
    let newer = world.token_with("alice", &json!({ "exp": now().0 - 24 }));
    let begun = tokio::time::Instant::now();
    assert_eq!(world.send(session.request(1, "ping", &json!({})).bearer(&newer)).await.status(), 200);
    let items = listening.items().await;
    assert!(begun.elapsed() > Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(items.last().unwrap().starts_with("retry "), "its client is told to come back: {items:?}");
    assert!(listening.is_complete(), "it ends as HTTP asks");
    let fresh = world.token("alice");
    let last = listening.last_id();
    let again = session.get().header("Last-Event-ID", &last).bearer(&fresh).open(world.address()).await;
    assert_eq!(again.header("content-type"), Some("text/event-stream"));
}

#[tokio::test]
async fn the_stream_of_a_call_goes_on_to_its_answer() {
    let world = World::with_settings("stream_grace = \"0s\"\n", &[]).await;
    let token = world.token_with("alice", &json!({ "exp": now().0 - 26 }));
    let session = world.session(&token).await;
    let params =
        json!({ "name": "long_task", "arguments": { "seconds": 6 }, "_meta": { "progressToken": 1 } });
    let mut stream = session.request(1, "tools/call", &params).bearer(&token).open(world.address()).await;
    assert_eq!(stream.rest().await.last().unwrap(), "result 1", "it was allowed when it began");
}
