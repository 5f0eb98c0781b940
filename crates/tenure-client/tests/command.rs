//! Tests of a server that runs as a child process. This binary is also that server.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::{
    env,
    io::{BufRead, Write},
    path::Path,
};

use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use tenure_client::{
    ClientErrorKind, ConnectedClient, Era, Jar, ServerCommand, SessionOptions, connect_command,
};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    match env::args().nth(1).as_deref() {
        Some("serve") => return serve(Stranger::Answer),
        Some("serve-strictly") => return serve(Stranger::End),
        Some("serve-for-ever") => {
            serve(Stranger::Answer);
            loop {
                std::thread::park();
            }
        }
        _ => {}
    }
    the_next_process_goes_on_with_the_session_of_the_last().await;
    the_child_has_its_own_folder_and_environment().await;
    a_program_that_is_not_there_is_named().await;
    a_child_that_ends_at_once_is_no_connection().await;
    a_child_is_told_to_end_and_waited_for().await;
    a_child_that_ends_over_an_unknown_request_is_started_again().await;
    a_child_that_does_not_end_is_killed().await;
}

/// How a server reacts to an unknown method.
#[derive(Clone, Copy, PartialEq)]
enum Stranger {
    Answer,
    End,
}

/// A server of the later draft that reports what it receives.
fn serve(stranger: Stranger) {
    let mut created = 0;
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let result = match request["method"].as_str() {
            Some("initialize") => json!({"protocolVersion": "2025-11-25", "capabilities": {"sessions": {}},
                "serverInfo": {"name": "child", "version": "1"}}),
            Some("sessions/create") => {
                created += 1;
                json!({"session": {"sessionId": format!("of-{}", std::process::id()), "state": created}})
            }
            Some("tools/call") => json!({"content": [], "structuredContent": {
                "session": request["params"]["_meta"]["io.modelcontextprotocol/session"]["sessionId"],
                "created": created, "process": std::process::id(),
                "folder": env::current_dir().unwrap(), "colour": env::var("TEST_COLOUR").ok(),
            }}),
            _ if request.get("id").is_none() => continue,
            _ if stranger == Stranger::End => std::process::exit(1),
            _ => {
                let error = json!({"code": -32601, "message": "Method not found"});
                let answer = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
                writeln!(std::io::stdout().lock(), "{answer}").unwrap();
                continue;
            }
        };
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        writeln!(std::io::stdout().lock(), "{answer}").unwrap();
    }
    if let Ok(path) = env::var("TEST_LAST_WORDS") {
        // Long enough to notice a parent that does not wait.
        std::hint::black_box((0..5_000_000u64).fold(0, |sum, number| sum ^ number.wrapping_mul(31)));
        std::fs::write(path, "bye").unwrap();
    }
}

fn command() -> ServerCommand {
    ServerCommand::new(env::current_exe().unwrap().to_str().unwrap(), ["serve"])
}

async fn look(client: &ConnectedClient) -> Value {
    client.call_tool(CallToolRequestParams::new("look")).await.unwrap().structured_content.unwrap()
}

async fn the_next_process_goes_on_with_the_session_of_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let jar = Jar::at(folder.path().join("jar.json"));
    let client = connect_command(&command(), SessionOptions::new(jar.clone())).await.unwrap();
    let first = look(&client).await;
    assert_eq!(first["session"], format!("of-{}", first["process"]));
    assert_eq!(first["created"], 1);
    client.close().await.unwrap();

    let client = connect_command(&command(), SessionOptions::new(jar.clone())).await.unwrap();
    let second = look(&client).await;
    assert_ne!(first["process"], second["process"]);
    assert_eq!((&second["session"], &second["created"]), (&first["session"], &json!(0)));
    client.close().await.unwrap();

    // Another principal gets another session.
    let mut command = command();
    command.principal = Some("bob".to_owned());
    let client = connect_command(&command, SessionOptions::new(jar)).await.unwrap();
    assert_eq!(look(&client).await["created"], 1);
    client.close().await.unwrap();
}

async fn the_child_has_its_own_folder_and_environment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let mut command = command();
    command.cwd = Some(path.clone());
    command.env.insert("TEST_COLOUR".into(), "red".into());
    let client = connect_command(&command, SessionOptions::new(Jar::in_memory())).await.unwrap();
    let seen = look(&client).await;
    assert_eq!(Path::new(seen["folder"].as_str().unwrap()), path);
    assert_eq!(seen["colour"], "red");
    client.close().await.unwrap();
}

async fn a_program_that_is_not_there_is_named() {
    let command = ServerCommand::new("no-such-program-anywhere", ["--token", "geheim"]);
    let error = connect_command(&command, SessionOptions::new(Jar::in_memory())).await.unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::Closed);
    assert_eq!(error.to_string(), "start `no-such-program-anywhere`");
    assert!(!format!("{command:?}").contains("geheim"));
}

async fn a_child_that_ends_at_once_is_no_connection() {
    let mut command = command();
    command.args = vec!["--help".to_owned(), "serve".to_owned()];
    command.program = "true".to_owned();
    let error = connect_command(&command, SessionOptions::new(Jar::in_memory())).await.unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::Closed);
}

async fn a_child_is_told_to_end_and_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let last_words = folder.path().join("last-words");
    let mut command = command();
    command.env.insert("TEST_LAST_WORDS".into(), last_words.clone().into());
    let client = connect_command(&command, SessionOptions::new(Jar::in_memory())).await.unwrap();
    let process = look(&client).await["process"].as_u64().unwrap();
    client.close().await.unwrap();
    assert_eq!(std::fs::read_to_string(last_words).unwrap(), "bye");
    assert!(!Path::new(&format!("/proc/{process}")).exists());
}

async fn a_child_that_ends_over_an_unknown_request_is_started_again() {
    let mut command = command();
    command.args = vec!["serve-strictly".to_owned()];
    let client = connect_command(&command, SessionOptions::new(Jar::in_memory())).await.unwrap();
    assert_eq!((client.era(), look(&client).await["created"].clone()), (Era::Legacy, json!(1)));
    client.close().await.unwrap();
}

async fn a_child_that_does_not_end_is_killed() {
    let mut command = command();
    command.args = vec!["serve-for-ever".to_owned()];
    let client = connect_command(&command, SessionOptions::new(Jar::in_memory())).await.unwrap();
    let process = look(&client).await["process"].as_u64().unwrap();
    // The paused clock advances as soon as all tasks are idle.
    tokio::time::pause();
    client.close().await.unwrap();
    assert!(!Path::new(&format!("/proc/{process}")).exists());
}
