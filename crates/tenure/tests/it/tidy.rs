//! Holds the rules that keep the map true: who may depend on whom, what a file may hold.

use std::collections::{BTreeMap, BTreeSet};
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
    assert_eq!(
        workspace("tenure-transport"),
        ["tenure-auth", "tenure-protocol", "tenure-session"],
        "it asks who is calling"
    );
    for krate in ["tenure-layers", "tenure-backend", "tenure-store", "tenure-testkit"] {
        assert_eq!(workspace(krate), ["tenure-protocol", "tenure-session"], "{krate}");
    }
    assert_eq!(workspace("tenure-store-nats"), ["tenure-session"], "an engine beside the others");
    assert_eq!(workspace("tenure-auth"), [""; 0], "it stands in front of any HTTP service");
    assert_eq!(workspace("tenure-client"), ["tenure-protocol"], "clients of other servers use it as well");
    assert!(!workspace("tenure").contains(&"tenure-testkit".to_owned()), "the testkit is for tests");
}

/// The crates whose modules and names are held against each other.
const CRATES: [&str; 13] = [
    "crates/tenure-protocol",
    "crates/tenure-session",
    "crates/tenure-layers",
    "crates/tenure-backend",
    "crates/tenure-transport",
    "crates/tenure-store",
    "crates/tenure-store-nats",
    "crates/tenure-auth",
    "crates/tenure-client",
    "crates/tenure-testkit",
    "crates/tenure",
    "bench",
    "crash",
];

/// The top module of a crate that a file belongs to.
fn top_module(krate: &str, name: &str) -> String {
    let path = name.strip_prefix(krate).and_then(|rest| rest.strip_prefix("/src/")).unwrap_or(name);
    path.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned()
}

/// Which top modules of a crate use which others.
fn module_uses(krate: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, text) in sources(&format!("{krate}/src")) {
        let module = top_module(krate, &name);
        if is_test(&name) || ["lib", "main"].contains(&module.as_str()) {
            continue;
        }
        for used in code(&text).split("crate::").skip(1) {
            let used: String =
                used.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
            if used != module && used.starts_with(char::is_lowercase) {
                uses.entry(module.clone()).or_default().insert(used);
            }
        }
    }
    uses
}

#[test]
fn no_module_uses_another_that_uses_it_back() {
    for krate in CRATES {
        let uses = module_uses(krate);
        for module in uses.keys() {
            let mut reached = BTreeSet::new();
            let mut next: Vec<&String> = uses[module].iter().collect();
            while let Some(used) = next.pop() {
                assert!(used != module, "{krate}: `{module}` is used by a module that it uses: {reached:?}");
                if reached.insert(used) {
                    next.extend(uses.get(used).into_iter().flatten());
                }
            }
        }
    }
}

/// Public types whose name another crate has too, each with its reason.
const SAME_NAMES: [(&str, &str); 1] =
    [("Error", "the error of a library, as libraries call it; the client is one of its own")];

/// The name of the public type that a line defines.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|letter: char| !letter.is_alphanumeric()).next()
}

#[test]
fn a_public_type_has_a_name_of_its_own() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for krate in CRATES {
        for (name, text) in sources(&format!("{krate}/src")) {
            // The dialects of data sessions are modules of types with the names that the wire gives them.
            if is_test(&name) || name.contains("/data_session/") {
                continue;
            }
            for found in code(&text).lines().filter_map(public_type) {
                places.entry(found.to_owned()).or_default().push(name.clone());
            }
        }
    }
    let argued = |name: &str| SAME_NAMES.iter().any(|(same, _)| *same == name);
    let twice: Vec<_> = places.iter().filter(|(name, places)| places.len() > 1 && !argued(name)).collect();
    assert!(twice.is_empty(), "public names that mean several things: {twice:#?}");
    for (name, _) in SAME_NAMES {
        assert!(
            places.get(name).is_some_and(|places| places.len() > 1),
            "{name} needs no exception any more"
        );
    }
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
fn the_protocol_and_the_rules_are_pure() {
    let src = "crates/tenure-session/src";
    let rules = ["session/rules.rs", "id.rs", "session/phase.rs", "record.rs"];
    let rules = rules.map(|file| (file.to_owned(), read(&root().join(src).join(file))));
    for (name, text) in rules.into_iter().chain(sources("crates/tenure-protocol/src")) {
        for word in ["async ", ".await", "tokio", "Instant::now", "SystemTime"] {
            assert!(!code(&text).contains(word), "{name} uses {word}");
        }
    }
}

#[test]
fn exchanges_know_nothing_of_sessions() {
    for (name, text) in sources("crates/tenure-session/src/exchange") {
        for word in ["session::", "Session"] {
            assert!(!code(&text).contains(word), "{name} names {word}");
        }
    }
}

#[test]
fn only_one_folder_names_concrete_stores_and_backends() {
    for (name, text) in sources("crates/tenure/src") {
        if is_test(&name) || name.contains("/wire/") {
            continue;
        }
        for word in ["tenure_store::", "tenure_store_nats::", "RmcpBackend"] {
            assert!(!code(&text).contains(word), "{name} names {word}; only wire/ may do that");
        }
        assert!(
            name.contains("/demo/") || !code(&text).contains("tenure_backend::"),
            "{name} names a backend"
        );
    }
}

// Texts of clients and servers pass `foreign` on their way to a terminal.
#[test]
fn only_few_files_write_to_standard_output_and_error() {
    // Printing and logging in general; the address of a server; messages on pipes; bytes and lines for files and pipes.
    let write = [
        "cli.rs",
        "logs/mod.rs",
        "cli/serve.rs",
        "cli/stdio.rs",
        "cli/resources.rs",
        "cli/sessions/transfer.rs",
    ];
    let write = write.map(|file| format!("crates/tenure/src/{file}"));
    for (name, text) in sources("crates/tenure/src") {
        let looks = ["stdout().is_terminal()", "stderr().is_terminal()"];
        let code = looks.iter().fold(code(&text), |code, look| code.replace(look, ""));
        let prints = ["io::stdout()", "io::stderr()", "io::stdout)", "io::stderr)", "println!", "print!("];
        let found = prints.iter().find(|print| code.contains(*print));
        assert!(found.is_none() || write.contains(&name), "{name} uses {found:?}; use `say` or `note`");
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
    // The actions of sessions, and those that a bridge removes for older revisions.
    let compare = ["/revision.rs", "/era.rs", "/translate/features.rs"];
    for krate in [
        "tenure-protocol",
        "tenure-session",
        "tenure-layers",
        "tenure-transport",
        "tenure-backend",
        "tenure-store",
        "tenure",
    ] {
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

/// The pages of `docs/`, each with its name and text, without the decision records.
fn pages() -> Vec<(String, String)> {
    let entries =
        fs::read_dir(root().join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let pages = entries.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    pages.map(|path| (name(&path), read(&path))).collect()
}

fn page(name: &str) -> String {
    read(&root().join("docs").join(name))
}

/// What stands between backticks in a text, without blocks of code.
fn quoted(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

/// The cells of a table's row, without those before the first and after the last bar.
fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_matches('|').split(" | ").map(str::trim).collect()
}

#[test]
fn every_page_is_listed_and_every_link_between_pages_leads_somewhere() {
    let readme = read(&root().join("README.md"));
    let map = read(&root().join("ARCHITECTURE.md"));
    assert!(readme.contains("(docs/README.md)"), "README.md links the list of documents");
    let list = page("README.md");
    for (name, text) in pages() {
        let listed = name == "README.md" || list.contains(&format!("({name})"));
        assert!(listed, "docs/README.md does not link {name}");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            let elsewhere = path.is_empty() || path.contains("://");
            assert!(elsewhere || root().join("docs").join(path).exists(), "docs/{name} links {target}");
        }
    }
    for (name, text) in [("README.md", readme), ("ARCHITECTURE.md", map)] {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|target| !target.is_empty() && !target.contains("://")) {
            assert!(root().join(target).exists(), "{name} links {target}");
        }
    }
}

#[test]
fn the_docs_name_only_settings_that_there_are() {
    let reference = page("configuration.md");
    let keys = reference.split("## Names from elsewhere").next().unwrap_or_default();
    let keys = keys.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let known: Vec<&str> = keys.collect();
    let sections: Vec<&str> = known.iter().filter_map(|key| Some(key.split_once('.')?.0)).collect();
    for (name, text) in pages().into_iter().filter(|(name, _)| name != "configuration.md") {
        for word in quoted(&text) {
            let key = word.split([' ', '=']).next().unwrap_or_default();
            let Some((section, rest)) = key.split_once('.') else { continue };
            let plain = rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            // A file that is called like a section.
            if plain && sections.contains(&section) && key != "control.sock" {
                assert!(known.contains(&key), "docs/{name} names `{key}`, which is no setting");
            }
        }
    }
}

// A7.12: how to write a store.
#[test]
fn a7_12_the_docs_have_every_clause_of_the_port_with_its_test() {
    let port = read(&root().join("crates/tenure-session/src/port/store.rs"));
    let number = |text: &str| text.split_once('.').and_then(|(number, _)| number.parse::<u32>().ok());
    let clauses: Vec<u32> =
        port.lines().filter_map(|line| number(line.trim().strip_prefix("/// ")?)).collect();
    let docs = page("own-store.md");
    let rows: Vec<Vec<&str>> = docs.lines().filter(|line| line.starts_with("| ")).map(cells).collect();
    let rows: Vec<(u32, &str)> =
        rows.iter().filter_map(|row| Some((row[0].parse().ok()?, *row.last()?))).collect();
    assert_eq!(rows.iter().map(|(number, _)| *number).collect::<Vec<_>>(), clauses);
    let suite = ["store_contract.rs", "store_contract/beside.rs"];
    let suite = suite.map(|file| read(&root().join("crates/tenure-testkit/src").join(file))).concat();
    let tests = suite.split("async fn clause_").skip(1).filter_map(|rest| rest.split('(').next());
    let mut tests: Vec<String> = tests.map(|name| format!("clause_{name}")).collect();
    let mut written: Vec<String> = rows
        .iter()
        .flat_map(|(number, row)| {
            let names = quoted(row).into_iter().filter(|name| name.starts_with("clause_"));
            names.inspect(move |name| assert!(name.starts_with(&format!("clause_{number}_")), "{name}"))
        })
        .map(str::to_owned)
        .collect();
    tests.sort_unstable();
    written.sort_unstable();
    assert_eq!(written, tests);
}

#[test]
fn every_check_of_identity_limits_records_and_sight_has_a_row_that_names_its_test() {
    let ids = [("AU", 12), ("UP", 3), ("RL", 7), ("AL", 5), ("OB", 8), ("AD", 9)];
    let ids =
        ids.into_iter().flat_map(|(kind, last)| (1..=last).map(move |number| format!("{kind}{number}")));
    let (legs, dev) = (read(&root().join("tests/legs/table.py")), read(&root().join("dev")));
    let text: String = sources("crates").into_iter().map(|(_, text)| text).collect();
    let pages = ["auth.md", "audit.md", "security.md", "metrics.md", "page.md"].map(page).join("\n");
    for id in ids {
        let rows: Vec<&str> = pages.lines().filter(|row| row.starts_with(&format!("| {id} |"))).collect();
        let [row] = rows[..] else { panic!("{id} has {} rows", rows.len()) };
        let mut named = 0;
        for name in quoted(row.rsplit(" | ").next().unwrap_or_default()) {
            let last = name.rsplit("::").next().unwrap_or_default();
            if let Some(begin) = last.strip_suffix('…') {
                assert!(begin.starts_with(&format!("{}_", id.to_lowercase())) || named > 0, "{id}: {name}");
                assert!(text.contains(&format!("fn {begin}")), "{id}: there is no test `{name}`");
            } else if name.starts_with("clients/") || name.starts_with("conformance/") {
                let begin = name.trim_end_matches('*');
                assert!(legs.contains(&format!("\"{begin}")), "{id}: there is no leg `{name}`");
            } else if let Some(command) = name.strip_prefix("./dev ") {
                let command = command.split(' ').next().unwrap_or_default();
                assert!(dev.contains(&format!("\n    {command})")), "{id}: there is no `{name}`");
            } else if name.ends_with(".mjs") {
                assert!(root().join("tests/page").join(name).is_file(), "{id}: there is no `{name}`");
            } else {
                // The name of a crate.
                continue;
            }
            named += 1;
        }
        assert!(named > 0, "{id} names no test");
    }
}

// A7.13: stores compared, by figures that were measured.
#[test]
fn a7_13_the_docs_compare_the_stores_by_figures_of_the_benchmarks() {
    let measured = page("benchmarks.md");
    let docs = page("stores.md");
    let rows: Vec<Vec<&str>> = docs.lines().filter(|line| line.starts_with('|')).map(cells).collect();
    assert_eq!(rows[0].len(), 5, "three ways to keep, and one for comparison: {:?}", rows[0]);
    for about in ["outlives", "found", "read", "written", "capacity", "several nodes", "made for"] {
        assert!(rows.iter().any(|row| row[0].contains(about)), "no row about {about}");
    }
    let figures = rows.iter().skip(2).flat_map(|row| row.get(1..4).unwrap_or_default()).flat_map(|cell| {
        let words: Vec<&str> = cell.split([' ', ',', ';']).collect();
        let units = ["µs", "ms", "B", "MiB", "000"];
        let pairs = words.windows(2).filter(|pair| units.contains(&pair[1]));
        pairs.map(|pair| pair.join(" ")).collect::<Vec<_>>()
    });
    let mut count = 0;
    for figure in figures {
        count += 1;
        let promised = ["100 ms", "256 MiB"].contains(&figure.as_str());
        assert!(promised || measured.contains(&figure), "docs/benchmarks.md has measured no {figure}");
    }
    assert!(count > 8, "only {count} figures");
}

// A8.06: stateless, stateful and hybrid as settings.
#[test]
fn a8_06_the_docs_say_how_each_mode_is_set_and_when_to_choose_it() {
    let docs = page("modes.md");
    let modes: Vec<Vec<&str>> =
        docs.lines().filter(|line| line.starts_with("| ")).skip(1).map(cells).collect();
    let set: Vec<(&str, &str)> = modes.iter().map(|row| (row[0], quoted(row[1])[0])).collect();
    let eras = [("stateless", "modern"), ("stateful", "legacy"), ("hybrid", "both")];
    let expected = eras.map(|(mode, era)| (mode, format!("eras = \"{era}\"")));
    assert_eq!(set, expected.each_ref().map(|(mode, setting)| (*mode, setting.as_str())));
    for mode in ["Stateless, when", "Stateful, when", "Hybrid, when"] {
        assert!(docs.lines().any(|line| line.starts_with(mode)), "nothing says when it is {mode}");
    }
}

// A13.02, A13.04: what not to keep in a session.
#[test]
fn a13_02_the_docs_say_what_does_not_belong_in_a_session() {
    let docs = page("what-to-keep.md");
    for word in [
        "passwords",
        "vault",
        "memory:",
        "store_key_file",
        "tls.cert",
        "session.max_lifetime",
        "128 random bits",
    ] {
        assert!(docs.contains(word), "nothing about {word}");
    }
}
