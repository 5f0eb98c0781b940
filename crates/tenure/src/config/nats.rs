//! How to reach a NATS engine, when the store is one.

use std::path::PathBuf;
use std::time::Duration;

/// What the URL of the store does not say.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsConfig {
    /// The name of the cluster.
    pub cluster: String,
    /// A credentials file.
    pub credentials_file: Option<PathBuf>,
    /// The seed of an nkey, or the place where it stands.
    pub nkey: Option<String>,
    /// A token, or the place where it stands.
    pub token: Option<String>,
    /// A user.
    pub user: Option<String>,
    /// Their password, or the place where it stands.
    pub password: Option<String>,
    /// Authorities to trust in place of the system's.
    pub tls_ca: Option<PathBuf>,
    /// Our certificate.
    pub tls_cert: Option<PathBuf>,
    /// Its key.
    pub tls_key: Option<PathBuf>,
    /// Servers that keep each message of a new cluster.
    pub replicas: Option<usize>,
    /// Streams of a new cluster.
    pub shards: usize,
    /// How long to wait for an engine that does not answer at start.
    pub patience: Duration,
}

/// It would show secrets, which may stand here themselves.
impl std::fmt::Debug for NatsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsConfig").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Default for NatsConfig {
    fn default() -> Self {
        Self {
            cluster: "tenure".to_owned(),
            credentials_file: None,
            nkey: None,
            token: None,
            user: None,
            password: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            replicas: None,
            shards: 16,
            patience: Duration::from_secs(30),
        }
    }
}
