//! Tests of modern servers: how they are detected, and their data sessions.

use serde_json::{Value, json};
use tenure_client::{CallOptions, Create, Dialect, Era, EraChoice, Jar, Recreate, SessionOptions};

use crate::layer::support::{
    call, connect, connect_with, cookie, current, discovered, done, in_jar, options, sep, settle,
};

const KEY: &str = "dev.tenure/session";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

fn offering() -> Value {
    json!({"tools": {}, "extensions": {"dev.tenure/sessions": {"features": ["create", "resume", "delete"]}}})
}

fn complete(meta: Value) -> Value {
    let mut result = done(meta);
    result["resultType"] = json!("complete");
    result
}

#[tokio::test(start_paused = true)]
async fn a_server_of_the_modern_era_is_used_without_a_handshake() {
    let (client, mut wire) = connect_with(options(), async |wire| {
        let probe = wire.next_of("server/discover").await;
        assert_eq!(probe["params"]["_meta"][VERSION], "2026-07-28");
        assert_eq!(probe["params"]["_meta"][CAPABILITIES]["extensions"], json!({"dev.tenure/sessions": {}}));
        wire.result(&probe, discovered(&json!({"tools": {}}))).await;
    })
    .await;
    let client = client.unwrap();
    assert_eq!((client.era(), client.sessions().dialect()), (Era::Modern, None));
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("tools/call").await;
        assert_eq!(request["params"]["_meta"][VERSION], "2026-07-28");
        wire.result(&request, complete(Value::Null)).await;
    });
    result.unwrap();
}

#[tokio::test(start_paused = true)]
async fn its_data_sessions_are_those_of_the_extension() {
    let jar = Jar::in_memory();
    let mut first = SessionOptions::new(jar.clone());
    first.label = Some("agent".to_owned());
    let (client, mut wire) = connect_with(first, async |wire| {
        let probe = wire.next_of("server/discover").await;
        wire.result(&probe, discovered(&offering())).await;
    })
    .await;
    let client = client.unwrap();
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("dev.tenure/session/create").await;
        assert_eq!(request["params"]["hints"], json!({"label": "agent"}));
        let meta = &request["params"]["_meta"];
        assert_eq!(meta[VERSION], "2026-07-28");
        assert_eq!(meta[CAPABILITIES]["extensions"]["dev.tenure/sessions"], json!({}));
        settle().await;
        let made = json!({"sessionId": "s-1", "expiresAt": "2099-01-01T00:00:00Z"});
        let mut answer = made.clone();
        answer["resultType"] = json!("complete");
        answer["_meta"] = json!({ KEY: made });
        wire.result(&request, answer).await;
        let request = wire.next_of("tools/call").await;
        assert_eq!(cookie(&request, KEY), &json!({"sessionId": "s-1"}));
        assert_eq!(request["params"]["_meta"][CAPABILITIES]["extensions"]["dev.tenure/sessions"], json!({}));
        let later = json!({ KEY: {"sessionId": "s-1", "expiresAt": "2099-01-02T00:00:00Z"} });
        wire.result(&request, complete(later)).await;
    });
    result.unwrap();
    assert_eq!(
        (current(&client).as_deref(), client.sessions().dialect()),
        (Some("s-1"), Some(Dialect::Extension))
    );
    let expires = client.sessions().current().unwrap().expires_at;
    assert_eq!(expires.as_deref(), Some("2099-01-02T00:00:00Z"));
    client.close().await.unwrap();
    assert_eq!(in_jar(&jar, "s-1").as_deref(), Some("used"));

    // In a transport session with the same server it is the same data session.
    let (client, _wire) = connect(sep(), SessionOptions::new(jar)).await;
    assert_eq!(
        (current(&client).as_deref(), client.sessions().dialect()),
        (Some("s-1"), Some(Dialect::Draft))
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_data_session_of_the_extension_is_replaced_if_that_is_wanted() {
    let options = SessionOptions { create: Create::WhenRequired, recreate: Recreate::AfterLoss, ..options() };
    let (client, mut wire) = connect_with(options, async |wire| {
        let probe = wire.next_of("server/discover").await;
        wire.result(&probe, discovered(&offering())).await;
    })
    .await;
    let client = client.unwrap();
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("tools/call").await;
        let error = json!({"code": -31044, "message": "nope", "data": {"reason": "data_session_required"}});
        wire.write(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
        let request = wire.next_of("dev.tenure/session/create").await;
        wire.result(&request, json!({"resultType": "complete", "sessionId": "s-2"})).await;
        let request = wire.next_of("tools/call").await;
        assert_eq!(cookie(&request, KEY), &json!({"sessionId": "s-2"}));
        wire.result(&request, complete(Value::Null)).await;
    });
    result.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_program_is_greeted_the_old_way_after_a_while() {
    let (client, _wire) = connect_with(options(), async |wire| {
        wire.next_of("server/discover").await;
        wire.initialize(json!({"tools": {}})).await;
    })
    .await;
    assert_eq!(client.unwrap().era(), Era::Legacy);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_is_slow_to_start_may_be_of_either_era() {
    // Both greetings wait in its input, and it answers them in order.
    let (client, _wire) = connect_with(options(), async |wire| {
        let probe = wire.next_of("server/discover").await;
        let handshake = wire.next_of("initialize").await;
        wire.result(&probe, discovered(&json!({"tools": {}}))).await;
        wire.error(&handshake, -32022, "Unsupported protocol version").await;
    })
    .await;
    assert_eq!(client.unwrap().era(), Era::Modern);

    // A server that answers both at once may use any order.
    let (client, _wire) = connect_with(options(), async |wire| {
        let probe = wire.next_of("server/discover").await;
        let handshake = wire.next_of("initialize").await;
        wire.error(&handshake, -32022, "Unsupported protocol version").await;
        settle().await;
        wire.result(&probe, discovered(&json!({"tools": {}}))).await;
    })
    .await;
    assert_eq!(client.unwrap().era(), Era::Modern);

    let (client, _wire) = connect_with(options(), async |wire| {
        let probe = wire.next_of("server/discover").await;
        let handshake = wire.next_of("initialize").await;
        wire.error(&probe, -32601, "Method not found").await;
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "serverInfo": {"name": "scripted", "version": "1"}});
        wire.result(&handshake, result).await;
        wire.next_of("notifications/initialized").await;
    })
    .await;
    assert_eq!(client.unwrap().era(), Era::Legacy);
}

#[tokio::test(start_paused = true)]
async fn the_version_decides_which_greeting_follows() {
    // The answer has the modern form, but lists only an older revision.
    let (client, _wire) = connect_with(options(), async |wire| {
        let probe = wire.next_of("server/discover").await;
        let error = json!({"code": -32022, "message": "x", "data": {"supported": ["2025-11-25"]}});
        wire.write(json!({"jsonrpc": "2.0", "id": probe["id"], "error": error})).await;
        wire.initialize(json!({})).await;
    })
    .await;
    assert_eq!(client.unwrap().era(), Era::Legacy);

    let (client, mut wire) = connect_with(options(), async |wire| {
        let probe = wire.next_of("server/discover").await;
        let error = json!({"code": -32022, "message": "x", "data": {"supported": ["2031-01-01"]}});
        wire.write(json!({"jsonrpc": "2.0", "id": probe["id"], "error": error})).await;
    })
    .await;
    assert!(client.is_err());
    assert_eq!(wire.rest().await, [Value::Null; 0], "no handshake that cannot succeed");
}

#[tokio::test(start_paused = true)]
async fn one_era_alone_can_be_asked_for() {
    let (client, _wire) =
        connect_with(SessionOptions { eras: EraChoice::Legacy, ..options() }, async |wire| {
            wire.initialize(json!({})).await;
        })
        .await;
    assert_eq!(client.unwrap().era(), Era::Legacy);
    let (client, mut wire) =
        connect_with(SessionOptions { eras: EraChoice::Modern, ..options() }, async |wire| {
            let probe = wire.next_of("server/discover").await;
            wire.error(&probe, -32601, "Method not found").await;
        })
        .await;
    assert!(client.is_err());
    assert_eq!(wire.rest().await, [Value::Null; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_only_asks_to_come_back_is_asked_again() {
    let (client, mut wire) = connect_with(options(), async |wire| {
        let probe = wire.next_of("server/discover").await;
        wire.result(&probe, discovered(&json!({"tools": {}}))).await;
    })
    .await;
    let client = client.unwrap();
    let params = rmcp::model::CallToolRequestParams::new("t");
    let request = rmcp::model::CallToolRequest::new(params);
    let options = CallOptions::default();
    let (result, ()) = tokio::join!(client.request(request, &options), async {
        for round in 0..20 {
            let request = wire.next_of("tools/call").await;
            let state = if round == 0 { Value::Null } else { json!(format!("state-{}", round - 1)) };
            assert_eq!(request["params"].get("requestState").cloned().unwrap_or_default(), state);
            assert!(request["params"].get("inputResponses").is_none(), "{request}");
            let asked = json!({"resultType": "input_required", "requestState": format!("state-{round}")});
            wire.result(&request, asked).await;
        }
        let request = wire.next_of("tools/call").await;
        wire.result(&request, complete(Value::Null)).await;
    });
    result.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_stops_asking_to_come_back_is_given_up_in_time() {
    let (client, mut wire) = connect_with(options(), async |wire| {
        let probe = wire.next_of("server/discover").await;
        wire.result(&probe, discovered(&json!({"tools": {}}))).await;
    })
    .await;
    let client = client.unwrap();
    let request = rmcp::model::CallToolRequest::new(rmcp::model::CallToolRequestParams::new("t"));
    let options = CallOptions::default().with_timeout(std::time::Duration::from_secs(30));
    let forever = async {
        loop {
            let request = wire.next_of("tools/call").await;
            wire.result(&request, json!({"resultType": "input_required", "requestState": "s"})).await;
        }
    };
    let result = tokio::select! {
        result = client.request(request, &options) => result,
        () = forever => unreachable!(),
    };
    assert!(matches!(result, Err(rmcp::ServiceError::Timeout { .. })), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn the_data_of_its_sessions_is_shown() {
    let options = SessionOptions { create: Create::Never, ..options() };
    let (client, mut wire) = connect_with(options, async |wire| {
        let probe = wire.next_of("server/discover").await;
        wire.result(&probe, discovered(&offering())).await;
    })
    .await;
    let client = client.unwrap();
    let (listed, ()) = tokio::join!(client.sessions().list(), async {
        let request = wire.next_of("dev.tenure/session/list").await;
        let sessions = json!([{"sessionId": "s-1", "data": {"title": "t"}, "state": "sealed"}]);
        wire.result(&request, json!({"resultType": "complete", "sessions": sessions})).await;
    });
    assert_eq!(listed.unwrap()[0].data, Some(json!({"title": "t"})));
}
