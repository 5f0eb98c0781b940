//! The table of keys: the one place that says what can be configured.
//!
//! A key is a dotted path, the form its value is written in, the field it sets, and a sentence for
//! people. Defaults are not repeated here: they are those of the structs the fields belong to.

use std::path::PathBuf;

use tenure_layers::bridge::Reuse;
use tenure_layers::limited::OverLimit;
use tenure_protocol::Eras;
use tenure_session::limits::{OnGap, OtherServer, UnknownEventId};

use super::audit::AuditDurability;
use super::auth::AuthMode;
use super::compat::Compat;
use super::effective::{Config, DataOffer, LogFormat, Speaks, WriteDurability};
use super::profile::Profile;
use super::upstream_auth::UpstreamAuthMode;
use super::value::choice::{Code, Features, LogFilter, OneOf, RequiredTools, Strict, Variables, YesNo};
use super::value::measure::{Percent, Portion, Share, Size, Span, SpanOrInfinity, SpanOrZero, WholeNumber};
use super::value::place::{
    Address, Assignments, BaseUrl, EndpointUrl, Environment, File, FolderName, Headers, Hosts, Names,
    Origins, PeerAddress, Proxies, StoreUrl, Words,
};
use super::value::rate::{
    PatternNumbers, PatternRates, PrincipalNumbers, PrincipalRates, RateOrOff, ServerNumbers,
};
use super::value::web::{PlainText, Secret, WebUrl};
use super::value::{Optional, SettingValue, ValueForm, ValueRefusal};

/// Something that can be configured.
pub(super) struct ConfigKey {
    /// Its name: `section.key`, or `key` alone.
    pub(super) path: &'static str,
    /// What it means, in whole sentences.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the reference prints it"))]
    pub(super) doc: &'static str,
    /// Completes the sentence "expected …".
    pub(super) expected: fn() -> String,
    /// Reads a value and puts it in place.
    pub(super) set: fn(&mut Draft, &SettingValue) -> Result<(), ValueRefusal>,
    /// The present value as TOML; `None` if it is not set.
    pub(super) show: fn(&Draft) -> Option<String>,
}

/// A configuration while its layers are read: values that belong together may come from different layers.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) config: Config,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) tls_client_ca: Option<PathBuf>,
}

impl ConfigKey {
    /// The section and the name within it; the section is empty for the keys at the top.
    pub(super) fn split(&self) -> (&'static str, &'static str) {
        self.path.split_once('.').unwrap_or(("", self.path))
    }

    /// The flag that sets it on the command line, if it has its own; every key can be given to `--set`.
    pub(super) fn flag(&self) -> Option<&'static str> {
        FLAGS.iter().find(|(path, _)| *path == self.path).map(|(_, flag)| *flag)
    }
}

/// The key with this path.
pub(super) fn key(path: &str) -> Option<(usize, &'static ConfigKey)> {
    KEYS.iter().enumerate().find(|(_, key)| key.path == path)
}

/// The environment variable for a path.
pub(super) fn variable(path: &str) -> String {
    format!("TENURE_{}", path.replace('.', "_").to_uppercase())
}

/// Keys that have their own flag.
const FLAGS: &[(&str, &str)] = &[
    ("profile", "--profile"),
    ("listen", "--listen"),
    ("store", "--store"),
    ("name", "--name"),
    ("durability", "--durability"),
    ("store_key_file", "--store-key-file"),
    ("log.format", "--log"),
    ("log.level", "--log-level"),
    ("tls.cert", "--tls-cert"),
    ("tls.key", "--tls-key"),
    ("http.allowed_hosts", "--allow-host"),
    ("http.allowed_origins", "--allow-origin"),
    ("upstream.url", "--upstream"),
    ("admin.listen", "--admin"),
];

/// The sections in the order they are shown, with what each is about.
pub(super) const SECTIONS: &[(&str, &str)] = &[
    ("", "Where to listen and where to keep sessions."),
    (
        "cluster",
        "How nodes that share a store reach each other. Any of them serves any session: the node that a request reaches sends it to the \
         node that has its session.",
    ),
    ("control", "How commands for operators reach the running server on its machine."),
    (
        "nats",
        "How to reach the store, if it is a NATS engine: `store = \"nats://…\"`. `docs/cluster.md` says what that is for.",
    ),
    ("log", "What is logged. Logs go to standard error."),
    (
        "audit",
        "A log of who did what, in which every change is detected. `docs/audit.md` lists its records and says how it is verified.",
    ),
    (
        "admin",
        "The page and the API for operators, on a port of their own. Commands reach the same API without it. `docs/admin.md` says how to \
         open it.",
    ),
    (
        "metrics",
        "What the process counts of itself. `docs/metrics.md` lists the names, and says how they are scraped.",
    ),
    (
        "traces",
        "Spans of requests, for a collector of OpenTelemetry. `docs/traces.md` lists their attributes.",
    ),
    ("tls", "HTTPS. Without these files the server speaks plain HTTP."),
    (
        "auth",
        "Who may use the server, by credentials. Issuers of tokens are `[[issuer]]` tables. Without credentials the server \
         listens on loopback alone, unless `auth = \"none\"` is written.",
    ),
    ("http", "Who may connect, and how much a connection may cost."),
    (
        "doors",
        "Other ways to the same sessions, for clients that do not speak Streamable HTTP. All are closed by default.",
    ),
    (
        "child",
        "The server behind, if it is a program of its own. Each session has one of its own, unless they share it.",
    ),
    (
        "upstream",
        "The server behind, if it is elsewhere. Clients' own credentials are never passed on to it.",
    ),
    ("clients", "What clients may make the server hold, each of them and all together."),
    (
        "limits",
        "How often clients may call, how much at once, and how much a day. All limits are off but those of client addresses. Nodes of \
         a cluster divide rates among them; all else holds for each process.",
    ),
    ("session", "How long sessions live and how many there may be."),
    (
        "data_sessions",
        "State that clients name by a cookie and models by a handle; it outlives their sessions.",
    ),
    ("streams", "What is kept so that a client can resume, and how streams behave."),
    ("exchanges", "Requests without a session: revision 2026-07-28."),
    (
        "tasks",
        "Calls of revision 2026-07-28 whose clients come back for the outcome. They are kept in the store.",
    ),
    ("bridge", "Clients of one era and a server of the other."),
    ("timeouts", "How long others may take to answer."),
    ("shutdown", "What happens when the process is told to stop."),
];

macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $path:literal: $form:ty => $($field:ident).+;)+) => {
        /// Every key, section by section.
        pub(super) const KEYS: &[ConfigKey] = &[$(ConfigKey {
            path: $path,
            doc: concat!($($doc),+),
            expected: <$form as ValueForm>::expected,
            set: |draft, raw| {
                draft.$($field).+ = <$form as ValueForm>::read(raw)?;
                Ok(())
            },
            show: |draft| <$form as ValueForm>::show(&draft.$($field).+),
        }),+];
    };
}

keys! {
    /// A set of defaults for a common way to run: `development`, `single_node`, `cluster`, `high_volume` or
    /// `long_running`.
    "profile": Optional<OneOf<Profile>> => config.profile;
    /// Clients of earlier designs that are served as they are: `none`, or `sources` for those that know `/rpc`, POST
    /// `/sse` and GET `/mcp/sse` without a session; `docs/doors.md` lists the exceptions.
    "compat": OneOf<Compat> => config.compat;
    /// The address and port to listen on. Port 0 takes a free one.
    "listen": Address => config.listen;
    /// Where sessions are kept, as a URL. `disk:PATH` keeps them in a folder; `disk:` in one of the user's own, which
    /// each server behind has for itself; `memory:` forgets them when the process ends; `nats://HOST:PORT,HOST:PORT` keeps
    /// them on a NATS engine, which several processes share, and `tls://` does so over TLS. `tenure stdio` has `memory:`
    /// for its default.
    "store": StoreUrl => config.store;
    /// The name of the folder for the sessions, in the user's own data. Without it, a name made from the server behind. Two
    /// processes in front of the same server need different names.
    "name": Optional<FolderName> => config.name;
    /// What an event survives once a client has seen it: with `os` a kill of the process, and a loss of power
    /// takes at most the last 100 ms; with `disk` a loss of power too, which costs a wait for the disk.
    "durability": OneOf<WriteDurability> => config.durability;
    /// Which revisions of MCP are served: `legacy` those with sessions, up to 2025-11-25; `modern` those without, from
    /// 2026-07-28 on; `both` all of them at the same endpoint, each request by its own marks.
    "eras": OneOf<Eras> => config.eras;
    /// A file with the key that encrypts the store. Without one the store is not encrypted.
    "store_key_file": Optional<File> => config.store_key_file;

    /// The address and port at which this node listens for the others. Needed with a store that nodes share, and only
    /// nodes that share it are served there. Port 0 takes a free one.
    "cluster.listen": Optional<Address> => config.cluster.listen;
    /// The name or address, with a port, at which the other nodes reach this one. Without it `cluster.listen`.
    "cluster.advertise": Optional<PeerAddress> => config.cluster.advertise;

    /// The path of the control socket, if the store is no folder; without it in the user's runtime folder (`XDG_RUNTIME_DIR`). Each
    /// process needs a path of its own, and commands the same path. A store in a folder has its socket there.
    "control.path": Optional<File> => config.control_path;

    /// The name of the cluster on the engine: lower-case letters, digits and `-`. Processes that share their sessions need the same.
    "nats.cluster": PlainText => config.nats.cluster;
    /// A credentials file of the engine, which holds a JWT and the seed of its key.
    "nats.credentials_file": Optional<File> => config.nats.credentials_file;
    /// The seed of an nkey, as `env:VARIABLE` or `file:PATH`.
    "nats.nkey": Optional<Secret> => config.nats.nkey;
    /// A token of the engine, as `env:VARIABLE` or `file:PATH`.
    "nats.token": Optional<Secret> => config.nats.token;
    /// A user of the engine. Needs `nats.password` too.
    "nats.user": Optional<PlainText> => config.nats.user;
    /// The password of that user, as `env:VARIABLE` or `file:PATH`.
    "nats.password": Optional<Secret> => config.nats.password;
    /// The PEM file with the authorities of the engine's certificates; without it the system's. TLS itself is asked for by a store
    /// `tls://…`.
    "nats.tls_ca": Optional<File> => config.nats.tls_ca;
    /// The PEM file with the certificate that the engine asks for. Needs `nats.tls_key` too.
    "nats.tls_cert": Optional<File> => config.nats.tls_cert;
    /// The PEM file with its private key.
    "nats.tls_key": Optional<File> => config.nats.tls_key;
    /// How many servers of the engine keep everything, when the cluster is new: 3, or 1 on a server that stands alone. If this is
    /// set, a cluster that has another number is refused.
    "nats.replicas": Optional<WholeNumber<1>> => config.nats.replicas;
    /// How many streams a new cluster spreads its sessions over. It cannot be changed later.
    "nats.shards": WholeNumber<1> => config.nats.shards;
    /// How long a start waits for an engine that does not answer.
    "nats.patience": Span => config.nats.patience;

    /// How a log line looks: `pretty` for people, `json` for machines, `auto` for pretty on a terminal
    /// and JSON otherwise.
    "log.format": OneOf<LogFormat> => config.log.format;
    /// What is logged: `error`, `warn`, `info`, `debug` or `trace`, or a filter by target such as
    /// `info,tenure_session=debug`.
    "log.level": LogFilter => config.log.level;
    /// Whether each request leaves a line at `info`, with the target `access`; `docs/operations.md` lists its members. Such lines
    /// are dropped, and counted, if more come than can be written.
    "log.access": YesNo => config.log.access;

    /// The file of the audit log. Nothing is recorded without one. Each process needs a file of its own.
    "audit.file": Optional<File> => config.audit.file;
    /// Whether a call that cannot be recorded is carried out: with `best_effort` it is, and the log says later how many
    /// records are missing; with `required` it is refused, and no call is answered before its end is recorded.
    "audit.durability": OneOf<AuditDurability> => config.audit.durability;
    /// The file with the key that signs the log and digests arguments. It is made if there is no log yet. Without this it is called as
    /// the log, with `.key` behind.
    "audit.key_file": Optional<File> => config.audit.key_file;
    /// Where the newest signed head of the log is kept too: it shows where the log was cut. Without this it is called as the log,
    /// with `.head` behind; another disk is better.
    "audit.head_file": Optional<File> => config.audit.head_file;
    /// The tools whose arguments are recorded, the first 4 KiB of them, each as BACKEND/TOOL, TOOL or `*`, where `*` stands for any
    /// characters. BACKEND is that of `/mcp/BACKEND`; at `/mcp` in front of several servers TOOL is the name that clients see, with its
    /// prefix. Of all other calls only a digest of the arguments is recorded.
    "audit.arguments": Names => config.audit.arguments;
    /// Parts of arguments that are not recorded, as JSON pointers such as `/password`.
    "audit.redact": Names => config.audit.redact;
    /// The size at which the file is put aside, under its name with the number of its first record behind.
    "audit.max_size": Size<65536> => config.audit.max_bytes;

    /// The address and port of the page and the API for operators; without it they are on the control socket alone. Other than
    /// on loopback it needs `tls.cert`, and keys or tokens for operators.
    "admin.listen": Optional<Address> => config.admin.listen;
    /// The names that the page is opened at, with or without port, besides loopback and the address itself. A request for any
    /// other name is refused.
    "admin.hosts": Names => config.admin.hosts;
    /// The file with keys for operators, which `tenure keys` writes. A key with the scope `admin:viewer`, `admin:payloads`,
    /// `admin:operator` or `admin:admin` may do what that role may. Without this file the keys of `auth.keys_file` may.
    "admin.keys_file": Optional<File> => config.admin.keys_file;
    /// The prefix of the scopes that let operators in, in tokens of an `[[issuer]]`: with `ops` the scope `ops:viewer` is the one
    /// for viewers. Without it no token does.
    "admin.scope": Optional<PlainText> => config.admin.scope;
    /// Whether operators may call tools through the server, to try them.
    "admin.try": YesNo => config.admin.can_try;

    /// Whether requests, sessions and servers are counted. Without it `/metrics` and the figures of operators stay empty.
    "metrics.collect": YesNo => config.metrics.collect;
    /// The address and port at which `/metrics` is served, without credentials. Without it, they are not served there.
    "metrics.listen": Optional<Address> => config.metrics.listen;
    /// How often a line in the log has the totals since the start. Never without a time.
    "metrics.report": Optional<Span> => config.metrics.report;

    /// The collector that spans are posted to, by OTLP over HTTP: its address without `/v1/traces`. Without one the variables of
    /// OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT` and others) decide, and without these nothing is traced.
    "traces.endpoint": Optional<WebUrl> => config.traces.endpoint;
    /// The share of requests that are traced, of those whose client does not say whether they are. Without it
    /// `OTEL_TRACES_SAMPLER` decides, and without that it is 1 %.
    "traces.sample": Optional<Portion> => config.traces.sample;

    /// The PEM file with the certificate chain. Needs `tls.key` too.
    "tls.cert": Optional<File> => tls_cert;
    /// The PEM file with the private key. Needs `tls.cert` too.
    "tls.key": Optional<File> => tls_key;
    /// The PEM file with the authorities that may issue certificates of clients. With it, clients may present one.
    "tls.client_ca": Optional<File> => tls_client_ca;

    /// Whether callers need credentials: `auto` if any kind of them is configured, `none` for callers without any, wherever the
    /// server listens. `auth = "none"` is short for the latter.
    "auth.mode": OneOf<AuthMode> => config.auth.mode;
    /// The URL of this server as clients know it, without the path of an endpoint: tokens are issued for it. Needed with
    /// issuers, unless the server listens on a fixed port of loopback.
    "auth.public_url": Optional<BaseUrl> => config.auth.public_url;
    /// The file with static keys, which `tenure keys` writes. It holds their hashes, and is read again when it changes.
    "auth.keys_file": Optional<File> => config.auth.keys_file;
    /// Whether a client certificate alone is an identity. Needs `tls.client_ca`.
    "auth.certificates": YesNo => config.auth.certificates;
    /// Whether tokens that are bound to a key of the client are accepted with a proof (DPoP, RFC 9449).
    "auth.dpop": YesNo => config.auth.dpop;
    /// What tools need, each as `PATTERN = SCOPE SCOPE`. A pattern is BACKEND/TOOL, TOOL or `*`, where `*` stands for any
    /// characters; the most specific one decides. `*`, or `BACKEND/*`, also counts for every other request.
    "auth.scopes": Assignments => config.auth.scopes;
    /// Scopes that include others, each as `SCOPE = SCOPE SCOPE`.
    "auth.includes": Assignments => config.auth.includes;
    /// How long the stream of a GET goes on after the newest token of its session has expired. Then it ends, and its client
    /// comes back with the next token.
    "auth.stream_grace": SpanOrZero => config.auth.stream_grace;

    /// Hosts that are answered besides loopback, with or without port. Loopback names count for clients on this machine
    /// alone; name `localhost` here for those that come through the port of a container. `*` alone answers every host,
    /// which is safe only behind a proxy that checks.
    "http.allowed_hosts": Hosts => config.rules.hosts;
    /// Origins whose pages are answered besides those of loopback, as browsers send them. Browsers are told so. `*`
    /// alone answers every origin.
    "http.allowed_origins": Origins => config.rules.origins;
    /// Proxies that say for whom they send a request, each as an address or a network such as `10.0.0.0/8`. Only their
    /// `Forwarded` and `X-Forwarded-For` count; the address in it is that of limits, logs and handlers.
    "http.trusted_proxies": Proxies => config.rules.proxies;
    /// The largest request body.
    "http.max_body": Size<1> => config.rules.max_body_bytes;
    /// How long a request body may take to arrive.
    "http.body_timeout": Span => config.rules.body_timeout;
    /// How often a quiet stream gets a comment, so that proxies do not close it.
    "http.keep_alive": Span => config.rules.keep_alive;
    /// How long the headers of a request may take, and how long a connection may be idle between two
    /// requests. In HTTP/2, how long there may be no request under way.
    "http.header_timeout": Span => config.bounds.header_timeout;
    /// The most header bytes of a request; at least 8KiB.
    "http.max_header": Size<8192> => config.bounds.max_header_bytes;
    /// Connections at once; fewer, if this process may not have as many files open. A few more wait up to 5 seconds for
    /// one to close, and are answered with 503 then; `/healthz` and `/readyz` are answered on them at once.
    "http.max_connections": WholeNumber<1> => config.bounds.max_connections;
    /// Connections of one client address at once (of IPv6: of one network, the first 64 bits). Without it a quarter of
    /// `http.max_connections`, and at least 64. Connections of a proxy have the address of the proxy: behind one, set
    /// this to `http.max_connections`.
    "http.max_connections_per_peer": Optional<WholeNumber<1>> => config.bounds.max_connections_per_peer;
    /// How long a client may read nothing while there is something for it.
    "http.stall_timeout": Span => config.bounds.stall_timeout;
    /// How long a TLS handshake may take.
    "http.handshake_timeout": Span => config.bounds.handshake_timeout;

    /// GET `/sse` with POST `/messages`: the HTTP+SSE transport of revision 2024-11-05.
    "doors.sse": YesNo => config.doors.sse;
    /// POST `/rpc`: one request in, one JSON answer out, however long it takes.
    "doors.rpc": YesNo => config.doors.rpc;
    /// POST `/sse`: one request in, its messages out as a stream that ends with an event `done`.
    "doors.post_sse": YesNo => config.doors.post_sse;
    /// GET `/mcp/sse`: the same as GET `/mcp`.
    "doors.mcp_sse": YesNo => config.doors.mcp_sse;
    /// `/ws`: a session over a WebSocket.
    "doors.websocket": YesNo => config.doors.websocket;
    /// How long a session that was opened at `/sse` or `/ws` waits for its client when the connection broke. Then it
    /// ends. With `infinity` it waits as long as any session does.
    "doors.linger": SpanOrInfinity => config.doors.linger;

    /// The program and its arguments, as after `--` on the command line. It speaks MCP over its standard input and
    /// output. Without one the demo server is served.
    "child.command": Words => config.child.command;
    /// Variables that are set for it beside those of this process, each as `NAME=VALUE`, or as `NAME=env:VARIABLE` or
    /// `NAME=file:PATH` for a value that stands elsewhere.
    "child.env": Environment => config.child.env;
    /// Which variables of this process it inherits: `all`, but for those that this configuration names as
    /// `env:VARIABLE` for any server; `none`; or a list of names. It always has `PATH`, `HOME`, `USER`,
    /// `LOGNAME`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, `LANG`, `LC_ALL` and `LC_CTYPE`, and never variables that begin with
    /// `TENURE_`.
    "child.inherit": Variables => config.child.inherit;
    /// The folder it runs in.
    "child.folder": Optional<File> => config.child.folder;
    /// Whether one process serves all sessions, and not one each. Only for servers that keep nothing for a single
    /// client: they cannot tell their clients apart, and cannot ask them anything.
    "child.share": YesNo => config.child.share;
    /// Which revisions it speaks: `legacy` those with sessions, `modern` 2026-07-28 and later, `auto` to find out. A
    /// client of the other kind is served all the same.
    "child.era": OneOf<Speaks> => config.child.era;
    /// Whether the process of a session is told whose it is, by `TENURE_PRINCIPAL` and `TENURE_CLIENT` in its environment. None is
    /// started ahead then, and the server is taken for one with sessions.
    "child.identity": YesNo => config.child.identity;
    /// How many are started ahead, so that a session need not wait for one to come up.
    "child.warm": WholeNumber<0> => config.child.warm;
    /// How many there may be at once, those that are leaving or were started ahead included. Beyond that `initialize`
    /// is refused, and a dormant session is not woken.
    "child.max": WholeNumber<1> => config.child.max;
    /// How long it may take to leave when its input is closed, and again when it is told to. Then it is killed.
    "child.grace": SpanOrZero => config.child.grace;
    /// The longest line it may write. Longer ones are dropped.
    "child.max_line": Size<1024> => config.child.max_line_bytes;
    /// The most memory that it may map, and each process that it starts.
    "child.max_memory": Optional<Size<1>> => config.child.max_memory;
    /// The most files that it may have open, and each process that it starts. Without it they begin with as many as
    /// this process did, and may ask for more.
    "child.max_files": Optional<WholeNumber<16>> => config.child.max_files;

    /// The endpoint of a server that speaks MCP over Streamable HTTP, or over HTTP+SSE of 2024-11-05.
    "upstream.url": Optional<EndpointUrl> => config.upstream.url;
    /// Headers that go with every request to it, each as `Name: value`. A value may be `env:VARIABLE` or `file:PATH`,
    /// so that a secret need not stand here.
    "upstream.headers": Headers => config.upstream.headers;
    /// How this gateway gets tokens for it: `none`; `client_credentials`, one for all callers; or `token_exchange` (RFC 8693), one
    /// for each caller in exchange for its own. `docs/gateway.md` has examples.
    "upstream.auth": OneOf<UpstreamAuthMode> => config.upstream.auth.mode;
    /// The URL at which tokens are requested.
    "upstream.token_url": Optional<WebUrl> => config.upstream.auth.token_url;
    /// The authorization server. Without `upstream.token_url`, its metadata say where tokens are requested. With neither, it is the one
    /// that the server behind names, which `token_exchange` does not allow.
    "upstream.issuer": Optional<WebUrl> => config.upstream.auth.issuer;
    /// The name of this gateway at the authorization server.
    "upstream.client_id": Optional<PlainText> => config.upstream.auth.client_id;
    /// Its secret there, as `env:VARIABLE` or `file:PATH`.
    "upstream.client_secret": Optional<Secret> => config.upstream.auth.client_secret;
    /// A file with its private key, in place of a secret (`private_key_jwt`): PEM, PKCS#8, of Ed25519, P-256, P-384 or RSA.
    "upstream.client_key": Optional<File> => config.upstream.auth.client_key;
    /// The name of that key at the authorization server. Without it, its thumbprint (RFC 7638).
    "upstream.client_key_id": Optional<PlainText> => config.upstream.auth.client_key_id;
    /// The scope to ask for.
    "upstream.scope": Optional<PlainText> => config.upstream.auth.scope;
    /// The resource that the tokens are for. Without it, the resource that the server behind names, or its URL.
    "upstream.resource": Optional<PlainText> => config.upstream.auth.resource;
    /// The audience to ask for in a token exchange, beside the resource.
    "upstream.audience": Optional<PlainText> => config.upstream.auth.audience;
    /// A file with a key of Ed25519. With one, each request for a caller with a name has the header `X-Tenure-Principal`: a JWT that
    /// names the caller, is for this server, and is good for a minute. `tenure keys identity` makes the key and prints its public
    /// half.
    "upstream.identity_key": Optional<File> => config.upstream.auth.identity_key;
    /// How long a connection to it may take.
    "upstream.connect_timeout": Span => config.upstream.connect_timeout;
    /// The largest message from it.
    "upstream.max_message": Size<1024> => config.upstream.max_message_bytes;
    /// How long it is waited for while it is away, counted from when that was first noticed; no longer than
    /// `timeouts.initialize`. `0s`: requests fail at once.
    "upstream.patience": SpanOrZero => config.upstream.patience;
    /// Which revisions it speaks: `legacy` those with sessions, `modern` 2026-07-28 and later, `auto` to find out. A
    /// client of the other kind is served all the same.
    "upstream.era": OneOf<Speaks> => config.upstream.era;

    /// Bytes of messages that all clients together may make the server hold in memory: requests that are received or
    /// carried out, answers that are not read yet. Beyond it new requests wait a little, then they are refused.
    "clients.memory": Size<65536> => config.clients.memory_bytes;
    /// Bytes of data sessions that all clients together may make the server keep in its store, with what is left of
    /// those that have ended. A data session counts to the client that made it, also when others use it, until it is removed.
    /// Beyond it none can be made and none can grow.
    "clients.disk": Size<65536> => config.clients.disk_bytes;
    /// How much of a total one client may hold if it is alone, where a client is an IPv4 address or a network (/64) of
    /// IPv6. With `50%`, as much stays free for all others as it holds itself. Without it: `50%`, and `100%` where the
    /// server listens on loopback without `http.trusted_proxies`, since all its clients have the same address. So they have
    /// behind a proxy that is not listed: set `100%` there.
    "clients.max_share": Optional<Share> => config.clients.share;

    /// How often one client address may begin a session. Without it `30/min` for clients that are not on this machine; what is
    /// written holds for all. Clients behind a proxy that is not in `http.trusted_proxies` have its address: set this to `off` there.
    "limits.initialize": Optional<RateOrOff> => config.rates.initialize;
    /// How often the credentials of one client address may be refused, expired ones aside. Beyond it they are refused with 429.
    /// Without it `10/min` for clients that are not on this machine; what is written holds for all. The port for operators counts by
    /// itself, and holds the limit on this machine too.
    "limits.failed_credentials": Optional<RateOrOff> => config.rates.failed_credentials;
    /// Requests of one principal, such as `100/s burst 200`. Without authentication, all clients are one principal.
    "limits.principal": RateOrOff => config.rates.calls.principal;
    /// Requests of one principal at once.
    "limits.principal_concurrent": Optional<WholeNumber<1>> => config.rates.calls.principal_concurrent;
    /// Calls of tools by one principal a day, which begins at midnight UTC. They are counted in the store; a kill loses the last
    /// five seconds.
    "limits.calls_per_day": Optional<WholeNumber<1>> => config.rates.calls.calls_per_day;
    /// The same for a month, which begins at midnight UTC of its first day.
    "limits.calls_per_month": Optional<WholeNumber<1>> => config.rates.calls.calls_per_month;
    /// Requests of principals by name, each as `NAME = RATE`, in place of `limits.principal`. A name is such as `corp:alice` or
    /// `key:ci-*`, where `*` stands for any characters, or `anonymous`; the first that fits counts.
    "limits.principals": PrincipalRates => config.rates.calls.grants.rates;
    /// Requests at once of principals by name, each as `NAME = NUMBER`, in place of `limits.principal_concurrent`.
    "limits.principals_concurrent": PrincipalNumbers => config.rates.calls.grants.concurrent;
    /// Calls of tools a day of principals by name, each as `NAME = NUMBER`, in place of `limits.calls_per_day`.
    "limits.principals_per_day": PrincipalNumbers => config.rates.calls.grants.calls_per_day;
    /// Calls of tools a month of principals by name, each as `NAME = NUMBER`, in place of `limits.calls_per_month`.
    "limits.principals_per_month": PrincipalNumbers => config.rates.calls.grants.calls_per_month;
    /// How many turns principals have where others have one, each as `NAME = NUMBER`: in front of a server or a tool at its limit,
    /// principals take turns.
    "limits.weights": PrincipalNumbers => config.rates.calls.grants.weights;
    /// Requests of one session, such as `10/s burst 50`. A client can begin another session: `limits.principal` is the limit that
    /// it cannot avoid.
    "limits.session": RateOrOff => config.rates.calls.session;
    /// Calls of tools by one principal, each as `PATTERN = RATE`. A pattern is BACKEND/TOOL, TOOL or `*`, where `*` stands for any
    /// characters; all that fit count.
    "limits.tools": PatternRates => config.rates.calls.tools;
    /// Calls of tools by one principal at once, each as `PATTERN = NUMBER`.
    "limits.tools_concurrent": PatternNumbers => config.rates.calls.tools_concurrent;
    /// Calls of tools by all principals together, each as `PATTERN = RATE`.
    "limits.tools_in_all": PatternRates => config.rates.calls.tools_in_all;
    /// Calls of tools by all principals together at once, each as `PATTERN = NUMBER`.
    "limits.tools_in_all_concurrent": PatternNumbers => config.rates.calls.tools_in_all_concurrent;
    /// Requests for a server at once, each as `BACKEND = NUMBER`; `*` is every backend that is not named, and the only server if
    /// there is one. Further requests wait, and principals take turns.
    "limits.backends": ServerNumbers => config.rates.calls.servers_concurrent;
    /// How long a request waits for room before it is refused. A request that would have to wait longer is refused at once.
    "limits.max_wait": SpanOrZero => config.rates.calls.max_wait;
    /// Requests of one principal that may wait for the same thing.
    "limits.waiting_per_principal": WholeNumber<1> => config.rates.calls.queue.of_principal;
    /// Requests of all principals that may wait for the same thing.
    "limits.waiting": WholeNumber<1> => config.rates.calls.queue.in_all;
    /// How late tasks of the process may be. Beyond it for a second, or with nine tenths of `clients.memory` taken, requests and new
    /// sessions of the principals that ask for most are refused until it is over. May be `infinity`.
    "limits.max_lag": SpanOrInfinity => config.rates.max_lag;
    /// How a call of a tool is refused: `error` with a JSON-RPC error, `tool_result` with a result that says so in words, which
    /// the model reads.
    "limits.answer": OneOf<OverLimit> => config.rates.calls.over_limit;

    /// A session that is not used for this long expires. May be `infinity`.
    "session.idle_ttl": SpanOrInfinity => config.limits.idle_ttl;
    /// A session expires after this long if its client sends nothing more after `initialize`, neither
    /// `notifications/initialized` nor any other message, and opens no stream. May be `infinity`.
    "session.handshake_ttl": SpanOrInfinity => config.limits.handshake_ttl;
    /// A session expires at this age, used or not. May be `infinity`.
    "session.max_lifetime": SpanOrInfinity => config.limits.max_lifetime;
    /// A session that is not used for this long lets go of its server and its memory. The next request wakes
    /// it. May be `infinity`.
    "session.dormant_after": SpanOrInfinity => config.limits.dormant_after;
    /// In a cluster, how many dormant sessions a node wakes at the same time; others wait in order. When a node is lost, its sessions
    /// are wanted all at once. Without it 64, and 8 where each session has a process of its own.
    "session.max_parallel_wakes": Optional<WholeNumber<1>> => config.max_parallel_wakes;
    /// How long the end of a session is remembered, so that an error can say how it ended.
    "session.tombstone_ttl": SpanOrZero => config.limits.tombstone_ttl;
    /// How many ends are remembered.
    "session.max_tombstones": WholeNumber<0> => config.limits.max_tombstones;
    /// Sessions in all.
    "session.max_sessions": WholeNumber<1> => config.limits.max_sessions;
    /// Sessions of one principal. Without authentication, all clients are one principal.
    "session.max_per_principal": WholeNumber<1> => config.limits.max_sessions_per_principal;
    /// Requests of one session in flight from the client, and as many the other way.
    "session.max_pending": WholeNumber<1> => config.limits.max_pending;
    /// The largest params of `initialize`. They are kept as long as the session.
    "session.max_initialize": Size<1> => config.limits.max_initialize_bytes;
    /// The largest metadata of a session, which handlers and `tenure sessions set` attach to it.
    "session.max_metadata": Size<0> => config.limits.max_metadata_bytes;
    /// Resources that one session may subscribe to.
    "session.max_subscriptions": WholeNumber<0> => config.limits.max_subscriptions;
    /// Whether requests wait for `notifications/initialized`, as the specification asks. `false` is for
    /// clients that forget it.
    "session.require_initialized": Strict => config.limits.gate;
    /// What to do with a stored session that was begun with another server than the one behind now: `refuse` answers
    /// as for a session that has ended and leaves it in the store for its own server, `warn` wakes it and logs a
    /// warning. A server is the same if its command or URL is, versions aside, or if it calls itself by the same name.
    "session.other_server": OneOf<OtherServer> => config.limits.other_server;

    /// Whether data sessions are offered: `auto` when the server behind uses them or a tool is configured to need
    /// one, `always` in front of any server, `never`.
    "data_sessions.offer": OneOf<DataOffer> => config.data.offer;
    /// Which tools cannot be called without one: `none`, `all`, or a list of tools. A server may need them for more.
    "data_sessions.required": RequiredTools => config.data.policy.required;
    /// A data session that is not used for this long expires. May be `infinity`.
    "data_sessions.idle_ttl": SpanOrInfinity => config.data.limits.idle_ttl;
    /// A data session expires at this age, used or not. May be `infinity`.
    "data_sessions.max_lifetime": SpanOrInfinity => config.data.limits.max_lifetime;
    /// How long one that expired because it was not used can be recovered.
    "data_sessions.retention": SpanOrZero => config.data.limits.retention;
    /// How long the end of one is remembered.
    "data_sessions.tombstone_ttl": SpanOrZero => config.data.limits.tombstone_ttl;
    /// The most that one may hold.
    "data_sessions.max_bytes": Size<1> => config.data.limits.max_bytes;
    /// The most that a client may say of one when it makes it.
    "data_sessions.max_about": Size<0> => config.data.limits.max_about_bytes;
    /// Data sessions in all.
    "data_sessions.max": WholeNumber<1> => config.data.limits.max_states;
    /// Data sessions of one principal. Without authentication, all clients are one principal.
    "data_sessions.max_per_principal": WholeNumber<1> => config.data.limits.max_states_per_principal;
    /// The largest cookie that is read.
    "data_sessions.max_cookie": Size<64> => config.data.policy.max_cookie_bytes;
    /// A file with a key. With one, cookies carry the state too, sealed with it, so that a server that has lost its
    /// store can put states back; those that do not fit into a cookie are not carried.
    "data_sessions.carry_key_file": Optional<File> => config.data.carry_key_file;
    /// The version that the capability of the earlier dialect carries. Released clients take 2, or none.
    "data_sessions.version": Optional<WholeNumber<1>> => config.data.policy.version;
    /// The methods of data sessions that are served: some of `create`, `resume`, `delete`, `list`, `recover` and `fork`, `create`
    /// among them. The capability lists them, and other methods do not exist.
    "data_sessions.features": Features => config.data.policy.features;
    /// Whether clients of the later dialect get their cookie with every result, not only when it changed.
    "data_sessions.always_echo": YesNo => config.data.policy.always_echo;
    /// The code that clients of the earlier dialect are refused with: the only one that they act on is the default.
    "data_sessions.strawman_code": Code<false> => config.data.policy.strawman_code;
    /// The code that clients of the later dialect are refused with when a tool needs a session and they name none.
    "data_sessions.draft_required_code": Code<true> => config.data.policy.draft_required_code;

    /// Streams of one session that are open or kept for resumption.
    "streams.max_streams": WholeNumber<1> => config.limits.max_streams;
    /// The largest message to a client.
    "streams.max_event": Size<1> => config.limits.max_event_bytes;
    /// Bytes of all messages that a server may send about one request, such as progress and logs. Messages beyond it
    /// are dropped, but not the response.
    "streams.max_call": Size<1> => config.limits.max_call_event_bytes;
    /// Events kept of one session; the oldest are forgotten first.
    "streams.max_session_events": WholeNumber<1> => config.limits.max_session_events;
    /// Bytes of events kept of one session; the oldest are forgotten first.
    "streams.max_session_bytes": Size<1> => config.limits.max_session_event_bytes;
    /// Bytes of events kept of all sessions together by the memory store. Beyond it events are still sent,
    /// but cannot be resumed after.
    "streams.max_total_bytes": Size<1> => config.max_total_event_bytes;
    /// How long an event can be replayed.
    "streams.event_ttl": Span => config.limits.event_ttl;
    /// Bytes of one session that may wait for the store. Beyond it the backend has to wait.
    "streams.max_unstored": Size<1> => config.limits.max_unstored_bytes;
    /// Events that a stream keeps at hand for its reader. A slower reader reads from the store.
    "streams.max_tail": WholeNumber<1> => config.limits.max_tail_events;
    /// How long a response may take before the POST is answered with a stream instead of JSON.
    "streams.json_wait": SpanOrZero => config.limits.json_wait;
    /// How long a client is told to wait before it comes back to a stream whose connection closed. Most clients try twice,
    /// this far apart, and then give up: an outage may last twice as long.
    "streams.retry": SpanOrZero => config.limits.retry;
    /// By how much that, and `shutdown.retry`, is longer for some streams than for others, so that clients do not all
    /// come back at once.
    "streams.retry_jitter": Percent => config.limits.retry_jitter;
    /// What to do with a `Last-Event-ID` that is not of this session: `fresh` opens the stream as if
    /// the header were absent, `error` answers 400, `replay_all` replays what is kept of the standalone stream.
    "streams.unknown_event_id": OneOf<UnknownEventId> => config.limits.unknown_event_id;
    /// What to do when events that a client asks for are gone: `report` goes on from the oldest kept one
    /// and says so in a comment, `warn` sends a `notifications/message` too, `error` answers 400 (`stream_forgotten`).
    "streams.on_gap": OneOf<OnGap> => config.limits.on_gap;

    /// Requests without a session that are answered at once, listens not among them. Beyond it they are refused.
    "exchanges.max_running": WholeNumber<1> => config.exchanges.max_running;
    /// Listens (`subscriptions/listen`) at once. Beyond it they are refused.
    "exchanges.max_listens": WholeNumber<1> => config.exchanges.max_listens;
    /// Calls that wait for their client to come back with the answers to questions. Beyond it the one that has waited
    /// longest is given up if that is 30 seconds or more, and the next is refused otherwise.
    "exchanges.max_parked": WholeNumber<0> => config.exchanges.max_parked;
    /// How long an answer may take before it becomes a stream, so that proxies and clients see that something goes on:
    /// some clients do not outlive a connection that breaks before that. The status of a stream is always 200, so it
    /// should not be shorter than servers need to refuse a request.
    "exchanges.stream_after": Span => config.exchanges.stream_after;
    /// Calls without a session that are noted in the store at once, so that their clients can come back for them when a
    /// connection breaks, or this process is killed or stopped. Beyond it, calls are lost with their connections; with
    /// 0 none is noted.
    "exchanges.max_kept": WholeNumber<0> => config.exchanges.max_kept;
    /// Whether what an upstream server declares `public` may be cached for all callers. Without it every answer is
    /// `private` to its caller.
    "exchanges.trust_public": YesNo => config.exchanges.trust_public;
    /// A file with the key that seals what clients carry between attempts at a request. Without one a key is kept in
    /// the store; several processes that serve the same clients need the same file.
    "exchanges.state_key_file": Optional<File> => config.exchanges.state_key_file;

    /// Tasks in all, those that have ended and are kept among them. With 0 there are no tasks, and no client is told of
    /// them.
    "tasks.max": WholeNumber<0> => config.tasks.max;
    /// Tasks of one principal. Without authentication, all clients are one principal.
    "tasks.max_per_principal": WholeNumber<1> => config.tasks.max_per_principal;
    /// The longest that a task may take, and that its outcome is kept afterwards. A server may ask for less.
    "tasks.max_ttl": Span => config.tasks.max_ttl;
    /// How often clients are told to look after a task, if its server does not say.
    "tasks.poll": Span => config.tasks.poll;
    /// How long a call of a client that knows tasks may run before it becomes a task, at any server. The
    /// outcome is then found even if this process is killed meanwhile. With `infinity` only servers make tasks.
    "tasks.after": SpanOrInfinity => config.tasks.after;

    /// Who may use a session at a server that knows only sessions, after the request that it was opened for:
    /// `principal` later requests of the same caller, `request` no other request. Without authentication all callers
    /// are one: if the server keeps something for each session and its clients must not share it, use `request`.
    "bridge.reuse": OneOf<Reuse> => config.bridge.reuse;
    /// Sessions that are kept for requests without one, towards each server.
    "bridge.max_sessions": WholeNumber<2> => config.bridge.max_sessions;
    /// Such a session that is not used for this long is closed.
    "bridge.idle": Span => config.bridge.idle;
    /// How long it is believed which revisions a server speaks, unless an answer says otherwise.
    "bridge.era_ttl": Span => config.bridge.era_ttl;

    /// The longest a backend may take for `initialize`.
    "timeouts.initialize": Span => config.limits.initialize_timeout;
    /// The longest a backend may take for a request without reporting progress.
    "timeouts.request": Span => config.limits.request_timeout;
    /// The longest a request may take even if it reports progress.
    "timeouts.max_request": Span => config.limits.max_request_time;
    /// The longest a client may take to answer a request of the server.
    "timeouts.client_answer": Span => config.limits.ask_timeout;

    /// How long a stop waits for requests that cannot be left to the next process. Unfinished ones are then interrupted.
    "shutdown.grace": SpanOrZero => config.shutdown_grace;
    /// How long a client is told to wait before it comes back to a stream that is closed because the process stops. It
    /// should be as long as the next process takes to be there.
    "shutdown.retry": SpanOrZero => config.limits.stop_retry;
}
