//! The configuration in force: the result of all layers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tenure_layers::bridge::{ERA_TTL, PoolLimits, Reuse};
use tenure_layers::data::Policy;
use tenure_layers::limited::CallLimitSettings;
use tenure_protocol::Eras;
use tenure_session::Limits;
use tenure_session::exchange::ExchangeLimits;
use tenure_session::rate::Rate;
use tenure_session::state::StateLimits;
use tenure_session::task::TaskLimits;
use tenure_transport::http::{Doors, Rules};
use tenure_transport::serve::Bounds;

use super::admin::AdminConfig;
use super::audit::AuditConfig;
use super::auth::AuthConfig;
use super::cluster::ClusterConfig;
use super::compat::Compat;
use super::error::{ConfigError, Warning};
use super::layers::Layered;
use super::metrics::MetricsConfig;
use super::nats::NatsConfig;
use super::profile::Profile;
use super::shown::{self, ShownSetting};
use super::sources::Sources;
use super::traces::TracesConfig;
use super::upstream_auth::UpstreamAuthConfig;
use super::{checks, show};
use crate::url_text::public_part;

/// The whole configuration of `tenure serve`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The URL of the store. `disk:` alone stands for one of the user's folders, chosen by the server behind.
    pub store: String,
    /// Whether a source names the store; otherwise a command may choose another default.
    pub is_store_chosen: bool,
    /// The name of the user's folder for the store; without it, the name is made from the server behind.
    pub name: Option<String>,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// How to reach the store, if it is a NATS engine.
    pub nats: NatsConfig,
    /// Which failures a finished write to a store on disk survives.
    pub durability: WriteDurability,
    /// How this node and others that share the store reach each other.
    pub cluster: ClusterConfig,
    /// How many sessions a node of a cluster wakes at the same time, if that is set.
    pub max_parallel_wakes: Option<usize>,
    /// Where the control socket is, if the store is no folder.
    pub control_path: Option<PathBuf>,
    /// Which revisions are served.
    pub eras: Eras,
    /// The file with the key that encrypts the store.
    pub store_key_file: Option<PathBuf>,
    /// The profile that was chosen, if any; its values are already in place.
    pub profile: Option<Profile>,
    /// Which clients of earlier designs are served as they are.
    pub compat: Compat,
    /// What is logged and in which format.
    pub log: LogConfig,
    /// What is recorded of who did what.
    pub audit: AuditConfig,
    /// The page and the API for operators.
    pub admin: AdminConfig,
    /// What the process counts of itself.
    pub metrics: MetricsConfig,
    /// Where traces go.
    pub traces: TracesConfig,
    /// The files for TLS; without them, plain HTTP.
    pub tls: Option<Tls>,
    /// Who may use the server.
    pub auth: AuthConfig,
    /// What the endpoint allows.
    pub rules: Rules,
    /// How connections are bounded.
    pub bounds: Bounds,
    /// Which doors are open beside the endpoint.
    pub doors: Doors,
    /// What clients may make the server hold.
    pub clients: Clients,
    /// How often clients may call, how much at once, and how much a day.
    pub rates: RateConfig,
    /// How sessions are bounded.
    pub limits: Limits,
    /// The server behind, if it is a command.
    pub child: ChildConfig,
    /// The server behind, if it is a URL.
    pub upstream: UpstreamConfig,
    /// The servers behind, if there are several.
    pub backends: Vec<Behind>,
    /// How data sessions are offered and bounded.
    pub data: DataSessions,
    /// How requests without a session are served.
    pub exchanges: ExchangesConfig,
    /// How tasks are bounded.
    pub tasks: TaskLimits,
    /// How clients of one era are served by servers of the other.
    pub bridge: Bridge,
    /// How long requests in flight may take to finish once the process has to stop.
    pub shutdown_grace: Duration,
    /// Bytes of events that the memory store keeps of all sessions together.
    pub max_total_event_bytes: usize,
    /// How the file descriptors are divided; not configured, but from the limits of the operating system.
    pub descriptors: Descriptors,
    /// Each setting with its source, as operators see them; not configured, and empty unless the configuration was read.
    pub shown: Vec<ShownSetting>,
}

/// How the file descriptors are divided.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Descriptors {
    /// Table files that the store may hold open. `None`: no limit.
    pub store: Option<usize>,
    /// The soft limit of a child. `None`: the one of this process.
    pub of_child: Option<u64>,
    /// Configured bounds that had to be lowered a lot.
    pub lowered: Option<Lowered>,
}

/// Configured bounds that had to be lowered, because this process may not have as many files open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lowered {
    /// The files that it may have open.
    pub most: u64,
    /// Connections that are admitted.
    pub connections: usize,
    /// Children of all servers together; `None` if the configured number was not lowered.
    pub children: Option<usize>,
}

/// What clients may make the server hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clients {
    /// Bytes of messages in memory, of all clients together.
    pub memory_bytes: usize,
    /// Bytes of data sessions in the store, of all clients together.
    pub disk_bytes: usize,
    /// The share in percent that a single client may hold of each total. Without it, the address that the server
    /// listens on decides.
    pub share: Option<u32>,
}

impl Default for Clients {
    fn default() -> Self {
        Self { memory_bytes: 512 << 20, disk_bytes: 4 << 30, share: None }
    }
}

/// How often clients may call, how much at once, and how much a day.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateConfig {
    /// Sessions that an address begins. Without it, the address decides.
    pub initialize: Option<Option<Rate>>,
    /// Credentials of an address that are refused. Without it, the address decides.
    pub failed_credentials: Option<Option<Rate>>,
    /// How late tasks of the process may be before work is given up.
    pub max_lag: Option<Duration>,
    /// Limits of calls.
    pub calls: CallLimitSettings,
}

impl Default for RateConfig {
    fn default() -> Self {
        Self {
            initialize: None,
            failed_credentials: None,
            max_lag: Some(Duration::from_millis(100)),
            calls: CallLimitSettings::default(),
        }
    }
}

/// How requests without a session are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExchangesConfig {
    /// How many run at once.
    pub max_running: usize,
    /// How many listens there are at once.
    pub max_listens: usize,
    /// How many calls wait for answers of their clients.
    pub max_parked: usize,
    /// How long an answer may take before it becomes a stream.
    pub stream_after: Duration,
    /// How many calls are kept in the store, so that their clients can come back for them.
    pub max_kept: usize,
    /// Whether to trust `public` caching from a server behind.
    pub trust_public: bool,
    /// The file with the key that seals the state that clients carry between attempts.
    pub state_key_file: Option<PathBuf>,
}

/// One of several servers behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Behind {
    /// Its endpoint is `/mcp/NAME`.
    pub name: String,
    /// The prefix of its tools and prompts where all servers are merged; may be empty.
    pub prefix: String,
    /// The server, if it is a command.
    pub child: ChildConfig,
    /// The server, if it is a URL.
    pub upstream: UpstreamConfig,
}

/// A server that is a command and speaks over its standard input and output.
#[derive(Clone, PartialEq, Eq)]
pub struct ChildConfig {
    /// The program and its arguments; empty without a command.
    pub command: Vec<String>,
    /// Variables that are set for it, as `NAME=VALUE`.
    pub env: Vec<String>,
    /// Which variables of this process it inherits.
    pub inherit: Inherited,
    /// The folder it runs in.
    pub folder: Option<PathBuf>,
    /// Whether all sessions share one process.
    pub share: bool,
    /// Whether a process is told whose session it serves.
    pub identity: bool,
    /// How many processes are started before they are needed.
    pub warm: usize,
    /// The most processes at once.
    pub max: usize,
    /// How long it may take to end after its input is closed, and again after a signal.
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

/// It would show variables, whose values may be secrets.
impl std::fmt::Debug for ChildConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("ChildConfig");
        shown.field("command", &self.command).field("era", &self.era).finish_non_exhaustive()
    }
}

/// Which variables of this process a child inherits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inherited {
    /// All except those that the configuration names as secrets.
    All,
    /// These, and the few that every program needs.
    Only(Vec<String>),
}

impl Default for ChildConfig {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            env: Vec::new(),
            inherit: Inherited::All,
            folder: None,
            share: false,
            identity: false,
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

/// A server at a URL that speaks MCP over HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Its endpoint, if it is configured.
    pub url: Option<String>,
    /// Headers that go with every request, as `Name: value`, `Name: env:VARIABLE` or `Name: file:PATH`.
    pub headers: Vec<String>,
    /// How the gateway proves who it is.
    pub auth: UpstreamAuthConfig,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// The largest message from it.
    pub max_message_bytes: usize,
    /// How long requests wait while it is unreachable.
    pub patience: Duration,
    /// Which revisions it speaks.
    pub era: Speaks,
}

/// It would show headers, whose values may be secrets.
impl std::fmt::Debug for UpstreamConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = self.url.as_deref().map(public_part);
        let mut shown = f.debug_struct("UpstreamConfig");
        shown.field("url", &url).field("auth", &self.auth).field("era", &self.era).finish_non_exhaustive()
    }
}

/// Which revisions a server behind speaks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Speaks {
    /// It is detected.
    #[default]
    Auto,
    /// Those with sessions.
    Legacy,
    /// Those without.
    Modern,
}

/// How clients of one era are served by servers of the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bridge {
    /// Which requests may reuse a session with a server.
    pub reuse: Reuse,
    /// The most sessions with each server.
    pub max_sessions: usize,
    /// How long such a session is kept unused.
    pub idle: Duration,
    /// How long the detected era of a server is cached.
    pub era_ttl: Duration,
}

impl Default for Bridge {
    fn default() -> Self {
        let limits = PoolLimits::default();
        Self { reuse: limits.reuse, max_sessions: limits.max, idle: limits.idle, era_ttl: ERA_TTL }
    }
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            url: None,
            headers: Vec::new(),
            auth: UpstreamAuthConfig::default(),
            connect_timeout: Duration::from_secs(5),
            max_message_bytes: 16 << 20,
            // The same time that a program has to start.
            patience: Limits::default().initialize_timeout,
            era: Speaks::Auto,
        }
    }
}

/// How data sessions are offered and bounded.
#[derive(Clone, Debug, Default)]
pub struct DataSessions {
    /// Whether they are offered.
    pub offer: DataOffer,
    /// Which tools need one, and how cookies are handled.
    pub policy: Policy,
    /// How long they live and how many there may be.
    pub limits: StateLimits,
    /// The file with the key that seals the state that clients carry.
    pub carry_key_file: Option<PathBuf>,
}

/// Whether data sessions are offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DataOffer {
    /// When the server behind uses them, or a tool is configured to need one.
    #[default]
    Auto,
    /// In front of any server.
    Always,
    /// Not at all.
    Never,
}

/// What is logged and in which format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogConfig {
    /// The format of log lines.
    pub format: LogFormat,
    /// A filter as `tracing` reads it: a level, or levels by target.
    pub level: String,
    /// Whether there is a line for each request.
    pub access: bool,
}

/// What an event survives once a client has seen it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WriteDurability {
    /// The end of the process; a loss of power takes at most the last 100 ms.
    #[default]
    Os,
    /// The loss of power too.
    Disk,
}

/// The format of log lines.
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
    /// The authorities of client certificates.
    pub client_ca: Option<PathBuf>,
}

impl Config {
    /// The variables of this process that hold secrets, since some server needs them as `env:VARIABLE`.
    pub(crate) fn secret_variables(&self) -> Vec<String> {
        let named = |value: &str| value.trim().strip_prefix("env:").map(str::to_owned);
        let one = [(&self.child, &self.upstream)];
        let several = self.backends.iter().map(|behind| (&behind.child, &behind.upstream));
        let values = one.into_iter().chain(several).flat_map(|(child, upstream)| {
            let set = child.env.iter().filter_map(|pair| Some(pair.split_once('=')?.1));
            let headers = upstream.headers.iter().filter_map(|header| Some(header.split_once(':')?.1));
            set.chain(headers).chain(upstream.auth.client_secret.as_deref())
        });
        let of_issuers = self.auth.issuers.iter().filter_map(|issuer| issuer.client_secret.as_deref());
        let of_nats = [&self.nats.nkey, &self.nats.token, &self.nats.password];
        let of_nats = of_nats.into_iter().filter_map(|value| value.as_deref());
        values.chain(of_issuers).chain(of_nats).filter_map(named).collect()
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
            nats: NatsConfig::default(),
            durability: WriteDurability::Os,
            cluster: ClusterConfig::default(),
            max_parallel_wakes: None,
            control_path: None,
            eras: Eras::Both,
            compat: Compat::None,
            store_key_file: None,
            profile: None,
            log: LogConfig::default(),
            audit: AuditConfig::default(),
            admin: AdminConfig::default(),
            metrics: MetricsConfig::default(),
            traces: TracesConfig::default(),
            tls: None,
            auth: AuthConfig::default(),
            rules: Rules::default(),
            bounds: Bounds::default(),
            doors: Doors::default(),
            clients: Clients::default(),
            rates: RateConfig::default(),
            limits: Limits::default(),
            child: ChildConfig::default(),
            upstream: UpstreamConfig::default(),
            backends: Vec::new(),
            data: DataSessions::default(),
            exchanges: ExchangesConfig::default(),
            tasks: TaskLimits::default(),
            bridge: Bridge::default(),
            shutdown_grace: Duration::from_secs(10),
            max_total_event_bytes: 1 << 30,
            descriptors: Descriptors::default(),
            shown: Vec::new(),
        }
    }
}

impl Default for ExchangesConfig {
    fn default() -> Self {
        let limits = ExchangeLimits::default();
        Self {
            max_running: limits.max_running,
            max_listens: limits.max_listens,
            max_parked: limits.max_parked,
            // Not later: Python's client fails if a connection breaks before the head of the response.
            stream_after: Duration::from_secs(1),
            max_kept: limits.max_kept,
            trust_public: false,
            state_key_file: None,
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned(), access: true }
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
        let shown = shown::settings(&layered);
        Ok((Self { file, shown, ..layered.config() }, warnings))
    }

    /// The configuration in force as TOML, with a comment per key that says where its value comes from.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn show(sources: &Sources) -> Result<String, ConfigError> {
        Ok(show::show(&Layered::read(sources)?))
    }
}
