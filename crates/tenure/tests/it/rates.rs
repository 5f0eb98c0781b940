//! Limits of clients, over real sockets: what is limited, what is not, and how a client is told.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tenure_testkit::fake_backend::BackendEvent;

use crate::auth::world::{Bearing, World, now};
use crate::support::client::{Ask, Connection, Response, connect_from};
use crate::support::modern;
use crate::support::node::{Steered, demo_with};
use crate::support::session::{Session, initialize, notification, request};

/// What a refusal says: whose limit it was, and when to come back.
fn told(response: &Response) -> (u16, String, String, u64) {
    let error = &response.json()["error"];
    assert_eq!(error["code"], -31029, "{response:?}");
    let text = |name: &str| error["data"][name].as_str().unwrap_or_default().to_owned();
    let wait = error["data"]["retryAfterMs"].as_u64().unwrap();
    let header: u64 = response.header("retry-after").expect("a header").parse().unwrap();
    assert_eq!(header, wait.div_ceil(1000), "header and body say the same");
    (response.status(), text("reason"), text("per"), wait)
}

async fn list(session: &Session, id: u64) -> Response {
    session.request(id, "tools/list", &json!({})).send(session.server).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rl2_a_burst_passes_and_what_comes_beyond_it_is_late_or_told_when_to_come_back() {
    let node = demo_with(&[("limits.session", "10/s burst 50")]).await;
    let session = Session::start(node.address()).await;
    let began = Instant::now();
    let first = join_all((0..50).map(|id| list(&session, id))).await;
    let began_by = Instant::now();
    assert!(first.iter().all(|answer| answer.json()["result"].is_object()), "the burst");
    let more = join_all((50..70).map(|id| {
        let session = session.clone();
        async move {
            let sent = Instant::now();
            let answer = list(&session, id).await;
            (sent, answer, Instant::now())
        }
    }))
    .await;
    let (mut late, mut refused) = (0, 0);
    for (sent, answer, answered) in &more {
        assert_eq!(answer.status(), 200);
        if answer.json()["result"].is_object() {
            late += 1;
            continue;
        }
        refused += 1;
        let (_, reason, per, wait) = told(answer);
        assert_eq!((reason.as_str(), per.as_str()), ("rate_limited", "session"));
        let wait = Duration::from_millis(wait);
        // Every room that may be waited for is taken, so there is room again one second and one interval from now; less what
        // the burst has got back since it began.
        let latest = *answered + wait;
        let slack = wait / 10;
        assert!(latest + slack >= began + Duration::from_millis(1100), "not too early: {wait:?}");
        assert!(
            wait <= Duration::from_millis(1100) + slack,
            "not too late: {wait:?}, {:?}",
            *sent - began_by
        );
    }
    assert!(late >= 10 && refused > 0 && late + refused == 20, "{late} late, {refused} refused");
    // A client that comes back when it was told to is served at once.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let asked = Instant::now();
    assert!(list(&session, 100).await.json()["result"].is_object());
    assert!(asked.elapsed() < Duration::from_millis(900), "it does not wait: {:?}", asked.elapsed());
}

#[tokio::test]
async fn a_refused_request_is_answered_in_band_and_the_session_goes_on() {
    let node = demo_with(&[("limits.session", "1/min burst 2"), ("limits.max_wait", "0s")]).await;
    let (session, other) = (Session::start(node.address()).await, Session::start(node.address()).await);
    for id in 1..3 {
        assert!(list(&session, id).await.json()["result"].is_object());
    }
    let refused = list(&session, 3).await;
    let (status, reason, per, wait) = told(&refused);
    assert_eq!((status, reason.as_str(), per.as_str()), (200, "rate_limited", "session"));
    assert!((50_000..=60_000).contains(&wait), "{wait}");
    assert_eq!(
        (&refused.json()["id"], &refused.json()["error"]["data"]["limit"]),
        (&json!(3), &json!("1/min burst 2"))
    );
    assert_eq!(refused.header("mcp-session-id"), Some(session.id.as_str()));
    // These are never limited.
    let ping = session.request(4, "ping", &json!({})).send(session.server).await;
    assert_eq!(ping.json()["result"], json!({}));
    session.listen().await;
    let answer = json!({ "jsonrpc": "2.0", "id": "q-1", "result": {} });
    assert!(session.post(&answer).send(session.server).await.status() < 300);
    assert!(list(&other, 1).await.json()["result"].is_object(), "each session has its own");
    assert_eq!(session.delete().send(session.server).await.status(), 204);
}

#[tokio::test]
async fn every_door_and_both_eras_come_through_the_same_limit() {
    let doors = [("doors.rpc", "true"), ("doors.post_sse", "true")];
    let limits = [("limits.principal", "1/min burst 1"), ("limits.max_wait", "0s")];
    let node = demo_with(&[doors, limits].concat()).await;
    let session = Session::start(node.address()).await;
    assert!(list(&session, 1).await.json()["result"].is_object(), "the one of a minute");
    assert_eq!(told(&list(&session, 2).await).2, "principal");
    let modern = modern::ask(3, "tools/list", &json!({})).send(node.address()).await;
    assert_eq!((told(&modern).0, told(&modern).2.as_str()), (200, "principal"));
    let body = request(4, "tools/list", &json!({})).to_string();
    let rpc = Ask::post_to("/rpc", &body).without("Accept").header("Mcp-Session-Id", &session.id);
    let rpc = rpc.send(node.address()).await;
    assert_eq!((told(&rpc).0, told(&rpc).2.as_str()), (200, "principal"));
    let done = Ask::post_to("/sse", &body).without("Accept").header("Mcp-Session-Id", &session.id);
    let done = done.send(node.address()).await.text();
    assert!(done.contains("rate_limited") && done.contains("done"), "{done}");
    // Who asks what there is has not begun yet.
    let discover = modern::ask(5, "server/discover", &json!({})).send(node.address()).await;
    assert!(discover.json()["result"].is_object());
}

#[tokio::test]
async fn a_tool_that_is_called_too_often_answers_the_model_if_that_is_configured() {
    let tools = ("limits.tools", "public_echo = 1/min");
    let node = demo_with(&[tools, ("limits.max_wait", "0s"), ("limits.answer", "tool_result")]).await;
    let session = Session::start(node.address()).await;
    let echo = json!({ "text": "hello" });
    assert!(session.tool(1, "public_echo", &echo).await.json()["result"]["isError"] != json!(true));
    let refused = session.tool(2, "public_echo", &echo).await;
    assert_eq!((refused.status(), &refused.json()["result"]["isError"]), (200, &json!(true)));
    let text = refused.json()["result"]["content"][0]["text"].clone();
    assert!(text.as_str().unwrap().starts_with("Rate limit reached (1/min per tool): retry in"), "{text}");
    assert!(session.tool(3, "create_workspace", &json!({})).await.json()["result"]["isError"] != json!(true));
    let params = json!({ "name": "public_echo", "arguments": echo });
    let modern = modern::ask(4, "tools/call", &params).send(node.address()).await;
    assert_eq!(modern.json()["result"]["isError"], true, "{modern:?}");
}

#[tokio::test]
async fn principals_that_are_named_have_limits_of_their_own() {
    let world = World::with_settings(
        "",
        &[
            ("limits.principal", "1/h"),
            ("limits.principals", "corp:ann = 3/h,key:* = 2/h"),
            ("limits.principals_per_day", "corp:ann = 1"),
            ("limits.max_wait", "0s"),
        ],
    )
    .await;
    let key = world.key("ci-1", "");
    world.node_reads_keys().await;
    let modern = |id| modern::ask(id, "tools/list", &json!({}));
    for (credentials, most) in [(world.token("ann"), 3), (world.token("bob"), 1), (key, 2)] {
        for id in 0..most {
            let listed = world.send(modern(id).bearer(&credentials)).await;
            assert!(listed.json()["result"].is_object(), "{listed:?}");
        }
        let refused = world.send(modern(9).bearer(&credentials)).await.json();
        assert_eq!(refused["error"]["data"]["limit"], format!("{most}/h"), "{refused}");
    }
    let world = World::with_settings("", &[("limits.principals_per_day", "corp:ann = 1")]).await;
    let params = json!({ "name": "public_echo", "arguments": { "text": "x" } });
    let call = |id| modern::ask(id, "tools/call", &params);
    let (ann, bob) = (world.token("ann"), world.token("bob"));
    for id in 0..3 {
        assert!(world.send(call(id).bearer(&bob)).await.json()["result"].is_object());
    }
    assert!(world.send(call(4).bearer(&ann)).await.json()["result"].is_object());
    let refused = world.send(call(5).bearer(&ann)).await.json();
    assert_eq!(refused["error"]["data"]["reason"], "quota_exceeded", "{refused}");
}

#[tokio::test]
async fn calls_beyond_the_quota_of_the_day_are_refused_and_everything_else_goes_on() {
    let node = demo_with(&[("limits.calls_per_day", "2")]).await;
    let session = Session::start(node.address()).await;
    let echo = json!({ "text": "hello" });
    for id in 1..3 {
        assert!(session.tool(id, "public_echo", &echo).await.json()["result"].is_object());
    }
    let refused = session.tool(3, "public_echo", &echo).await;
    let (status, reason, per, wait) = told(&refused);
    assert_eq!((status, reason.as_str(), per.as_str()), (200, "quota_exceeded", "principal"));
    let reset = refused.json()["error"]["data"]["reset"].as_u64().unwrap();
    assert_eq!(reset % 86_400, 0, "midnight");
    assert!((reset * 1000).abs_diff(now().0 * 1000 + wait) < 5000);
    assert!(list(&session, 4).await.json()["result"].is_object());
}

#[tokio::test]
async fn an_address_that_begins_too_many_sessions_gets_429_and_what_it_has_goes_on() {
    let node = demo_with(&[("limits.initialize", "2/min")]).await;
    let sessions = [Session::start(node.address()).await, Session::start(node.address()).await];
    let refused = initialize("2025-11-25").send(node.address()).await;
    let (status, reason, per, _) = told(&refused);
    assert_eq!((status, reason.as_str(), per.as_str()), (429, "rate_limited", "address"));
    assert_eq!(refused.json()["id"], 0);
    for session in &sessions {
        assert!(list(session, 1).await.json()["result"].is_object());
    }
    let modern = modern::ask(3, "tools/list", &json!({})).send(node.address()).await;
    assert!(modern.json()["result"].is_object());
    // Another address is another client.
    let mut connection = Connection::over(connect_from([127, 0, 0, 9], node.address(), 1 << 16).await);
    connection.write(&initialize("2025-11-25").bytes()).await;
    assert_eq!(connection.response().await.status(), 200);
}

#[tokio::test]
async fn rl5_a_flood_from_one_address_behind_a_proxy_is_refused_and_others_are_served_meanwhile() {
    // The limit of addresses that holds where none is written.
    let node = demo_with(&[("http.trusted_proxies", "127.0.0.1")]).await;
    let from = |address: &str| initialize("2025-11-25").header("X-Forwarded-For", address);
    let begun = from("203.0.113.10").send(node.address()).await;
    let session = Session::of(node.address(), "/mcp", &begun).initialized().await;
    let flood = join_all((0..200).map(|_| from("203.0.113.9").send(node.address())));
    let others = async {
        for id in 1..20 {
            let call =
                session.request(id, "tools/list", &json!({})).header("X-Forwarded-For", "203.0.113.10");
            assert!(call.send(node.address()).await.json()["result"].is_object());
        }
        assert_eq!(from("203.0.113.11").send(node.address()).await.status(), 200);
    };
    let (answers, ()) = tokio::join!(flood, others);
    let served = answers.iter().filter(|answer| answer.status() == 200).count();
    assert!((30..=32).contains(&served), "{served}");
    for refused in answers.iter().filter(|answer| answer.status() != 200) {
        let (status, reason, per, _) = told(refused);
        assert_eq!((status, reason.as_str(), per.as_str()), (429, "rate_limited", "address"));
    }
}

#[tokio::test]
async fn clients_on_this_machine_begin_as_many_sessions_as_they_like() {
    let node = demo_with(&[]).await;
    let answers = join_all((0..100).map(|_| initialize("2025-11-25").send(node.address()))).await;
    assert!(answers.iter().all(|answer| answer.status() == 200));
}

#[tokio::test]
async fn an_address_that_guesses_credentials_gets_429_and_good_ones_are_served_all_the_same() {
    let world = World::with_settings("", &[("limits.failed_credentials", "3/min")]).await;
    // Neither of these is a guess: clients begin without credentials, and tokens expire.
    let expired = world.token_with("ann", &json!({ "exp": now().0 - 100 }));
    for _ in 0..5 {
        assert_eq!(world.send(initialize("2025-11-25")).await.status(), 401);
        assert_eq!(world.send(initialize("2025-11-25").bearer(&expired)).await.status(), 401);
    }
    let guess = |number: u32| world.send(initialize("2025-11-25").bearer(&format!("guess-{number}")));
    for number in 0..3 {
        assert_eq!(guess(number).await.status(), 401);
    }
    let (status, reason, per, _) = told(&guess(3).await);
    assert_eq!((status, reason.as_str(), per.as_str()), (429, "rate_limited", "address"));
    let good = world.token("ann");
    assert_eq!(world.send(initialize("2025-11-25").bearer(&good)).await.status(), 200);
}

#[tokio::test]
async fn notifications_are_dropped_beyond_ten_times_the_rate_and_cancellations_never() {
    let mut steered = Steered::with(&[("limits.session", "1/min burst 1"), ("limits.max_wait", "0s")]).await;
    let (session, _link) = steered.session().await;
    for _ in 0..30 {
        let said = session.post(&notification("notifications/roots/list_changed")).send(session.server).await;
        assert_eq!(said.status(), 202);
    }
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    assert_eq!(session.post(&cancel).send(session.server).await.status(), 202);
    assert_eq!(stream.rest().await, ["hello"], "it was cancelled");
    drop(call);
}

#[tokio::test]
async fn a_server_hears_no_more_notifications_than_it_may() {
    let mut steered = Steered::with(&[("limits.session", "1/min burst 1")]).await;
    let (session, _link) = steered.session().await;
    for _ in 0..30 {
        session.post(&notification("notifications/roots/list_changed")).send(session.server).await;
    }
    let mut connection = session.request(1, "tools/list", &json!({})).begin(session.server).await;
    let mut heard = 0;
    let call = loop {
        match steered.script.next().await {
            BackendEvent::Heard(heard_one)
                if heard_one.method.as_str() == "notifications/roots/list_changed" =>
            {
                heard += 1
            }
            BackendEvent::Call(call) => break call,
            _ => {}
        }
    };
    assert_eq!(heard, 10);
    call.answer(&json!({ "tools": [] }));
    assert!(connection.response().await.json()["result"].is_object());
}

#[tokio::test]
async fn a_single_backend_gets_no_more_at_once_than_it_may() {
    let mut steered = Steered::with(&[("limits.backends", "* = 1"), ("limits.max_wait", "1m")]).await;
    let (session, _link) = steered.session().await;
    let mut first = session.request(1, "tools/list", &json!({})).begin(session.server).await;
    let call = steered.script.call().await;
    let mut second = session.request(2, "tools/list", &json!({})).begin(session.server).await;
    // A ping that comes later is answered meanwhile; the second request waits in front of the server.
    let ping = session.request(3, "ping", &json!({})).send(session.server).await;
    assert_eq!(ping.json()["result"], json!({}));
    call.answer(&json!({ "tools": [] }));
    assert!(first.response().await.json()["result"].is_object());
    let call = steered.script.call().await;
    call.answer(&json!({ "tools": [] }));
    let answer: Value = second.response().await.json();
    assert!(answer["result"].is_object());
}
