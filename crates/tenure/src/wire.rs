//! The only file that names concrete stores and backends: from configuration to running parts.

use std::cell::OnceCell as Once;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_backend::child::{ChildBackend, ChildCommand, ChildLimits, Inherit, NotFound, Warden};
use tenure_backend::remote::{self, RemoteBackend};
use tenure_layers::bridge::{Era, Eras, ExchangesOnSessions, Halves, PoolLimits};
use tenure_layers::data::{DataLayer, KindOfState, Required};
use tenure_layers::merge::{Member, MergedBackend};
use tenure_layers::revisions::Revisions;
use tenure_layers::routes::Routes;
use tenure_protocol::modern::Caching;
use tenure_protocol::translate::evidence::Over;
use tenure_session::backend::probe::Probe;
use tenure_session::backend::{Backend, Responder};
use tenure_session::budget::{Budget, BudgetLimits, Resource};
use tenure_session::exchange::{self, ExchangeLimits, Exchanges};
use tenure_session::fingerprint::Fingerprints;
use tenure_session::port::clock::SystemClock;
use tenure_session::port::seal::Seal;
use tenure_session::port::store::{Expected, RecordKey, Space, Store, StoreError};
use tenure_session::session::{Parts, Sessions};
use tenure_session::state::States;
use tenure_session::supervise::Loops;
use tenure_session::task::{TaskLimits, Tasks};
use tenure_session::{Limits, Route, SessionKey};
use tenure_store::copy::{self, CopyError};

pub(crate) use tenure_store::copy::{Progress as CopyProgress, Totals as CopyTotals, save_log};
#[cfg(test)]
pub(crate) use tenure_store::disk::Totals as ReportTotals;
use tenure_store::disk::{self, DiskError, Sync};
pub(crate) use tenure_store::disk::{Damage, Kind as DamageKind, Missing, Report, Stage};
pub(crate) use tenure_store::open::Opened;
use tenure_store::open::{Location, OpenError, Options};
use tenure_store::sealed::keys::{self, Keys};
use tenure_transport::http::{Endpoint, Router, Rules};
use tenure_transport::stdio::Stdio;
use tenure_transport::tls::{self, TlsAcceptor};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::config::{Behind, Child, Config, Durability, Inherited, Offer, Speaks, Upstream};
use crate::control::{KeptConnections, Predecessor};
use crate::failure::Failure;
use crate::{servers, stores};

/// How long a store may still be in use whose process has closed it, and how often that is looked at.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
const STORE_LOOKS: Duration = Duration::from_millis(5);

/// What is served: a server, and what its data sessions hold.
pub(crate) struct Served {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) kinds: Vec<KindOfState>,
    /// The names of endpoints beside the one without a name.
    pub(crate) routes: Vec<String>,
    /// What tells the servers behind from others.
    pub(crate) fingerprints: Fingerprints,
    /// What runs in the background of it.
    loops: Loops,
}

impl Served {
    /// A server that an embedder brings, whose tools work on these kinds of state.
    pub(crate) fn embedded(backend: Arc<dyn Backend>, kinds: Vec<KindOfState>) -> Self {
        let (routes, fingerprints) = (Vec::new(), servers::embedded());
        Self { backend, kinds, routes, fingerprints, loops: Loops::default() }
    }

    /// The one server that the configuration names.
    fn one(backend: Arc<dyn Backend>, config: &Config, loops: Loops) -> Self {
        let fingerprints = servers::fingerprints(config);
        Self { backend, kinds: Vec::new(), routes: Vec::new(), fingerprints, loops }
    }
}

/// The kinds of state that the demo server's tools work on.
pub(crate) fn demo_kinds() -> Vec<KindOfState> {
    vec![crate::demo::workspace()]
}

/// The program of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    /// The command `tenure`, which can be started again to end children should this process be killed.
    Tenure,
    /// An embedder's. Started again it would do whatever it does.
    Other,
}

/// What the configuration says is served. Without anything, the demo.
pub(crate) fn served(config: &Config, program: Program) -> Result<Served, Failure> {
    let (warden, loops) = (Wardens { of_all: Once::default(), program }, Loops::default());
    if let Some(url) = &config.upstream.url {
        return Ok(Served::one(upstream(url, &config.upstream, config, &loops)?, config, loops));
    }
    if !config.child.command.is_empty() {
        return Ok(Served::one(child(&config.child, None, &warden, config, &loops)?, config, loops));
    }
    if config.backends.is_empty() {
        let demo = Served::one(Arc::new(crate::demo::backend()), config, loops);
        return Ok(Served { kinds: demo_kinds(), ..demo });
    }
    several(config, &warden, loops)
}

/// Several servers: each at an endpoint of its own, and all as one.
fn several(config: &Config, warden: &Wardens, loops: Loops) -> Result<Served, Failure> {
    let (mut members, mut named) = (Vec::new(), Vec::new());
    for Behind { name, prefix, child: program, upstream: elsewhere } in &config.backends {
        let backend = match &elsewhere.url {
            Some(url) => upstream(url, elsewhere, config, &loops),
            None => child(program, Some(name), warden, config, &loops),
        };
        let backend =
            backend.map_err(|failure| Failure::new(format!("backend `{name}`")).caused_by(failure))?;
        named.push((name.clone(), Arc::clone(&backend)));
        members.push(Member { name: name.clone(), prefix: prefix.clone(), backend });
    }
    let routes = named.iter().map(|(name, _)| name.clone()).collect();
    // With some room for what stands around the lists.
    let max_list_bytes = config.limits.max_event_bytes.saturating_sub(4096);
    let merged = MergedBackend::new(members, config.limits.initialize_timeout, max_list_bytes);
    let routes_to = Routes::new(Arc::new(merged), named, |backend| bridged(backend, config, &loops));
    Ok(Served { routes, ..Served::one(Arc::new(routes_to), config, loops) })
}

/// How long a server may take to be there. A little less than its session waits for it: then it has failed, which is
/// logged, said to the session, and makes the next one wait.
fn start_timeout(config: &Config) -> Duration {
    let whole = config.limits.initialize_timeout;
    whole - (whole / 10).min(Duration::from_secs(1))
}

fn child(
    config: &Child,
    name: Option<&String>,
    wardens: &Wardens,
    whole: &Config,
    loops: &Loops,
) -> Result<Arc<dyn Backend>, Failure> {
    let mut command = found_command(config, whole)?;
    command.name = name.cloned();
    command.limits.start_timeout = start_timeout(whole);
    command.limits.first_files = whole.descriptors.of_child;
    let legacy = ChildBackend::new(command, wardens.warden()?);
    let modern = legacy.modern();
    Ok(of_either_era((Arc::new(legacy), Arc::new(modern)), Over::Pipes, config.era, whole, loops))
}

/// Who ends the children should this process be killed: one for all of them, started with the first.
struct Wardens {
    of_all: Once<Arc<Warden>>,
    program: Program,
}

impl Wardens {
    fn warden(&self) -> Result<Option<Arc<Warden>>, Failure> {
        if self.program == Program::Other {
            return Ok(None);
        }
        if let Some(warden) = self.of_all.get() {
            return Ok(Some(Arc::clone(warden)));
        }
        // Should this process be killed, its children must not be left behind; nothing in it can see to that.
        let warden = std::env::current_exe().and_then(|program| Warden::start(&program, &["warden"]));
        let warden = warden.map_err(|error| {
            Failure::new("cannot start the process that ends children should this one be killed")
                .caused_by(error)
        })?;
        Ok(Some(Arc::clone(self.of_all.get_or_init(|| Arc::new(warden)))))
    }
}

/// Requests without a session for a server that knows nothing but sessions.
fn bridged(backend: Arc<dyn Backend>, config: &Config, loops: &Loops) -> Arc<dyn Responder> {
    let limits = PoolLimits {
        reuse: config.bridge.reuse,
        max: config.bridge.max_sessions,
        idle: config.bridge.idle,
        open_timeout: config.limits.initialize_timeout,
        task_ttl: config.tasks.max_ttl,
        ..PoolLimits::default()
    };
    let bridge = ExchangesOnSessions::new(backend, limits);
    loops.include(bridge.loops());
    Arc::new(bridge)
}

/// A server for requests without a session: its own half for them, or a bridge.
fn responder(backend: &Arc<dyn Backend>, config: &Config, loops: &Loops) -> Arc<dyn Responder> {
    let own = Arc::clone(backend).responder();
    own.unwrap_or_else(|| bridged(Arc::clone(backend), config, loops))
}

/// A server of which it has to be found out which era it is of.
fn of_either_era(
    (legacy, modern): (Arc<dyn Backend>, Arc<dyn Probe>),
    over: Over,
    speaks: Speaks,
    config: &Config,
    loops: &Loops,
) -> Arc<dyn Backend> {
    let only = match speaks {
        Speaks::Auto => None,
        Speaks::Legacy => Some(Era::Legacy),
        Speaks::Modern => Some(Era::Modern),
    };
    let legacy = Arc::new(Revisions::new(legacy));
    let halves = Halves { legacy, modern, over, only, ttl: config.bridge.era_ttl };
    Arc::new(Eras::new(halves, Arc::new(SystemClock), |legacy| bridged(legacy, config, loops)))
}

fn upstream(
    url: &str,
    config: &Upstream,
    whole: &Config,
    loops: &Loops,
) -> Result<Arc<dyn Backend>, Failure> {
    let mut headers = Vec::new();
    for header in &config.headers {
        let (name, value) = header.split_once(':').unwrap_or((header, ""));
        let whose = format!("the header `{}` of `upstream.headers`", name.trim());
        let value =
            secret(value.trim(), &whose, "write `Name: value`, `Name: env:VARIABLE` or `Name: file:PATH`")?;
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let upstream = remote::Upstream {
        headers,
        connect_timeout: config.connect_timeout,
        max_message_bytes: config.max_message_bytes,
        patience: config.patience.min(start_timeout(whole)),
        ..remote::Upstream::new(url)
    };
    let unusable = |error: String| {
        Failure::new(format!("cannot use the upstream: {error}"))
            .hint("name an endpoint such as https://mcp.example.com/mcp")
    };
    let legacy = RemoteBackend::new(&upstream).map_err(unusable)?;
    let modern = legacy.modern();
    Ok(of_either_era((Arc::new(legacy), Arc::new(modern)), Over::Http, config.era, whole, loops))
}

/// The command of a child whose program is there.
fn found_command(child: &Child, whole: &Config) -> Result<ChildCommand, Failure> {
    let command = child_command(child, whole)?;
    command.find().map_err(|why| cannot_run(&command, &why))?;
    Ok(command)
}

/// A value of the configuration that may be a secret: itself, or `env:VARIABLE`, or `file:PATH`. The failure says what is
/// missing, and never the value.
fn secret(value: &str, whose: &str, hint: &str) -> Result<String, Failure> {
    match value.split_once(':') {
        Some(("env", variable)) => std::env::var(variable).map_err(|_| {
            Failure::new(format!("{whose} needs the variable `{variable}`, which is not set")).hint(hint)
        }),
        Some(("file", path)) => match std::fs::read_to_string(path) {
            Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
            Err(error) => {
                Err(Failure::new(format!("{whose} needs the file `{path}`")).caused_by(error).hint(hint))
            }
        },
        _ => Ok(value.to_owned()),
    }
}

/// Looks for everything that the configuration names: programs, folders, files, variables. Starts nothing.
pub(crate) fn look_for_parts(config: &Config) -> Result<(), Failure> {
    location(&store_url(config)?)?;
    keys(config.store_key_file.as_ref())?;
    let one = [(None, &config.child, &config.upstream)];
    let several = config.backends.iter().map(|behind| (Some(&behind.name), &behind.child, &behind.upstream));
    for (name, program, elsewhere) in one.into_iter().chain(several) {
        let found = match &elsewhere.url {
            Some(url) => upstream(url, elsewhere, config, &Loops::default()).map(drop),
            None if program.command.is_empty() => Ok(()),
            None => found_command(program, config).map(drop),
        };
        found.map_err(|failure| match name {
            Some(name) => Failure::new(format!("backend `{name}`")).caused_by(failure),
            None => failure,
        })?;
    }
    for file in config.tls.iter().flat_map(|tls| [&tls.cert, &tls.key]) {
        std::fs::read(file).map_err(|error| {
            Failure::new(format!("cannot read the file `{}` of `tls`", file.display())).caused_by(error)
        })?;
    }
    Ok(())
}

fn child_command(child: &Child, whole: &Config) -> Result<ChildCommand, Failure> {
    let [program, arguments @ ..] = &child.command[..] else {
        return Err(Failure::new("there is no command to run"));
    };
    let environment = child.env.iter().map(|pair| match pair.split_once('=') {
        Some((name, value)) => {
            let hint = "write `NAME=value`, `NAME=env:VARIABLE` or `NAME=file:PATH`";
            Ok((name.to_owned(), secret(value, &format!("`{name}` of `child.env`"), hint)?))
        }
        None => Err(Failure::new(format!("`child.env` has `{pair}`, which sets nothing"))
            .hint("write each as `NAME=VALUE`")),
    });
    Ok(ChildCommand {
        environment: environment.collect::<Result<_, _>>()?,
        inherit: match &child.inherit {
            Inherited::All => Inherit::AllBut(whole.secret_variables()),
            Inherited::Only(names) => Inherit::Only(names.clone()),
        },
        folder: child.folder.clone(),
        is_shared: child.share,
        limits: ChildLimits {
            warm: child.warm,
            max: child.max,
            max_line_bytes: child.max_line_bytes,
            grace: child.grace,
            max_memory: child.max_memory.map(|bytes| bytes as u64),
            max_files: child.max_files.map(|files| files as u64),
            ..ChildLimits::default()
        },
        ..ChildCommand::new(program, arguments)
    })
}

/// The failure of a command that is not there: nobody needs to wait for a session to learn that.
fn cannot_run(command: &ChildCommand, why: &NotFound) -> Failure {
    let program = command.program.display();
    let failure = Failure::new(format!("cannot run `{program}`"));
    let is_file = command.program.as_os_str().as_encoded_bytes().contains(&b'/');
    match why {
        NotFound::NoFolder(folder) => failure
            .because(format!("there is no folder `{}`", folder.display()))
            .hint("make it, or set `child.folder` to the one that the server shall run in"),
        NotFound::NotExecutable(file) => {
            failure.because(format!("`{}` may not be executed", file.display())).hint(
                "make it executable with `chmod +x`, or name the program that runs it first, such as `node`",
            )
        }
        NotFound::IsFolder(file) => failure
            .because(format!("`{}` is a folder", file.display()))
            .hint("name the program, and its arguments after it, each as a word of its own"),
        NotFound::Nothing if is_file => {
            failure.because("there is no such file").hint(match &command.folder {
                Some(folder) => {
                    format!("it is looked for from `{}`, where it runs (`child.folder`)", folder.display())
                }
                None => "it is looked for from the folder that tenure was started in".to_owned(),
            })
        }
        NotFound::Nothing => failure
            .because("there is no such program on the path")
            .hint("install it, name it with its folder, or set PATH; arguments are words of their own"),
    }
}

/// What the process does that ends our children should we be killed.
pub(crate) fn watch_over_children() {
    tenure_backend::child::watch(std::io::stdin().lock());
}

/// The URL of the store that the configuration leads to, with a folder in place of none.
pub(crate) fn store_url(config: &Config) -> Result<String, Failure> {
    match config.store.as_str() {
        "disk:" => Ok(disk_url(&stores::own_folder(config)?)),
        url => Ok(url.to_owned()),
    }
}

/// The URL of the store in a folder.
pub(crate) fn disk_url(folder: &Path) -> String {
    format!("disk:{}", folder.display())
}

/// Where a store is.
pub(crate) fn location(url: &str) -> Result<Location, Failure> {
    match stores::given_folder() {
        Some(folder) if url == "disk:" => Ok(Location::Disk(folder)),
        _ => Location::parse(url).map_err(|error| cannot_open(url, error)),
    }
}

/// The keys of an encrypted store.
pub(crate) fn keys(file: Option<&PathBuf>) -> Result<Option<Keys>, Failure> {
    let Some(file) = file else { return Ok(None) };
    Keys::read(file).map(Some).map_err(|error| {
        Failure::new(format!("cannot read the key file `{}`", file.display()))
            .caused_by(error)
            .hint("a key is 64 hex digits on a line of its own; make one with `tenure store new-key`")
    })
}

/// Opens the store that the configuration names.
pub(crate) async fn store(config: &Config) -> Result<Access, Failure> {
    let url = store_url(config)?;
    let location = location(&url)?;
    if let (Location::Disk(folder), "disk:") = (&location, config.store.as_str())
        && let Some(earlier) = stores::passed_over(folder)
    {
        tracing::warn!(
            earlier = %earlier.display(), now = %folder.display(),
            hint = format!("to go on with those sessions: --store {}", disk_url(&earlier)),
            "an earlier version kept sessions in another folder"
        );
    }
    let options = Options {
        sync: match config.durability {
            Durability::Os => Sync::Os,
            Durability::Disk => Sync::Disk,
        },
        max_event_bytes: config.max_total_event_bytes,
        keys: keys(config.store_key_file.as_ref())?,
        max_files: config.descriptors.store,
    };
    match access(&url, location.open(options).await)? {
        Access::InUse(failure) if config.store == "disk:" => Ok(Access::InUse(failure.hint(
            "another tenure serves the same server: connect to that one, or give this one sessions of its own with \
             `--name NAME`",
        ))),
        access => Ok(access),
    }
}

/// The failure of a store that cannot be opened, with what can be done about it.
pub(crate) fn cannot_open(url: &str, error: OpenError) -> Failure {
    let hint = match &error {
        OpenError::UnknownEngine(_) | OpenError::NoFolder => {
            "use `disk:PATH`, or `memory:` to forget sessions when the process ends"
        }
        OpenError::Disk(DiskError::InUse(_)) => {
            "stop the other process, or keep these sessions elsewhere with `--store disk:PATH`"
        }
        OpenError::Disk(DiskError::Format { .. }) => "use the version of tenure that wrote it",
        OpenError::Disk(DiskError::Io { cause, .. })
            if cause.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            "the folder belongs to another user: run as that one, or keep these sessions elsewhere with `--store disk:PATH`"
        }
        OpenError::Disk(DiskError::Io { .. }) => "check that the folder can be written and the disk has room",
        OpenError::Disk(_) => "see what is left with `tenure store check`, and save it with `--repair`",
        OpenError::Seal(_) => "give the key that the store was made with: `--store-key-file FILE`",
        _ => return Failure::new(format!("cannot open the store `{url}`")).caused_by(error),
    };
    Failure::new(format!("cannot open the store `{url}`")).caused_by(error).hint(hint)
}

/// The folder of a store on disk.
pub(crate) fn folder(url: &str) -> Result<PathBuf, Failure> {
    match location(url)? {
        Location::Disk(folder) => Ok(folder),
        Location::Memory => Err(Failure::new(format!("`{url}` is the memory of a server, and gone with it"))
            .hint("name the folder of a store with `--store disk:PATH`")),
    }
}

/// The folder of a store on disk that must be there.
pub(crate) fn existing_folder(url: &str) -> Result<PathBuf, Failure> {
    let folder = folder(url)?;
    if stores::is_store(&folder) {
        return Ok(folder);
    }
    Err(Failure::new(format!("there is no store in `{}`", folder.display()))
        .hint("name the folder that `tenure serve` uses, as in `--store disk:PATH`; `tenure store list` shows your own stores"))
}

/// What came of opening a store that a server may have open.
pub(crate) enum Access {
    /// It is open.
    Open(Opened),
    /// Another process has it open; the failure says so.
    InUse(Failure),
}

/// Opens a store for a command, or makes a new one there.
pub(crate) async fn open(url: &str, key_file: Option<&PathBuf>) -> Result<Access, Failure> {
    let options = Options { keys: keys(key_file)?, ..Options::default() };
    access(url, location(url)?.open(options).await)
}

fn access(url: &str, opened: Result<Opened, OpenError>) -> Result<Access, Failure> {
    match opened {
        Ok(opened) => Ok(Access::Open(opened)),
        Err(error) if matches!(error, OpenError::Disk(DiskError::InUse(_))) => {
            Ok(Access::InUse(cannot_open(url, error)))
        }
        Err(error) => Err(cannot_open(url, error)),
    }
}

/// Looks through the store in a folder without changing it.
pub(crate) fn check(folder: &Path, progress: impl FnMut(Stage)) -> Result<Report, Failure> {
    disk::check(folder, progress).map_err(|error| cannot_check(folder, error))
}

/// Saves what can be read of a damaged store, and puts that in its place.
pub(crate) fn repair(folder: &Path, progress: impl FnMut(Stage)) -> Result<Report, Failure> {
    disk::repair(folder, progress).map_err(|error| cannot_check(folder, error))
}

fn cannot_check(folder: &Path, error: DiskError) -> Failure {
    let failure = Failure::new(format!("cannot check the store in `{}`", folder.display()));
    let hint = match &error {
        DiskError::InUse(_) => {
            "stop the server first, or copy the store with `tenure store backup` and check the copy"
        }
        DiskError::Format { .. } => "use the version of tenure that wrote it",
        _ => "check that the disk works, has room, and lets you read and write the folder",
    };
    failure.caused_by(error).hint(hint)
}

/// What a backup has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BackedUp {
    pub(crate) sessions: u64,
    pub(crate) data_sessions: u64,
}

/// Copies a store into a folder while it is in use.
pub(crate) async fn backup(
    store: &Opened,
    to: &Path,
    progress: impl FnMut(Stage) + Send + 'static,
) -> Result<BackedUp, Failure> {
    let failed = |what: &str| Failure::new(format!("cannot back up to `{}`: {what}", to.display()));
    let Some(disk) = store.disk.as_ref().and_then(Weak::upgrade) else {
        return Err(failed("the store is not on a disk"));
    };
    match disk.backup(to, progress).await {
        Ok(totals) => Ok(BackedUp { sessions: totals.sessions, data_sessions: totals.data_sessions }),
        Err(DiskError::Io { cause, .. }) => Err(match cause.kind() {
            std::io::ErrorKind::DirectoryNotEmpty => {
                failed("the folder is not empty").hint("name a folder that is empty or not there yet")
            }
            std::io::ErrorKind::StorageFull => {
                failed("there is no room").hint("name a folder on another disk")
            }
            _ => failed("the folder cannot be used").caused_by(cause),
        }),
        Err(error) => Err(failed("the store cannot be read").caused_by(error)),
    }
}

/// How many records a copy will have to carry.
pub(crate) async fn count(store: &dyn Store) -> Result<u64, Failure> {
    const PAGE: usize = 1000;
    let mut count = 0;
    for space in Space::ALL.into_iter().filter(|space| *space != Space::Store) {
        let mut after = None;
        loop {
            let page = store
                .list(space, after, PAGE)
                .await
                .map_err(|error| Failure::new("cannot read the store").caused_by(error))?;
            count += page.len() as u64;
            after = page.last().map(|(key, _)| *key);
            if page.len() < PAGE {
                break;
            }
        }
    }
    Ok(count)
}

/// Carries everything from one store to another.
pub(crate) async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    progress: impl FnMut(CopyProgress),
) -> Result<CopyTotals, Failure> {
    copy::copy(from, to, progress).await.map_err(|error| {
        let hint = match &error {
            CopyError::NotEmpty => "name a folder that has no store yet",
            _ => "what was copied is not complete: remove it, and copy again",
        };
        Failure::new("cannot copy the store").caused_by(error).hint(hint)
    })
}

/// A fresh key as the text of a key file, and the id that messages name it by.
pub(crate) fn new_key() -> (impl std::ops::Deref<Target = String>, String) {
    let key = keys::generate();
    let id = Keys::parse(&key).map(|keys| keys.id().to_string());
    (key, id.expect("a fresh key is a key"))
}

/// Puts data sessions in front of a server, if they are offered.
fn with_data_sessions(
    config: &Config,
    served: Served,
    store: &Arc<dyn Store>,
    carry: Option<Keys>,
    budget: &Budget,
) -> (Arc<dyn Backend>, States) {
    let Served { backend, kinds, loops, .. } = served;
    // Kept also when none are offered: those that are there expire, and operators can see them.
    let (clock, limits) = (Arc::new(SystemClock), config.data.limits.clone());
    let states = States::start_within(Arc::clone(store), clock, limits, budget.clone());
    let mut policy = config.data.policy.clone();
    policy.seal = carry.map(|keys| Arc::new(keys) as Arc<dyn Seal>);
    let offered = match config.data.offer {
        Offer::Auto => !kinds.is_empty() || policy.required != Required::None,
        Offer::Always => true,
        Offer::Never => false,
    };
    if !offered {
        return (backend, states);
    }
    let responder = responder(&backend, config, &loops);
    let layer = DataLayer::new(backend, states.clone(), policy, kinds).with_responder(responder);
    (Arc::new(layer), states)
}

/// The parts of a running server, without the socket.
pub(crate) struct Assembled {
    pub(crate) sessions: Sessions,
    pub(crate) exchanges: Exchanges,
    pub(crate) states: States,
    pub(crate) router: Router,
    pub(crate) store: Opened,
    pub(crate) budget: Budget,
    /// The store's folder, if it has one.
    pub(crate) folder: Option<PathBuf>,
}

/// A socket that listens, and what encrypts its connections.
pub(crate) fn listening(
    config: &Config,
    listener: std::net::TcpListener,
) -> Result<(TcpListener, Option<TlsAcceptor>), Failure> {
    let tls = match &config.tls {
        None => None,
        Some(files) => Some(tls::acceptor(&files.cert, &files.key).map_err(|error| {
            Failure::new("cannot set up TLS")
                .caused_by(error)
                .hint("`tls.cert` and `tls.key` name PEM files: the certificate chain and its private key")
        })?),
    };
    let listening = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    let listener = listening.map_err(|error| Failure::new("cannot use the socket").caused_by(error))?;
    Ok((listener, tls))
}

/// The store that sessions are kept in.
pub(crate) enum Keep {
    /// The one that the configuration names.
    Configured,
    /// The same, as soon as the process that has it open has closed it.
    After(Predecessor),
    /// One that an embedder brings.
    Lent(Arc<dyn Store>),
}

/// Opens the store, with the connections of the process that had it, as they come. To be called last of all that can
/// fail without it: from here on the other process stops.
pub(crate) async fn open_to_serve(
    config: &Config,
    keep: Keep,
) -> Result<(Opened, Option<KeptConnections>), Failure> {
    match keep {
        Keep::After(predecessor) => store_of(predecessor, config).await,
        Keep::Lent(store) => Ok((Opened::lent(store), None)),
        Keep::Configured => match store(config).await? {
            Access::Open(opened) => Ok((opened, None)),
            Access::InUse(failure) => Err(failure),
        },
    }
}

/// Puts the sessions and what answers for them together.
pub(crate) async fn assemble(config: &Config, served: Served, opened: Opened) -> Result<Assembled, Failure> {
    let folder = control_folder(config, &opened)?;
    let routes = served.routes.clone();
    let budget = budget(config);
    let limits = config.limits.clone();
    let Running { sessions, exchanges, states } = run(&opened, config, limits, served, &budget).await?;
    let rules =
        Rules { stall_timeout: config.bounds.stall_timeout, budget: budget.clone(), ..config.rules.clone() };
    let endpoint = |route: Route| {
        Endpoint::new(sessions.on(route.clone()), rules.clone()).with_exchanges(exchanges.on(route))
    };
    let named = routes.iter().map(|name| (name.clone(), endpoint(Route::named(name))));
    let router = Router::new(endpoint(Route::MAIN)).with_named(named).with_doors(config.doors.clone());
    Ok(Assembled { sessions, exchanges, states, router, store: opened, budget, folder })
}

/// What clients may make the process hold.
fn budget(config: &Config) -> Budget {
    // Clients on this machine have one address, and a share of it would be a share of all.
    let by_place = if config.listen.ip().is_loopback() { 100 } else { 50 };
    let limits = BudgetLimits::default()
        .with_share(config.clients.share.unwrap_or(by_place))
        .with(Resource::Memory, config.clients.memory_bytes)
        .with(Resource::Calls, config.exchanges.max_running)
        .with(Resource::Listens, config.exchanges.max_listens)
        .with(Resource::Parked, config.exchanges.max_parked)
        .with(Resource::Sessions, config.limits.max_sessions)
        .with(Resource::Disk, config.clients.disk_bytes);
    Budget::new(limits)
}

/// Opens the store that another process has open, when that one has closed it. With its connections, as they come.
async fn store_of(
    predecessor: Predecessor,
    config: &Config,
) -> Result<(Opened, Option<KeptConnections>), Failure> {
    tracing::info!("waiting for the other process to close the store");
    let released = predecessor.release().await;
    let kept = released.inspect_err(|error| tracing::warn!(%error, "the other process is gone")).ok();
    let closed = Instant::now();
    loop {
        match store(config).await? {
            Access::Open(opened) => {
                tracing::info!(took = ?closed.elapsed(), "took over");
                return Ok((opened, kept));
            }
            // What was left of it may still be on its way out.
            Access::InUse(failure) if closed.elapsed() > STORE_PATIENCE => return Err(failure),
            Access::InUse(_) => tokio::time::sleep(STORE_LOOKS).await,
        }
    }
}

/// The parts of a process that serves one client over stdio.
pub(crate) struct AssembledStdio {
    pub(crate) sessions: Sessions,
    pub(crate) exchanges: Exchanges,
    pub(crate) states: States,
    pub(crate) stdio: Stdio,
    pub(crate) store: Opened,
    /// The store's folder, if it has one.
    pub(crate) folder: Option<PathBuf>,
}

/// Puts the sessions and the connection together.
pub(crate) async fn assemble_stdio(config: &Config, served: Served) -> Result<AssembledStdio, Failure> {
    let opened = match store(config).await? {
        Access::Open(opened) => opened,
        Access::InUse(failure) => {
            return Err(failure.hint(
                "run `tenure serve` once and let clients connect to it over HTTP, or keep this client's session \
                 elsewhere with `--name NAME` or `--store disk:PATH`, or nowhere with `--store memory:`",
            ));
        }
    };
    let limits = Limits {
        // Only the client of a POST has to be told early that its answer comes on a stream.
        json_wait: Duration::ZERO,
        // The session lives as long as its connection: its client could not begin another. The time after which an
        // unused session expires stays, for those that a kill leaves in the store.
        max_lifetime: None,
        handshake_ttl: None,
        ..config.limits.clone()
    };
    let folder = control_folder(config, &opened)?;
    let Running { sessions, exchanges, states } =
        run(&opened, config, limits, served, &budget(config)).await?;
    let stdio = Stdio::new(sessions.clone(), config.rules.max_body_bytes, config.shutdown_grace)
        .with_exchanges(exchanges.clone());
    Ok(AssembledStdio { sessions, exchanges, states, stdio, store: opened, folder })
}

/// What serves clients.
struct Running {
    sessions: Sessions,
    exchanges: Exchanges,
    states: States,
}

/// Starts what serves clients. Whatever can fail comes before the first start: what runs would outlive the store that
/// is closed after the failure.
async fn run(
    opened: &Opened,
    config: &Config,
    limits: Limits,
    served: Served,
    budget: &Budget,
) -> Result<Running, Failure> {
    let store = Arc::clone(&opened.store);
    let seal = request_state_seal(config, &store).await?;
    let carry = keys(config.data.carry_key_file.as_ref())?;
    let is_ours = !servers::are_named(config);
    let (fingerprints, loops) = (served.fingerprints.clone(), served.loops.clone());
    let (backend, states) = with_data_sessions(config, served, &store, carry, budget);
    let exchange_limits = ExchangeLimits {
        max_running: config.exchanges.max_running,
        max_listens: config.exchanges.max_listens,
        max_parked: config.exchanges.max_parked,
        stream_after: config.exchanges.stream_after,
        max_kept: config.exchanges.max_kept,
        ..ExchangeLimits::of(&limits)
    };
    let clock = Arc::new(SystemClock);
    let task_limits = TaskLimits {
        // With some room for what stands around it.
        max_outcome_bytes: limits.max_event_bytes.saturating_sub(4096),
        ..config.tasks.clone()
    };
    let parts = Parts {
        store: Arc::clone(&store),
        backend: Arc::clone(&backend),
        clock: Arc::clone(&clock) as _,
        limits,
    };
    let sessions = Sessions::start_with_servers(parts, fingerprints.clone());
    let responder = responder(&backend, config, &loops);
    let exchanges = Exchanges::start(exchange::Parts {
        responder,
        clock,
        limits: exchange_limits,
        seal,
        fanout: sessions.fanout(),
        eras: config.eras,
        caching: if is_ours || config.exchanges.trust_public { Caching::AsSaid } else { Caching::Private },
    })
    .with_store(Arc::clone(&store), fingerprints)
    .with_tasks(Tasks::start(store, Arc::new(SystemClock), task_limits));
    for part in [&loops, states.loops(), exchanges.loops()] {
        sessions.loops().include(part);
    }
    Ok(Running { sessions, exchanges, states })
}

/// What seals the states that clients carry between attempts at a request: the key of a file, or one that the store
/// keeps, so that they outlive the process.
async fn request_state_seal(config: &Config, store: &Arc<dyn Store>) -> Result<Arc<dyn Seal>, Failure> {
    if let Some(keys) = keys(config.exchanges.state_key_file.as_ref())? {
        return Ok(Arc::new(keys));
    }
    let failed = |error: StoreError| Failure::new("cannot keep a key in the store").caused_by(error);
    let place = RecordKey { space: Space::Store, key: SessionKey::from_bytes(*b"request states\0\0") };
    let text = match store.get(place).await.map_err(failed)? {
        Some(kept) => String::from_utf8_lossy(&kept.value).into_owned(),
        None => {
            let made = keys::generate().to_string();
            store.put(place, made.clone().into(), Expected::Absent, None).await.map_err(failed)?;
            made
        }
    };
    let keys = Keys::parse(&text)
        .map_err(|error| Failure::new("the key that the store keeps cannot be read").caused_by(error))?;
    Ok(Arc::new(keys))
}

/// Where the control socket goes, if the store has a folder.
fn control_folder(config: &Config, opened: &Opened) -> Result<Option<PathBuf>, Failure> {
    opened.disk.is_some().then(|| folder(&store_url(config)?)).transpose()
}
