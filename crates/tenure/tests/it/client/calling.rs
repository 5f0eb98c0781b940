//! `tenure call` and `tenure tools`: what is sent, what is printed, how it ends.

use std::process::Stdio;

use expect_test::expect_file;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;

use super::home::Home;
use crate::support::wait::within;

#[tokio::test]
async fn a_result_is_printed_as_text_as_structure_or_whole() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    home.call(&[url, "notebook_append", "text=one"]).await;
    assert_eq!(home.told(&["call", url, "notebook_read"]).await, "{\"notes\":[\"one\"]}\n");
    assert_eq!(
        home.told(&["call", url, "notebook_read", "--json"]).await,
        "{\n  \"notes\": [\n    \"one\"\n  ]\n}\n"
    );
    let raw = home.told(&["call", url, "notebook_read", "--raw", "--era", "legacy"]).await;
    let whole: Value = serde_json::from_str(&raw).unwrap();
    let text = r#"{"notes":["one"]}"#;
    let expected =
        json!({ "content": [{ "type": "text", "text": text }], "structuredContent": { "notes": ["one"] } });
    assert_eq!(whole, expected);
    let raw = home.told(&["call", url, "notebook_read", "--raw"]).await;
    assert!(raw.contains("resultType") && !raw.contains("sess-"), "{raw}");
    // A tool without structured content.
    let listed = home.call(&[url, "public_echo", "text=hi"]).await;
    assert_eq!(listed, json!([{ "type": "text", "text": "hi" }]));
}

#[tokio::test]
async fn a_tool_that_fails_is_heard_on_standard_error() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    let said = home.run(&["call", url, "hashcheck_verify", "name=x", "text=y"]).await;
    let complaint = "Nothing is kept under `x`. Store it with hashcheck_store.\n";
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(1), "", complaint));
    let said = home.run(&["call", url, "hashcheck_verify", "name=x", "text=y", "--raw"]).await;
    let whole: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &whole["isError"], said.err.as_str()), (Some(1), &json!(true), ""));
}

#[tokio::test]
async fn arguments_come_from_files_and_pipes_too() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    std::fs::write(home.place.beside("note.json"), r#"{ "text": "from a file" }"#).unwrap();
    assert_eq!(home.told(&["call", url, "public_echo", "@note.json"]).await, "from a file\n");

    let mut command = home.command(&["call", url, "public_echo", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(br#"{ "text": "from a pipe" }"#).await.unwrap();
    let output = within("the command ends", child.wait_with_output()).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "from a pipe\n");
}

#[tokio::test]
async fn what_cannot_be_called_is_explained() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    // The arguments are read before anything connects, so no server needs to be there.
    let unused = "http://127.0.0.1:1/mcp";
    // A server that accepts connections and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}/mcp", listener.local_addr().unwrap());
    let cases: [(&str, &[&str]); 14] = [
        ("no such tool", &["call", url, "notebook_raed"]),
        ("another path", &["call", &url.replace("/mcp", "/nope"), "notebook_read"]),
        ("too slow", &["call", url, "long_task", "seconds:=3600", "--timeout", "3s"]),
        ("silent", &["call", &silent, "notebook_read", "--timeout", "50ms"]),
        ("bad JSON", &["call", unused, "notebook_append", "{\"text\":"]),
        ("no object", &["call", unused, "notebook_append", "[1]"]),
        ("no argument", &["call", unused, "notebook_append", "hello"]),
        ("no file", &["call", unused, "notebook_append", "@no/such/file"]),
        ("no tool", &["call", unused]),
        ("no server", &["call", "notebook_read"]),
        ("two servers", &["call", unused, "notebook_read", "--", "tenure", "stdio"]),
        ("no such program", &["call", "notebook_read", "--", "no-such-program"]),
        ("a program that ends", &["call", "notebook_read", "--", "false"]),
        (
            "a variable without a token",
            &["call", unused, "notebook_read", "--bearer-env", "NO_SUCH_VARIABLE"],
        ),
    ];
    let mut all = String::new();
    for (name, arguments) in cases {
        all.push_str(&format!("## {name}\n{}\n", home.refused(arguments).await));
    }
    expect_file!["snapshots/refused_calls.txt"].assert_eq(&all);
    assert!(!home.jar().exists() || home.ids(&[]).await.len() <= 1);
}

#[tokio::test]
async fn the_logs_of_the_server_are_shown_on_demand() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let call = ["call", &server.url, "count_slowly", "to:=2", "interval_ms:=1", "tag=x"];
    assert_eq!(home.told(&call).await, "x: counted to 2\n");
    let said = home.run(&[&call[..], &["-v"]].concat()).await;
    assert_eq!(said.out, "x: counted to 2\n");
    let expected = "info: {\"n\":1,\"tag\":\"x\"}\ninfo: {\"n\":2,\"tag\":\"x\"}\nsession sess-xxxxxxx…\n";
    assert_eq!(home.plain(&said.err), expected);
}

#[tokio::test]
async fn an_interrupt_ends_the_call_here_and_there() {
    for era in ["legacy", "modern"] {
        let home = Home::new();
        let server = home.serve(&[]).await;
        let call = ["call", &server.url, "count_slowly", "to=1000", "interval_ms=10000", "tag=x", "-v"];
        let mut command = home.command(&[&call[..], &["--era", era]].concat());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        within("the first number", lines.next_line()).await.unwrap().unwrap();
        let id = child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().await.unwrap().success());
        let status = within("the command ends", child.wait()).await.unwrap();
        assert_eq!(status.code(), Some(130));
        // The session of the connection, where there is one, is ended with it; the data session is another matter.
        let rows = home.place.rows(&[]).await;
        let states: Vec<_> = rows.iter().map(|row| row["state"].clone()).collect();
        assert_eq!(states, if era == "legacy" { vec![json!("ended")] } else { Vec::new() });
        within("the call ends at the server", async {
            while !home.place.told(&["calls", "--json"]).await.is_empty() {}
        })
        .await;
        assert_eq!(home.sessions(&[]).await[0]["state"], "active");
    }
}

#[tokio::test]
async fn tools_are_listed_for_people_and_for_programs() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    expect_file!["snapshots/tools.txt"].assert_eq(&home.told(&["tools", &server.url]).await);
    let stdio = home.stdio();
    let stdio: Vec<_> = stdio.iter().map(String::as_str).collect();
    crate::operator::place::stop(server).await;
    let out = home.told(&[&["tools", "--json"], &stdio[..]].concat()).await;
    let tools: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let append = tools.iter().find(|tool| tool["name"] == "notebook_append").unwrap();
    assert_eq!(
        (&append["_meta"]["sessionRequired"], &append["inputSchema"]["type"]),
        (&json!(true), &json!("object"))
    );
    assert!(!home.jar().exists(), "to look is to keep nothing");
}
