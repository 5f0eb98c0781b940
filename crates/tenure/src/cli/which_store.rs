//! From `--store` to the process that works on the store: the server that has it open, or this process.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::{Failure, note, sources};
use crate::config::Config;
use crate::control::{ControlClient, Operations, RunningServer, configured_server, node_of, running_servers};
use crate::operator::{DataOperator, Operator};
use crate::servers;
use crate::stores::{self, OwnStore};
use crate::wire::{self, Access, Engine, OpenedStore};

/// Which store a command is about. The same settings as for `tenure serve` apply.
#[derive(Args, Debug)]
pub(super) struct StoreArgs {
    /// The store: disk:PATH; also TENURE_STORE. [default: the user's own store, if there is one or one is served]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The user's own store of that name, as `tenure store list` shows it; with `--store memory:` the server of that
    /// name.
    // Under an id of its own: some commands take a name too.
    #[arg(long = "name", id = "store_name", value_name = "NAME")]
    store_name: Option<String>,
    /// A file with the key that encrypts the store. A server that has the store open needs no key from you.
    #[arg(long, value_name = "FILE")]
    store_key_file: Option<String>,
    /// The configuration file of `tenure serve`, which may name the store and its key.
    #[arg(long, value_name = "FILE", env = "TENURE_CONFIG")]
    config: Option<PathBuf>,
}

/// What to do if the store does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Absent {
    Refuse,
    Make,
}

impl StoreArgs {
    /// The configuration, without its warnings, which concern only a server.
    pub(super) fn config(&self) -> Result<Config, Failure> {
        let flags =
            [("store", &self.store), ("name", &self.store_name), ("store_key_file", &self.store_key_file)];
        let flags = flags.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
        let (config, _) = Config::load(&sources(self.config.as_deref(), flags.collect())?)?;
        Ok(config)
    }

    /// The server without a folder that the command means: by `--store memory:`, or because nothing names a store and no
    /// stored one is served.
    async fn without_folder(
        &self,
        config: &Config,
        absent: Absent,
    ) -> Result<Option<ControlClient>, Failure> {
        let is_said = config.store == "memory:";
        if self.store.is_some() && self.store_name.is_some() && !is_said {
            return Err(Failure::new("`--store` and `--name` both say which store is meant")
                .hint("leave out one of them; only servers with `--store memory:` have a name beside it"));
        }
        let is_open = config.store == "disk:"
            && config.name.is_none()
            && !servers::are_named(config)
            && stores::given_folder().is_none();
        // As among stores: if nothing names one, the running server is meant.
        if !is_said && (!is_open || absent == Absent::Make || is_any_served().await) {
            return Ok(None);
        }
        let mut running = running_servers().await;
        if is_said {
            running.retain(|server| !server.is_node);
        }
        if let Some(name) = config.name.as_ref().filter(|_| is_said) {
            running.retain(|server| server.is_called(name));
        }
        match running.len() {
            1 => {
                let server = running.remove(0);
                note(&match server.is_node {
                    true => format!("of `{}`, a node of a cluster", server.name),
                    false => format!("of `{}`, which keeps its sessions in memory", server.name),
                });
                Ok(Some(server.client))
            }
            0 if is_said => Err(Failure::new(match &config.name {
                Some(name) => {
                    format!("no server that runs and is called `{name}` keeps its sessions in memory")
                }
                None => "no server that runs keeps its sessions in memory".to_owned(),
            })
            .hint("`tenure serve --store memory:` does, as long as it runs, for the user who started it")),
            0 => Ok(None),
            _ if are_of_one_cluster(&running).await => {
                let server = running.remove(0);
                note(&format!("of `{}`, a node of a cluster", server.name));
                Ok(Some(server.client))
            }
            _ if running.iter().any(|server| server.is_node) => {
                let names: String = running.iter().map(|server| format!("\n  {}", server.name)).collect();
                Err(Failure::new(format!("several servers run without a folder for their sessions:{names}"))
                    .hint("name the store: `--store nats://HOST:PORT` for a node of a cluster, `--store memory: --name NAME` for the others"))
            }
            _ => {
                let names: String = running
                    .iter()
                    .map(|server| format!("\n  --store memory: --name {}", server.name))
                    .collect();
                Err(Failure::new(format!("several servers keep their sessions in memory:{names}"))
                    .hint("add one of these to the command"))
            }
        }
    }

    /// Finds the server that has the store open, or opens it.
    pub(super) async fn open(&self, absent: Absent) -> Result<Operations, Failure> {
        let config = self.config()?;
        if let Some(client) = configured_server(&config).await {
            return Ok(Operations::Server(client));
        }
        if let Some(client) = self.without_folder(&config, absent).await? {
            return Ok(Operations::Server(client));
        }
        let url = place(&config, absent).await?;
        if wire::is_nats(&url) {
            // A node of this machine also knows what the memories of all nodes hold.
            if let Some(engine) = Engine::of(&config)
                && let Some(client) = node_of(&engine).await
            {
                return Ok(Operations::Server(client));
            }
            return match wire::open(&url, config.store_key_file.as_ref(), &config.nats).await? {
                Access::Open(store) => Ok(here(store, &config)),
                Access::InUse(failure) => Err(failure),
            };
        }
        let folder = match absent {
            Absent::Refuse => wire::existing_folder(&url)?,
            Absent::Make => wire::folder(&url)?,
        };
        // Ask the server first, because opening a store that is in use is retried for a while.
        if let Some(client) = ControlClient::find(&folder).await {
            return Ok(Operations::Server(client));
        }
        match wire::open(&url, config.store_key_file.as_ref(), &config.nats).await? {
            Access::Open(store) => Ok(here(store, &config)),
            // A server that has just started opens its store before its socket.
            Access::InUse(failure) => {
                ControlClient::find(&folder).await.map(Operations::Server).ok_or_else(|| {
                    failure.hint(
                        "the process that has it open does not answer on its control socket: \
                     if it is a server its log says why, if it is another command wait for it to end",
                    )
                })
            }
        }
    }
}

/// The operations on a store that this process has opened.
fn here(store: OpenedStore, config: &Config) -> Operations {
    // The kinds of the configured server, as far as they are known: only the demo has kinds.
    let kinds = if servers::are_named(config) { Vec::new() } else { wire::demo_kinds() };
    let data = DataOperator::offline(Arc::clone(&store.store), config.data.limits.clone(), kinds);
    Operations::Here(Box::new(Operator::offline(store, config.limits.clone(), data)))
}

/// The URL of the store that a command is about.
///
/// If nothing names a store, it is the user's own store if there is only one, otherwise the one that is served.
pub(super) async fn place(config: &Config, absent: Absent) -> Result<String, Failure> {
    let is_told = config.store != "disk:" || config.name.is_some() || servers::are_named(config);
    if is_told || stores::given_folder().is_some() {
        return wire::store_url(config);
    }
    let own = stores::own_stores();
    if let [one] = &own[..] {
        return Ok(wire::disk_url(&one.folder));
    }
    let mut served = Vec::new();
    for store in &own {
        if ControlClient::find(&store.folder).await.is_some() {
            served.push(store.clone());
        }
    }
    match (&served[..], &own[..]) {
        ([one], _) => {
            note(&format!("of the server that runs, whose store is `{}`", one.folder.display()));
            Ok(wire::disk_url(&one.folder))
        }
        (_, []) if absent == Absent::Refuse => Err(Failure::new("there is no store yet")
            .hint("`tenure serve` makes one; if yours is elsewhere, name it with `--store disk:PATH`")),
        (_, []) => Err(Failure::new("there is no store yet, and no server is given to make one for")
            .hint("name the folder with `--store disk:PATH`, and serve it with the same")),
        _ => Err(several(&own, &served)),
    }
}

/// Whether all of these servers are nodes of one cluster: then each of them answers for all.
async fn are_of_one_cluster(running: &[RunningServer]) -> bool {
    let mut first: Option<Engine> = None;
    for server in running {
        let engine = match server.is_node {
            true => server.client.engine().await.ok().flatten(),
            false => None,
        };
        match (engine, &first) {
            (Some(engine), Some(known)) if known.is_same(&engine) => {}
            (Some(engine), None) => first = Some(engine),
            _ => return false,
        }
    }
    first.is_some()
}

/// Whether a server has one of the user's own stores open.
async fn is_any_served() -> bool {
    for store in stores::own_stores() {
        if ControlClient::find(&store.folder).await.is_some() {
            return true;
        }
    }
    false
}

fn several(own: &[OwnStore], served: &[OwnStore]) -> Failure {
    let mut what = "there are several stores:".to_owned();
    for store in own {
        what.push_str(&format!("\n  {}", say_which(store)));
        if served.contains(store) {
            what.push_str("  (served now)");
        }
    }
    Failure::new(what).hint("add one of these to the command")
}

/// The flag that names one of the user's own stores.
pub(super) fn say_which(store: &OwnStore) -> String {
    match &store.name {
        Some(name) => format!("--name {name}"),
        None => format!("--store {}", wire::disk_url(&store.folder)),
    }
}
