//! The table of servers: what each row is, how it is started, and which questions it can answer.
//!
//! A row whose binary is missing is an error with a hint, never a silent skip: a table without
//! its losers would be a lie.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::cli::CommonArgs;
use crate::control::{Control, Credentials, config, configured};

/// One of the questions the harness asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bench {
    Calls,
    Idle,
    Streams,
    Replay,
    Data,
    Eras,
    Controls,
}

/// How a row's program is found.
#[derive(Debug, Clone, Copy)]
enum Program {
    /// This binary itself, with `server <name>`.
    Own,
    /// A binary or example of the workspace, beside this one.
    Built { file: &'static str, args: &'static str, build: &'static str },
}

#[derive(Debug)]
struct Entry {
    name: &'static str,
    what: &'static str,
    program: Program,
    benches: &'static [Bench],
    control: Option<Control>,
}

const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

/// Stands in a row's arguments for a fresh temporary folder.
pub(crate) const FOLDER: &str = "{folder}";

const fn own(name: &'static str, what: &'static str, benches: &'static [Bench]) -> Entry {
    Entry { name, what, program: Program::Own, benches, control: None }
}

/// `tenure` with these arguments.
const fn tenure(
    name: &'static str,
    what: &'static str,
    args: &'static str,
    benches: &'static [Bench],
) -> Entry {
    let program = Program::Built { file: "tenure", args, build: "cargo build --release -p tenure" };
    Entry { name, what, program, benches, control: None }
}

const fn example(
    name: &'static str,
    what: &'static str,
    (file, build): (&'static str, &'static str),
    benches: &'static [Bench],
) -> Entry {
    let program = Program::Built { file, args: "--store memory:", build };
    Entry { name, what, program, benches, control: None }
}

/// The cheapest server with something in front of it that every call has to pass.
const fn controlled(name: &'static str, what: &'static str, control: Control) -> Entry {
    let program = Program::Built {
        file: "examples/native_echo",
        args: "--store memory: --log info --config {folder}/tenure.toml",
        build: "cargo build --release -p tenure --example native_echo",
    };
    Entry { name, what, program, benches: &[Bench::Controls], control: Some(control) }
}

/// In the order of the tables: floors, rival, Tenure.
const ENTRIES: &[Entry] = &[
    own("hyper", "floor: bare hyper, fixed answer", &[Bench::Calls, Bench::Eras]),
    own(
        "axum",
        "floor: axum, JSON-RPC envelope read, fixed answer, no sessions",
        &[Bench::Calls, Bench::Eras, Bench::Streams, Bench::Replay],
    ),
    own(
        "rmcp",
        "rmcp's own StreamableHttpService with LocalSessionManager",
        &[Bench::Calls, Bench::Eras, Bench::Idle, Bench::Streams, Bench::Replay],
    ),
    tenure(
        "tenure",
        "tenure serve --store memory:",
        "serve --listen 127.0.0.1:0 --store memory:",
        &[Bench::Calls, Bench::Eras, Bench::Idle, Bench::Streams],
    ),
    tenure(
        "tenure-disk",
        "tenure serve --store disk: in a fresh folder",
        "serve --listen 127.0.0.1:0 --store disk:{folder}",
        &[Bench::Calls],
    ),
    example(
        "tenure-rmcp",
        "an rmcp handler inside Tenure (example rmcp_echo), store in memory",
        ("examples/rmcp_echo", "cargo build --release -p tenure --example rmcp_echo"),
        &[Bench::Calls, Bench::Eras, Bench::Idle, Bench::Streams],
    ),
    example(
        "tenure-native",
        "a native backend inside Tenure (example native_echo), store in memory",
        ("examples/native_echo", "cargo build --release -p tenure --example native_echo"),
        &[Bench::Calls, Bench::Eras, Bench::Idle, Bench::Streams, Bench::Replay],
    ),
    // With and without the layer of data sessions in front of the same server.
    tenure(
        "plain",
        "tenure serve --store memory:, without data sessions",
        "serve --listen 127.0.0.1:0 --store memory: --set data_sessions.offer=never",
        &[Bench::Data],
    ),
    tenure(
        "data",
        "tenure serve --store memory:, with data sessions",
        "serve --listen 127.0.0.1:0 --store memory: --set data_sessions.offer=always",
        &[Bench::Data],
    ),
    tenure(
        "plain-disk",
        "tenure serve --store disk: in a fresh folder, without data sessions",
        "serve --listen 127.0.0.1:0 --store disk:{folder} --set data_sessions.offer=never",
        &[Bench::Data],
    ),
    tenure(
        "data-disk",
        "tenure serve --store disk: in a fresh folder, with data sessions",
        "serve --listen 127.0.0.1:0 --store disk:{folder} --set data_sessions.offer=always",
        &[Bench::Data],
    ),
    // With and without what an operator switches on in front of the same server.
    controlled("native-plain", "a native backend, nothing switched on", configured(config::PLAIN)),
    controlled(
        "native-bytes",
        "the same, and clients send a token that is not looked at",
        Control { config: config::PLAIN, shows: Credentials::Token },
    ),
    controlled(
        "native-token",
        "with an issuer: a signed token (JWT) with each call",
        Control { config: config::TOKEN, shows: Credentials::Token },
    ),
    controlled(
        "native-key",
        "with static keys: a key with each call",
        Control { config: config::KEY, shows: Credentials::Key },
    ),
    controlled(
        "native-limits",
        "with limits for the principal and for each session",
        configured(config::LIMITS),
    ),
    controlled("native-access", "with the access log, into a file", configured(config::ACCESS)),
    controlled("native-metrics", "with metrics, and no access log", configured(config::METRICS)),
    controlled(
        "native-traces",
        "with metrics and 1 % of the traces, and no access log",
        configured(config::TRACES),
    ),
    controlled(
        "access-metrics",
        "with the access log and metrics: as it is by default",
        configured(config::LOGGED_METRICS),
    ),
    controlled(
        "access-traces",
        "with the access log, metrics and 1 % of the traces",
        configured(config::LOGGED_TRACES),
    ),
    controlled("native-audit", "with the audit log, best_effort", configured(config::AUDIT)),
    controlled(
        "native-all",
        "with a token, limits, the access log, metrics and traces",
        Control { config: config::ALL, shows: Credentials::Token },
    ),
];

/// A server the harness can start.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    #[serde(skip)]
    pub(crate) what: &'static str,
    #[serde(skip)]
    pub(crate) program: PathBuf,
    /// With [`FOLDER`] where a fresh folder is to be named.
    #[serde(skip)]
    pub(crate) args: Vec<String>,
    /// Where that folder is made.
    #[serde(skip)]
    pub(crate) dir: Option<PathBuf>,
    /// What is put into it first.
    #[serde(skip)]
    pub(crate) control: Option<Control>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Row {
    /// Whether it needs a folder of its own.
    pub(crate) fn keeps_files(&self) -> bool {
        self.args.iter().any(|arg| arg.contains(FOLDER))
    }
}

/// The rows of one table.
#[derive(Debug)]
pub(crate) struct Rows(Vec<Row>);

impl Rows {
    /// The rows for one question; naming a row that cannot answer it is an error.
    pub(crate) fn select(common: &CommonArgs, bench: Bench) -> Result<Rows> {
        let rows = Rows::select_any(common, bench)?;
        for name in &common.only {
            if rows.iter().all(|row| row.name != name) {
                let able: Vec<_> = able(bench).map(|entry| entry.name).collect();
                bail!("row `{name}` has no such figure; rows that have it: {}", able.join(", "));
            }
        }
        Ok(rows)
    }

    /// The rows for one question among several; rows that cannot answer it are left out.
    pub(crate) fn select_any(common: &CommonArgs, bench: Bench) -> Result<Rows> {
        if let Some(name) = common.only.iter().find(|name| ENTRIES.iter().all(|entry| entry.name != **name)) {
            let known: Vec<_> = ENTRIES.iter().map(|entry| entry.name).collect();
            bail!("no row is called `{name}`; rows: {}", known.join(", "));
        }
        let own = std::env::current_exe().context("find this binary")?;
        let folder = match &common.bin_dir {
            Some(folder) => folder.clone(),
            None => own.parent().context("find the folder of this binary")?.to_owned(),
        };
        able(bench)
            .filter(|entry| common.only.is_empty() || common.only.iter().any(|name| name == entry.name))
            .map(|entry| resolve(entry, bench, &own, &folder, common.dir.as_deref()))
            .collect::<Result<_>>()
            .map(Rows)
    }

    /// No rows at all.
    pub(crate) fn none() -> Rows {
        Rows(Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The row of a name, if it was chosen.
    pub(crate) fn get(&self, name: &str) -> Option<&Row> {
        self.0.iter().find(|row| row.name == name)
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Row> {
        self.0.iter()
    }
}

fn able(bench: Bench) -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter().filter(move |entry| entry.benches.contains(&bench))
}

fn resolve(entry: &Entry, bench: Bench, own: &Path, folder: &Path, dir: Option<&Path>) -> Result<Row> {
    let (program, args) = match entry.program {
        Program::Own => {
            let mut args = vec!["server", entry.name, "--until-stdin-closes"];
            args.extend(LISTEN);
            if bench == Bench::Replay {
                args.push("--keep-events");
            }
            (own.to_owned(), args)
        }
        Program::Built { file, args, build } => {
            let program = folder.join(file);
            if !program.is_file() {
                bail!(
                    "row `{}` needs `{}`, which is missing\n\nhint: build it with `{build}`, or leave the row out with `--only`",
                    entry.name,
                    program.display()
                );
            }
            (program, args.split(' ').collect())
        }
    };
    let args = args.into_iter().map(str::to_owned).collect();
    let (dir, control) = (dir.map(Path::to_owned), entry.control);
    Ok(Row { name: entry.name, what: entry.what, program, args, dir, control })
}

#[cfg(test)]
mod tests {
    use super::{Bench, ENTRIES, FOLDER, Program, Rows};
    use crate::cli::CommonArgs;

    fn only(names: &[&str]) -> CommonArgs {
        let only = names.iter().map(|name| (*name).to_owned()).collect();
        CommonArgs { only, json: None, bin_dir: Some("no-such-folder".into()), dir: None }
    }

    #[test]
    fn a_missing_binary_is_an_error_with_the_command_that_builds_it() {
        let error = Rows::select(&only(&["tenure"]), Bench::Calls).unwrap_err().to_string();
        assert!(error.contains("hint: build it with `cargo build --release -p tenure`"), "{error}");
    }

    #[test]
    fn a_row_that_cannot_answer_is_named() {
        let error = Rows::select(&only(&["hyper"]), Bench::Idle).unwrap_err().to_string();
        assert!(error.starts_with("row `hyper` has no such figure"), "{error}");
        assert!(Rows::select_any(&only(&["hyper"]), Bench::Idle).unwrap().is_empty());
        let error = Rows::select_any(&only(&["hype"]), Bench::Idle).unwrap_err().to_string();
        assert!(error.starts_with("no row is called `hype`"), "{error}");
    }

    #[test]
    fn no_row_uses_the_store_in_the_users_own_folder() {
        for entry in ENTRIES {
            let Program::Built { args, .. } = entry.program else { continue };
            let (_, store) = args.split_once("--store ").expect(entry.name);
            let store = store.split(' ').next().expect("a store");
            assert!(store == "memory:" || store.contains(FOLDER), "{}", entry.name);
        }
    }
}
