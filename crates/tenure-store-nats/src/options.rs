//! How to reach the engine, and how to found a cluster on it.

use std::path::PathBuf;
use std::time::Duration;

/// How a node shows the engine who it is.
#[derive(Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Credentials {
    /// It does not.
    #[default]
    None,
    /// A credentials file, with a JWT and the seed of an nkey.
    File(PathBuf),
    /// The seed of an nkey.
    Nkey(String),
    /// A token.
    Token(String),
    /// A user and a password.
    User {
        /// The name of the user.
        name: String,
        /// Their password.
        password: String,
    },
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::File(_) => "File",
            Self::Nkey(_) => "Nkey",
            Self::Token(_) => "Token",
            Self::User { .. } => "User",
        })
    }
}

/// How connections to the engine are encrypted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NatsTls {
    /// Refuse to talk to a server without TLS.
    pub required: bool,
    /// Certificates of authorities to trust in place of the system's.
    pub roots: Option<PathBuf>,
    /// Our certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// How to open a store on the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NatsOptions {
    /// The servers, as `host:port`. Others of the same cluster are found by themselves.
    pub servers: Vec<String>,
    /// The name of the Tenure cluster: lower-case letters, digits and `-`.
    pub cluster: String,
    /// Who we are.
    pub credentials: Credentials,
    /// Encryption.
    pub tls: NatsTls,
    /// How many servers keep each message of a new cluster. Without a value three, or one on a server that stands alone.
    pub replicas: Option<usize>,
    /// How many streams a new cluster spreads its sessions over.
    pub shards: u16,
    /// How long opening waits for an engine that does not answer.
    pub patience: Duration,
    /// How long an operation waits for the engine, with all its tries.
    pub operation_timeout: Duration,
}

impl NatsOptions {
    /// The shards of a new cluster, unless it is told otherwise.
    pub const SHARDS: u16 = 16;
    /// The most shards that a cluster can have.
    pub const MAX_SHARDS: u16 = 1024;

    /// The defaults, for these servers.
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            cluster: "tenure".to_owned(),
            credentials: Credentials::None,
            tls: NatsTls::default(),
            replicas: None,
            shards: Self::SHARDS,
            patience: Duration::from_secs(30),
            operation_timeout: Duration::from_secs(8),
        }
    }
}
