//! The control socket: for its owner alone, gone with its server, and never in the way.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use expect_test::expect_file;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::place::{Place, kill, label, stop, url};
use crate::cli::process::Server;
use crate::support::session::Session;
use crate::support::wait::within;

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
}

#[tokio::test]
async fn the_socket_is_for_its_owner_alone_and_goes_when_the_server_stops() {
    let place = Place::new();
    let server = place.serve().await;
    let socket = place.store().join("control.sock");
    assert!(is_socket(&socket));
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    stop(server).await;
    assert!(socket.symlink_metadata().is_err(), "gone");
}

#[tokio::test]
async fn a_socket_that_a_killed_server_left_is_replaced() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    kill(server).await;
    assert!(is_socket(&place.store().join("control.sock")), "no process was left to remove it");
    // Without a server the command opens the store itself, and with one again it asks that.
    assert_eq!(place.rows(&[]).await[0]["state"], "dormant");
    let server = place.serve().await;
    session.moved_to(server.address()).listen().await.event().await.unwrap();
    assert_eq!(place.rows(&[]).await[0]["state"], "awake");
}

#[tokio::test]
async fn a_path_that_is_too_long_for_a_socket_stops_no_server() {
    let place = Place::new();
    let folder = place.beside(&"long/".repeat(30));
    let server = Server::start(&["--store", &url(&folder)]).await;
    let session = Session::start(server.address()).await;
    assert!(!folder.join("control.sock").exists());
    let said = place.refused(&["sessions", "list", "--store", &url(&folder)]).await;
    expect_file!["snapshots/no_socket.txt"].assert_eq(&said);
    server.signal("TERM").await;
    let (status, _, logs) = server.ended().await;
    assert_eq!(status.code(), Some(0));
    assert!(logs.contains("no control socket"), "{logs}");
    // Offline it needs no socket.
    let said = place.told(&["sessions", "list", "--store", &url(&folder)]).await;
    assert!(said.contains(&label(&session)), "{said}");
}

#[tokio::test]
async fn the_socket_tells_of_every_background_loop_and_a_list_only_of_those_that_panicked() {
    let place = Place::new();
    let server = place.serve().await;
    Session::start(server.address()).await;
    let mut socket = UnixStream::connect(place.store().join("control.sock")).await.unwrap();
    socket.write_all(b"GET /v1/loops HTTP/1.1\r\nhost: control\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    within("an answer", socket.read_to_string(&mut answer)).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let loops: Vec<Value> = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    let mut names: Vec<_> = loops.iter().map(|known| known["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let all = [
        "deadlines of sessions",
        "history of figures",
        "limits of clients",
        "load of the process",
        "sweep of data sessions",
        "sweep of kept calls",
        "sweep of sessions",
        "sweep of tasks",
    ];
    assert_eq!(names, all, "those of a bridge are there once it has been used");
    assert!(loops.iter().all(|known| known["restarts"] == 0 && known["is_down"] == false), "{body}");
    let said = place.run(&["sessions", "list"]).await;
    assert!(!said.err.contains("loop"), "{}", said.err);
}

#[tokio::test]
async fn something_else_of_that_name_is_left_alone() {
    let place = Place::new();
    std::fs::create_dir_all(place.store()).unwrap();
    let file = place.store().join("control.sock");
    std::fs::write(&file, "mine").unwrap();
    let server = place.serve().await;
    Session::start(server.address()).await;
    stop(server).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[tokio::test]
async fn connections_that_say_nothing_hold_up_neither_others_nor_the_end() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    let socket = place.store().join("control.sock");
    let mut silent = Vec::new();
    for number in 0..10 {
        let mut connection = UnixStream::connect(&socket).await.unwrap();
        if number % 2 == 0 {
            let part = b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf";
            connection.write_all(part).await.unwrap();
        }
        silent.push(connection);
    }
    assert_eq!(place.rows(&[]).await[0]["label"], label(&session));
    stop(server).await;
}

#[tokio::test]
async fn operators_can_look_while_a_server_takes_long_to_stop() {
    let place = Place::new();
    let server = place.serve_with(&["--set", "shutdown.grace=1h"]).await;
    let session = Session::start(server.address()).await;
    let mut stream = super::place::long_call(&session, 1).await;
    server.signal("TERM").await;
    // It takes no new connections from the moment it begins to stop.
    let closed = async { while tokio::net::TcpStream::connect(server.address()).await.is_ok() {} };
    crate::support::wait::within("it begins to stop", closed).await;
    assert_eq!(place.rows(&[]).await[0]["calls"], 1);
    place.told(&["sessions", "revoke", &label(&session)]).await;
    while stream.message().await.is_some() {}
    let (status, _, logs) = server.ended().await;
    assert_eq!(status.code(), Some(0), "{logs}");
}

#[tokio::test]
async fn what_has_no_sessions_to_look_at_is_explained() {
    let place = Place::new();
    let mut all = String::new();
    for arguments in [
        &["sessions", "list"][..],
        &["sessions", "list", "--store", "memory:"],
        &["sessions", "list", "--store", "redis://localhost"],
        &["sessions", "list", "--config", "missing.toml"],
        &["store", "check"],
        &["store", "backup", "copy"],
        &["store", "copy", "disk:none", "disk:new"],
    ] {
        all.push_str(&format!("## {}\n{}\n", arguments.join(" "), place.refused(arguments).await));
    }
    expect_file!["snapshots/no_store.txt"].assert_eq(&all);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "nothing was made");
}
