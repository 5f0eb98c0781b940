//! Why a store could not be opened.

/// Why the engine could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The URL names no servers, or not in a way that is understood.
    #[error("cannot read the servers of `{0}`")]
    Servers(String),
    /// The name of the cluster cannot be a part of subjects.
    #[error("`{0}` cannot name a cluster: use up to 32 lower-case letters, digits and `-`")]
    Cluster(String),
    /// A number of shards that no cluster can have.
    #[error("a cluster cannot have {0} shards: use 1 to {max}", max = crate::NatsOptions::MAX_SHARDS)]
    Shards(u16),
    /// No server answered within the time given.
    #[error("no server of the engine answered within {waited:?}: {last}")]
    Away {
        /// How long it was tried.
        waited: std::time::Duration,
        /// The last failure.
        last: String,
    },
    /// The engine did not accept our credentials.
    #[error("the engine refused our credentials: {0}")]
    Credentials(String),
    /// Our permissions are not enough for a store.
    #[error("the engine denied a permission: {0}")]
    Denied(String),
    /// Encryption of the connection failed.
    #[error("no encrypted connection: {0}")]
    Tls(String),
    /// The engine is too old: compare-and-swap of replicated streams is not sound there.
    #[error("the engine is NATS {0}, and has to be 2.12 or newer")]
    TooOld(String),
    /// The engine has no JetStream.
    #[error("the engine has no JetStream: {0}")]
    NoJetStream(String),
    /// The engine has fewer servers than the number of replicas.
    #[error("the engine has no room for {replicas} replicas: {said}")]
    TooFewServers {
        /// How many replicas were asked for.
        replicas: usize,
        /// What the engine said.
        said: String,
    },
    /// A stream is not as this store needs it.
    #[error("the stream `{stream}` cannot be used: {what}")]
    Stream {
        /// The stream.
        stream: String,
        /// What is wrong with it.
        what: String,
    },
    /// There is data of this cluster, but not all of it.
    #[error("the engine has lost data of the cluster `{cluster}`: {what}")]
    Incomplete {
        /// The cluster.
        cluster: String,
        /// What is missing.
        what: String,
    },
    /// The cluster was founded with another number of shards.
    #[error("the cluster has {there} shards, and not {wanted}")]
    OtherShards {
        /// How many it has.
        there: u16,
        /// How many were asked for.
        wanted: u16,
    },
    /// The cluster's own record is of a later version.
    #[error("the cluster was founded by a later version of tenure")]
    Later,
    /// The engine refused a request.
    #[error("the engine refused: {0}")]
    Refused(String),
}
