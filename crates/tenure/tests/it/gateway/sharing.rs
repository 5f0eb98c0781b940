//! One child for all sessions: they never see each other's messages, and it has to do only once what they all want.

use serde_json::{Value, json};

use crate::gateway::family::signal;
use crate::gateway::running::{Gateway, heard};
use crate::support::events::Events;
use crate::support::session::{Session, initialize, notification};
use crate::support::wait::{until, within};

async fn shared(settings: &[&str]) -> Gateway {
    Gateway::start(&[&["child.share=true", "child.warm=0"], settings].concat()).await
}

async fn ask(session: &Session, id: u64, method: &str, params: &Value) -> Value {
    session.request(id, method, params).send(session.server).await.json()
}

async fn end(session: &Session) {
    assert_eq!(session.delete().send(session.server).await.status(), 204);
}

/// A call that has begun, and goes on when the gate is there.
async fn begin(session: &Session, id: u64, tool: &str, token: &Value, gate: &std::path::Path) -> Events {
    let arguments = json!({ "steps": 3, "gate": gate });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": token } });
    let mut stream = session.request(id, "tools/call", &params).open(session.server).await;
    let (_, first) = stream.message().await.unwrap();
    assert_eq!((&first["params"]["progress"], &first["params"]["progressToken"]), (&json!(1), token));
    stream
}

/// What the child has heard about something, waiting until there is as much of it.
async fn heard_of(session: &Session, what: &str, count: usize) -> Vec<String> {
    let mut id = 10_000;
    let look = async {
        loop {
            id += 1;
            let (_, all) = heard(session, id).await;
            let found: Vec<_> = all.into_iter().filter(|line| line.starts_with(what)).collect();
            if found.len() >= count {
                return found;
            }
        }
    };
    within(what, look).await
}

#[tokio::test]
async fn all_sessions_have_one_child_and_it_leaves_with_the_last() {
    let gateway = shared(&[]).await;
    let sessions = [gateway.session().await, gateway.session().await, gateway.session().await];
    let mut pids = Vec::new();
    for session in &sessions {
        pids.push(heard(session, 1).await.0);
    }
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    assert_eq!(gateway.children().len(), 1);
    // One handshake, and it is ours.
    let (_, all) = heard(&sessions[0], 2).await;
    assert_eq!(all.len(), 2, "{all:?}");
    let params: Value = serde_json::from_str(all[0].strip_prefix("initialize ").unwrap()).unwrap();
    assert_eq!(params["clientInfo"]["name"], "tenure");
    assert_eq!((&params["capabilities"], &params["protocolVersion"]), (&json!({}), &json!("2025-11-25")));
    assert_eq!(all[1], "notifications/initialized");
    end(&sessions[0]).await;
    end(&sessions[1]).await;
    assert_eq!(heard(&sessions[2], 3).await.0, pids[0], "it stays while a session is left");
    end(&sessions[2]).await;
    gateway.until_children(0).await;
    // The next one starts another.
    assert_ne!(heard(&gateway.session().await, 1).await.0, pids[0]);
    gateway.until_children(1).await;
}

#[tokio::test]
async fn sessions_that_begin_together_start_one_child() {
    let gateway = shared(&[]).await;
    let many: Vec<_> = (0..20).map(|_| tokio::spawn(Session::start(gateway.address))).collect();
    let mut pids = std::collections::HashSet::new();
    for session in many {
        pids.insert(heard(&session.await.unwrap(), 1).await.0);
    }
    assert_eq!((pids.len(), gateway.children().len()), (1, 1));
}

#[tokio::test]
async fn one_that_was_started_ahead_is_used_and_no_other_is_started() {
    let gateway = Gateway::start(&["child.share=true", "child.warm=3"]).await;
    gateway.until_children(1).await;
    let ahead = gateway.children()[0].id;
    assert_eq!(heard(&gateway.session().await, 1).await.0, ahead);
    assert_eq!(heard(&gateway.session().await, 1).await.0, ahead);
    assert_eq!(gateway.children().len(), 1);
}

/// The same ids, the same tokens, at the same time: every client gets its own, and nothing else.
#[tokio::test]
async fn sessions_with_the_same_ids_and_tokens_never_see_each_others_messages() {
    const SESSIONS: u64 = 12;
    const ROUNDS: u64 = 25;
    let gateway = shared(&[]).await;
    let gate = gateway.folder.path().join("open");
    std::fs::write(&gate, "").unwrap();
    let work = (1..=SESSIONS).map(|who| {
        let (address, gate) = (gateway.address, gate.clone());
        tokio::spawn(async move {
            let session = Session::start(address).await;
            for id in 1..=ROUNDS {
                // How many steps tells whose it is.
                let arguments = json!({ "steps": who, "gate": gate });
                let params =
                    json!({ "name": "slow", "arguments": arguments, "_meta": { "progressToken": "same" } });
                let slow = session.request(id, "tools/call", &params).open(address);
                let text = format!("of {who}, {id}");
                let mine = json!({ "text": text });
                let (mut stream, echo) = tokio::join!(slow, session.tool(1000 + id, "public_echo", &mine));
                assert_eq!(echo.json()["result"]["content"][0]["text"], text.as_str());
                for step in 1..=who {
                    let (_, message) = stream.message().await.unwrap();
                    let wanted = json!({ "progressToken": "same", "progress": step, "total": who });
                    assert_eq!(message["params"], wanted, "of {who}: {message}");
                }
                let (_, answer) = stream.message().await.unwrap();
                assert_eq!(answer["result"]["content"][0]["text"], format!("did {who} steps").as_str());
                assert_eq!(answer["id"], id);
                assert_eq!(stream.message().await, None);
            }
        })
    });
    for one in work.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    assert_eq!(gateway.children().len(), 1);
}

/// A name that we cannot read but the server may be able to must not hide a token from us.
#[tokio::test]
async fn a_token_that_cannot_be_read_is_not_passed_on() {
    let gateway = shared(&[]).await;
    let (one, two) = (gateway.session().await, gateway.session().await);
    let gate = gateway.folder.path().join("gate");
    let mut victim = begin(&one, 1, "slow", &json!("mine"), &gate).await;
    std::fs::write(gateway.folder.path().join("open"), "").unwrap();
    for (id, token) in (1..).zip(0..8) {
        let arguments = json!({ "steps": 1, "gate": gateway.folder.path().join("open") });
        let meta = format!(r#"{{"\ud800":0,"progressToken":{token}}}"#);
        let params = format!(r#"{{"name":"slow","arguments":{arguments},"_meta":{meta}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        let said = two.post_raw(body).send(gateway.address).await.json();
        assert_eq!(said["error"]["code"], -32602, "{said}");
    }
    std::fs::write(&gate, "").unwrap();
    for step in 2..=3 {
        assert_eq!(victim.message().await.unwrap().1["params"]["progress"], step, "its own and nothing else");
    }
}

#[tokio::test]
async fn a_resource_is_watched_once_and_its_watchers_hear_of_it() {
    let gateway = shared(&[]).await;
    let [one, two, three] = [gateway.session().await, gateway.session().await, gateway.session().await];
    let (mut to_one, mut to_two, mut to_three) =
        (one.listen().await, two.listen().await, three.listen().await);
    let (a, b) = (json!({ "uri": "file:///a" }), json!({ "uri": "file:///b" }));
    for (session, uri) in [(&one, &a), (&two, &a), (&three, &b)] {
        assert_eq!(ask(session, 1, "resources/subscribe", uri).await["result"], json!({}));
    }
    let subscribed = heard_of(&one, "resources/subscribe", 2).await;
    let line = |what: &str, uri: &Value| format!("resources/{what} {uri}");
    assert_eq!(subscribed, [line("subscribe", &a), line("subscribe", &b)], "each once");
    let update = async |params: &Value| assert_eq!(three.tool(2, "update", params).await.status(), 200);
    let uri = async |stream: &mut Events| {
        within("an update", stream.message()).await.unwrap().1["params"]["uri"].clone()
    };
    update(&a).await;
    assert_eq!((uri(&mut to_one).await, uri(&mut to_two).await), (a["uri"].clone(), a["uri"].clone()));
    // Updates of its parts concern them too.
    update(&json!({ "uri": "file:///a/part" })).await;
    assert_eq!(
        (uri(&mut to_one).await, uri(&mut to_two).await),
        (json!("file:///a/part"), json!("file:///a/part"))
    );
    // One leaves, the other stays.
    assert_eq!(ask(&one, 3, "resources/unsubscribe", &a).await["result"], json!({}));
    update(&a).await;
    assert_eq!(uri(&mut to_two).await, a["uri"]);
    update(&json!({ "uri": "file:///abc" })).await;
    update(&b).await;
    assert_eq!(uri(&mut to_three).await, b["uri"], "and nothing before it");
    assert_eq!(heard_of(&three, "resources/unsubscribe", 0).await, [""; 0]);
    // The last one goes without a word.
    end(&two).await;
    assert_eq!(heard_of(&three, "resources/unsubscribe", 1).await, [line("unsubscribe", &a)]);
    // And comes back.
    assert_eq!(ask(&one, 4, "resources/subscribe", &a).await["result"], json!({}));
    update(&a).await;
    assert_eq!(uri(&mut to_one).await, a["uri"]);
    assert_eq!(heard_of(&three, "resources/subscribe", 3).await.len(), 3);
}

/// What two readers would understand differently must not get past our own.
#[tokio::test]
async fn no_session_can_end_the_subscription_of_another() {
    let gateway = shared(&[]).await;
    let (one, other) = (gateway.session().await, gateway.session().await);
    let uri = json!({ "uri": "file:///a" });
    assert_eq!(ask(&one, 1, "resources/subscribe", &uri).await["result"], json!({}));
    let twice = r#"{"uri":"file:///b","uri":"file:///a"}"#;
    for method in ["resources/unsubscribe", "resources/subscribe"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{twice}}}"#);
        let said = other.post_raw(body).send(gateway.address).await.json();
        assert_eq!(said["error"]["code"], -32602, "{said}");
    }
    let said = ask(&other, 3, "resources/unsubscribe", &uri).await;
    assert_eq!(said["error"]["data"]["reason"], "not_subscribed", "{said}");
    assert_eq!(heard_of(&one, "resources/", 1).await, [format!("resources/subscribe {uri}")]);
}

#[tokio::test]
async fn the_child_logs_as_much_as_anybody_wants_and_everybody_hears_what_they_want() {
    let gateway = shared(&[]).await;
    let [quiet, loud, silent] = [gateway.session().await, gateway.session().await, gateway.session().await];
    let mut streams = [quiet.listen().await, loud.listen().await, silent.listen().await];
    let level = async |session: &Session, level: &str| {
        ask(session, 1, "logging/setLevel", &json!({ "level": level })).await
    };
    assert_eq!(level(&quiet, "error").await["result"], json!({}));
    assert_eq!(level(&loud, "debug").await["result"], json!({}));
    assert_eq!(level(&loud, "shout").await["error"]["code"], -32602);
    // The third has not said, and counts as wanting `info`.
    let levels = |all: &[&str]| {
        all.iter().map(|level| format!(r#"logging/setLevel {{"level":"{level}"}}"#)).collect::<Vec<_>>()
    };
    assert_eq!(heard_of(&loud, "logging/setLevel", 2).await, levels(&["info", "debug"]));
    // While more than one request is in flight, the message cannot be matched to one.
    let never = gateway.folder.path().join("never");
    let _busy =
        [begin(&quiet, 2, "slow", &json!(1), &never).await, begin(&loud, 2, "slow", &json!(1), &never).await];
    for (id, level) in (3..).zip(["debug", "info", "error"]) {
        loud.tool(id, "log", &json!({ "level": level, "data": level })).await;
    }
    let [quiet_hears, loud_hears, silent_hears] = &mut streams;
    for (stream, wanted) in [
        (quiet_hears, &["error"][..]),
        (loud_hears, &["debug", "info", "error"]),
        (silent_hears, &["info", "error"]),
    ] {
        for level in wanted {
            assert_eq!(within("a log message", stream.heard()).await, *level);
        }
    }
    // The loudest leaves: the child may be quieter.
    end(&loud).await;
    assert_eq!(heard_of(&quiet, "logging/setLevel", 3).await, levels(&["info", "debug", "info"]));
}

#[tokio::test]
async fn a_log_message_goes_to_the_only_request_in_flight() {
    let gateway = shared(&[]).await;
    let (one, two) = (gateway.session().await, gateway.session().await);
    let mut to_two = two.listen().await;
    let params = json!({ "name": "log", "arguments": { "level": "error", "data": "mine" } });
    let mut stream = one.request(1, "tools/call", &params).open(gateway.address).await;
    assert_eq!(stream.rest().await, ["mine", "result 1"]);
    // The other one hears of a changed list, and of nothing before that.
    let line = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }).to_string();
    let mut to_one = one.listen().await;
    one.tool(2, "print", &json!({ "line": line })).await;
    for stream in [&mut to_one, &mut to_two] {
        assert_eq!(stream.message().await.unwrap().1["method"], "notifications/tools/list_changed");
    }
}

#[tokio::test]
async fn a_question_is_refused_and_a_ping_is_answered() {
    let gateway = shared(&["child.env=ASK_ROOTS=1"]).await;
    let session = gateway.session().await;
    for (id, method) in (1..).zip(["roots/list", "sampling/createMessage", "elicitation/create"]) {
        let said = session.tool(id, "ask", &json!({ "method": method, "params": {} })).await.json();
        let answer = &said["result"]["answer"];
        assert_eq!(answer["code"], -32601, "{said}");
        assert!(answer["message"].as_str().unwrap().contains("shared by several clients"), "{said}");
    }
    let said = session.tool(9, "ask", &json!({ "method": "ping", "params": {} })).await.json();
    assert_eq!(said["result"]["answer"], json!({}), "{said}");
}

#[tokio::test]
async fn only_the_request_that_was_cancelled_is() {
    let gateway = shared(&[]).await;
    let (one, two) = (gateway.session().await, gateway.session().await);
    let gate = gateway.folder.path().join("gate");
    let (mut cancelled, mut other) =
        (begin(&one, 7, "slow", &json!("t"), &gate).await, begin(&two, 7, "slow", &json!("t"), &gate).await);
    let mut cancel = notification("notifications/cancelled");
    cancel["params"] = json!({ "requestId": 7 });
    assert_eq!(one.post(&cancel).send(gateway.address).await.status(), 202);
    assert_eq!(cancelled.message().await, None, "a cancelled request has no answer");
    assert_eq!(heard_of(&two, "notifications/cancelled", 1).await.len(), 1);
    std::fs::write(&gate, "").unwrap();
    let mut last = Value::Null;
    while let Some((_, message)) = other.message().await {
        last = message;
    }
    assert_eq!(last["result"]["content"][0]["text"], "did 3 steps");
}

#[tokio::test]
async fn a_session_that_ends_takes_its_requests_with_it_and_no_others() {
    let gateway = shared(&[]).await;
    let (one, two) = (gateway.session().await, gateway.session().await);
    let gate = gateway.folder.path().join("gate");
    let _ends = begin(&one, 1, "slow", &json!(1), &gate).await;
    let mut stays = begin(&two, 1, "slow", &json!(1), &gate).await;
    end(&one).await;
    assert_eq!(heard_of(&two, "notifications/cancelled", 1).await.len(), 1);
    std::fs::write(&gate, "").unwrap();
    assert_eq!(stays.message().await.unwrap().1["params"]["progress"], 2);
}

#[tokio::test]
async fn every_session_speaks_its_own_revision() {
    let gateway = shared(&[]).await;
    for revision in ["2025-11-25", "2024-11-05", "2025-06-18", "2025-03-26"] {
        let said = initialize(revision).send(gateway.address).await.json();
        let wanted = json!({
            "protocolVersion": revision,
            "capabilities": {
                "tools": {}, "resources": { "subscribe": true }, "prompts": {}, "completions": {}, "logging": {},
            },
            "serverInfo": { "name": "echo-stdio", "version": "1" },
        });
        assert_eq!(said["result"], wanted);
        let session = Session::of_revision(gateway.address, revision).await;
        assert_eq!(session.tool(1, "public_echo", &json!({ "text": "x" })).await.status(), 200);
    }
    assert_eq!(gateway.children().len(), 1);
}

#[tokio::test]
async fn a_killed_child_is_replaced_by_one_for_all() {
    let gateway = shared(&[]).await;
    let sessions = [gateway.session().await, gateway.session().await, gateway.session().await];
    let uri = json!({ "uri": "file:///kept" });
    for session in &sessions[..2] {
        ask(session, 1, "resources/subscribe", &uri).await;
    }
    let gate = gateway.folder.path().join("gate");
    let mut safe = Vec::new();
    let mut not = Vec::new();
    for session in &sessions {
        safe.push(begin(session, 2, "slow_safe", &json!("t"), &gate).await);
        not.push(begin(session, 3, "slow", &json!("u"), &gate).await);
    }
    let (killed, _) = heard(&sessions[0], 4).await;
    signal(killed, "KILL").await;
    for stream in &mut not {
        let (_, last) = stream.message().await.unwrap();
        assert_eq!(last["error"]["data"]["reason"], "interrupted", "{last}");
    }
    std::fs::write(&gate, "").unwrap();
    for stream in &mut safe {
        for step in 2..=3 {
            let (_, message) = stream.message().await.unwrap();
            assert_eq!(
                (&message["params"]["progress"], &message["params"]["progressToken"]),
                (&json!(step), &json!("t"))
            );
        }
        assert_eq!(stream.message().await.unwrap().1["id"], 2);
    }
    let mut pids = std::collections::HashSet::new();
    for session in &sessions {
        pids.insert(heard(session, 5).await.0);
    }
    assert!(pids.len() == 1 && !pids.contains(&killed), "{pids:?}, not {killed}");
    gateway.until_children(1).await;
    let subscribed = heard_of(&sessions[2], "resources/subscribe", 1).await;
    assert_eq!(subscribed, [format!("resources/subscribe {uri}")], "once for both");
    let mut listening = [sessions[0].listen().await, sessions[1].listen().await];
    sessions[2].tool(6, "update", &uri).await;
    for stream in &mut listening {
        assert_eq!(stream.message().await.unwrap().1["params"], uri);
    }
}

#[tokio::test]
async fn a_child_that_keeps_dying_makes_them_wait_and_comes_back() {
    let gateway = shared(&[]).await;
    let (one, two) = (gateway.session().await, gateway.session().await);
    for id in 1..4 {
        let (pid, _) = heard(&one, id * 10).await;
        signal(pid, "KILL").await;
        let lost = |line: &Value| line["message"] == "the server behind the session is gone";
        gateway.logged_again("both lose it", usize::try_from(id).unwrap() * 2, lost).await;
        let both = (heard(&one, id * 10 + 1).await.0, heard(&two, id * 10 + 1).await.0);
        assert!(both.0 == both.1 && both.0 != pid, "{both:?}, {pid}");
    }
    gateway.until_children(1).await;
}

/// Killed again and again under load: every request is answered, by its own answer or by an error that says why not.
#[tokio::test]
async fn a_child_that_is_killed_under_load_mixes_nothing_up() {
    let gateway = shared(&[]).await;
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let work = (0..8_u64).map(|who| {
        let (address, done) = (gateway.address, std::sync::Arc::clone(&done));
        tokio::spawn(async move {
            let session = Session::start(address).await;
            let (mut id, mut answers) = (0, 0);
            // However slow the machine is, each has a few answers, before and after the kills.
            while !done.load(std::sync::atomic::Ordering::Relaxed) || answers < 10 {
                id += 1;
                let text = format!("of {who}, {id}");
                let said = session.tool(id, "public_echo", &json!({ "text": text })).await.json();
                match said["error"]["data"]["reason"].as_str() {
                    None => assert_eq!(said["result"]["content"][0]["text"], text.as_str(), "{said}"),
                    Some(reason) => {
                        assert!(["interrupted", "backend_unavailable"].contains(&reason), "{said}")
                    }
                }
                answers += u64::from(said["error"].is_null());
            }
            answers
        })
    });
    let work: Vec<_> = work.collect();
    let mut killed = std::collections::HashSet::new();
    for _ in 0..3 {
        let fresh = || gateway.children().into_iter().map(|child| child.id).find(|id| !killed.contains(id));
        until("there is another child", || fresh().is_some()).await;
        let child = fresh().expect("it was there");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        signal(child, "KILL").await;
        killed.insert(child);
    }
    until("the last one is there", || gateway.children().iter().any(|child| !killed.contains(&child.id)))
        .await;
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    for one in work {
        assert!(within("all is answered", one).await.unwrap() >= 10);
    }
    gateway.until_children(1).await;
}

#[tokio::test]
async fn a_killed_gateway_goes_on_with_all_its_sessions() {
    let mut gateway = shared(&[]).await;
    let sessions = [gateway.session().await, gateway.session().await];
    let gate = gateway.folder.path().join("gate");
    let mut lasts = Vec::new();
    for session in &sessions {
        lasts.push(begin(session, 1, "slow_safe", &json!("t"), &gate).await.last_id());
    }
    gateway.kill_and_start_again().await;
    std::fs::write(&gate, "").unwrap();
    for (session, last) in sessions.iter().zip(&lasts) {
        let mut stream = session.resume(last).await;
        for step in 2..=3 {
            let (_, message) = stream.message().await.unwrap();
            assert_eq!(
                (&message["params"]["progress"], &message["params"]["progressToken"]),
                (&json!(step), &json!("t"))
            );
        }
        assert_eq!(stream.message().await.unwrap().1["id"], 1);
    }
    gateway.until_children(1).await;
    gateway.stop().await;
    gateway.until_no_process().await;
}

#[tokio::test]
async fn it_leaves_when_the_last_session_falls_asleep_and_comes_back_with_it() {
    let gateway = shared(&["session.dormant_after=300ms"]).await;
    let (one, two) = (gateway.session().await, gateway.session().await);
    let (first, _) = heard(&one, 1).await;
    gateway.until_children(0).await;
    let (second, _) = heard(&two, 1).await;
    assert_ne!(first, second);
    // A stream keeps the session awake, and so the child.
    let _awake = two.listen().await;
    assert_eq!(heard(&one, 2).await.0, second);
}
