//! Tests of programs that pass the transport to rmcp themselves: the layer reads the answers to their greetings.

use rmcp::{
    ServiceExt as _,
    model::{CallToolRequestParams, ProtocolVersion},
    service::{ClientLifecycleMode, ClientServiceExt as _},
};
use serde_json::{Value, json};
use tenure_client::{Dialect, SessionTransport};

use crate::layer::support::{SEP, Wire, cookie, discovered, done, options, sep, server};

#[tokio::test(start_paused = true)]
async fn a_handshake_of_rmcp_introduces_the_server() {
    let (near, far) = tokio::io::duplex(256 * 1024);
    let (read, write) = tokio::io::split(near);
    let (transport, sessions) = SessionTransport::over_lines(read, write, server(), options());
    let mut wire = Wire::new(far);
    let (client, ()) = tokio::join!(().serve(transport), wire.initialize(sep()));
    let client = client.unwrap();
    wire.create(json!({"sessionId": "s-1"})).await;
    let (result, request) =
        tokio::join!(client.call_tool(CallToolRequestParams::new("t")), wire.tool(Value::Null));
    result.unwrap();
    assert_eq!(cookie(&request, SEP), &json!({"sessionId": "s-1"}));
    assert_eq!(sessions.dialect(), Some(Dialect::Draft));
}

#[tokio::test(start_paused = true)]
async fn a_discovery_of_rmcp_introduces_the_server() {
    let (near, far) = tokio::io::duplex(256 * 1024);
    let (read, write) = tokio::io::split(near);
    let (transport, sessions) = SessionTransport::over_lines(read, write, server(), options());
    let mut wire = Wire::new(far);
    let mode = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let (client, ()) = tokio::join!(().serve_with_lifecycle(transport, mode), async {
        let probe = wire.next_of("server/discover").await;
        wire.result(&probe, discovered(&json!({"extensions": {"dev.tenure/sessions": {}}}))).await;
    });
    let client = client.unwrap();
    let (result, ()) = tokio::join!(client.call_tool(CallToolRequestParams::new("t")), async {
        let request = wire.next_of("dev.tenure/session/create").await;
        wire.result(&request, json!({"resultType": "complete", "sessionId": "s-1"})).await;
        let request = wire.next_of("tools/call").await;
        assert_eq!(cookie(&request, "dev.tenure/session"), &json!({"sessionId": "s-1"}));
        wire.result(&request, done(Value::Null)).await;
    });
    result.unwrap();
    assert_eq!(sessions.dialect(), Some(Dialect::Extension));
}
