//! Several processes share one jar: no process loses entries of another, and a killed process leaves a readable jar.
//!
//! This binary is also the process that it starts: with arguments it writes, without arguments it runs the tests.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tenure_client::{DataSessionId, Dialect, Jar, JarServer, SessionCookie};
use time::OffsetDateTime;

const PROCESSES: usize = 6;
const ENTRIES: usize = 15;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [mode, path, who] = args.as_slice()
        && mode == "write"
    {
        return write(Path::new(path), who);
    }
    no_process_loses_the_entries_of_another();
    a_killed_process_leaves_a_jar_that_can_be_read();
}

/// Writes cookies one by one, and prints a line after each.
#[expect(clippy::print_stdout, reason = "what the parent process reads")]
fn write(path: &Path, who: &str) {
    let jar = Jar::at(path);
    for number in 0.. {
        if number == ENTRIES && who != "endless" {
            return;
        }
        let cookie = SessionCookie::of_id(Dialect::Draft, &DataSessionId::new(format!("{who}-{number}")));
        // Every process writes into a shared record and into its own.
        for server in [JarServer::url("https://shared.example"), JarServer::named(who)] {
            jar.update(|book| book.keep_as_used(&server, &cookie, OffsetDateTime::UNIX_EPOCH)).unwrap();
        }
        println!("{number}");
    }
}

fn start(path: &Path, who: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["write", path.to_str().unwrap(), who])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn ids(path: &Path, server: &JarServer) -> Vec<String> {
    let key = server.key().unwrap();
    let book = Jar::at(path).read().unwrap();
    let record = book.records().into_iter().find(|record| record.key == key);
    record.into_iter().flat_map(|r| r.cookies).map(|kept| kept.cookie.id().reveal().to_owned()).collect()
}

fn no_process_loses_the_entries_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("jar.json");
    let children: Vec<_> = (0..PROCESSES).map(|number| start(&path, &format!("p{number}"))).collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    for number in 0..PROCESSES {
        let who = format!("p{number}");
        let expected: Vec<_> = (0..ENTRIES).map(|entry| format!("{who}-{entry}")).collect();
        assert_eq!(ids(&path, &JarServer::named(who)), expected);
    }
    // The shared record holds at most 64 cookies.
    let shared = ids(&path, &JarServer::url("https://shared.example"));
    assert_eq!(shared.len(), 64.min(PROCESSES * ENTRIES));
}

fn a_killed_process_leaves_a_jar_that_can_be_read() {
    for lines in [1, 2, 5, 9] {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("jar.json");
        let mut child = start(&path, "endless");
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let last = said.nth(lines - 1).unwrap().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let kept = ids(&path, &JarServer::named("endless"));
        let acknowledged: usize = last.parse().unwrap();
        for number in 0..=acknowledged {
            assert!(kept.contains(&format!("endless-{number}")), "{number} of {lines} is lost");
        }
        // The lock ended with the process: the next process does not wait.
        let jar = Jar::at(&path);
        let cookie = SessionCookie::of_id(Dialect::Draft, &DataSessionId::new("after"));
        jar.update(|book| book.keep(&JarServer::named("next"), &cookie, OffsetDateTime::UNIX_EPOCH)).unwrap();
        assert_eq!(ids(&path, &JarServer::named("next")), ["after"]);
        let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["jar.json", "jar.json.lock"], "what it left half written is gone");
    }
}
