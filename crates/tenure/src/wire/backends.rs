//! The servers behind the gateway, built from the configuration: commands, URLs, or the demo server.
//!
//! In: the configuration. Out: one [`Backend`] with the layers around it that translate between eras, and the names
//! of its endpoints. Starts the warden if there is a command to run.

use std::cell::{OnceCell as Once, RefCell};
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::child::{
    ChildBackend, ChildCommand, ChildLimits, ChildRestarter, Inherit, NotFound, Warden,
};
use tenure_backend::remote::{self, RemoteBackend};
use tenure_layers::bridge::{EitherEra, ExchangesOnSessions, Halves, PoolLimits};
use tenure_layers::data::KindOfState;
use tenure_layers::limited::CallLimits;
use tenure_layers::merge::{MergedBackend, MergedMember};
use tenure_layers::restricted::{Restricted, ToolRules};
use tenure_layers::revisions::Revisions;
use tenure_layers::routes::Routes;
use tenure_protocol::Era;
use tenure_protocol::translate::evidence::ServerTransport;
use tenure_session::backend::probe::Probe;
use tenure_session::backend::{Backend, Responder};
use tenure_session::fingerprint::Fingerprints;
use tenure_session::port::clock::SystemClock;
use tenure_session::port::observer::SessionObserver;
use tenure_session::supervise::Loops;
use tenure_transport::observe::RequestObserver;

use super::auth::Auth;
use super::traces::Traces;
use super::upstream_credentials;
use crate::config::{Behind, ChildConfig, Config, Inherited, Speaks, UpstreamConfig};
use crate::failure::Failure;
use crate::figures::{Figures, ServerKind};
use crate::servers;
use crate::url_text::public_part;

/// The server behind the gateway, with the kinds of state that its data sessions hold.
pub(crate) struct Served {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) kinds: Vec<KindOfState>,
    /// The names of the endpoints `/mcp/NAME`, beside `/mcp`.
    pub(crate) routes: Vec<String>,
    /// Tell these servers from others.
    pub(crate) fingerprints: Fingerprints,
    /// The background tasks of the backend and its layers.
    pub(super) loops: Loops,
    /// The limits of calls, if they stand in front of each of several servers already.
    pub(super) limits: Option<CallLimits>,
    /// The counters of the process.
    pub(crate) figures: Figures,
    pub(crate) traces: Traces,
    /// Further observers.
    pub(crate) observers: EmbeddedObservers,
    /// Restart those that are programs.
    pub(crate) restarters: Vec<NamedRestarter>,
}

/// Restarts the children of a server, which has a name if there are several.
#[derive(Clone, Debug)]
pub(crate) struct NamedRestarter {
    pub(crate) name: Option<String>,
    restarter: ChildRestarter,
}

impl NamedRestarter {
    /// Ends its children; their sessions get others.
    pub(crate) fn restart(&self) {
        self.restarter.restart();
    }
}

/// The observers of an embedder.
#[derive(Clone, Default)]
pub(crate) struct EmbeddedObservers {
    pub(crate) sessions: Vec<Arc<dyn SessionObserver>>,
    pub(crate) requests: Vec<Arc<dyn RequestObserver>>,
}

impl std::fmt::Debug for EmbeddedObservers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EmbeddedObservers")
    }
}

impl Served {
    /// A server of the embedder, whose tools work on these kinds of state.
    pub(crate) fn embedded(
        backend: Arc<dyn Backend>,
        kinds: Vec<KindOfState>,
        config: &Config,
    ) -> Result<Self, Failure> {
        let sight = Sight::new(config)?;
        let backend =
            sight.in_front_of_server(config, backend, None, (ServerKind::Native, "in this process"));
        Ok(Self { kinds, ..Self::of(backend, servers::embedded(), Loops::default(), sight) })
    }

    /// The one server that the configuration names.
    fn one(backend: Arc<dyn Backend>, config: &Config, loops: Loops, sight: Sight) -> Self {
        Self::of(backend, servers::fingerprints(config), loops, sight)
    }

    fn of(backend: Arc<dyn Backend>, fingerprints: Fingerprints, loops: Loops, sight: Sight) -> Self {
        let Sight { figures, traces } = sight;
        let observers = EmbeddedObservers::default();
        Self {
            backend,
            kinds: Vec::new(),
            routes: Vec::new(),
            fingerprints,
            loops,
            limits: None,
            figures,
            traces,
            observers,
            restarters: Vec::new(),
        }
    }
}

/// The kinds of state that the demo server's tools work on.
pub(crate) fn demo_kinds() -> Vec<KindOfState> {
    vec![crate::demo::workspace()]
}

/// The program of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    /// The command `tenure`. It can start itself again as the warden, which ends the children if this process is
    /// killed.
    Tenure,
    /// A program of an embedder. It cannot be started again as a warden.
    Other,
}

/// The servers that the configuration names, or the demo server if it names none.
pub(crate) fn served(config: &Config, auth: Option<&Auth>, program: Program) -> Result<Served, Failure> {
    let warden = Wardens { of_all: Once::default(), program, restarters: RefCell::default() };
    let served = served_by(config, auth, &warden)?;
    Ok(Served { restarters: warden.restarters.into_inner(), ..served })
}

fn served_by(config: &Config, auth: Option<&Auth>, warden: &Wardens) -> Result<Served, Failure> {
    let (loops, sight) = (Loops::default(), Sight::new(config)?);
    if let Some(url) = &config.upstream.url {
        let behind = upstream(url, &config.upstream, auth, config, &loops)?;
        let behind = sight.in_front_of_server(config, behind, None, (ServerKind::Url, &public_part(url)));
        return Ok(Served::one(behind, config, loops, sight));
    }
    if !config.child.command.is_empty() {
        let behind = child(&config.child, None, warden, config, &loops)?;
        let behind =
            sight.in_front_of_server(config, behind, None, (ServerKind::Child, program_of(&config.child)));
        return Ok(Served::one(behind, config, loops, sight));
    }
    if config.backends.is_empty() {
        let demo = Arc::new(crate::demo::backend());
        let demo = sight.in_front_of_server(config, demo, None, (ServerKind::Demo, "the demo server"));
        let demo = Served::one(demo, config, loops, sight);
        return Ok(Served { kinds: demo_kinds(), ..demo });
    }
    several(config, auth, warden, loops, sight)
}

/// The observers of calls to servers.
struct Sight {
    figures: Figures,
    traces: Traces,
}

impl Sight {
    fn new(config: &Config) -> Result<Self, Failure> {
        let figures = Figures::new();
        let traces = Traces::new(config, &figures)?;
        Ok(Self { figures, traces })
    }

    /// Puts it right in front of a server.
    fn in_front_of_server(
        &self,
        config: &Config,
        backend: Arc<dyn Backend>,
        name: Option<&str>,
        (kind, target): (ServerKind, &str),
    ) -> Arc<dyn Backend> {
        let backend = self.traces.in_front_of_server(backend, name, target);
        match config.metrics.collect {
            true => self.figures.in_front_of_server(backend, name, (kind, target)),
            false => backend,
        }
    }
}

/// The program of a child, without its arguments, which may hold secrets.
fn program_of(child: &ChildConfig) -> &str {
    child.command.first().map_or("", String::as_str)
}

/// Several servers: each at its own endpoint, and all of them merged into one at `/mcp`.
fn several(
    config: &Config,
    auth: Option<&Auth>,
    warden: &Wardens,
    loops: Loops,
    sight: Sight,
) -> Result<Served, Failure> {
    let (mut members, mut named) = (Vec::new(), Vec::new());
    let limits = CallLimits::new(config.rates.calls.clone());
    for Behind { name, prefix, child: program, upstream: elsewhere } in &config.backends {
        let backend = match &elsewhere.url {
            Some(url) => upstream(url, elsewhere, auth, config, &loops)
                .map(|backend| (backend, ServerKind::Url, public_part(url))),
            None => child(program, Some(name), warden, config, &loops)
                .map(|backend| (backend, ServerKind::Child, program_of(program).to_owned())),
        };
        let backend =
            backend.map_err(|failure| Failure::new(format!("backend `{name}`")).caused_by(failure))?;
        let (backend, kind, target) = backend;
        let backend = sight.in_front_of_server(config, backend, Some(name), (kind, &target));
        let backend = limits.in_front_of_server(backend, Some(name));
        let backend = restricted(backend, auth.and_then(|auth| auth.tools(Some(name))));
        named.push((name.clone(), Arc::clone(&backend)));
        members.push(MergedMember { name: name.clone(), prefix: prefix.clone(), backend });
    }
    let routes = named.iter().map(|(name, _)| name.clone()).collect();
    // 4 KiB are reserved for the message around the lists.
    let max_list_bytes = config.limits.max_event_bytes.saturating_sub(4096);
    let merged = MergedBackend::new(members, config.limits.initialize_timeout, max_list_bytes);
    let routes_to = Routes::new(Arc::new(merged), named, |backend| bridged(backend, config, &loops));
    Ok(Served { routes, limits: Some(limits), ..Served::one(Arc::new(routes_to), config, loops, sight) })
}

/// Puts the rules for tools in front of a server, if there are any.
pub(super) fn restricted(backend: Arc<dyn Backend>, rules: Option<Arc<dyn ToolRules>>) -> Arc<dyn Backend> {
    match rules {
        Some(rules) => Arc::new(Restricted::new(backend, rules)),
        None => backend,
    }
}

/// How long a server may take to start. Slightly shorter than the time that its session waits, so that the start fails
/// first: the failure is logged, the session is told, and the next start backs off.
fn start_timeout(config: &Config) -> Duration {
    let whole = config.limits.initialize_timeout;
    whole - (whole / 10).min(Duration::from_secs(1))
}

fn child(
    config: &ChildConfig,
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
    let restarter = NamedRestarter { name: name.cloned(), restarter: legacy.restarter() };
    wardens.restarters.borrow_mut().push(restarter);
    // Without sessions there is one process for all callers, which cannot be told whose it is.
    let era = if config.identity { Speaks::Legacy } else { config.era };
    Ok(of_either_era((Arc::new(legacy), Arc::new(modern)), ServerTransport::Pipes, era, whole, loops))
}

/// The process that ends the children if this one is killed. One for all children, started with the first.
struct Wardens {
    of_all: Once<Arc<Warden>>,
    program: Program,
    /// What restarts them.
    restarters: RefCell<Vec<NamedRestarter>>,
}

impl Wardens {
    fn warden(&self) -> Result<Option<Arc<Warden>>, Failure> {
        if self.program == Program::Other {
            return Ok(None);
        }
        if let Some(warden) = self.of_all.get() {
            return Ok(Some(Arc::clone(warden)));
        }
        // A killed process cannot end its children itself, so another process has to.
        let warden = std::env::current_exe().and_then(|program| Warden::start(&program, &["warden"]));
        let warden = warden.map_err(|error| {
            Failure::new("cannot start the process that ends children should this one be killed")
                .caused_by(error)
        })?;
        Ok(Some(Arc::clone(self.of_all.get_or_init(|| Arc::new(warden)))))
    }
}

/// Puts a bridge in front of a server that knows only sessions, so that it answers requests without one.
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

/// The responder for requests without a session: the server itself if it can, otherwise a bridge.
pub(super) fn responder(backend: &Arc<dyn Backend>, config: &Config, loops: &Loops) -> Arc<dyn Responder> {
    let own = Arc::clone(backend).responder();
    own.unwrap_or_else(|| bridged(Arc::clone(backend), config, loops))
}

/// A server whose era is detected, unless the configuration sets it.
fn of_either_era(
    (legacy, modern): (Arc<dyn Backend>, Arc<dyn Probe>),
    over: ServerTransport,
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
    Arc::new(EitherEra::new(halves, Arc::new(SystemClock), |legacy| bridged(legacy, config, loops)))
}

fn upstream(
    url: &str,
    config: &UpstreamConfig,
    auth: Option<&Auth>,
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
    let subjects = auth.and_then(|auth| auth.subjects.clone());
    let upstream = remote::Upstream {
        headers,
        credentials: upstream_credentials::credentials(url, config, whole, subjects)?,
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
    Ok(of_either_era((Arc::new(legacy), Arc::new(modern)), ServerTransport::Http, config.era, whole, loops))
}

/// The command of a child, after a check that its program exists.
fn found_command(child: &ChildConfig, whole: &Config) -> Result<ChildCommand, Failure> {
    let command = child_command(child, whole)?;
    command.find().map_err(|why| cannot_run(&command, &why))?;
    Ok(command)
}

/// Reads a value that may be a secret: the value itself, `env:VARIABLE` or `file:PATH`. A failure names what is
/// missing, never the value.
pub(super) fn secret(value: &str, whose: &str, hint: &str) -> Result<String, Failure> {
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

/// Checks that the programs, folders, files and variables of all servers exist. Starts nothing.
pub(super) fn look_for_servers(config: &Config) -> Result<(), Failure> {
    let one = [(None, &config.child, &config.upstream)];
    let several = config.backends.iter().map(|behind| (Some(&behind.name), &behind.child, &behind.upstream));
    for (name, program, elsewhere) in one.into_iter().chain(several) {
        let found = match &elsewhere.url {
            Some(url) => upstream(url, elsewhere, None, config, &Loops::default()).map(drop),
            None if program.command.is_empty() => Ok(()),
            None => found_command(program, config).map(drop),
        };
        found.map_err(|failure| match name {
            Some(name) => Failure::new(format!("backend `{name}`")).caused_by(failure),
            None => failure,
        })?;
    }
    Ok(())
}

fn child_command(child: &ChildConfig, whole: &Config) -> Result<ChildCommand, Failure> {
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
        tells_principal: child.identity,
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

/// The failure of a command that cannot run. It is found at the start, not when the first session needs the command.
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

/// Runs as the warden: ends the children of the process that started it when that process is killed.
pub(crate) fn watch_over_children() {
    tenure_backend::child::watch(std::io::stdin().lock());
}
