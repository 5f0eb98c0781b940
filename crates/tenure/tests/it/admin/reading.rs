//! What operators see: what is wrong first, in words; sessions by filters; and no message without the right (AD6).

use serde_json::{Value, json};
use tenure_protocol::{Method, RawJson};

use super::world::{AsValue, World, refusal};
use crate::operator::place::{digits, label};
use crate::support::client::Ask;
use crate::support::node::announce;
use crate::support::session::{Session, initialize_params, request};

/// A session whose client calls itself so.
async fn session_of(world: &World, client: &str) -> Session {
    let mut params = initialize_params("2025-11-25");
    params["clientInfo"]["name"] = client.into();
    let response =
        Ask::post(request(0, "initialize", &params).to_string()).send(world.steered.address()).await;
    Session::of(world.steered.address(), "/mcp", &response).initialized().await
}

fn names(rows: &Value) -> Vec<&str> {
    rows["rows"].as_array().unwrap().iter().map(|row| row["client_name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn sessions_are_found_by_what_is_known_of_them() {
    let mut world = World::new().await;
    for client in ["one", "two", "three"] {
        session_of(&world, client).await;
    }
    let calling = session_of(&world, "calling").await;
    let (_call, _events) = world.steered.streaming_call(&calling, 7).await;
    let of = async |query: &str| {
        let mut rows = world.read(&format!("sessions?{query}")).await;
        let found: Vec<String> = names(&rows).into_iter().map(str::to_owned).collect();
        let mut sorted = found;
        sorted.sort();
        assert!(rows["rows"].as_array_mut().unwrap().iter().all(|row| row["problems"].is_array()));
        sorted
    };
    assert_eq!(of("").await, ["calling", "one", "three", "two"]);
    assert_eq!(of("client=two").await, ["two"]);
    assert_eq!(of("state=awake&client=two").await, ["two"]);
    assert_eq!(of("principal=anonymous&client=one").await, ["one"]);
    assert_eq!(of("principal=key:ci").await, [""; 0]);
    assert_eq!(of("revision=2025-11-25&state=awake").await.len(), 4);
    assert_eq!(of("revision=2024-11-05").await, [""; 0]);
    assert_eq!(of("state=dormant").await, [""; 0]);
    assert_eq!(of("older_than_s=0").await, ["calling"]);
    assert_eq!(of("older_than_s=3600").await, [""; 0]);
    assert_eq!(of("waiting=client").await, [""; 0]);
    assert_eq!(of(&format!("prefix={}", label(&calling))).await, ["calling"]);
    assert_eq!(of(&format!("prefix={}&state=awake", &digits(&calling)[..6])).await, ["calling"]);

    // Pages come in the order of keys, from the store and from memory.
    for state in ["", "state=awake&"] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        for _ in 0..4 {
            let page = world.read(&format!("sessions?{state}limit=1{after}")).await;
            let row = &page["rows"][0];
            seen.push(row["key"].as_str().unwrap().to_owned());
            after = format!("&after={}", row["key"].as_str().unwrap());
        }
        assert!(seen.is_sorted() && seen.len() == 4, "{state} {seen:?}");
        let rest = world.read(&format!("sessions?{state}limit=1{after}")).await;
        assert_eq!((&rest["rows"], rest["next"].as_str()), (&json!([]), None), "{state}");
    }
}

#[tokio::test]
async fn what_waits_for_a_client_is_seen_at_once_in_the_words_of_the_command() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let (call, _events) = world.steered.streaming_call(&session, 7).await;
    let context = std::sync::Arc::clone(&call.context);
    let asked = tokio::spawn(async move {
        let params = RawJson::of(&json!({ "message": "may I?", "requestedSchema": {} }));
        context.ask(&Method::ElicitationCreate, Some(&params)).await
    });
    let key = digits(&session);
    let waiting = loop {
        let found = world.read("sessions?waiting=client").await;
        if found["rows"].as_array().unwrap().len() == 1 {
            break found;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (&waiting["rows"][0]["key"], &waiting["rows"][0]["waiting_for_client"]),
        (&json!(key), &json!(1))
    );
    let overview = world.read("overview").await;
    assert_eq!(overview["sessions"]["waiting_for_client"], 1);
    assert_eq!(overview["calls"]["waiting_for_client"], 1);
    assert_eq!(overview["node"]["state"], "serving");
    let detail = world.read(&format!("sessions/{key}")).await;
    assert_eq!(detail["in_flight"][0]["asking"], 1);
    assert_eq!(detail["capabilities"]["elicitation"], json!({}));
    assert!(detail.get("signs").is_none() && detail["problems"].is_array(), "{detail}");
    let calls = world.read("calls?tool=any").await;
    assert_eq!((&calls["rows"][0]["session"], &calls["rows"][0]["id"]), (&json!(key), &json!(7)));
    assert_eq!(calls["rows"][0]["waits_for"], "client");
    call.answer(&json!({ "content": [] }));
    drop(asked);
}

#[tokio::test]
async fn a_node_tells_how_it_does_and_what_it_is() {
    let world = World::new().await;
    let overview = world.read("overview").await;
    assert_eq!(overview["problems"], json!([]), "{overview}");
    assert_eq!((&overview["node"]["ready"], &overview["node"]["why"]), (&json!(true), &json!([])));
    assert_eq!(overview["store"]["kind"], "disk");
    assert!(overview["process"]["rss_bytes"].as_u64().unwrap() > 1 << 20);
    let config = world.read("config").await;
    let row = |key: &str| config["rows"].as_array().unwrap().iter().find(|row| row["key"] == key).cloned();
    assert_eq!(row("admin.listen").unwrap()["source"], "flag --admin");
    assert_eq!(row("session.idle_ttl").unwrap()["source"], "default");
    for path in ["loops", "usage", "limits", "principals", "tasks", "data", "nodes", "backends", "logins"] {
        assert!(world.read(path).await["rows"].is_array(), "{path}");
    }
    let bundle = world.read("debug/bundle").await;
    assert!(bundle["overview"].is_object() && bundle["config"].is_array(), "{bundle}");
}

/// Every path that the document has for GET, with what is variable filled in.
async fn readable(world: &World, key: &str) -> Vec<String> {
    let document = world.read("openapi.json").await;
    let paths = document["paths"].as_object().unwrap();
    let get = paths.iter().filter(|(_, methods)| methods.get("get").is_some());
    get.flat_map(|(path, methods)| {
        let path = path.replace("{key}", key).replace("{name}", "server");
        let parameters = methods["get"]["parameters"].as_array().cloned().unwrap_or_default();
        let flags = parameters
            .iter()
            .filter(|parameter| parameter["schema"]["type"] == "boolean")
            .map(|parameter| format!("{path}?{}=true", parameter["name"].as_str().unwrap()))
            .collect::<Vec<_>>();
        [path].into_iter().chain(flags)
    })
    .filter(|path| !path.contains("/live"))
    .collect()
}

#[tokio::test]
async fn ad6_a_viewer_gets_no_message_and_no_argument_by_any_path() {
    const SECRET: &str = "the-launch-code-is-0000";
    let mut world = World::new().await;
    let (session, link) = world.steered.session().await;
    // In an argument, in an event that is kept, and in a question.
    let call = session.request(7, "tools/call", &json!({ "name": "any", "arguments": { "code": SECRET } }));
    let connection = call.begin(world.steered.address()).await;
    let running = world.steered.script.call().await;
    let params = RawJson::of(&json!({ "level": "info", "data": SECRET }));
    running.context.notify(&Method::LogMessage, Some(&params)).await.unwrap();
    let _events = connection.events().await;
    announce(&link, SECRET).await;
    let key = digits(&session);
    let events = loop {
        // Stored a moment later.
        let events = world.read(&format!("sessions/{key}/events?bodies=true")).await;
        if !events["rows"].as_array().unwrap().is_empty() {
            break events;
        }
        tokio::task::yield_now().await;
    };
    assert!(events.to_string().contains(SECRET), "it is there for those who may: {events}");

    let viewer = world.browser("viewer").await;
    let paths = readable(&world, &key).await;
    assert!(paths.len() > 15, "{paths:?}");
    for path in &paths {
        let response = viewer.get("").at(path).send(world.admin).await;
        assert!(!response.text().contains(SECRET), "{path}");
        if path.contains("=true") || path.ends_with("/logins") || path.ends_with("/bundle") {
            assert_eq!(refusal(&response), (403, "forbidden".into()), "{path}");
        }
    }
    let payloads = world.browser("payloads").await;
    let shown = payloads.read(&format!("sessions/{key}/events?bodies=true")).await;
    assert!(shown.to_string().contains(SECRET));
    // A look at messages is recorded.
    let looks = world.recorded().await;
    let looks = looks.iter().filter(|record| record["method"] == "sessions.events.contents");
    assert!(looks.clone().any(|record| record["outcome"] == "error"), "the viewer's");
    assert!(
        looks.clone().any(|record| record["outcome"] == "ok" && record["name"] == label(&session).as_str())
    );
}

#[tokio::test]
async fn events_are_listed_without_their_messages_page_by_page() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let (call, mut events) = world.steered.streaming_call(&session, 7).await;
    call.answer(&json!({ "content": [] }));
    while events.event().await.is_some() {}
    let key = digits(&session);
    let page = world.read(&format!("sessions/{key}/events?stream=1&limit=1")).await;
    assert_eq!(
        (&page["rows"][0]["method"], &page["rows"][0].get("body")),
        (&json!("notifications/message"), &None)
    );
    let next = page["next"].as_u64().unwrap();
    let page = world.read(&format!("sessions/{key}/events?stream=1&after={next}")).await;
    assert_eq!((&page["rows"][0]["method"], &page["rows"][0]["id"]), (&json!("response"), &json!(7)));
    assert_eq!(page.get("next"), None);
}

#[tokio::test]
async fn hostile_names_come_back_as_they_are_in_json_and_nowhere_else() {
    const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}\n\"'`${x}";
    let world = World::new().await;
    session_of(&world, HOSTILE).await;
    let browser = world.browser("viewer").await;
    let query = "client=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%E2%80%AE%0A%22'%60%24%7Bx%7D";
    let found = browser.get(&format!("sessions?{query}")).send(world.admin).await;
    assert_eq!(found.header("content-type"), Some("application/json"));
    assert_eq!(found.value()["rows"][0]["client_name"], HOSTILE);
    let mut live = browser.live().await;
    let overview = live.event().await.unwrap();
    let data: Value = serde_json::from_str(&overview.data.unwrap()).unwrap();
    assert_eq!(data["sessions"]["awake"], 1);
}

#[tokio::test]
async fn the_audit_log_is_shown_newest_first_with_its_chain() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let path = format!("sessions/{}/revoke", digits(&session));
    world.change(&path, &json!({ "reason": "a good one" })).await;
    let log = loop {
        // Written by a thread of its own.
        let log = world.read("audit?event=admin_action&limit=5").await;
        if !log["rows"].as_array().unwrap().is_empty() {
            break log;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(log["rows"][0]["reason"], "a good one");
    assert_eq!(log["chain"]["ok"], true);
    let all = world.read("audit?limit=500").await;
    let numbers: Vec<_> =
        all["rows"].as_array().unwrap().iter().map(|row| row["seq"].as_u64().unwrap()).collect();
    assert!(numbers.iter().rev().is_sorted() && numbers.len() > 1, "{numbers:?}");
    assert_eq!(world.read("audit?principal=key:nobody").await["rows"], json!([]));
}

#[tokio::test]
async fn what_happens_is_told_on_the_stream() {
    let mut world = World::new().await;
    let browser = world.browser("viewer").await;
    let mut live = browser.get("live?calls=true").open(world.admin).await;
    assert_eq!(live.event().await.unwrap().event.as_deref(), Some("overview"));
    let (session, _link) = world.steered.session().await;
    let (mut calls, mut sessions) = (Vec::new(), Vec::new());
    while sessions.is_empty() || calls.is_empty() {
        let event = live.event().await.unwrap();
        let data: Value = serde_json::from_str(&event.data.unwrap()).unwrap();
        match event.event.as_deref() {
            Some("call") => calls.push(data),
            Some("session") => sessions.push(data),
            Some("overview") => assert!(data["rates"].is_object(), "{data}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(calls[0]["method"], "initialize");
    assert_eq!((&sessions[0]["what"], &sessions[0]["key"]), (&json!("created"), &json!(digits(&session))));
}

#[tokio::test]
async fn a_look_at_what_a_viewer_does_not_see_is_recorded_once_for_a_page_that_stays_open() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let (viewer, payloads) = (world.browser("viewer").await, world.browser("payloads").await);
    let path = format!("sessions/{}", digits(&session));
    assert!(viewer.read(&path).await.get("record").is_none());
    for _ in 0..3 {
        assert!(payloads.read(&path).await["record"].is_object());
    }
    let another = world.browser("payloads").await;
    another.read(&path).await;
    let looks = world.recorded().await;
    let looks: Vec<_> = looks.iter().filter(|record| record["method"] == "sessions.contents").collect();
    assert_eq!(looks.len(), 2, "one of each login: {looks:?}");
    for look in looks {
        assert_eq!((&look["outcome"], &look["name"]), (&json!("ok"), &json!(label(&session))));
    }
}
