//! Tests of the file: its permissions, damaged files, and what a write leaves behind.

use std::fs;

use serde_json::json;

use crate::{
    clock,
    cookie::SessionCookie,
    dialect::Dialect,
    error::ClientErrorKind,
    jar::{Jar, JarServer},
};

fn cookie(id: &str) -> SessionCookie {
    SessionCookie::of_id(Dialect::Strawman, &crate::DataSessionId::new(id))
}

fn put(jar: &Jar, server: &JarServer, id: &str) {
    jar.update(|book| book.keep_as_used(server, &cookie(id), clock::now())).unwrap();
}

#[test]
fn what_one_jar_writes_another_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep").join("mcp-cookie.json");
    let server = JarServer::url("https://example.com/mcp");
    assert_eq!(Jar::at(&path).active(&server, Dialect::Strawman).unwrap(), None);
    assert!(!path.exists(), "reading creates nothing");
    put(&Jar::at(&path), &server, "a");
    assert_eq!(Jar::at(&path).active(&server, Dialect::Strawman).unwrap(), Some(cookie("a")));
}

#[cfg(unix)]
#[test]
fn a_jar_is_for_its_owner_alone_and_made_so() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sub").join("jar.json");
    put(&Jar::at(&path), &JarServer::url("u:1"), "a");
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(&path.with_file_name("jar.json.lock")), 0o600);

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    Jar::at(&path).read().unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_damaged_jar_is_set_aside_and_not_before_something_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jar.json");
    fs::write(&path, "{\"version\": 3, \"cook").unwrap();
    let jar = Jar::at(&path);
    assert_eq!(jar.read().unwrap().records(), []);
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"version\": 3, \"cook", "reading changes nothing");

    put(&jar, &JarServer::url("u:1"), "a");
    assert_eq!(jar.read().unwrap().records().len(), 1);
    let aside: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("jar.json.damaged-"))
        .collect();
    assert_eq!(aside.len(), 1);
    assert_eq!(fs::read_to_string(&aside[0]).unwrap(), "{\"version\": 3, \"cook");
}

#[test]
fn a_jar_of_a_newer_program_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jar.json");
    let newer = json!({"version": 4, "cookies": {}}).to_string();
    fs::write(&path, &newer).unwrap();
    let jar = Jar::at(&path);
    assert_eq!(jar.read().unwrap_err().kind(), ClientErrorKind::Jar);
    assert_eq!(jar.update(|_| ()).unwrap_err().kind(), ClientErrorKind::Jar);
    assert_eq!(fs::read_to_string(&path).unwrap(), newer);
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jar.json");
    let jar = Jar::at(&path);
    put(&jar, &JarServer::url("u:1"), "a");
    fs::remove_file(&path).unwrap();
    jar.update(|_| ()).unwrap();
    assert!(!path.exists());
}

#[test]
fn no_scraps_are_left_beside_the_jar() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jar.json");
    for number in 0..5 {
        put(&Jar::at(&path), &JarServer::url("u:1"), &format!("id{number}"));
    }
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["jar.json", "jar.json.lock"]);
}

#[cfg(unix)]
#[test]
fn nothing_is_written_through_what_lies_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jar.json");
    let precious = folder.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    std::os::unix::fs::symlink(&precious, folder.path().join("jar.json.tmp")).unwrap();
    put(&Jar::at(&path), &JarServer::url("u:1"), "a");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
}
