//! What comes out: the configuration in force.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tenure_layers::bridge::{ERA_TTL, PoolLimits, Reuse};
use tenure_layers::data::Policy;
use tenure_protocol::Eras;
use tenure_session::Limits;
use tenure_session::exchange::ExchangeLimits;
use tenure_session::state::StateLimits;
use tenure_session::task::TaskLimits;
use tenure_transport::http::{Doors, Rules};
use tenure_transport::serve::Bounds;

use super::compat::Compat;
use super::error::{ConfigError, Warning};
use super::layers::Layered;
use super::profile::Profile;
use super::sources::Sources;
use super::{checks, show};

/// The whole configuration of `tenure serve`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The URL of the store. `disk:` alone is a folder of the user's own for what is served.
    pub store: String,
    /// Whether a source says which store; otherwise a command may choose another default.
    pub is_store_chosen: bool,
    /// What the user's own folder for the store is called; if it is left out, by what is served.
    pub name: Option<String>,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// What a finished write of a store on disk survives.
    pub durability: Durability,
    /// Which revisions are served.
    pub eras: Eras,
    /// The file with the key that encrypts the store.
    pub store_key_file: Option<PathBuf>,
    /// The profile that was chosen, if any; its values are already in place.
    pub profile: Option<Profile>,
    /// Which clients of earlier designs are served as they are.
    pub compat: Compat,
    /// What is logged and how it looks.
    pub log: Log,
    /// The files for TLS; without them, plain HTTP.
    pub tls: Option<Tls>,
    /// What the endpoint allows.
    pub rules: Rules,
    /// How connections are bounded.
    pub bounds: Bounds,
    /// Which doors are open beside the endpoint.
    pub doors: Doors,
    /// What clients may make the server hold.
    pub clients: Clients,
    /// How sessions are bounded.
    pub limits: Limits,
    /// The server behind, if it is a program of its own.
    pub child: Child,
    /// The server behind, if it is elsewhere.
    pub upstream: Upstream,
    /// The servers behind, if there are several.
    pub backends: Vec<Behind>,
    /// How data sessions are offered and bounded.
    pub data: DataSessions,
    /// How requests without a session are served.
    pub exchanges: Exchanges,
    /// How tasks are bounded.
    pub tasks: TaskLimits,
    /// How clients of one era and servers of the other are brought together.
    pub bridge: Bridge,
    /// How long requests in flight may take to finish once the process was told to stop.
    pub shutdown_grace: Duration,
    /// Bytes of events that the memory store keeps of all sessions together.
    pub max_total_event_bytes: usize,
    /// Who gets how many file descriptors; from the operating system, and not configured.
    pub descriptors: Descriptors,
}

/// Who gets how many file descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Descriptors {
    /// Files of tables that the store may hold open. `None`: as many as it likes.
    pub store: Option<usize>,
    /// What a child may have open at first. `None`: as many as this process.
    pub of_child: Option<u64>,
    /// Configured bounds that had to be lowered a good deal.
    pub lowered: Option<Lowered>,
}

/// Configured bounds that had to be lowered, because this process may not have as many files open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lowered {
    /// The files that it may have open.
    pub most: u64,
    /// Connections that are admitted.
    pub connections: usize,
    /// Servers behind that are started, all together; nothing if they are as many as configured.
    pub children: Option<usize>,
}

/// What clients may make the server hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clients {
    /// Bytes of messages in memory, of all clients together.
    pub memory_bytes: usize,
    /// Bytes of data sessions in the store, of all clients together.
    pub disk_bytes: usize,
    /// How much of it, and of every other total, one of them may hold if it is alone; in percent. If it is left out, by
    /// where the server listens.
    pub share: Option<u32>,
}

impl Default for Clients {
    fn default() -> Self {
        Self { memory_bytes: 512 << 20, disk_bytes: 4 << 30, share: None }
    }
}

/// How requests without a session are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchanges {
    /// How many run at once.
    pub max_running: usize,
    /// How many listens there are at once.
    pub max_listens: usize,
    /// How many calls wait for answers of their clients.
    pub max_parked: usize,
    /// How long an answer may take before it becomes a stream.
    pub stream_after: Duration,
    /// How many calls are noted, so that their clients can come back for them.
    pub max_kept: usize,
    /// Whether `public` caching of a server behind is believed.
    pub trust_public: bool,
    /// The file with the key that seals what clients carry between attempts.
    pub state_key_file: Option<PathBuf>,
}

/// One of several servers behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Behind {
    /// Its endpoint is `/mcp/NAME`.
    pub name: String,
    /// What stands before the names of its tools and prompts where all are served together; may be empty.
    pub prefix: String,
    /// The server, if it is a program of its own.
    pub child: Child,
    /// The server, if it is elsewhere.
    pub upstream: Upstream,
}

/// A server that is a program of its own and speaks over its standard input and output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Child {
    /// The program and its arguments; nothing if there is none.
    pub command: Vec<String>,
    /// Variables that are set for it, as `NAME=VALUE`.
    pub env: Vec<String>,
    /// Which variables of this process it inherits.
    pub inherit: Inherited,
    /// The folder it runs in.
    pub folder: Option<PathBuf>,
    /// Whether all sessions share one.
    pub share: bool,
    /// How many are started ahead.
    pub warm: usize,
    /// How many there may be at once.
    pub max: usize,
    /// How long it may take to leave when it is asked to, and again when it is told to.
    pub grace: Duration,
    /// The longest line it may write.
    pub max_line_bytes: usize,
    /// The most memory that it may map.
    pub max_memory: Option<usize>,
    /// The most files that it may have open.
    pub max_files: Option<usize>,
    /// Which revisions it speaks.
    pub era: Speaks,
}

/// Which variables of this process a child inherits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inherited {
    /// All, but for those that the configuration names as secrets.
    All,
    /// These, and the few that programs cannot do without.
    Only(Vec<String>),
}

impl Default for Child {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            env: Vec::new(),
            inherit: Inherited::All,
            folder: None,
            share: false,
            warm: 1,
            max: 256,
            grace: Duration::from_secs(2),
            max_line_bytes: 16 << 20,
            max_memory: None,
            max_files: None,
            era: Speaks::Auto,
        }
    }
}

/// A server elsewhere that speaks MCP over HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upstream {
    /// Its endpoint; nothing if there is none.
    pub url: Option<String>,
    /// Headers that go with every request, as `Name: value`, `Name: env:VARIABLE` or `Name: file:PATH`.
    pub headers: Vec<String>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// The largest message from it.
    pub max_message_bytes: usize,
    /// How long it is waited for while it is away.
    pub patience: Duration,
    /// Which revisions it speaks.
    pub era: Speaks,
}

/// Which revisions a server behind speaks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Speaks {
    /// To be found out.
    #[default]
    Auto,
    /// Those with sessions.
    Legacy,
    /// Those without.
    Modern,
}

/// How clients of one era and servers of the other are brought together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bridge {
    /// Who may use a session towards a server again.
    pub reuse: Reuse,
    /// Sessions towards each server.
    pub max_sessions: usize,
    /// How long such a session is kept unused.
    pub idle: Duration,
    /// How long it is believed which revisions a server speaks.
    pub era_ttl: Duration,
}

impl Default for Bridge {
    fn default() -> Self {
        let limits = PoolLimits::default();
        Self { reuse: limits.reuse, max_sessions: limits.max, idle: limits.idle, era_ttl: ERA_TTL }
    }
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            url: None,
            headers: Vec::new(),
            connect_timeout: Duration::from_secs(5),
            max_message_bytes: 16 << 20,
            // As long as for a program that comes up.
            patience: Limits::default().initialize_timeout,
            era: Speaks::Auto,
        }
    }
}

/// How data sessions are offered and bounded.
#[derive(Clone, Debug, Default)]
pub struct DataSessions {
    /// Whether they are offered.
    pub offer: Offer,
    /// Which tools need one, and how cookies are handled.
    pub policy: Policy,
    /// How long they live and how many there may be.
    pub limits: StateLimits,
    /// The file with the key that seals what clients carry.
    pub carry_key_file: Option<PathBuf>,
}

/// Whether data sessions are offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Offer {
    /// When the server behind uses them, or a tool is configured to need one.
    #[default]
    Auto,
    /// In front of any server.
    Always,
    /// Not at all.
    Never,
}

/// What is logged and how it looks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// How a log line looks.
    pub format: LogFormat,
    /// A filter as `tracing` reads it: a level, or levels by target.
    pub level: String,
}

/// What an event survives once a client has seen it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// The end of the process; a loss of power takes at most the last 100 ms.
    #[default]
    Os,
    /// The loss of power too.
    Disk,
}

/// How a log line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// Pretty on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// For people.
    Pretty,
    /// For machines: one JSON object a line.
    Json,
}

/// The files for TLS, both PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The certificate chain.
    pub cert: PathBuf,
    /// The private key of the first certificate.
    pub key: PathBuf,
}

impl Config {
    /// The variables of this process that hold secrets, since some server needs them as `env:VARIABLE`.
    pub(crate) fn secret_variables(&self) -> Vec<String> {
        let named = |value: &str| value.trim().strip_prefix("env:").map(str::to_owned);
        let one = [(&self.child, &self.upstream)];
        let several = self.backends.iter().map(|behind| (&behind.child, &behind.upstream));
        let values = one.into_iter().chain(several).flat_map(|(child, upstream)| {
            let set = child.env.iter().filter_map(|pair| Some(pair.split_once('=')?.1));
            set.chain(upstream.headers.iter().filter_map(|header| Some(header.split_once(':')?.1)))
        });
        values.filter_map(named).collect()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8484)),
            store: "disk:".to_owned(),
            is_store_chosen: false,
            name: None,
            file: None,
            durability: Durability::Os,
            eras: Eras::Both,
            compat: Compat::None,
            store_key_file: None,
            profile: None,
            log: Log::default(),
            tls: None,
            rules: Rules::default(),
            bounds: Bounds::default(),
            doors: Doors::default(),
            clients: Clients::default(),
            limits: Limits::default(),
            child: Child::default(),
            upstream: Upstream::default(),
            backends: Vec::new(),
            data: DataSessions::default(),
            exchanges: Exchanges::default(),
            tasks: TaskLimits::default(),
            bridge: Bridge::default(),
            shutdown_grace: Duration::from_secs(10),
            max_total_event_bytes: 1 << 30,
            descriptors: Descriptors::default(),
        }
    }
}

impl Default for Exchanges {
    fn default() -> Self {
        let limits = ExchangeLimits::default();
        Self {
            max_running: limits.max_running,
            max_listens: limits.max_listens,
            max_parked: limits.max_parked,
            // Not later: Python's client does not outlive a connection that breaks before the head of its answer.
            stream_after: Duration::from_secs(1),
            max_kept: limits.max_kept,
            trust_public: false,
            state_key_file: None,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned() }
    }
}

impl Config {
    /// Lays the sources over the defaults and checks that the result fits together.
    ///
    /// # Errors
    /// With everything that is wrong at once: unknown and renamed keys, values that cannot be read,
    /// values that contradict each other.
    pub fn load(sources: &Sources) -> Result<(Self, Vec<Warning>), ConfigError> {
        let layered = Layered::read(sources)?;
        let warnings = checks::warnings(&layered);
        let file = sources.file.as_ref().map(|(path, _)| path.clone());
        Ok((Self { file, ..layered.config() }, warnings))
    }

    /// The configuration in force as TOML, with a comment per key that says where its value comes from.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn show(sources: &Sources) -> Result<String, ConfigError> {
        Ok(show::show(&Layered::read(sources)?))
    }
}
