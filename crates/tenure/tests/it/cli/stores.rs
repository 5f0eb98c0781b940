//! The default place of sessions: several servers beside each other, and commands that find them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use expect_test::expect_file;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::process::{Said, Server, finish, tenure};
use crate::support::session::Session;
use crate::support::wait::within;

/// A user with a folder for data and nothing in it.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tenure(arguments);
        command.env("XDG_DATA_HOME", self.0.path()).env_remove("STATE_DIRECTORY");
        command
    }

    async fn run(&self, arguments: &[&str]) -> Said {
        let mut said = finish(self.command(arguments)).await;
        let folder = self.0.path().display().to_string();
        (said.out, said.err) = (said.out.replace(&folder, "DATA"), said.err.replace(&folder, "DATA"));
        said
    }

    async fn serve(&self, arguments: &[&str]) -> Server {
        Server::of(self.command(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat())).await
    }

    /// The folder of the store with that name.
    fn store(&self, name: &str) -> PathBuf {
        self.0.path().join("tenure/stores").join(name)
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(self.0.path()).unwrap().next().is_none()
    }
}

async fn stop(server: Server) -> String {
    server.signal("TERM").await;
    let (status, _, logs) = server.ended().await;
    assert_eq!(status.code(), Some(0), "{logs}");
    logs
}

/// Nothing is connected to before a client comes.
const ONE: [&str; 2] = ["--upstream", "http://127.0.0.1:9/one"];
const TWO: [&str; 2] = ["--upstream", "http://127.0.0.1:9/two"];

#[tokio::test]
async fn servers_run_beside_each_other_and_each_finds_its_sessions_again() {
    let home = Home::new();
    let (demo, one, two) = (home.serve(&[]).await, home.serve(&ONE).await, home.serve(&TWO).await);
    let listed = home.run(&["store", "list"]).await;
    expect_file!["snapshots/store_list.txt"].assert_eq(&listed.out);
    let session = Session::start(demo.address()).await;
    let told = home.run(&["sessions", "list", "--json", "--name", "demo"]).await;
    assert!(told.out.contains("\"awake\""), "{}", told.out);
    for server in [demo, one, two] {
        stop(server).await;
    }
    let demo = home.serve(&[]).await;
    let again = Session { server: demo.address(), ..session };
    assert_eq!(again.tool(1, "public_echo", &serde_json::json!({ "text": "on" })).await.status(), 200);
    let listed = home.run(&["store", "list", "--json"]).await;
    let lines: Vec<serde_json::Value> =
        listed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let served: Vec<_> = lines.iter().filter(|line| line["served"] == true).collect();
    assert_eq!((lines.len(), served.len()), (3, 1), "{lines:?}");
    assert_eq!(served[0]["folder"], "DATA/tenure/stores/demo");
    stop(demo).await;
}

#[tokio::test]
async fn the_same_server_twice_is_told_what_to_do() {
    let home = Home::new();
    let first = home.serve(&ONE).await;
    let second = home.run(&[&["serve", "--listen", "127.0.0.1:0"], &ONE[..]].concat()).await;
    assert_eq!((second.code, second.out.as_str()), (Some(1), ""));
    expect_file!["snapshots/same_server_twice.txt"].assert_eq(&second.err);
    let named = home.serve(&[&["--name", "second"], &ONE[..]].concat()).await;
    assert!(home.store("second").join("data").exists());
    stop(named).await;
    stop(first).await;
}

#[tokio::test]
async fn commands_find_the_one_store_or_the_one_that_is_served_and_ask_otherwise() {
    let home = Home::new();
    let nothing = home.run(&["sessions", "list"]).await;
    expect_file!["snapshots/no_store_yet.txt"].assert_eq(&nothing.err);
    let import = home.run(&["sessions", "import", "-"]).await;
    expect_file!["snapshots/no_store_to_import_into.txt"].assert_eq(&import.err);

    stop(home.serve(&[]).await).await;
    let only = home.run(&["sessions", "list", "--json"]).await;
    assert_eq!((only.code, only.out.as_str(), only.err.as_str()), (Some(0), "", ""), "it is the only one");
    assert_eq!(home.run(&["store", "check"]).await.code, Some(0));

    stop(home.serve(&ONE).await).await;
    let several = home.run(&["sessions", "list"]).await;
    assert_eq!(several.code, Some(1));
    expect_file!["snapshots/several_stores.txt"].assert_eq(&several.err);
    assert_eq!(home.run(&["store", "check", "--name", "demo"]).await.code, Some(0));
    let unknown = home.run(&["sessions", "list", "--name", "nobody"]).await;
    expect_file!["snapshots/no_such_name.txt"].assert_eq(&unknown.err);

    let server = home.serve(&[]).await;
    let session = Session::start(server.address()).await;
    let found = home.run(&["sessions", "list", "--json"]).await;
    assert!(found.out.contains("\"awake\""), "{}", found.out);
    assert_eq!(found.err, "of the server that runs, whose store is `DATA/tenure/stores/demo`\n");
    drop(session);
    stop(server).await;
}

#[tokio::test]
async fn a_configuration_that_names_the_server_leads_to_its_store() {
    let home = Home::new();
    let file = home.0.path().join("tenure.toml");
    std::fs::write(&file, "[upstream]\nurl = \"http://127.0.0.1:9/one\"\n").unwrap();
    let file = file.display().to_string();
    stop(home.serve(&ONE).await).await;
    stop(home.serve(&[]).await).await;
    let found = home.run(&["sessions", "list", "--json", "--config", &file]).await;
    assert_eq!((found.code, found.out.as_str(), found.err.as_str()), (Some(0), "", ""));
}

/// A process over stdio that is ready.
async fn over_stdio(home: &Home, arguments: &[&str]) -> Child {
    let mut command = home.command(&[&["stdio"], arguments].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut logs = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = within("a line of the log", logs.next_line()).await.unwrap().expect("it runs");
    assert!(line.contains("serving standard input and output"), "{line}");
    child
}

#[tokio::test]
async fn a_client_may_start_several_over_stdio_and_they_leave_nothing_behind() {
    let home = Home::new();
    let children =
        [over_stdio(&home, &[]).await, over_stdio(&home, &[]).await, over_stdio(&home, &ONE).await];
    for mut child in children {
        drop(child.stdin.take());
        assert!(within("it ends", child.wait()).await.unwrap().success());
    }
    assert!(home.is_empty());
    let mut kept = over_stdio(&home, &["--name", "kept"]).await;
    drop(kept.stdin.take());
    assert!(within("it ends", kept.wait()).await.unwrap().success());
    assert!(home.store("kept").join("data").exists());
}

#[tokio::test]
async fn the_folder_of_a_service_manager_comes_first() {
    let (home, state) = (Home::new(), TempDir::new().unwrap());
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("STATE_DIRECTORY", state.path());
    let server = Server::of(command).await;
    assert!(state.path().join("data").exists() && home.is_empty());
    let mut list = home.command(&["sessions", "list", "--json"]);
    list.env("STATE_DIRECTORY", state.path());
    let listed = finish(list).await;
    assert_eq!((listed.code, listed.err.as_str()), (Some(0), ""));
    stop(server).await;
}

#[tokio::test]
async fn the_store_of_an_earlier_version_goes_on_as_the_demo_s_and_others_are_told_of_it() {
    let home = Home::new();
    let earlier: &Path = &home.0.path().join("tenure");
    let url = format!("disk:{}", earlier.display());
    stop(home.serve(&["--store", &url]).await).await;
    stop(home.serve(&[]).await).await;
    assert!(!home.store("demo").exists());
    let logs = stop(home.serve(&[&ONE[..], &["--log", "json"]].concat()).await).await;
    let warning = logs.lines().find(|line| line.contains("an earlier version kept sessions")).unwrap();
    assert!(warning.contains(&format!("--store {url}")), "{warning}");
    // Once it has a store of its own, nothing needs to be said.
    let logs = stop(home.serve(&ONE).await).await;
    assert!(!logs.contains("an earlier version"), "{logs}");
    let listed = home.run(&["store", "list"]).await;
    assert_eq!(listed.out.lines().next(), Some("--store disk:DATA/tenure"));
}
