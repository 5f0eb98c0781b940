//! Every shape of both dialects, byte for byte, as clients in the field send them and expect them back.

use std::collections::HashSet;
use std::time::Duration;

use expect_test::expect_file;
use tenure_layers::data::{Policy, Required};
use tenure_session::Principal;

use super::world::{World, at};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn strawman() {
    let world = World::new(Policy::default());
    let mut client = world.client(r#"{"experimental":{"session":{"version":2}}}"#).await;
    client.remark("A tool that needs a session, and a client that has none.");
    client
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"session_counter_inc"}}"#)
        .await;
    client.remark("Made with hints, as fast-agent 0.5.3 sends them; and without params.");
    client.send(r#"{"method":"session/create","params":{"hints":{"label":"fast-agent · s","data":{"title":"fast-agent · s"}}},"jsonrpc":"2.0","id":2}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":3,"method":"session/create"}"#).await;
    client.remark("The cookie by its id alone, and echoed whole; the expiry slides.");
    tokio::time::advance(HOUR / 2).await;
    client.send(r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"session_counter_inc","_meta":{"mcp/session":{"id":"sess-$1"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"notebook_append","arguments":{"text":"remember this"},"_meta":{"progressToken":5,"mcp/session":{"id":"sess-$1","expiry":"2023-11-14T23:13:20+00:00","data":{"title":"fast-agent · s"}}}}}"#).await;
    client.remark("With other requests too, whatever they are for.");
    client.send(r#"{"jsonrpc":"2.0","id":6,"method":"resources/read","params":{"uri":"demo://notebook","_meta":{"mcp/session":{"id":"sess-$1"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"summarize_notebook","_meta":{"mcp/session":{"id":"sess-$1"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#).await;
    client.remark("As fast-agent 0.5.3 spells it in all requests but tools/call; and without a cookie.");
    client.send(r#"{"method":"resources/read","params":{"uri":"demo://notebook","meta":{"mcp/session":{"id":"sess-$1","expiry":"2023-11-14T23:13:20Z"}}},"jsonrpc":"2.0","id":80}"#).await;
    client
        .send(r#"{"jsonrpc":"2.0","id":81,"method":"resources/read","params":{"uri":"demo://notebook"}}"#)
        .await;
    client.remark("Resumed by its id; listed by the cookie; a session that never was.");
    client.send(r#"{"jsonrpc":"2.0","id":9,"method":"session/resume","params":{"id":"sess-$1"}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":10,"method":"session/list","params":{"_meta":{"mcp/session":{"id":"sess-$1"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":11,"method":"session/list","params":{}}"#).await;
    client
        .send(r#"{"jsonrpc":"2.0","id":12,"method":"session/resume","params":{"id":"sess-f1792e8e1bda"}}"#)
        .await;
    client.send(r#"{"jsonrpc":"2.0","id":13,"method":"session/resume","params":{}}"#).await;
    client.remark("A cookie that leads nowhere: refused where one is needed, taken back where none is.");
    client.send(r#"{"jsonrpc":"2.0","id":14,"method":"tools/call","params":{"name":"session_counter_get","_meta":{"mcp/session":{"id":"sess-f1792e8e1bda"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":15,"method":"tools/call","params":{"name":"public_echo","arguments":{"text":"open to all"},"_meta":{"mcp/session":{"id":"sess-f1792e8e1bda"}}}}"#).await;
    client.remark("A child that goes its own way.");
    client.send(r#"{"jsonrpc":"2.0","id":16,"method":"session/fork","params":{"id":"sess-$1","hints":{"label":"a branch"}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"session_counter_inc","_meta":{"mcp/session":{"id":"sess-$3"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":18,"method":"tools/call","params":{"name":"session_counter_get","_meta":{"mcp/session":{"id":"sess-$1"}}}}"#).await;
    client.remark("Deleted by its id, and, as fast-agent does it, by the cookie alone.");
    client.send(r#"{"jsonrpc":"2.0","id":19,"method":"session/delete","params":{"id":"sess-$3"}}"#).await;
    client.send(r#"{"method":"session/delete","params":{"_meta":{"mcp/session":{"id":"sess-$2","expiry":"2023-11-14T23:13:20Z"}}},"jsonrpc":"2.0","id":20}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":21,"method":"session/delete","params":{"id":"sess-$2"}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":22,"method":"tools/call","params":{"name":"session_counter_get","_meta":{"mcp/session":{"id":"sess-$2"}}}}"#).await;
    client.remark("Expired, which is enforced; recovered while it is still kept.");
    tokio::time::advance(HOUR * 2).await;
    client.send(r#"{"jsonrpc":"2.0","id":23,"method":"tools/call","params":{"name":"session_counter_get","_meta":{"mcp/session":{"id":"sess-$1"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":24,"method":"session/recover","params":{"id":"sess-$1"}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":25,"method":"session/recover","params":{"id":"sess-$1"}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":26,"method":"tools/call","params":{"name":"session_counter_get","_meta":{"mcp/session":{"id":"sess-$1"}}}}"#).await;
    client.remark("Revoked by the server, in the middle of a call.");
    client.send(r#"{"jsonrpc":"2.0","id":27,"method":"tools/call","params":{"name":"session_probe","arguments":{"action":"revoke"},"_meta":{"mcp/session":{"id":"sess-$1"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":28,"method":"session/recover","params":{"id":"sess-$1"}}"#).await;
    client.remark("Malformed cookies.");
    client.send(r#"{"jsonrpc":"2.0","id":29,"method":"tools/call","params":{"name":"public_echo","arguments":{"text":"x"},"_meta":{"mcp/session":{}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":30,"method":"tools/call","params":{"name":"public_echo","arguments":{"text":"x"},"_meta":{"mcp/session":{"id":"a"},"io.modelcontextprotocol/session":{"sessionId":"b"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":31,"method":"tools/call","params":{"name":"public_echo","arguments":{"text":"x"},"_meta":{"mcp/session":null}}}"#).await;
    expect_file!["snapshots/strawman.txt"].assert_eq(client.transcript());
}

#[tokio::test(start_paused = true)]
async fn draft() {
    let world = World::new(Policy::default());
    let mut client = world.client(r#"{"experimental":{"experimental/sessions":{}}}"#).await;
    client.remark("A tool that needs a session, and a client that has none.");
    client
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"session_counter_inc"}}"#)
        .await;
    client.remark("Made as fast-agent 0.7.15 asks for it: without params, and without a cookie.");
    client.send(r#"{"method":"sessions/create","jsonrpc":"2.0","id":2}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":3,"method":"sessions/create","params":{"_meta":{"io.modelcontextprotocol/session":{"sessionId":"sess-$1"}}}}"#).await;
    client.remark("The cookie comes back only with what changed: the data, or an expiry that was put off.");
    client.send(r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"session_counter_get","_meta":{"io.modelcontextprotocol/session":{"sessionId":"sess-$1"},"progressToken":5}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"session_counter_inc","_meta":{"io.modelcontextprotocol/session":{"sessionId":"sess-$1","state":"whatever"}}}}"#).await;
    tokio::time::advance(HOUR / 2).await;
    client.send(r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"session_counter_get","_meta":{"io.modelcontextprotocol/session":{"sessionId":"sess-$1"}}}}"#).await;
    client.remark("A session that never was: refused where one is needed, taken back where none is.");
    client.send(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"session_counter_get","_meta":{"io.modelcontextprotocol/session":{"sessionId":"sess-1d99647ac338"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"public_echo","arguments":{"text":"x"},"_meta":{"io.modelcontextprotocol/session":{"sessionId":"sess-1d99647ac338"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":80,"method":"resources/read","params":{"uri":"demo://notebook","_meta":{"io.modelcontextprotocol/session":{"sessionId":"sess-1d99647ac338"}}}}"#).await;
    client
        .send(r#"{"jsonrpc":"2.0","id":81,"method":"resources/read","params":{"uri":"demo://notebook"}}"#)
        .await;
    client.remark("Revoked by the server; deleted by the client, by its cookie, once.");
    client.send(r#"{"method":"sessions/create","jsonrpc":"2.0","id":9}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"session_probe","arguments":{"action":"revoke"},"_meta":{"io.modelcontextprotocol/session":{"sessionId":"sess-$2"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":11,"method":"sessions/delete","params":{"_meta":{"io.modelcontextprotocol/session":{"sessionId":"sess-$1"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":12,"method":"sessions/delete","params":{"_meta":{"io.modelcontextprotocol/session":{"sessionId":"sess-$1"}}}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":13,"method":"sessions/delete"}"#).await;
    expect_file!["snapshots/draft.txt"].assert_eq(client.transcript());
}

#[tokio::test(start_paused = true)]
async fn draft_with_every_answer() {
    let world = World::new(Policy { always_echo: true, ..Policy::default() });
    let mut client = world.client("{}").await;
    client.send(r#"{"method":"sessions/create","jsonrpc":"2.0","id":1}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"public_echo","arguments":{"text":"x"},"_meta":{"io.modelcontextprotocol/session":{"sessionId":"sess-$1"}}}}"#).await;
    expect_file!["snapshots/draft_always.txt"].assert_eq(client.transcript());
}

#[tokio::test(start_paused = true)]
async fn required_for_every_tool() {
    let world = World::new(Policy { required: Required::All, ..Policy::default() });
    let mut client = world.client("{}").await;
    client.remark("A client that shows no sign of knowing data sessions.");
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"public_echo","arguments":{"text":"x"}}}"#).await;
    client
        .send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"session_counter_get"}}"#)
        .await;
    client.remark("What is listed is open to all.");
    client.send(r#"{"jsonrpc":"2.0","id":3,"method":"prompts/list"}"#).await;
    client.remark("With a session everything is.");
    client.send(r#"{"jsonrpc":"2.0","id":4,"method":"session/create"}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"public_echo","arguments":{"text":"x"},"_meta":{"mcp/session":{"id":"sess-$1"}}}}"#).await;
    expect_file!["snapshots/required.txt"].assert_eq(client.transcript());
}

#[tokio::test(start_paused = true)]
async fn tools_say_whether_they_need_a_session() {
    let world = World::new(Policy::default());
    let mut client = world.client("{}").await;
    let answer = client.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap();
    let needs = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        tool["_meta"]["sessionRequired"].as_bool()
    };
    assert_eq!((needs("session_counter_inc"), needs("public_echo")), (Some(true), None));
    assert_eq!(needs("create_workspace"), None, "it is how one begins");
}

#[tokio::test(start_paused = true)]
async fn codes_can_be_chosen() {
    let policy = Policy { strawman_code: -32043, draft_required_code: -32002, ..Policy::default() };
    let world = World::new(policy);
    let code = async |capabilities: &str, request: &str| {
        at(&world.client(capabilities).await.send_raw(request).await, "/error/code")
    };
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"session_counter_inc"}}"#;
    assert_eq!(code(r#"{"experimental":{"session":{}}}"#, call).await, -32043);
    assert_eq!(code(r#"{"experimental":{"experimental/sessions":{}}}"#, call).await, -32002);
    let resume = r#"{"jsonrpc":"2.0","id":1,"method":"session/resume","params":{"id":"sess-1"}}"#;
    assert_eq!(code("{}", resume).await, -32043);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_in_pages() {
    let world = World::new(Policy::default());
    let ann = world.client_of("{}", Principal::named("ann")).await;
    let bob = world.client_of("{}", Principal::named("bob")).await;
    for client in [&ann, &bob] {
        for _ in 0..250 {
            client.send_raw(r#"{"jsonrpc":"2.0","id":1,"method":"session/create"}"#).await;
        }
    }
    let (mut seen, mut pages, mut cursor) = (HashSet::new(), 0, String::new());
    loop {
        let list = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"session/list","params":{{{cursor}}}}}"#);
        let answer = ann.send_raw(&list).await;
        for session in at(&answer, "/result/sessions").as_array().unwrap() {
            assert!(seen.insert(session["id"].as_str().unwrap().to_owned()), "listed twice");
        }
        pages += 1;
        match at(&answer, "/result/nextCursor").as_str() {
            Some(next) => cursor = format!(r#""cursor":"{next}""#),
            None => break,
        }
    }
    assert_eq!((seen.len(), pages), (250, 3));
    let bad = r#"{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"cursor":"zz"}}"#;
    assert_eq!(at(&ann.send_raw(bad).await, "/error/code"), -32602);
}
