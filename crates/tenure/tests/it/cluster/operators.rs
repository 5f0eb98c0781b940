//! Operators at any node of a cluster see all of it, and reach all of it. Real nodes, on a real engine.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::fleet::Fleet;
use crate::operator::place::{label, long_call};
use crate::support::client::{Ask, Connection};
use crate::support::modern;
use crate::support::session::{Session, initialize, notification};
use crate::support::wait::{DEADLINE, within};

// B38
#[tokio::test]
async fn every_node_lists_all_nodes_and_names_one_that_does_not_answer() {
    let fleet = Fleet::start(3, &[]).await;
    let _session = Session::start(fleet.nodes[0].address()).await;
    for number in 0..3 {
        let rows = fleet.listed(number).await;
        assert_eq!(rows.iter().filter(|row| row["is_this"] == true).count(), 1);
        for row in &rows {
            assert!(row["lease_age_ms"].as_u64().unwrap() < 3000, "{row}");
            assert!(row["clock_ms"].as_i64().unwrap().abs() < 1000, "{row}");
            assert!(row["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{row}");
        }
        let sessions: u64 = rows.iter().map(|row| row["sessions"].as_u64().unwrap()).sum();
        assert_eq!(sessions, 1, "{rows:?}");
    }
    let (label, began) = (fleet.label(0).await, Instant::now());
    fleet.nodes[0].signal("STOP").await;
    let listed = fleet.run(1, &["sessions", "list", "--json"]).await;
    let nodes = fleet.listed(2).await;
    let took = began.elapsed();
    fleet.nodes[0].signal("CONT").await;
    let rows: Vec<&str> = listed.out.lines().collect();
    assert_eq!((listed.code, rows.len()), (Some(0), 1), "{}", listed.err);
    assert!(listed.err.contains(&label) && listed.err.contains("did not answer"), "{}", listed.err);
    let silent = nodes.iter().find(|row| row["label"] == label.as_str()).expect("it is listed");
    assert_eq!((&silent["state"], &silent["answered"]), (&json!("silent"), &json!(false)), "{silent}");
    assert!(took < Duration::from_secs(8), "{took:?}");
}

// B16, B38
#[tokio::test]
async fn a_session_is_seen_and_ended_at_every_node() {
    let fleet = Fleet::start(3, &[]).await;
    let session = Session::start(fleet.nodes[0].address()).await;
    let call = long_call(&session, 7).await;
    let (name, home) = (label(&session), fleet.label(0).await);
    for number in 0..3 {
        let rows = fleet.rows(number, &["sessions", "list"]).await;
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (&rows[0]["state"], &rows[0]["node"], &rows[0]["calls"]),
            (&json!("awake"), &json!(home), &json!(1)),
            "{rows:?}"
        );
        let calls = fleet.rows(number, &["calls"]).await;
        assert_eq!((calls.len(), &calls[0]["node"]), (1, &json!(home)), "{calls:?}");
        let shown = fleet.told(number, &["sessions", "show", &name, "--json"]).await;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["in_flight"][0]["tool"], "long_task", "{shown}");
        let principals = fleet.rows(number, &["principals", "list"]).await;
        assert_eq!((&principals[0]["awake"], &principals[0]["calls"]), (&json!(1), &json!(1)));
        let usage = fleet.rows(number, &["usage"]).await;
        assert_eq!(usage.iter().filter(|row| row["resource"] == "sessions").count(), 3, "{usage:?}");
        let saved = fleet.told(number, &["sessions", "export", &name]).await;
        assert!(saved.contains(&name[2..]), "{saved}");
    }
    fleet.told(1, &["sessions", "set", &name, "ticket=4711"]).await;
    let shown = fleet.told(2, &["sessions", "show", &name, "--json"]).await;
    assert!(shown.contains("4711"), "{shown}");

    assert_eq!(fleet.told(2, &["sessions", "revoke", &name]).await, format!("revoked {name}\n"));
    for node in &fleet.nodes {
        let late = session.request(9, "ping", &json!({})).send(node.address()).await;
        assert_eq!((late.status(), late.fault().2.contains("revoked")), (404, true), "{late:?}");
    }
    let again = fleet.run(0, &["sessions", "revoke", &name]).await;
    assert_eq!(again.out, format!("{name} was revoked before\n"), "{}", again.err);
    drop(call);
}

#[tokio::test]
async fn a_session_of_a_lost_node_is_ended_once_that_node_is_gone() {
    let mut fleet = Fleet::start(2, &[]).await;
    let session = Session::start(fleet.nodes[0].address()).await;
    let lost = fleet.nodes.remove(0);
    lost.signal("KILL").await;
    lost.ended().await;
    // The machines keep their numbers.
    let said = fleet.run(1, &["sessions", "revoke", &label(&session)]).await;
    assert_eq!(said.out, format!("revoked {}\n", label(&session)), "{}", said.err);
    let late = session.request(9, "ping", &json!({})).send(fleet.nodes[0].address()).await;
    assert_eq!(late.status(), 404, "{late:?}");
}

// AU9
#[tokio::test]
async fn a_principal_that_is_revoked_at_one_node_is_out_at_all_within_two_seconds() {
    let mut fleet = Fleet::new();
    let file = fleet.beside("keys.toml").display().to_string();
    let mut keys = Vec::new();
    for name in ["ci", "other"] {
        let said = crate::cli::process::run(&["keys", "new", name, "--file", &file]).await;
        assert_eq!(said.code, Some(0), "{}", said.err);
        keys.push(said.out.trim().to_owned());
    }
    let setting = format!("auth.keys_file={file}");
    for _ in 0..3 {
        fleet.add(&["--set", &setting]).await;
    }
    fleet.know_each_other().await;
    let bearer = |ask: Ask, key: usize| ask.header("Authorization", &format!("Bearer {}", keys[key]));
    let begin = async |node: usize, key: usize| {
        let address = fleet.nodes[node].address();
        let session =
            Session::of(address, "/mcp", &bearer(initialize("2025-11-25"), key).send(address).await);
        let ready = bearer(session.post(&notification("notifications/initialized")), key);
        assert_eq!(ready.send(address).await.status(), 202);
        session
    };
    let (here, there, of_other) = (begin(0, 0).await, begin(2, 0).await, begin(2, 1).await);
    let listen =
        modern::ask(1, "subscriptions/listen", &json!({ "notifications": { "toolsListChanged": true } }));
    let mut streams = vec![
        ("at its node", bearer(here.get(), 0).open(fleet.nodes[0].address()).await),
        // The session is at the third node, and its client at the first.
        ("relayed", bearer(there.get(), 0).open(fleet.nodes[0].address()).await),
        ("without a session", bearer(listen, 0).open(fleet.nodes[2].address()).await),
    ];
    let began = Instant::now();
    let said = fleet.told(1, &["principals", "revoke", "key:ci", "--json"]).await;
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["sessions"], 2, "{said}");
    for (what, stream) in &mut streams {
        within(what, stream.items()).await;
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    for node in &fleet.nodes {
        let late = bearer(here.request(2, "ping", &json!({})), 0).send(node.address()).await;
        assert_eq!(late.status(), 401, "{late:?}");
        let good = bearer(of_other.request(2, "ping", &json!({})), 1).send(node.address()).await;
        assert_eq!(good.status(), 200, "{good:?}");
    }
    fleet.told(0, &["principals", "reinstate", "key:ci"]).await;
    for node in &fleet.nodes {
        let again = bearer(initialize("2025-11-25"), 0).send(node.address()).await;
        assert_eq!(again.status(), 200, "{again:?}");
    }
}

// B28, B40
#[tokio::test]
async fn a_node_that_does_not_fit_is_not_ready_and_says_why() {
    let mut fleet = Fleet::start(1, &[]).await;
    let session = Session::start(fleet.nodes[0].address()).await;
    let key = fleet.beside("key").display().to_string();
    let made = crate::cli::process::run(&["store", "new-key", "--output", &key]).await;
    assert_eq!(made.code, Some(0), "{}", made.err);
    let other_key = format!("exchanges.state_key_file={key}");
    let keyed = fleet.add(&["--set", &other_key]).await;
    let strange = fleet.add(&["--upstream", "http://127.0.0.1:9/mcp"]).await;
    for (node, words) in [(keyed, "exchanges.state_key_file"), (strange, "nats.cluster")] {
        let (status, text) = fleet.readiness(node).await;
        assert!(status == 503 && text.contains(words), "{status} {text}");
        let refused = session.request(1, "ping", &json!({})).send(fleet.nodes[node].address()).await;
        assert_eq!(refused.status(), 503, "{refused:?}");
        // Where it is, and from everywhere else, people see why.
        for number in 0..3 {
            let label = fleet.label(node).await;
            let row = fleet.row(number, &label).await;
            assert_eq!(row["state"], "not_ready", "{row}");
            assert!(row["why"].as_str().unwrap().contains(words), "{row}");
        }
    }
    assert_eq!(fleet.readiness(0).await.0, 200);
    let pong = session.request(2, "ping", &json!({})).send(fleet.nodes[0].address()).await;
    assert_eq!(pong.status(), 200, "nothing is lost: {pong:?}");
    // When the node that it did not fit to has left, it serves.
    let first = fleet.nodes.remove(0);
    first.signal("TERM").await;
    first.ended().await;
    let until = Instant::now() + Duration::from_secs(15);
    let response = loop {
        let ready = async |node: usize| Ask::new("GET", "/readyz").send(fleet.nodes[node].address()).await;
        let both = [ready(0).await.status(), ready(1).await.status()];
        // They do not fit to each other either.
        if both.contains(&200) {
            break both;
        }
        assert!(
            Instant::now() < until,
            "{both:?} {} {}",
            fleet.readiness(0).await.1,
            fleet.readiness(1).await.1
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(response.contains(&503), "{response:?}");
}

#[tokio::test]
async fn a_machine_without_a_node_looks_at_the_engine_and_changes_nothing() {
    let fleet = Fleet::start(1, &["--profile", "cluster"]).await;
    let session = Session::start(fleet.nodes[0].address()).await;
    // No node has this number.
    let nodes = fleet.rows(7, &["nodes"]).await;
    assert_eq!((nodes.len(), &nodes[0]["state"]), (1, &json!("recorded")), "{nodes:?}");
    let rows = fleet.rows(7, &["sessions", "list"]).await;
    assert_eq!((rows.len(), &rows[0]["state"]), (1, &json!("dormant")), "{rows:?}");
    for arguments in [
        &["sessions", "revoke", &label(&session)][..],
        &["sessions", "set", &label(&session), "a=b"],
        &["principals", "revoke", "corp:ann"],
        &["principals", "reinstate", "corp:ann"],
    ] {
        let refused = fleet.run(7, arguments).await;
        assert_eq!(refused.code, Some(1), "{arguments:?}: {}", refused.out);
        assert!(refused.err.contains("no server on this machine does"), "{}", refused.err);
    }
    let pong = session.request(1, "ping", &json!({})).send(fleet.nodes[0].address()).await;
    assert_eq!(pong.status(), 200, "{pong:?}");
}

#[tokio::test]
async fn commands_find_a_node_at_the_path_that_is_configured() {
    let mut fleet = Fleet::new();
    let path = fleet.beside("tenure.sock").display().to_string();
    fleet.add(&["--set", &format!("control.path={path}")]).await;
    let _session = Session::start(fleet.nodes[0].address()).await;
    let awake = async |arguments: &[&str], with_path: bool| {
        let mut command = crate::cli::process::tenure(arguments);
        command.env("TENURE_STORE", format!("nats://{}", fleet.engine.address(0)));
        if with_path {
            command.env("TENURE_CONTROL_PATH", &path);
        }
        crate::cli::process::finish(command).await.out.contains("\"awake\"")
    };
    assert!(awake(&["sessions", "list", "--json"], true).await);
    assert!(!awake(&["sessions", "list", "--json"], false).await, "it looks at the engine alone");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_command_that_names_no_store_finds_a_cluster_on_its_machine() {
    let mut fleet = Fleet::new();
    fleet.share_a_machine();
    for _ in 0..3 {
        fleet.add(&[]).await;
    }
    fleet.know_each_other().await;
    let said = fleet.run_without_store(0, &["nodes", "--json"]).await;
    assert_eq!((said.code, said.out.lines().count()), (Some(0), 3), "{}", said.err);
}

#[tokio::test]
async fn the_api_says_of_nodes_that_it_asked_whether_they_answered() {
    let mut fleet = Fleet::new();
    let sockets = ["one.sock", "two.sock"].map(|name| fleet.beside(name));
    for socket in &sockets {
        fleet.add(&["--set", &format!("control.path={}", socket.display())]).await;
    }
    let api = async |path: &str| {
        let stream = tokio::net::UnixStream::connect(&sockets[0]).await.unwrap();
        let mut connection = Connection::over(stream);
        connection.write(&Ask::new("GET", &format!("/api/v1/{path}")).bytes()).await;
        serde_json::from_slice::<Value>(&connection.response().await.body).unwrap()
    };
    let asked = async |is_expected: &dyn Fn(&Value) -> bool| {
        let until = Instant::now() + DEADLINE;
        loop {
            let rows = api("nodes").await["rows"].clone();
            match rows.as_array() {
                Some(rows) if rows.len() == 2 && is_expected(&rows[1]) => break,
                _ => assert!(Instant::now() < until, "{rows}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    asked(&|other| other["answered"] == true && other["state"] == "serving").await;
    let seen = api("overview").await["nodes"].clone();
    assert_eq!(seen.as_array().map(Vec::len), Some(2), "{seen}");
    assert!(seen.as_array().unwrap().iter().all(|row| row.get("answered").is_none()), "{seen}");
    // Its process stands still; its lease goes on for a while.
    fleet.nodes[1].signal("STOP").await;
    asked(&|other| other["answered"] == false && other["state"] == "silent").await;
    fleet.nodes[1].signal("CONT").await;
}
