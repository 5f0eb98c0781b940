//! Many commands at once on one jar.

use std::collections::BTreeSet;

use serde_json::json;

use super::home::Home;
use crate::support::wait::within;

const PROCESSES: usize = 8;

#[tokio::test]
async fn processes_at_once_share_the_session_that_is_there() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    home.told(&["jar", "new", url]).await;
    let notes: Vec<_> = (0..PROCESSES).map(|number| format!("text={number}")).collect();
    let mut running = Vec::new();
    for note in &notes {
        let mut command = home.command(&["call", url, "notebook_append", note]);
        running.push(command.stdout(std::process::Stdio::null()).spawn().unwrap());
    }
    for mut process in running {
        assert!(within("the command ends", process.wait()).await.unwrap().success());
    }
    let read = home.call(&[url, "notebook_read"]).await;
    let found: BTreeSet<_> = read["notes"].as_array().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), PROCESSES, "{read}");
    assert_eq!(home.ids(&[]).await.len(), 1);
}

#[tokio::test]
async fn processes_at_once_on_an_empty_jar_lose_no_session() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    let mut running = Vec::new();
    for _ in 0..PROCESSES {
        let mut command = home.command(&["call", url, "notebook_append", "text=mine", "--new"]);
        running.push(command.stdout(std::process::Stdio::null()).spawn().unwrap());
    }
    for mut process in running {
        assert!(within("the command ends", process.wait()).await.unwrap().success());
    }
    let rows = home.sessions(&[]).await;
    assert_eq!(rows.len(), PROCESSES);
    assert_eq!(rows.iter().filter(|row| row["in_use"] == true).count(), 1);
    for id in home.ids(&[]).await {
        assert_eq!(home.call(&[url, "notebook_read", "--session", &id]).await, json!({ "notes": ["mine"] }));
    }
}
