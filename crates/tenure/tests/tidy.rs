//! Holds the rules that keep the map true: who may depend on whom, what a file may hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names in `[dependencies]` of a crate, without those for tests.
fn dependencies(krate: &str) -> Vec<String> {
    let manifest = read(&root().join("crates").join(krate).join("Cargo.toml"));
    let manifest: toml::Table = manifest.parse().expect("a manifest");
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

/// Every Rust file under a folder, with its text.
fn sources(folder: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    let name = |path: &Path| path.strip_prefix(root()).expect("in the workspace").display().to_string();
    found.iter().map(|path| (name(path), read(path))).collect()
}

/// The part of a file before its tests, without comments.
fn code(text: &str) -> String {
    let before_tests = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = before_tests.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("/tests.rs") || name.contains("/examples/")
}

#[test]
fn the_arrows_between_crates_point_one_way() {
    let workspace = |krate: &str| -> Vec<String> {
        dependencies(krate).into_iter().filter(|name| name.starts_with("tenure")).collect()
    };
    assert_eq!(workspace("tenure-protocol"), [""; 0], "the words of the protocol stand alone");
    assert_eq!(
        workspace("tenure-session"),
        ["tenure-protocol"],
        "the session crate knows none of the crates around it"
    );
    for krate in ["tenure-transport", "tenure-backend", "tenure-store", "tenure-testkit"] {
        assert_eq!(workspace(krate), ["tenure-session"], "{krate}");
    }
    assert_eq!(workspace("tenure-client"), ["tenure-protocol"], "clients of other servers use it as well");
    assert!(!workspace("tenure").contains(&"tenure-testkit".to_owned()), "the testkit is for tests");
}

#[test]
fn an_embedder_does_not_get_the_command_line() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            "tenure",
            "--no-default-features",
            "--edges",
            "normal",
            "--prefix",
            "none",
        ])
        .args(["--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let (tree, complaint) = (String::from_utf8_lossy(&tree.stdout), String::from_utf8_lossy(&tree.stderr));
    let names: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"tenure-session"), "{complaint}");
    for name in ["clap", "clap_complete", "indicatif", "listenfd", "sd-notify", "tenure-client"] {
        assert!(!names.contains(&name), "{name} is not for embedders");
    }
}

#[test]
fn the_session_crate_knows_no_http_no_disk_and_no_sockets() {
    let banned =
        ["axum", "hyper", "hyper-util", "http", "http-body", "tower", "reqwest", "rmcp", "fjall", "rustls"];
    let found: Vec<_> =
        dependencies("tenure-session").into_iter().filter(|name| banned.contains(&&**name)).collect();
    assert_eq!(found, [""; 0]);
    for (name, text) in sources("crates/tenure-session/src") {
        for word in ["std::fs", "TcpStream", "TcpListener", "tokio::net", "StatusCode"] {
            assert!(!code(&text).contains(word), "{name} uses {word}");
        }
    }
}

#[test]
fn rules_are_pure() {
    let src = "crates/tenure-session/src";
    let wire = [
        "rules.rs",
        "message.rs",
        "id.rs",
        "protocol.rs",
        "phase.rs",
        "method.rs",
        "record.rs",
        "members.rs",
    ];
    let exchange = ["capability", "digest", "ladder", "meta", "params", "results", "sentinel"];
    let exchange = exchange.map(|file| format!("exchange/{file}.rs"));
    let files = wire.into_iter().chain(exchange.iter().map(String::as_str));
    let files = files.map(|file| (file.to_owned(), read(&root().join(src).join(file))));
    for (name, text) in files.chain(sources(&format!("{src}/bridge/rules"))) {
        for word in ["async ", ".await", "tokio", "Instant::now", "SystemTime"] {
            assert!(!code(&text).contains(word), "{name} uses {word}");
        }
    }
}

#[test]
fn exchanges_know_nothing_of_sessions() {
    for (name, text) in sources("crates/tenure-session/src/exchange") {
        for word in ["runtime::", "Session"] {
            assert!(!code(&text).contains(word), "{name} names {word}");
        }
    }
}

#[test]
fn only_one_file_names_concrete_stores_and_backends() {
    for (name, text) in sources("crates/tenure/src") {
        if is_test(&name) || name.ends_with("/wire.rs") {
            continue;
        }
        for word in ["tenure_store", "RmcpBackend"] {
            assert!(!code(&text).contains(word), "{name} names {word}; that is wire.rs's business");
        }
        assert!(name.contains("/demo/") || !code(&text).contains("tenure_backend"), "{name} names a backend");
    }
}

#[test]
fn only_one_file_turns_errors_into_statuses() {
    for (name, text) in sources("crates/tenure-transport/src/http") {
        let refuses = ["BAD_REQUEST", "FORBIDDEN", "CONFLICT", "TOO_MANY_REQUESTS", "INTERNAL_SERVER_ERROR"];
        let found = refuses.iter().find(|status| code(&text).contains(*status));
        assert!(name.ends_with("/reject.rs") || found.is_none(), "{name} uses {found:?}");
    }
}

#[test]
fn only_two_files_compare_protocol_versions() {
    // What sessions do, and what a bridge takes away from older revisions.
    let compare = ["/protocol.rs", "/bridge/rules/features.rs"];
    for krate in ["tenure-session", "tenure-transport", "tenure-backend", "tenure-store", "tenure"] {
        for (name, text) in sources(&format!("crates/{krate}/src")) {
            if is_test(&name) || compare.iter().any(|file| name.ends_with(file)) {
                continue;
            }
            // A revision's name is a date; only error texts may mention one.
            for line in code(&text).lines().filter(|line| line.contains("\"20") && line.contains("-")) {
                assert!(!line.contains("==") && !line.contains(">="), "{name}: {line}");
            }
            for revision in ["Revision::V20", "V2025_", "V2024_"] {
                assert!(!code(&text).contains(revision), "{name} compares {revision}");
            }
        }
    }
}

#[test]
fn files_are_short_documented_and_plainly_named() {
    let vague = ["core", "common", "util", "utils", "helper", "helpers", "manager", "types", "misc"];
    for (name, text) in sources("crates").into_iter().chain(sources("bench")).chain(sources("crash")) {
        let lines = text.split("#[cfg(test)]").next().unwrap_or_default().lines().count();
        assert!(is_test(&name) || lines <= 800, "{name} has {lines} lines: split it");
        let first = text.lines().find(|line| !line.is_empty()).unwrap_or_default();
        assert!(first.starts_with("//!"), "{name} does not say what it is for");
        let stem = Path::new(&name).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        assert!(!vague.contains(&stem), "{name}: a name that says nothing");
    }
}

#[test]
fn every_decision_record_is_numbered_and_listed() {
    let index = read(&root().join("ARCHITECTURE.md"));
    for entry in fs::read_dir(root().join("docs/design")).expect("docs/design") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        assert!(name.as_bytes()[..4].iter().all(u8::is_ascii_digit), "{name} has no number");
        assert!(index.contains(&name), "ARCHITECTURE.md does not list docs/design/{name}");
    }
}
