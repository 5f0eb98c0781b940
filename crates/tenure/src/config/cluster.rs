//! The settings of a node among several that share a store.

use std::net::SocketAddr;

use super::error::Problem;
use super::layers::Layered;
use crate::url_text::marked;

/// How this node and the others reach each other.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClusterConfig {
    /// Where this node listens for the others.
    pub listen: Option<SocketAddr>,
    /// Where the others reach it, as `host:port`; the address that it listens on, if this is not set.
    pub advertise: Option<String>,
}

/// Whether the store of this URL is one that several nodes share. An engine that is not known is refused when it is opened.
pub(crate) fn is_shared(store: &str) -> bool {
    ["nats:", "tls:"].iter().any(|engine| store.starts_with(engine))
}

/// A cluster whose nodes have to be on one machine, or one of a single node.
pub(super) fn warning(layered: &Layered) -> Option<String> {
    let config = &layered.draft.config;
    if !is_shared(&config.store) {
        return (config.cluster != ClusterConfig::default()).then(|| {
            format!(
                "`cluster` is set, and has no effect with the store \"{}\", which belongs to one process; \
                 name a store that nodes can share",
                marked(&config.store)
            )
        });
    }
    let listen = config.cluster.listen.filter(|listen| listen.ip().is_loopback())?;
    config.cluster.advertise.is_none().then(|| {
        format!(
            "`cluster.listen` is {listen}, so only nodes on this machine can reach this one; \
             set it to an address that the others can connect to, such as \"10.0.0.1:8486\""
        )
    })
}

/// Settings of a cluster that cannot work.
pub(super) fn problems(layered: &Layered) -> Vec<Problem> {
    let config = &layered.draft.config;
    let ClusterConfig { listen, advertise } = &config.cluster;
    let mut problems = Vec::new();
    let mut refuse = |what: String, hint: &str| problems.push(Problem { what, hint: Some(hint.to_owned()) });
    if let (Some(listen), None) = (listen, advertise)
        && listen.ip().is_unspecified()
    {
        refuse(
            format!(
                "`cluster.listen` is {listen}, which no other node can connect to, and `cluster.advertise` is not set"
            ),
            "set `cluster.advertise` to the name or address of this machine, such as \"tenure-1.internal:8486\"",
        );
    }
    problems
}
