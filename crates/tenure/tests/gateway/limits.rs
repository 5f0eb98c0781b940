//! What a child may use.

use serde_json::json;

use crate::family::limit;
use crate::gateway::{Gateway, heard};

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
    // Whoever runs the tests may have left files open to all of us; sockets and the store are the gateway's alone.
    let store = gateway.folder.path().display().to_string();
    let inherited = all(std::process::id());
    let ours = |to: &&String| (to.starts_with("socket:") || to.contains(&store)) && !inherited.contains(to);
    assert_eq!(open.iter().filter(ours).collect::<Vec<_>>(), [""; 0], "{open:?}");
}
