//! This node among those that share its store: its record, its peer port, and the way to the others.
//!
//! In: the configuration and the records of nodes. Out: [`Cluster`]; the node is confirmed when it is there.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use tenure_session::cluster::{NodeInfo, Roster};
use tenure_session::id::NodeId;
use tenure_session::port::clock::Clock;
use tenure_session::port::members::Members;
use tenure_transport::cluster::{PeerKey, PeerNews, PeerPort, PeerQuestions, QuestionDesk, Relay};
use tenure_transport::http::{PeerService, Router};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::config::is_shared;
use crate::failure::Failure;
use crate::servers;
use crate::url_text::marked;
use crate::wire::store;

/// A node of a cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) roster: Roster,
    pub(crate) relay: Relay,
    /// Where other nodes ask for their operators.
    questions: QuestionDesk,
    /// Cancelled when the peer port closes.
    shut: CancellationToken,
    /// The peer port, and the connections to other nodes.
    tasks: TaskTracker,
}

impl Cluster {
    /// Joins the nodes of these records. Until [`Cluster::serve`] peers connect and wait. `stop` is cancelled when the node ends the
    /// streams of its clients.
    pub(super) async fn join(
        config: &Config,
        members: Arc<dyn Members>,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Result<(Self, PeerPort), Failure> {
        // Asked here and not when the configuration is read: commands that only look at the store are no nodes.
        if config.cluster.listen.is_none() && is_shared(&config.store) {
            return Err(Failure::new(format!(
                "`store` is \"{}\", which several nodes share, and `cluster.listen` is not set",
                marked(&config.store)
            ))
            .hint("set it to an address that the other nodes can reach, such as \"10.0.0.1:8486\""));
        }
        let listen = config.cluster.listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            Failure::new(format!("cannot listen on `{listen}` for other nodes"))
                .caused_by(error)
                .hint("stop the other process, or set `cluster.listen` to a free port of this machine")
        })?;
        let bound = listener.local_addr().map_err(|error| {
            Failure::new("cannot tell the address that was bound for other nodes").caused_by(error)
        })?;
        let key = PeerKey::draw()
            .map_err(|error| Failure::new("cannot draw the key of the node").caused_by(error))?;
        let info = NodeInfo {
            peer_address: config.cluster.advertise.clone().unwrap_or_else(|| bound.to_string()),
            key_sha256: key.pin().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            keys: key_ids(config)?,
            servers: servers::digests(config),
            ..NodeInfo::default()
        };
        let roster = Roster::start(members, clock, NodeId::random(), info);
        let port = PeerPort::new(listener, &key, roster.clone())
            .map_err(|error| Failure::new("cannot set up TLS between nodes").caused_by(error))?;
        // One that does not fit starts all the same: it says why at `/readyz`, and serves as soon as it fits.
        if let Err(error) = roster.confirmed().await
            && roster.unfit().is_none()
        {
            roster.leave().await;
            return Err(Failure::new("cannot join the cluster")
                .caused_by(error)
                .hint("the store has to take writes: look at its own log"));
        }
        let questions = QuestionDesk::default();
        let (shut, tasks) = (CancellationToken::new(), TaskTracker::new());
        let relay = Relay::start(roster.clone(), key, stop, &tasks);
        tracing::info!(node = ?roster.node(), peers = %bound, "joined the cluster");
        Ok((Self { roster, relay, questions, shut, tasks }, port))
    }

    /// Takes the news of servers in this process, and tells them to the other nodes.
    pub(super) fn news(&self) -> Arc<PeerNews> {
        PeerNews::start(self.relay.clone(), &self.tasks)
    }

    /// Serves the other nodes.
    pub(super) fn serve(&self, port: PeerPort, router: Router) {
        let service = PeerService::new(router).with_questions(self.questions.clone());
        self.tasks.spawn(port.run(service, self.shut.clone()));
    }

    /// Answers what other nodes ask for their operators.
    pub(crate) fn answer(&self, questions: Arc<dyn PeerQuestions>) {
        self.questions.open(questions);
    }

    /// Leaves the cluster, once nothing is served any more: peers look for the next owners at once.
    ///
    /// # Cancel safety
    /// The others notice within seconds.
    pub(crate) async fn leave(&self) {
        self.shut.cancel();
        self.roster.leave().await;
        self.relay.close();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// The ids of the keys that have to be the same at all nodes, by what they are for. A file with several keys lets nodes change
/// theirs one after the other.
fn key_ids(config: &Config) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let ids = |file: Option<&PathBuf>| -> Result<Option<Vec<String>>, Failure> {
        let keys = store::keys(file)?;
        Ok(keys.map(|keys| keys.ids().map(|id| id.to_string()).collect()))
    };
    // Without a file the key for request states is one that the store keeps for all.
    let states = ids(config.exchanges.state_key_file.as_ref())?.unwrap_or_else(|| vec!["kept".to_owned()]);
    let mut known = BTreeMap::from([("request_state".to_owned(), states)]);
    if is_shared(&config.store) {
        known.extend(ids(config.store_key_file.as_ref())?.map(|ids| ("store".to_owned(), ids)));
    }
    known.extend(ids(config.data.carry_key_file.as_ref())?.map(|ids| ("carry".to_owned(), ids)));
    Ok(known)
}
