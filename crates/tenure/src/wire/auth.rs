//! Who may use the endpoints, built from the configuration: the authenticator, the protected resources, and the rules for tools.
//!
//! In: the `[auth]` section and the `[[issuer]]` tables. Out: [`EndpointAuth`] for each endpoint, and [`ToolRules`] for the
//! layers in front of servers. The authenticator's background work runs as long as the node does.

use std::sync::Arc;
use std::time::Duration;

use tenure_auth::issuer::{IntrospectionSettings, IssuerSettings, KeySource};
use tenure_auth::jws::Algorithm;
use tenure_auth::keys::ApiKeyFile;
use tenure_auth::outgoing::SubjectTokens;
use tenure_auth::scope::{ScopeRules, ScopeSet};
use tenure_auth::{AuthSettings, Authenticator, ProtectedResource, UnixSeconds};
use tenure_layers::merge::ToolPrefixes;
use tenure_layers::restricted::ToolRules;
use tenure_session::Route;
use tenure_session::call::Scopes;
use tenure_session::port::clock::{Clock, SystemClock};
use tenure_session::port::store::Store;
use tenure_session::revocation::{self, Revocation};
use tenure_session::supervise::Loops;
use tenure_transport::http::{AllowedHosts, EndpointAuth, StreamExpiry, ToolOwner};
use tokio_util::sync::CancellationToken;

use super::backends::secret;
use crate::config::{AuthMode, Config, IssuerConfig, UpstreamAuthMode};
use crate::failure::Failure;

/// How often issuers and the file of keys are looked at.
const REFRESH: Duration = Duration::from_secs(1);

/// Who may use the endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Auth {
    pub(crate) authenticator: Authenticator,
    /// The tokens of callers, if a server behind exchanges them.
    pub(super) subjects: Option<SubjectTokens>,
    rules: Arc<ScopeRules>,
    /// The URL of this server, if tokens are issued for it.
    public_url: Option<String>,
    stream_grace: Duration,
    /// The servers behind `/mcp` by the prefix of their tools, if there are several.
    prefixes: Option<Arc<ToolPrefixes>>,
}

impl Auth {
    /// The authentication that the configuration asks for; `None` if callers need no credentials.
    pub(crate) fn new(config: &Config) -> Result<Option<Self>, Failure> {
        let auth = &config.auth;
        if !auth.is_on() {
            // A configuration that was read has been checked; one that an embedder put together has not.
            if !config.listen.ip().is_loopback() && auth.mode != AuthMode::None {
                return Err(Failure::new(format!(
                    "`listen` is {}, and callers need no credentials",
                    config.listen
                ))
                .hint("configure some, or set `auth.mode` to `none`"));
            }
            return Ok(None);
        }
        let settings = AuthSettings {
            issuers: auth.issuers.iter().map(issuer).collect::<Result<_, _>>()?,
            keys: auth.keys_file.as_ref().map(ApiKeyFile::at),
            certificates: auth.certificates,
            dpop: auth.dpop,
            subjects: exchanges_tokens(config).then(SubjectTokens::default),
        };
        let subjects = settings.subjects.clone();
        let authenticator = Authenticator::with_system_trust(settings).map_err(|error| {
            Failure::new("cannot set up authentication")
                .caused_by(error)
                .hint("`[auth]` and `[[issuer]]` say who may use the server; docs/auth.md has examples")
        })?;
        let public_url = (!auth.issuers.is_empty()).then(|| {
            auth.public_url.clone().unwrap_or_else(|| {
                let scheme = if config.tls.is_some() { "https" } else { "http" };
                format!("{scheme}://{}", config.listen)
            })
        });
        let prefixes = super::audit::prefixes(config).map(Arc::new);
        let (rules, stream_grace) = (Arc::new(rules(config)?), auth.stream_grace);
        Ok(Some(Self { authenticator, subjects, rules, public_url, stream_grace, prefixes }))
    }

    /// The authentication of the endpoint `/mcp`, or of `/mcp/NAME`.
    pub(crate) fn endpoint(&self, name: Option<&str>) -> EndpointAuth {
        let path = name.map_or_else(|| "/mcp".to_owned(), |name| format!("/mcp/{name}"));
        let resource = self.public_url.as_ref().and_then(|url| ProtectedResource::new(url, &path));
        let resource = resource.unwrap_or_else(|| ProtectedResource::keys_only(&path));
        let owner = match (name, &self.prefixes) {
            (None, Some(prefixes)) => {
                let prefixes = Arc::clone(prefixes);
                Some(Arc::new(move |tool: &str| prefixes.owner(tool)) as ToolOwner)
            }
            _ => None,
        };
        EndpointAuth {
            authenticator: self.authenticator.clone(),
            resource: resource.with_scopes(self.rules.request(name), self.scopes_of(name)),
            scopes: Arc::clone(&self.rules),
            backend: name.map(str::to_owned),
            owner,
            expiry: StreamExpiry { clock: Arc::new(SystemClock), grace: self.stream_grace },
        }
    }

    /// The scopes that can count at an endpoint.
    fn scopes_of(&self, name: Option<&str>) -> ScopeSet {
        match name {
            Some(name) => self.rules.all_of(name),
            None => self.rules.all(),
        }
    }

    /// The rules for the tools of one server; `None` if every caller may use them all. A server without a name is the only
    /// one.
    pub(super) fn tools(&self, backend: Option<&str>) -> Option<Arc<dyn ToolRules>> {
        let rules = Arc::clone(&self.rules);
        let place = RulesPlace::Server(backend.map(str::to_owned));
        (!rules.is_empty()).then(|| Arc::new(ScopedTools { rules, place }) as Arc<dyn ToolRules>)
    }

    /// The rules for the tools of all servers, by the names that clients see.
    pub(super) fn all_tools(&self) -> Option<Arc<dyn ToolRules>> {
        let Some(prefixes) = self.prefixes.clone() else { return self.tools(None) };
        let (rules, place) = (Arc::clone(&self.rules), RulesPlace::Front(prefixes));
        (!rules.is_empty()).then(|| Arc::new(ScopedTools { rules, place }) as Arc<dyn ToolRules>)
    }

    /// Allows the host of the public URL, beside those that are configured.
    pub(crate) fn allow_own_host(&self, hosts: AllowedHosts, config: &Config) -> AllowedHosts {
        let url = config.auth.public_url.as_deref().and_then(|url| url.split_once("://"));
        let Some((_, rest)) = url else { return hosts };
        let own = rest.split('/').next().unwrap_or_default().to_owned();
        match hosts {
            AllowedHosts::Any => AllowedHosts::Any,
            AllowedHosts::Loopback => AllowedHosts::List(vec![own]),
            AllowedHosts::List(mut listed) => {
                listed.push(own);
                AllowedHosts::List(listed)
            }
        }
    }

    /// Refuses from the first request on what was revoked before this process began.
    pub(super) async fn read_revocations(&self, store: &dyn Store) -> Result<(), Failure> {
        let failed = || Failure::new("cannot read who is revoked");
        let (revoked, unreadable) =
            revocation::all(store).await.map_err(|error| failed().caused_by(error))?;
        if unreadable > 0 {
            // They may be of a newer version: to go on could admit a principal that was revoked.
            return Err(failed().because(format!("{unreadable} records of the store cannot be read")).hint(
                "start the newest version that has used this store, or check it with `tenure store check`",
            ));
        }
        for Revocation { principal, not_before } in revoked {
            self.authenticator.revoke(&principal, UnixSeconds(not_before / 1000));
        }
        Ok(())
    }

    /// Fetches keys of issuers in time, and reads the file of keys when it changes, until it is stopped.
    pub(crate) fn run(
        &self,
        loops: &Loops,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (authenticator, stopped) = (self.authenticator.clone(), stop.clone());
        loops.keep("keys of issuers", stop, move || {
            let (authenticator, stop) = (authenticator.clone(), stopped.clone());
            async move {
                loop {
                    let now = UnixSeconds(SystemClock.now().0 / 1000);
                    let refresh = async {
                        authenticator.refresh(now).await;
                        tokio::time::sleep(REFRESH).await;
                    };
                    if stop.run_until_cancelled(refresh).await.is_none() {
                        return;
                    }
                }
            }
        })
    }
}

/// Checks a node without credentials that is mounted in another server. Where that listens is not known here; that hosts
/// other than this machine are allowed says that other machines can reach it.
pub(crate) fn check_mounted_without_auth(config: &Config) -> Result<(), Failure> {
    match (&config.rules.hosts, config.auth.mode) {
        (AllowedHosts::Loopback, _) | (_, AuthMode::None) => Ok(()),
        (AllowedHosts::List(_) | AllowedHosts::Any, _) => {
            let failure =
                Failure::new("`http.allowed_hosts` lets other machines in, and callers need no credentials");
            Err(failure
                .hint("configure some, or set `auth.mode` to `none` if the server around it asks for them"))
        }
    }
}

/// The rules about scopes.
fn rules(config: &Config) -> Result<ScopeRules, Failure> {
    let rows = |rows: &[String]| -> Vec<(String, Vec<String>)> {
        let pairs = rows.iter().filter_map(|row| row.split_once('='));
        pairs
            .map(|(name, words)| {
                (name.trim().to_owned(), words.split_whitespace().map(str::to_owned).collect())
            })
            .collect()
    };
    let (needed, includes) = (rows(&config.auth.scopes), rows(&config.auth.includes));
    let rules = ScopeRules::new(
        needed.iter().map(|(pattern, scopes)| (pattern.as_str(), scopes.as_slice())),
        includes.iter().map(|(scope, lower)| (scope.as_str(), lower.as_slice())),
    )
    .map_err(|error| {
        Failure::new("cannot use `auth.scopes` or `auth.includes`")
            .caused_by(error)
            .hint("write each as `PATTERN = SCOPE SCOPE`, such as \"files/read_* = files:read\"")
    })?;
    // A rule that never matches would leave tools open that it was written to close.
    let servers: Vec<&str> = config.backends.iter().map(|behind| behind.name.as_str()).collect();
    match rules.without_server(&servers) {
        None => Ok(rules),
        Some(pattern) => {
            let failure = Failure::new(format!(
                "`auth.scopes` has a rule for `{pattern}`, and there is no such backend"
            ));
            Err(if servers.is_empty() {
                failure.hint("there is one server and it has no name: leave out the part in front of the `/`")
            } else {
                failure.hint(format!("the backends are {}", servers.join(", ")))
            })
        }
    }
}

/// Whether a server behind gets tokens in exchange for those of callers.
fn exchanges_tokens(config: &Config) -> bool {
    let several = config.backends.iter().map(|behind| &behind.upstream);
    let mut all = std::iter::once(&config.upstream).chain(several);
    all.any(|upstream| upstream.url.is_some() && upstream.auth.mode == UpstreamAuthMode::TokenExchange)
}

fn issuer(config: &IssuerConfig) -> Result<IssuerSettings, Failure> {
    let whose = format!("the `[[issuer]]` `{}`", config.name);
    let mut settings = IssuerSettings::new(&config.name, &config.url);
    settings.keys = match config.keys.as_deref() {
        None => KeySource::Discovery,
        Some("none") => KeySource::None,
        Some(place) => match place.strip_prefix("file:") {
            Some(path) => KeySource::File(path.into()),
            None => KeySource::Url(place.to_owned()),
        },
    };
    if !config.algorithms.is_empty() {
        let named = |name: &String| {
            Algorithm::named(name).ok_or_else(|| {
                let known = Algorithm::ALL.map(Algorithm::as_str).join(", ");
                Failure::new(format!("{whose} has the algorithm `{name}`, which is not known or not safe"))
                    .hint(format!("the algorithms are {known}"))
            })
        };
        settings.algorithms = config.algorithms.iter().map(named).collect::<Result<_, _>>()?;
    }
    settings.audiences = config.audiences.clone();
    settings.require_at_jwt = config.require_at_jwt;
    settings.scope_prefix = config.scope_prefix.clone();
    if let (Some(client_id), Some(client_secret)) = (&config.client_id, &config.client_secret) {
        let hint = "write `client_secret = \"env:VARIABLE\"` or `client_secret = \"file:PATH\"`";
        settings.introspection = Some(IntrospectionSettings {
            url: config.introspection_url.clone(),
            client_id: client_id.clone(),
            client_secret: secret(client_secret, &format!("`client_secret` of {whose}"), hint)?,
        });
    }
    Ok(settings)
}

/// The rules about scopes, as a layer asks for them.
struct ScopedTools {
    rules: Arc<ScopeRules>,
    place: RulesPlace,
}

/// Where rules are asked.
enum RulesPlace {
    /// In front of this server; without a name it is the only one.
    Server(Option<String>),
    /// In front of all servers at once.
    Front(Arc<ToolPrefixes>),
}

impl ToolRules for ScopedTools {
    fn missing(&self, scopes: &Scopes, route: &Route, tool: &str) -> Option<Vec<String>> {
        let needed = match (&self.place, route.name()) {
            (RulesPlace::Server(name), _) => self.rules.tool(name.as_deref(), tool),
            // At an endpoint of one server, tools have the names that the server gives them.
            (RulesPlace::Front(_), Some(name)) => self.rules.tool(Some(name), tool),
            (RulesPlace::Front(prefixes), None) => {
                let (backend, name) = prefixes.owner(tool);
                self.rules.tool(backend.as_deref(), &name)
            }
        };
        self.lacks(scopes, &needed)
    }

    fn missing_otherwise(&self, scopes: &Scopes, route: &Route) -> Option<Vec<String>> {
        let backend = match &self.place {
            RulesPlace::Server(name) => name.as_deref(),
            RulesPlace::Front(_) => route.name(),
        };
        self.lacks(scopes, &self.rules.request(backend))
    }
}

impl ScopedTools {
    fn lacks(&self, scopes: &Scopes, needed: &ScopeSet) -> Option<Vec<String>> {
        let granted = ScopeSet::from_shared(Arc::clone(scopes));
        (!self.rules.allow(&granted, needed)).then(|| needed.iter().map(str::to_owned).collect())
    }
}
