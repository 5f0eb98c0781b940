//! Servers that keep their sessions in memory: operators reach them as long as they run.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::place::{kill, stop};
use crate::cli::process::{Said, Server, finish, tenure};
use crate::support::session::Session;

/// A user whose folders are in `home`.
fn command(home: &Path, arguments: &[&str]) -> tokio::process::Command {
    let mut command = tenure(arguments);
    command
        .env("XDG_RUNTIME_DIR", home.join("run"))
        .env("XDG_DATA_HOME", home.join("data"))
        .env("HOME", home);
    command
}

async fn serve(home: &Path) -> Server {
    Server::of(command(home, &["serve", "--listen", "127.0.0.1:0", "--store", "memory:"])).await
}

async fn list(home: &Path, arguments: &[&str]) -> Said {
    finish(command(home, &[&["sessions", "list"], arguments].concat())).await
}

#[tokio::test]
async fn the_sessions_of_a_server_in_memory_can_be_listed_and_ended() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("run")).unwrap();
    let server = serve(home.path()).await;
    let session = Session::start(server.address()).await;
    for arguments in [
        &["--json"][..],
        &["--json", "--store", "memory:"],
        &["--json", "--store", "memory:", "--name", "demo"],
    ] {
        let said = list(home.path(), arguments).await;
        let row: Value = serde_json::from_str(said.out.trim()).unwrap_or_else(|_| panic!("{}", said.err));
        assert_eq!(row["state"], "awake", "{arguments:?}");
    }
    let folder = home.path().join("run/tenure/running");
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let label = super::place::label(&session);
    let said = finish(command(home.path(), &["sessions", "revoke", &label])).await;
    assert_eq!(said.out, format!("revoked {label}\n"), "{}", said.err);

    // Two of them have to be told apart.
    let second = serve(home.path()).await;
    let said = list(home.path(), &[]).await;
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("several servers keep their sessions in memory"), "{}", said.err);
    stop(second).await;
    assert_eq!(list(home.path(), &[]).await.code, Some(0));

    // The socket of a killed one is not taken for a server.
    kill(server).await;
    let said = list(home.path(), &[]).await;
    assert_eq!(said.code, Some(1));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    expect_test::expect![[r"
        error: no server that runs keeps its sessions in memory

        hint: `tenure serve --store memory:` does, as long as it runs, for the user who started it
    "]]
    .assert_eq(&list(home.path(), &["--store", "memory:"]).await.err);
}

async fn list_at(home: &Path, socket: &Path) -> Said {
    let mut command = command(home, &["sessions", "list", "--json", "--store", "memory:"]);
    command.env("TENURE_CONTROL_PATH", socket);
    finish(command).await
}

#[tokio::test]
async fn two_servers_cannot_have_the_same_control_socket() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("run")).unwrap();
    let socket = home.path().join("tenure.sock");
    let path = format!("control.path={}", socket.display());
    let serving = ["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--set", &path];
    let listed = async || list_at(home.path(), &socket).await;
    let first = Server::of(command(home.path(), &serving)).await;
    let _session = Session::start(first.address()).await;
    let second = finish(command(home.path(), &serving)).await;
    assert_eq!((second.code, second.out.as_str()), (Some(1), ""), "{}", second.err);
    expect_test::expect![[r"
        error: cannot listen on `DIR/tenure.sock` for commands
          caused by: another process listens there

        hint: stop the other process, or set `control.path` to another file: each process needs one of its own
    "]]
    .assert_eq(&second.err.replace(&home.path().display().to_string(), "DIR"));
    let said = listed().await;
    assert!(said.out.contains("awake"), "the first one is still reached: {} {}", said.out, said.err);

    // What a killed one left is replaced, and what is no socket stays as it is.
    kill(first).await;
    let third = Server::of(command(home.path(), &serving)).await;
    assert_eq!(listed().await.code, Some(0));
    stop(third).await;
    assert!(!socket.exists(), "removed by the one that made it");
    std::fs::write(&socket, "a file of the user").unwrap();
    let fourth = Server::of(command(home.path(), &serving)).await;
    stop(fourth).await;
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "a file of the user");
}

#[tokio::test]
async fn a_server_removes_no_socket_that_another_one_has_made() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("run")).unwrap();
    let socket = home.path().join("tenure.sock");
    let path = format!("control.path={}", socket.display());
    let serving = ["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--set", &path];
    let first = Server::of(command(home.path(), &serving)).await;
    // As a person does who thinks that it is left over.
    std::fs::remove_file(&socket).unwrap();
    let second = Server::of(command(home.path(), &serving)).await;
    stop(first).await;
    let said = list_at(home.path(), &socket).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    stop(second).await;
}
