//! Puts a server together: its store, the server behind it, sessions, exchanges, data sessions, and their endpoints.
//!
//! In: the configuration, the server behind and an open store. Out: running parts, without a socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_layers::data::{DataLayer, Required};
use tenure_protocol::modern::Caching;
use tenure_session::backend::Backend;
use tenure_session::budget::{Budget, BudgetLimits, Resource};
use tenure_session::exchange::{self, ExchangeLimits, Exchanges};
use tenure_session::port::clock::SystemClock;
use tenure_session::port::seal::Seal;
use tenure_session::port::store::Store;
use tenure_session::session::{SessionParts, Sessions};
use tenure_session::state::States;
use tenure_session::task::{TaskLimits, Tasks};
use tenure_session::{Limits, Route};
use tenure_store::sealed::keys::SealKeys;
use tenure_transport::http::{Endpoint, Router, Rules};
use tenure_transport::stdio::Stdio;
use tenure_transport::tls::{self, TlsAcceptor};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::OpenedStore;
use super::audit;
use super::auth::Auth;
use super::backends::{self, EmbeddedObservers, NamedRestarter, Served, responder, restricted};
use super::cluster::Cluster;
use super::limits::Limiting;
use super::store::{self, Access};
use super::traces::Traces;
use crate::audit::Audit;
use crate::config::{ChildConfig, Config, DataOffer};
use crate::failure::Failure;
use crate::figures::{Figures, Watched};
use crate::servers;

/// The parts that serve clients, with sessions and without them, and all that they keep.
#[derive(Clone, Debug)]
pub(crate) struct Runtimes {
    pub(crate) sessions: Sessions,
    pub(crate) exchanges: Exchanges,
    /// The data sessions of both.
    pub(crate) states: States,
    /// Who may use them; every client, if it is `None`.
    pub(crate) auth: Option<Auth>,
    pub(crate) store: OpenedStore,
    pub(crate) budget: Budget,
    /// How much clients may do.
    pub(crate) limits: Limiting,
    /// Who did what, if that is recorded.
    pub(crate) audit: Option<Arc<Audit>>,
    /// What the process counts of itself.
    pub(crate) figures: Figures,
    pub(crate) traces: Traces,
    /// Further observers.
    pub(crate) embedded: EmbeddedObservers,
    /// Restart the servers behind that are programs.
    pub(crate) restarters: Vec<NamedRestarter>,
    /// The nodes that share the store.
    pub(crate) cluster: Option<Cluster>,
}

/// The runtimes with what stands in front of them.
pub(crate) struct Assembled<Front> {
    pub(crate) runtimes: Runtimes,
    pub(crate) front: Front,
    /// The store's folder, if it has one.
    pub(crate) folder: Option<PathBuf>,
}

/// Starts the sessions and exchanges, and puts the endpoints in front of them.
pub(crate) async fn assemble(
    config: &Config,
    (served, auth): (Served, Option<Auth>),
    opened: OpenedStore,
    stop: CancellationToken,
) -> Result<Assembled<Router>, Failure> {
    let folder = store::control_folder(config, &opened)?;
    let routes = served.routes.clone();
    let joined = match &opened.members {
        Some(members) => Some(Cluster::join(config, Arc::clone(members), Arc::new(SystemClock), stop).await?),
        None => None,
    };
    let (cluster, port) = joined.unzip();
    let limits = Limits { max_parallel_wakes: parallel_wakes(config), ..config.limits.clone() };
    let started = run(opened, config, limits, (served, auth), cluster.clone()).await;
    if let (Err(_), Some(cluster)) = (&started, &cluster) {
        cluster.leave().await;
    }
    let runtimes = started?;
    let hosts = config.rules.hosts.clone();
    let rules = Rules {
        hosts: match &runtimes.auth {
            Some(auth) => auth.allow_own_host(hosts, config),
            None => hosts,
        },
        stall_timeout: config.bounds.stall_timeout,
        budget: runtimes.budget.clone(),
        observers: audit::observers(config, &runtimes),
        ..config.rules.clone()
    };
    let endpoint = |route: Route| {
        let endpoint = Endpoint::new(runtimes.sessions.on(route.clone()), rules.clone())
            .with_exchanges(runtimes.exchanges.on(route.clone()));
        let endpoint = match &runtimes.auth {
            Some(auth) => endpoint.with_auth(auth.endpoint(route.name())),
            None => endpoint,
        };
        match &runtimes.cluster {
            Some(cluster) => endpoint.with_relay(cluster.relay.clone()),
            None => endpoint,
        }
    };
    let named = routes.iter().map(|name| (name.clone(), endpoint(Route::named(name))));
    let router = Router::new(endpoint(Route::MAIN)).with_named(named).with_doors(config.doors.clone());
    if let (Some(cluster), Some(port)) = (&runtimes.cluster, port) {
        cluster.serve(port, router.clone());
    }
    Ok(Assembled { runtimes, front: router, folder })
}

/// Opens the store, starts the sessions and exchanges, and puts the connection in front of them.
pub(crate) async fn assemble_stdio(config: &Config, served: Served) -> Result<Assembled<Stdio>, Failure> {
    let opened = match store::open_configured(config).await? {
        Access::Open(opened) => opened,
        Access::InUse(failure) => {
            return Err(failure.hint(
                "run `tenure serve` once and let clients connect to it over HTTP, or keep this client's session \
                 elsewhere with `--name NAME` or `--store disk:PATH`, or nowhere with `--store memory:`",
            ));
        }
    };
    if opened.members.is_some() {
        let url = store::store_url(config)?;
        let what = format!("the store `{url}` is shared by nodes, and a server over stdio is not a node");
        opened.close().await;
        return Err(Failure::new(what).hint(
            "let clients connect to the nodes (`tenure serve`), or keep this client's session elsewhere with \
             `--store disk:PATH` or `--store memory:`",
        ));
    }
    let limits = Limits {
        // Only a POST has to choose early between JSON and a stream.
        json_wait: Duration::ZERO,
        // The session lives as long as its connection, because its client could not begin another. The idle time
        // still applies, to sessions that a killed process left in the store.
        max_lifetime: None,
        handshake_ttl: None,
        ..config.limits.clone()
    };
    let folder = store::control_folder(config, &opened)?;
    let runtimes = run(opened, config, limits, (served, None), None).await?;
    let stdio = Stdio::new(runtimes.sessions.clone(), config.rules.max_body_bytes, config.shutdown_grace)
        .with_exchanges(runtimes.exchanges.clone())
        .with_observers(audit::observers(config, &runtimes));
    Ok(Assembled { runtimes, front: stdio, folder })
}

/// Starts the runtimes. Every step that can fail comes before the first start: the caller closes the store after a
/// failure, and a started runtime would go on using it.
async fn run(
    opened: OpenedStore,
    config: &Config,
    limits: Limits,
    (served, auth): (Served, Option<Auth>),
    cluster: Option<Cluster>,
) -> Result<Runtimes, Failure> {
    let (store, budget) = (Arc::clone(&opened.store), budget(config));
    let folder = store::control_folder(config, &opened)?;
    let limits = within_engine(limits, store.as_ref());
    let seal = store::request_state_seal(config, &store).await?;
    let carry = store::keys(config.data.carry_key_file.as_ref())?;
    if let Some(auth) = &auth {
        auth.read_revocations(store.as_ref()).await?;
    }
    let audit = audit::open(config)?;
    let is_ours = !servers::are_named(config);
    let (fingerprints, loops) = (served.fingerprints.clone(), served.loops.clone());
    let (figures, traces, embedded) =
        (served.figures.clone(), served.traces.clone(), served.observers.clone());
    let restarters = served.restarters.clone();
    let limiting = Limiting::new(config, served.limits.clone(), &store);
    let served = match served.limits {
        Some(_) => served,
        None => Served { backend: limiting.calls.in_front_of_server(served.backend, None), ..served },
    };
    let (backend, states) = with_data_sessions(config, served, &store, carry, &budget);
    let backend = restricted(backend, auth.as_ref().and_then(Auth::all_tools));
    let backend = audit::audited(backend, audit.as_ref());
    // In front of the record of calls: a call that is refused here was not made, and is recorded as a refusal.
    let backend = limiting.calls.in_front(backend);
    let backend = match &limiting.shedding {
        Some(shedding) => shedding.in_front(backend),
        None => backend,
    };
    let backend = match config.metrics.collect {
        true => figures.in_front(backend),
        false => backend,
    };
    let backend = traces.in_front(backend);
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
        // 4 KiB are reserved for the message around the outcome.
        max_outcome_bytes: limits.max_event_bytes.saturating_sub(4096),
        ..config.tasks.clone()
    };
    let parts = SessionParts {
        store: Arc::clone(&store),
        backend: Arc::clone(&backend),
        clock: Arc::clone(&clock) as _,
        limits,
        roster: cluster.as_ref().map(|cluster| cluster.roster.clone()),
    };
    let sessions =
        Sessions::start_with_servers(parts, fingerprints.clone()).with_addresses(limiting.addresses.clone());
    let tasks = Tasks::start(Arc::clone(&store), Arc::clone(&clock) as _, task_limits);
    if let Some(cluster) = &cluster {
        tasks.join(cluster.roster.clone());
        let news = cluster.news();
        tasks.tell_peers(Arc::clone(&news) as _);
        sessions.tell_peers(news);
    }
    if let Some(observer) = audit::session_observers(config, audit.as_ref(), (&figures, &embedded)) {
        sessions.observed_by(Arc::clone(&observer));
        tasks.observed_by(observer);
    }
    if let (Some(audit), Some(auth)) = (&audit, &auth) {
        auth.authenticator.observed_by(Arc::clone(audit) as _);
    }
    let responder = responder(&backend, config, &loops);
    let exchanges = Exchanges::start(exchange::ExchangeParts {
        responder,
        clock,
        limits: exchange_limits,
        seal,
        fanout: sessions.fanout(),
        eras: config.eras,
        caching: match (is_ours || config.exchanges.trust_public) && config.auth.scopes.is_empty() {
            true => Caching::AsSaid,
            // Lists differ from caller to caller where scopes decide what is in them.
            false => Caching::Private,
        },
    })
    .with_store(store, fingerprints)
    .with_tasks(tasks);
    let exchanges = match &cluster {
        Some(cluster) => exchanges.with_roster(cluster.roster.clone()),
        None => exchanges,
    };
    for part in [&loops, states.loops(), exchanges.loops()] {
        sessions.loops().include(part);
    }
    if let Some(cluster) = &cluster {
        sessions.loops().include(cluster.roster.loops());
    }
    let parts = (sessions.clone(), exchanges.clone());
    let asked =
        (auth.as_ref().map(|auth| auth.authenticator.clone()), cluster.as_ref().map(|it| it.roster.clone()));
    figures.watch(Watched::new(parts, budget.clone(), (Arc::clone(&opened.store), folder), asked));
    Ok(Runtimes {
        sessions,
        exchanges,
        states,
        auth,
        store: opened,
        budget,
        limits: limiting,
        audit,
        figures,
        traces,
        embedded,
        restarters,
        cluster,
    })
}

/// How many sessions are woken at the same time.
fn parallel_wakes(config: &Config) -> usize {
    let has_processes = |child: &ChildConfig| !child.command.is_empty() && !child.share;
    let children = config.backends.iter().map(|behind| &behind.child).chain(std::iter::once(&config.child));
    let usual = if children.into_iter().any(has_processes) { 8 } else { config.limits.max_parallel_wakes };
    config.max_parallel_wakes.unwrap_or(usual)
}

/// Puts data sessions in front of a server, if they are offered.
fn with_data_sessions(
    config: &Config,
    served: Served,
    store: &Arc<dyn Store>,
    carry: Option<SealKeys>,
    budget: &Budget,
) -> (Arc<dyn Backend>, States) {
    let Served { backend, kinds, loops, .. } = served;
    // Started even if none are offered: existing data sessions still expire, and operators can see them.
    let (clock, limits) = (Arc::new(SystemClock), config.data.limits.clone());
    let states = States::start_within(Arc::clone(store), clock, limits, budget.clone());
    let mut policy = config.data.policy.clone();
    policy.seal = carry.map(|keys| Arc::new(keys) as Arc<dyn Seal>);
    let offered = match config.data.offer {
        DataOffer::Auto => !kinds.is_empty() || policy.required != Required::None,
        DataOffer::Always => true,
        DataOffer::Never => false,
    };
    if !offered {
        return (backend, states);
    }
    let responder = responder(&backend, config, &loops);
    let layer = DataLayer::new(backend, states.clone(), policy, kinds).with_responder(responder);
    (Arc::new(layer), states)
}

/// The bounds of what clients may make the process hold.
fn budget(config: &Config) -> Budget {
    // All clients on this machine have the same address, so that a share per address would be one for all of them. A listed
    // proxy tells them apart.
    let is_one_peer = config.listen.ip().is_loopback() && config.rules.proxies.networks().is_empty();
    let by_place = if is_one_peer { 100 } else { 50 };
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

/// Makes the socket usable for tokio, and sets up TLS if it is configured.
pub(crate) fn listening(
    config: &Config,
    listener: std::net::TcpListener,
) -> Result<(TcpListener, Option<TlsAcceptor>), Failure> {
    let tls = match &config.tls {
        None => None,
        Some(files) => {
            Some(tls::acceptor(&files.cert, &files.key, files.client_ca.as_deref()).map_err(|error| {
                Failure::new("cannot set up TLS").caused_by(error).hint(
                    "`tls.cert` and `tls.key` name PEM files: the certificate chain and its private key",
                )
            })?)
        }
    };
    let listening = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    let listener = listening.map_err(|error| Failure::new("cannot use the socket").caused_by(error))?;
    Ok((listener, tls))
}

/// Lowers the limit of messages to what the engine takes.
fn within_engine(limits: Limits, store: &dyn Store) -> Limits {
    let most = store.capabilities().max_value_bytes;
    if limits.max_event_bytes <= most {
        return limits;
    }
    tracing::warn!(
        configured = limits.max_event_bytes,
        most,
        hint = "raise `max_payload` of the NATS servers, or lower `streams.max_event`",
        "the store does not take messages as large as `streams.max_event`; larger ones are refused"
    );
    Limits { max_event_bytes: most, ..limits }
}

/// Checks that all parts that the configuration names exist: programs, folders, files, variables. Starts nothing.
pub(crate) fn look_for_parts(config: &Config) -> Result<(), Failure> {
    store::look_for_place(config)?;
    store::keys(config.store_key_file.as_ref())?;
    backends::look_for_servers(config)?;
    Auth::new(config)?;
    for file in
        config.tls.iter().flat_map(|tls| [Some(&tls.cert), Some(&tls.key), tls.client_ca.as_ref()]).flatten()
    {
        std::fs::read(file).map_err(|error| {
            Failure::new(format!("cannot read the file `{}` of `tls`", file.display())).caused_by(error)
        })?;
    }
    Ok(())
}
