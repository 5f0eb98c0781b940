//! What a child may use, and how many there may be.

use serde_json::json;

use crate::gateway::family::{CHILD, FAMILY, limit};
use crate::gateway::running::{Gateway, heard};
use crate::support::session::{Session, initialize};
use crate::support::wait::within;

#[tokio::test]
async fn a_child_has_no_more_files_than_it_may() {
    let gateway = Gateway::start(&["child.max_files=64"]).await;
    let session = gateway.session().await;
    let (pid, _) = heard(&session, 1).await;
    assert_eq!(limit(pid, "Max open files"), ("64".to_owned(), "64".to_owned()));
    let said = session.tool(2, "open_files", &json!({ "count": 1000 })).await.json();
    let opened = said["result"]["opened"].as_u64().unwrap();
    assert!((40..64).contains(&opened), "{said}");
    assert_ne!(limit(gateway.id, "Max open files").0, "64", "the gateway has its own");
}

#[tokio::test]
async fn a_child_has_no_more_memory_than_it_may() {
    let gateway = Gateway::start(&["child.max_memory=1GiB"]).await;
    let session = gateway.session().await;
    let (pid, _) = heard(&session, 1).await;
    assert_eq!(limit(pid, "Max address space").1, (1_u64 << 30).to_string());
    for (id, bytes, may) in [(2, 100_u64 << 20, true), (3, 2 << 30, false)] {
        let said = session.tool(id, "allocate", &json!({ "bytes": bytes })).await.json();
        assert_eq!(said["result"]["allocated"], may, "{said}");
    }
}

#[tokio::test]
async fn a_child_gets_the_variables_and_the_folder_it_shall_have_and_none_of_ours() {
    let folder = tempfile::TempDir::new().unwrap();
    let real = folder.path().canonicalize().unwrap();
    let setting = format!("child.folder={}", real.display());
    let gateway = Gateway::start(&[&setting, "child.env=NAME=value=more"]).await;
    let session = gateway.session().await;
    let (pid, _) = heard(&session, 1).await;
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), real);
    let all = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let all: Vec<_> = all.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    assert!(all.iter().any(|one| one == "NAME=value=more"), "{all:?}");
    assert!(all.iter().all(|one| !one.starts_with("TENURE_")), "{all:?}");
}

/// The environment of the example server behind an endpoint.
async fn environment(gateway: &Gateway, path: &str) -> Vec<String> {
    let begun = initialize("2025-11-25").at(path).send(gateway.address).await;
    let session = Session::of(gateway.address, path, &begun).initialized().await;
    let (pid, _) = heard(&session, 1).await;
    let all = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    all.split(|byte| *byte == 0).map(|one| String::from_utf8_lossy(one).into_owned()).collect()
}

fn has(environment: &[String], name: &str) -> bool {
    environment.iter().any(|one| one.split_once('=').is_some_and(|(one, _)| one == name))
}

#[tokio::test]
async fn a_child_does_not_inherit_what_is_a_secret_of_another_server() {
    let echo = crate::gateway::running::echo();
    let gateway = Gateway::configured(&format!(
        r#"
        [[backend]]
        name = "elsewhere"
        url = "http://127.0.0.1:9/mcp"
        headers = ["Authorization: env:{FAMILY}"]
        [[backend]]
        name = "one"
        command = ["{echo}"]
        [[backend]]
        name = "two"
        command = ["{echo}"]
        env = ["KEY=env:{FAMILY}"]
        [[backend]]
        name = "three"
        command = ["{echo}"]
        inherit = ["{FAMILY}"]
        "#
    ))
    .await;
    let one = environment(&gateway, "/mcp/one").await;
    assert!(has(&one, "PATH") && !has(&one, FAMILY), "{one:?}");
    let two = environment(&gateway, "/mcp/two").await;
    assert!(has(&two, "KEY") && !has(&two, FAMILY), "it has it by the name that it shall have: {two:?}");
    let three = environment(&gateway, "/mcp/three").await;
    assert!(has(&three, FAMILY), "the configuration says so: {three:?}");
}

#[tokio::test]
async fn a_child_inherits_no_more_than_it_is_said_to() {
    let gateway = Gateway::start(&["child.inherit=none"]).await;
    let all = environment(&gateway, "/mcp").await;
    assert!(has(&all, "PATH") && has(&all, CHILD) && !has(&all, FAMILY), "{all:?}");
    let gateway = Gateway::start(&[&format!("child.inherit={FAMILY},OTHER")]).await;
    let all = environment(&gateway, "/mcp").await;
    assert!(has(&all, "PATH") && has(&all, FAMILY), "{all:?}");
    assert!(!has(&all, "CARGO_MANIFEST_DIR"), "{all:?}");
}

#[tokio::test]
async fn a_child_has_no_files_of_the_gateway_and_no_pipes_of_other_children() {
    let gateway = Gateway::start(&[]).await;
    let sessions = [gateway.session().await, gateway.session().await];
    let of = |pid: u32, file: &str| {
        std::fs::read_link(format!("/proc/{pid}/fd/{file}")).unwrap().display().to_string()
    };
    let all = |pid: u32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        files.map(|file| of(pid, file.unwrap().file_name().to_str().unwrap())).collect::<Vec<_>>()
    };
    let (first, _) = heard(&sessions[0], 1).await;
    let (second, _) = heard(&sessions[1], 1).await;
    let open = all(second);
    for file in ["0", "1", "2"] {
        assert!(!open.contains(&of(first, file)), "a pipe of the other child: {open:?}");
    }
    // The process that runs the tests may have left files open to all of us; sockets and the store are the gateway's alone.
    let store = gateway.folder.path().display().to_string();
    let inherited = all(std::process::id());
    let ours = |to: &&String| (to.starts_with("socket:") || to.contains(&store)) && !inherited.contains(to);
    assert_eq!(open.iter().filter(ours).collect::<Vec<_>>(), [""; 0], "{open:?}");
}

#[tokio::test]
async fn there_are_no_more_children_than_there_may_be() {
    let gateway = Gateway::start(&["child.max=2", "child.warm=1"]).await;
    let (one, _two) = (gateway.session().await, gateway.session().await);
    let refused = initialize("2025-11-25").send(gateway.address).await;
    assert_eq!(refused.fault(), (503, -31029, "too_many_processes".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(gateway.children().len(), 2);
    // Those that are there work, and one that is killed is replaced.
    let (pid, _) = heard(&one, 1).await;
    crate::gateway::family::signal(pid, "KILL").await;
    gateway.logged("the loss", |line| line["message"] == "the server behind the session is gone").await;
    assert_ne!(heard(&one, 2).await.0, pid);
    // Who leaves makes room; a new one waits for it a little.
    assert_eq!(one.delete().send(gateway.address).await.status(), 204);
    heard(&gateway.session().await, 1).await;
    assert_eq!(gateway.children().len(), 2);
}

#[tokio::test]
async fn a_dormant_session_that_finds_no_room_can_come_back_later() {
    let gateway = Gateway::start(&["child.max=1", "child.warm=0", "session.dormant_after=200ms"]).await;
    let sleeper = gateway.session().await;
    gateway.until_children(0).await;
    let other = gateway.session().await;
    let listening = other.listen().await;
    let refused = sleeper.tool(1, "public_echo", &json!({ "text": "x" })).await;
    // In-band, because the session lives, and a status of 503 ends some clients.
    assert_eq!(refused.fault(), (200, -31029, "too_many_processes".to_owned()));
    drop(listening);
    assert_eq!(other.delete().send(gateway.address).await.status(), 204);
    assert_eq!(sleeper.tool(2, "public_echo", &json!({ "text": "x" })).await.status(), 200);
}

#[tokio::test]
async fn sessions_that_begin_together_start_no_more_than_there_may_be() {
    let gateway = Gateway::start(&["child.max=3"]).await;
    let many: Vec<_> =
        (0..12).map(|_| tokio::spawn(initialize("2025-11-25").send(gateway.address))).collect();
    let mut begun = Vec::new();
    for one in many {
        let said = within("an answer", one).await.unwrap();
        match said.header("mcp-session-id") {
            Some(id) => {
                begun.push(Session { server: gateway.address, id: id.to_owned(), path: "/mcp".to_owned() })
            }
            None => assert_eq!(said.fault().2, "too_many_processes"),
        }
    }
    assert_eq!((begun.len(), gateway.children().len()), (3, 3));
}
