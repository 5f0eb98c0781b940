//! Sessions on a NATS engine: what people type, what they read, and what is still there after a kill.

use expect_test::expect_file;
use serde_json::json;
use tempfile::TempDir;
use tenure_testkit::nats_servers::{NatsServers, NatsSetup};

use super::process::{Server, run, tenure};
use crate::support::session::Session;

fn url(servers: &NatsServers) -> String {
    format!("nats://{}", servers.addresses().join(","))
}

async fn serve(url: &str, arguments: &[&str]) -> Server {
    // Only a store that nodes share has a place for others to reach them.
    let shared: &[&str] =
        if url.starts_with("nats:") { &["--set", "cluster.listen=127.0.0.1:0"] } else { &[] };
    Server::start(&[&["--store", url], shared, arguments].concat()).await
}

#[tokio::test]
async fn a_session_on_nats_goes_on_in_the_next_process() {
    let servers = NatsServers::start(1);
    let url = url(&servers);
    let first = serve(&url, &[]).await;
    let session = Session::start(first.address()).await;
    let said = session.tool(1, "public_echo", &json!({ "text": "one" })).await;
    assert_eq!(said.status(), 200, "{said:?}");
    first.signal("KILL").await;
    first.ended().await;
    let second = serve(&url, &[]).await;
    let said = session.moved_to(second.address()).tool(2, "public_echo", &json!({ "text": "two" })).await;
    assert_eq!(said.status(), 200, "{said:?}");
    let listed = run(&["sessions", "list", "--json", "--store", &url]).await;
    assert_eq!((listed.code, listed.out.lines().count()), (Some(0), 1), "{}{}", listed.out, listed.err);
}

#[tokio::test]
async fn sessions_are_copied_to_nats_and_back() {
    let servers = NatsServers::start(1);
    let (url, folder) = (url(&servers), TempDir::new().unwrap());
    let disk = |name: &str| format!("disk:{}", folder.path().join(name).display());
    let key = folder.path().join("key").display().to_string();
    assert_eq!(run(&["store", "new-key", "--output", &key]).await.code, Some(0));
    let first = serve(&disk("one"), &[]).await;
    let session = Session::start(first.address()).await;
    first.signal("TERM").await;
    first.ended().await;
    // Encrypted on the engine, and plain in the folders.
    let there = run(&["store", "copy", &disk("one"), &url, "--to-key-file", &key]).await;
    assert_eq!(there.code, Some(0), "{}", there.err);
    let plain = run(&["sessions", "list", "--store", &url]).await;
    assert_eq!(plain.code, Some(1), "it is encrypted: {}", plain.out);
    let back = run(&["store", "copy", &url, &disk("two"), "--from-key-file", &key]).await;
    assert_eq!(back.code, Some(0), "{}", back.err);
    let second = serve(&disk("two"), &[]).await;
    let said = session.moved_to(second.address()).tool(2, "public_echo", &json!({ "text": "two" })).await;
    assert_eq!(said.status(), 200, "{said:?}");
}

#[tokio::test]
async fn a_person_who_cannot_use_nats_is_told_what_to_do() {
    let running = NatsServers::start(1);
    let without = NatsServers::set_up(NatsSetup { jetstream: false, ..NatsSetup::default() });
    let asks = "authorization { user: tenure, password: right }".to_owned();
    let asking = NatsServers::set_up(NatsSetup { settings: asks, ..NatsSetup::default() });
    let nowhere = NatsServers::planned(NatsSetup::default());
    let mut all = String::new();
    let folder = TempDir::new().unwrap();
    let backup = folder.path().join("backup").display().to_string();
    for (what, servers, arguments) in [
        ("nowhere", &nowhere, vec!["serve", "--set", "nats.patience=1s"]),
        ("without JetStream", &without, vec!["serve"]),
        ("no credentials", &asking, vec!["serve"]),
        (
            "wrong credentials",
            &asking,
            vec!["serve", "--set", "nats.user=tenure", "--set", "nats.password=wrong"],
        ),
        ("half of them", &asking, vec!["serve", "--set", "nats.user=tenure"]),
        ("two of them", &asking, vec!["serve", "--set", "nats.token=wrong", "--set", "nats.nkey=wrong"]),
        ("replicas", &running, vec!["serve", "--set", "nats.replicas=3", "--set", "nats.patience=1s"]),
        ("cluster", &running, vec!["serve", "--set", "nats.cluster=a.b"]),
        ("check", &running, vec!["store", "check"]),
        ("backup", &running, vec!["store", "backup", &backup]),
    ] {
        let url = url(servers);
        let mut command = tenure(&arguments);
        command.args(["--store", &url]);
        if arguments[0] == "serve" {
            command.args([
                "--listen",
                "127.0.0.1:0",
                "--log-level",
                "off",
                "--set",
                "cluster.listen=127.0.0.1:0",
            ]);
        }
        let said = super::process::finish(command).await;
        assert_ne!(said.code, Some(0), "{what}: {}", said.out);
        assert!(!said.err.contains("wrong") && !said.err.contains("right"), "a secret: {}", said.err);
        all.push_str(&format!(
            "== {what}\n{}\n",
            said.err.replace(&url, "nats://SERVERS").replace(&backup, "BACKUP")
        ));
    }
    let secret = ["serve", "--store", "nats://tenure:wrong@127.0.0.1:4222"];
    for (what, arguments) in [
        ("a password in the URL", &[&secret[..], &["--set", "cluster.listen=127.0.0.1:0"]].concat()),
        ("no address for other nodes", &secret.to_vec()),
    ] {
        let said = run(arguments).await;
        assert!(!said.err.contains("wrong"), "a secret: {}", said.err);
        all.push_str(&format!("== {what}\n{}\n", said.err));
    }
    // Times differ.
    let mut lines: Vec<String> = Vec::new();
    for line in all.lines() {
        match line.split_once("answered within ") {
            Some((before, after)) => {
                let rest = after.split_once(':').map_or("", |(_, rest)| rest);
                lines.push(format!("{before}answered within TIME:{rest}"));
            }
            None => lines.push(line.to_owned()),
        }
    }
    expect_file!["snapshots/nats.txt"].assert_eq(&(lines.join("\n") + "\n"));
}
