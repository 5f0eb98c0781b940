//! The names of streams and subjects; no other file knows them.
//!
//! All names begin with the name of the cluster, so that several clusters can share an engine. The records, the owner and
//! the events of a key lie in one stream, its shard, because the engine compares sequences only within a stream.

use async_nats::Subject;
use tenure_session::id::{NodeId, SessionKey};
use tenure_session::port::store::{RecordKey, Space};

/// One shard, with the subjects of the engine's own interface for its stream.
pub(crate) struct Shard {
    pub(crate) number: u16,
    /// The name of its stream.
    pub(crate) stream: String,
    /// Reads one message from the leader.
    pub(crate) get: Subject,
    /// Reads many messages from any replica.
    pub(crate) direct: Subject,
    pub(crate) purge: Subject,
    pub(crate) delete: Subject,
    pub(crate) info: Subject,
}

impl Shard {
    fn new(number: u16, stream: String) -> Self {
        let api = |operation: &str| Subject::from(format!("$JS.API.{operation}.{stream}"));
        Self {
            number,
            get: api("STREAM.MSG.GET"),
            direct: api("DIRECT.GET"),
            purge: api("STREAM.PURGE"),
            delete: api("STREAM.MSG.DELETE"),
            info: api("STREAM.INFO"),
            stream,
        }
    }
}

/// The names of one cluster.
pub(crate) struct Names {
    cluster: String,
    shards: Vec<Shard>,
    /// The stream of the nodes and of the cluster's own record. Its number means nothing.
    pub(crate) nodes: Shard,
}

impl Names {
    pub(crate) fn new(cluster: &str, shards: u16) -> Self {
        let shard = |number| Shard::new(number, format!("{cluster}_{number}"));
        Self {
            cluster: cluster.to_owned(),
            shards: (0..shards).map(shard).collect(),
            nodes: Shard::new(0, format!("{cluster}_nodes")),
        }
    }

    /// Whether a text can name a cluster: it becomes a part of names of streams and subjects.
    pub(crate) fn is_cluster(name: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=32).contains(&name.len()) && name.bytes().all(fits)
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The shard of a key. A state's key begins with bytes of its owner, so only its last bytes spread evenly.
    pub(crate) fn shard(&self, key: &SessionKey) -> &Shard {
        let bytes = key.as_bytes();
        let last = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
        &self.shards[last % self.shards.len()]
    }

    /// The record of the cluster itself.
    pub(crate) fn founding(&self) -> Subject {
        format!("{}.cluster", self.cluster).into()
    }

    pub(crate) fn node(&self, node: NodeId) -> Subject {
        let digits: String = node.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}.n.{digits}", self.cluster).into()
    }

    pub(crate) fn all_nodes(&self) -> String {
        format!("{}.n.*", self.cluster)
    }

    /// The subjects of the stream of the nodes.
    pub(crate) fn subjects_of_nodes(&self) -> Vec<String> {
        vec![format!("{}.cluster", self.cluster), self.all_nodes()]
    }

    /// The subjects of the stream of a shard.
    pub(crate) fn subjects_of(&self, shard: &Shard) -> Vec<String> {
        vec![format!("{}.{}.>", self.cluster, shard.number)]
    }

    /// A message that every shard has from its beginning.
    pub(crate) fn marker(&self, shard: &Shard) -> Subject {
        format!("{}.{}.m", self.cluster, shard.number).into()
    }

    /// The first three digits of the key are tokens of their own, so that a part of the records can be listed.
    pub(crate) fn record(&self, key: RecordKey) -> Subject {
        let (shard, hex) = (self.shard(&key.key), key.key.hex());
        let [one, two, three] = [&hex[..1], &hex[1..2], &hex[2..3]];
        let (cluster, space) = (&self.cluster, space_token(key.space));
        format!("{cluster}.{}.r.{space}.{one}.{two}.{three}.{hex}", shard.number).into()
    }

    /// The records of a shard whose keys begin with these digits, at most three.
    pub(crate) fn records_under(&self, shard: &Shard, space: Space, digits: &str) -> String {
        let mut filter = format!("{}.{}.r.{}.", self.cluster, shard.number, space_token(space));
        for digit in digits.chars() {
            filter.push(digit);
            filter.push('.');
        }
        filter.push('>');
        filter
    }

    /// The key that the subject of a record ends with.
    pub(crate) fn key_of_record(subject: &str) -> Option<SessionKey> {
        SessionKey::parse(subject.rsplit('.').next()?)
    }

    fn of_session(&self, kind: char, session: &SessionKey) -> Subject {
        let shard = self.shard(session).number;
        format!("{}.{shard}.{kind}.{}", self.cluster, session.hex()).into()
    }

    pub(crate) fn owner(&self, session: &SessionKey) -> Subject {
        self.of_session('o', session)
    }

    pub(crate) fn events(&self, session: &SessionKey) -> Subject {
        self.of_session('e', session)
    }

    pub(crate) fn head(&self, session: &SessionKey) -> Subject {
        self.of_session('h', session)
    }

    /// The bucket of the records that are due in one interval.
    pub(crate) fn due(&self, shard: &Shard, space: Space, bucket: u32) -> String {
        format!("{}.{}.d.{}.{bucket}", self.cluster, shard.number, space_token(space))
    }

    pub(crate) fn all_due(&self, shard: &Shard, space: Space) -> String {
        format!("{}.{}.d.{}.*", self.cluster, shard.number, space_token(space))
    }

    /// The bucket at the end of such a subject.
    pub(crate) fn bucket_of_due(subject: &str) -> Option<u32> {
        subject.rsplit('.').next()?.parse().ok()
    }
}

/// A space as it is written in subjects. Never used again for another space.
fn space_token(space: Space) -> &'static str {
    match space {
        Space::Session => "session",
        Space::Store => "store",
        Space::State => "state",
        Space::Rmcp => "rmcp",
        Space::Task => "task",
        Space::Call => "call",
        Space::Principal => "principal",
        Space::Quota => "quota",
        // The port may add spaces; a space without a name here shares this one, and its keys do not collide.
        _ => "other",
    }
}
