//! A store on a NATS engine: from its URL and the configuration to an open store.
//!
//! Out: a failure that says what to do, without any secret.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_session::port::store::Store;
use tenure_store::open::OpenedStore;
use tenure_store::sealed::keys::SealKeys;
use tenure_store_nats::{Credentials, Nats, NatsError, NatsOptions, NatsTls};

use super::backends::secret;
use crate::config::{Config, NatsConfig};
use crate::failure::Failure;

/// The port of NATS.
const PORT: u16 = 4222;

/// Whether the URL of a store names a NATS engine.
pub(crate) fn is_engine(url: &str) -> bool {
    matches!(url.split_once(':'), Some(("nats" | "tls", _)))
}

/// The engine of a cluster, so that a command finds the servers that use it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Engine {
    /// The name of the cluster on it.
    pub(crate) cluster: String,
    /// Its servers.
    pub(crate) servers: Vec<String>,
}

impl Engine {
    /// The engine that is configured; `None` if the store is not an engine.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        if !is_engine(&config.store) {
            return None;
        }
        let (_, servers) = config.store.split_once("://")?;
        Some(Self { cluster: config.nats.cluster.clone(), servers: servers_of(servers) })
    }

    /// Whether both are the same: one server in common is enough, since few people write all of them.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.cluster == other.cluster && self.servers.iter().any(|server| other.servers.contains(server))
    }
}

fn servers_of(text: &str) -> Vec<String> {
    text.split(',').map(|server| with_port(server.trim())).collect()
}

/// The failure of a command that needs a folder.
pub(super) fn no_folder(url: &str) -> Failure {
    Failure::new(format!("`{url}` is an engine of its own, and not a folder of this machine")).hint(
        "its servers check and back up what they keep (`nats account backup`); to have a copy in a folder, stop the \
         processes that use it, and run `tenure store copy`",
    )
}

/// How to open the engine; nothing is opened yet.
pub(super) fn options(url: &str, config: &NatsConfig) -> Result<NatsOptions, Failure> {
    let (engine, servers) = url.split_once("://").unwrap_or((url, ""));
    if servers.contains('@') {
        return Err(Failure::new("the URL of the store has a user or a password in it")
            .hint("leave them out, since the URL is logged: write `nats.user`, and `nats.password = \"env:VARIABLE\"`"));
    }
    let servers = servers_of(servers);
    let is_server = |server: &String| !server.starts_with(':') && !server.contains(['/', '?', ' ']);
    if !servers.iter().all(is_server) {
        return Err(cannot_open(url, NatsError::Servers(url.to_owned())));
    }
    let credentials = credentials(config)?;
    let client = match (&config.tls_cert, &config.tls_key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => {
            return Err(Failure::new("of `nats.tls_cert` and `nats.tls_key` only one is set")
                .hint("a certificate needs its key: set both, or none"));
        }
    };
    Ok(NatsOptions {
        cluster: config.cluster.clone(),
        credentials,
        tls: NatsTls { required: engine == "tls", roots: config.tls_ca.clone(), client },
        replicas: config.replicas,
        shards: u16::try_from(config.shards).unwrap_or(u16::MAX),
        patience: config.patience,
        ..NatsOptions::new(servers)
    })
}

fn with_port(server: &str) -> String {
    // The colons of an address in brackets are its own.
    let after_brackets = server.rsplit_once(']').map_or(server, |(_, rest)| rest);
    if after_brackets.contains(':') { server.to_owned() } else { format!("{server}:{PORT}") }
}

fn credentials(config: &NatsConfig) -> Result<Credentials, Failure> {
    const HINT: &str = "write it as `env:VARIABLE` or `file:PATH`";
    let read = |value: &str, key: &str| secret(value, &format!("`{key}`"), HINT);
    let mut found = Vec::new();
    if let Some(file) = &config.credentials_file {
        found.push(("nats.credentials_file", Credentials::File(file.clone())));
    }
    if let Some(seed) = &config.nkey {
        found.push(("nats.nkey", Credentials::Nkey(read(seed, "nats.nkey")?)));
    }
    if let Some(token) = &config.token {
        found.push(("nats.token", Credentials::Token(read(token, "nats.token")?)));
    }
    if let Some(name) = &config.user {
        let password = config.password.as_deref().ok_or_else(|| {
            Failure::new("`nats.user` is set and `nats.password` is not").hint("set both, or none of them")
        })?;
        let password = read(password, "nats.password")?;
        found.push(("nats.user", Credentials::User { name: name.clone(), password }));
    }
    match &found[..] {
        [(one, _), (other, _), ..] => Err(Failure::new(format!("`{one}` and `{other}` are both set"))
            .hint("the engine knows us by one of them: remove the others")),
        _ => Ok(found.pop().map_or(Credentials::None, |(_, credentials)| credentials)),
    }
}

/// Opens the engine, and the cluster on it.
pub(super) async fn open(
    url: &str,
    config: &NatsConfig,
    keys: Option<SealKeys>,
) -> Result<OpenedStore, Failure> {
    let options = options(url, config)?;
    let engine = Nats::open(&options).await.map_err(|error| cannot_open(url, error))?;
    let engine = Arc::new(engine);
    let opened = OpenedStore::on(Arc::clone(&engine) as Arc<dyn Store>, keys).await;
    opened.map(|opened| opened.shared_by(engine)).map_err(|error| super::store::cannot_open(url, error))
}

fn cannot_open(url: &str, error: NatsError) -> Failure {
    let hint = match &error {
        NatsError::Servers(_) => "write the servers as in `nats://one:4222,two:4222,three:4222`",
        NatsError::Cluster(_) => "set `nats.cluster` to such a name",
        NatsError::Shards(_) | NatsError::OtherShards { .. } => {
            "the number is fixed when a cluster is founded: leave `nats.shards` out for one that exists"
        }
        NatsError::Away { .. } => {
            "start the NATS servers, or correct their addresses; `nats.patience` is how long a start waits for them"
        }
        NatsError::Credentials(_) => {
            "set `nats.credentials_file`, `nats.nkey`, `nats.token`, or `nats.user` and `nats.password`"
        }
        NatsError::Denied(_) => {
            "allow the user of tenure the subjects of its cluster, `$JS.API.>` and `_INBOX.>`, as in docs/cluster.md"
        }
        NatsError::Tls(_) => "write `tls://` if the engine wants TLS, and its authorities as `nats.tls_ca`",
        NatsError::TooOld(_) => "upgrade the NATS servers to 2.12 or newer",
        NatsError::NoJetStream(_) => {
            "switch it on: `nats-server --jetstream`, or a `jetstream` block in its configuration, and for the account"
        }
        NatsError::TooFewServers { .. } => {
            "start as many servers as there are to be replicas, or set `nats.replicas = 1` and lose sessions with a server"
        }
        NatsError::Stream { .. } => {
            "correct the stream with `nats stream edit`, or choose another `nats.cluster`"
        }
        NatsError::Incomplete { .. } => {
            "bring the data back (`nats account restore`), or delete the rest of the cluster and let it be founded anew"
        }
        NatsError::Later => "use the version of tenure that founded it, or a later one",
        _ => return Failure::new(format!("cannot open the store `{url}`")).caused_by(error),
    };
    Failure::new(format!("cannot open the store `{url}`")).caused_by(error).hint(hint)
}
