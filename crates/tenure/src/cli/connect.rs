//! The connection of a client command to its server, and the failures that people read.

use std::error::Error as _;
use std::io::ErrorKind;
use std::time::Duration;

use clap::Args;
use hyper::header::{HeaderName, HeaderValue};
use rmcp::model::ServerCapabilities;
use rmcp::service::{ClientInitializeError, ServiceError};
use serde::Serialize;
use serde_json::{Value, json};
use tenure_client::{
    CallOptions, ClientErrorKind, ConnectedClient, Create, EraChoice, Error, HttpOptions, Jar, ServerCommand,
    SessionOptions, connect_command_with, connect_http_with,
};

use super::Failure;
use super::listener::{CallListener, Logs};
use super::target::{JarArgs, Target};
use crate::config::{parse_duration, write_duration};
use crate::escape::plain;
use crate::failure::tidy;

/// How long closing the connection may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// How a server is talked to.
#[derive(Args, Debug)]
pub(super) struct ConnectArgs {
    /// How long to wait for the server to greet, and how long for each answer, such as 30s or 1h.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = timeout)]
    timeout: Duration,
    /// The environment variable that holds the token for `Authorization: Bearer`.
    #[arg(long, value_name = "VARIABLE")]
    bearer_env: Option<String>,
    /// A header for every HTTP request, such as `X-Team: blue`. May be given several times.
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Speak one era of MCP alone: modern (2026-07-28) or legacy (with a session, up to 2025-11-25). [default: the
    /// modern one if the server knows it]
    #[arg(long, value_name = "ERA", value_parser = ["modern", "legacy"], hide_possible_values = true)]
    era: Option<String>,
    /// Show what the server logs, on standard error.
    #[arg(long, short)]
    verbose: bool,
}

/// A server that is used in the sessions of a jar.
#[derive(Args, Debug)]
pub(super) struct ClientArgs {
    /// The command that starts the server, with its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
    #[command(flatten)]
    pub(super) jar: JarArgs,
    #[command(flatten)]
    pub(super) connect: ConnectArgs,
}

/// A connection to a server that has answered.
pub(super) type ServerConnection = ConnectedClient<CallListener>;

impl ClientArgs {
    /// Separates the server from the other words that were typed.
    pub(super) fn split<'a>(&self, words: &'a [String]) -> Result<(Target, &'a [String]), Failure> {
        Target::split(words, &self.command)
    }

    /// Connects and initializes, in the session that the jar keeps.
    pub(super) async fn open(
        &self,
        target: &Target,
        listener: CallListener,
        create: Create,
    ) -> Result<ServerConnection, Failure> {
        let options = SessionOptions { create, ..SessionOptions::new(self.jar.open()?) };
        self.connect.connect(target, self.jar.principal(), listener, options).await
    }
}

impl ConnectArgs {
    /// Connects to a server that is only looked at, without a session.
    pub(super) async fn look_at(&self, target: &Target) -> Result<ServerConnection, Failure> {
        let options = SessionOptions { create: Create::Never, ..SessionOptions::new(Jar::in_memory()) };
        self.connect(target, None, self.listener(), options).await
    }

    pub(super) fn is_verbose(&self) -> bool {
        self.verbose
    }

    pub(super) fn listener(&self) -> CallListener {
        CallListener::new(if self.verbose { Logs::Shown } else { Logs::Hidden })
    }

    /// Connects and initializes.
    pub(super) async fn connect(
        &self,
        target: &Target,
        principal: Option<&str>,
        listener: CallListener,
        options: SessionOptions,
    ) -> Result<ServerConnection, Failure> {
        let eras = match self.era.as_deref() {
            Some("modern") => EraChoice::Modern,
            Some(_) => EraChoice::Legacy,
            None => EraChoice::Either,
        };
        let options =
            SessionOptions { eras, answer_within: self.timeout.min(options.answer_within), ..options };
        let principal = principal.map(str::to_owned);
        let connected = async {
            match target {
                Target::Url(url) => {
                    let mut http = self.http()?;
                    http.principal = principal;
                    let client = connect_http_with(listener, url, http, options).await;
                    client.map_err(|error| unreachable(target, &error))
                }
                Target::Command { program, args } => {
                    self.refuse_http()?;
                    let mut command = ServerCommand::new(program, args);
                    command.principal = principal;
                    let client = connect_command_with(listener, &command, options).await;
                    client.map_err(|error| unreachable(target, &error))
                }
            }
        };
        match tokio::time::timeout(self.timeout, connected).await {
            Ok(connected) => connected,
            Err(_) => Err(self.late(&format!("`{target}` has not greeted"))),
        }
    }

    /// The options of requests: a timeout that stops while the user is asked, and the server's logs if they are shown.
    pub(super) fn call_options(&self, listener: &CallListener) -> CallOptions {
        let options = CallOptions::default().with_timeout(self.timeout).with_answering(listener.asking());
        match self.verbose {
            // A modern server logs only for requests that ask for it. A legacy server ignores this.
            true => options.with_meta("io.modelcontextprotocol/logLevel", json!("debug")),
            false => options,
        }
    }

    /// Waits for an answer that rmcp collects from several requests, such as a list of several pages.
    pub(super) async fn within<T>(
        &self,
        asked: &str,
        target: &Target,
        answer: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout, answer).await {
            Ok(answer) => answer.map_err(|error| unanswered(&error, asked, target, self)),
            Err(_) => Err(self.late(&format!("no answer to {asked}"))),
        }
    }

    /// The failure of a server that takes too long.
    pub(super) fn late(&self, what: &str) -> Failure {
        Failure::new(format!("{what} within {}", write_duration(self.timeout)))
            .hint("allow more time with `--timeout`, such as `--timeout 10m`")
    }

    fn http(&self) -> Result<HttpOptions, Failure> {
        let mut http = HttpOptions::default();
        for header in &self.header {
            // The value may be a secret, so no message repeats it.
            let name = header.split(':').next().unwrap_or_default().trim();
            let wrong = || {
                Failure::new(format!("the header `{}` cannot be sent", plain(name)))
                    .hint("write it as `--header 'X-Team: blue'`")
            };
            let (_, value) = header.split_once(':').ok_or_else(wrong)?;
            let parsed = HeaderName::try_from(name).map_err(|_| wrong())?;
            let mut value = HeaderValue::try_from(value.trim()).map_err(|_| wrong())?;
            value.set_sensitive(true);
            http.headers.insert(parsed, value);
        }
        if let Some(variable) = &self.bearer_env {
            let token = std::env::var(variable).ok().filter(|token| !token.is_empty());
            http.bearer = Some(token.ok_or_else(|| {
                Failure::new(format!("the environment variable `{variable}` holds no token"))
                    .hint("`--bearer-env` takes the name of a variable, not the token itself")
            })?);
        }
        Ok(http)
    }

    fn refuse_http(&self) -> Result<(), Failure> {
        if self.header.is_empty() && self.bearer_env.is_none() {
            return Ok(());
        }
        Err(Failure::new("a server that is started by a command takes no headers and no token")
            .hint("pass the values that it needs in its arguments or its environment"))
    }
}

/// Runs a client command. Without rmcp's logs, because the command reports its failure itself.
pub(super) fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    super::block_on_with_logs("warn,rmcp=off", command)
}

/// Whether the server has a capability. True if it has not announced any capabilities.
pub(super) fn offers(connection: &ServerConnection, has: impl FnOnce(&ServerCapabilities) -> bool) -> bool {
    connection.peer_info().is_none_or(|server| has(&server.capabilities))
}

/// Values of rmcp as JSON.
pub(super) fn as_json<T: Serialize>(items: &[T]) -> Vec<Value> {
    items.iter().map(|item| json!(item)).collect()
}

/// Ends a connection. Failures are only logged, because the command is done.
pub(super) async fn close(connection: ServerConnection) {
    match tokio::time::timeout(CLOSE_WITHIN, connection.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the connection did not end well"),
        Err(_) => tracing::debug!("the server did not close the connection in time"),
    }
}

/// The failure of a request; `asked` names it.
pub(super) fn unanswered(error: &ServiceError, asked: &str, target: &Target, args: &ConnectArgs) -> Failure {
    match error {
        ServiceError::McpError(error) => {
            let message = plain(error.message.trim());
            let reason = error.data.as_ref().and_then(|data| data.get("reason")).and_then(|it| it.as_str());
            let code = match reason {
                Some(reason) => format!("error {} ({})", error.code.0, plain(reason)),
                None => format!("error {}", error.code.0),
            };
            Failure::new(format!("{asked} was refused: {message}")).because(code)
        }
        ServiceError::Timeout { .. } => args.late(&format!("no answer to {asked}")),
        ServiceError::TransportSend(_) | ServiceError::TransportClosed | ServiceError::Cancelled { .. } => {
            Failure::new(format!("`{target}` went away before it answered {asked}"))
                .hint("whether it was done is not known; try again if doing it twice does no harm")
        }
        ServiceError::InputRequiredRoundsExceeded { max_rounds } => {
            Failure::new(format!("the server asked {max_rounds} times and still has no answer to {asked}"))
        }
        error => {
            Failure::new(format!("the answer to {asked} cannot be read")).because(plain(&error.to_string()))
        }
    }
}

/// The failure of an operation on sessions.
pub(super) fn session_failure(what: impl Into<String>, error: &Error) -> Failure {
    let failure = Failure::new(what).caused_by(error);
    match error.kind() {
        ClientErrorKind::NotFound => failure.hint("`tenure jar list` shows the sessions that you have"),
        _ => failure,
    }
}

fn unreachable(target: &Target, error: &Error) -> Failure {
    let greeting = error.source().and_then(|source| source.downcast_ref::<ClientInitializeError>());
    let root = error.root();
    let has_ended = match greeting {
        // The end of a child shows as a failed read or as a failed write.
        Some(ClientInitializeError::ConnectionClosed(_)) => true,
        _ => root.downcast_ref::<std::io::Error>().is_some_and(|root| root.kind() == ErrorKind::BrokenPipe),
    };
    let cause = match greeting {
        _ if has_ended => "the connection was closed".to_owned(),
        Some(ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. }) => {
            let versions: Vec<_> = server_supported.iter().map(ToString::to_string).collect();
            format!("the server speaks MCP {}, which this client does not", versions.join(", "))
        }
        _ => tidy(root),
    };
    let hint = match target {
        _ if greeting.is_some_and(ClientInitializeError::is_authorization_required) => {
            "it wants a token: `--bearer-env VARIABLE` names the variable that holds yours"
        }
        _ if matches!(greeting, Some(ClientInitializeError::NoCompatibleProtocolVersion { .. })) => {
            "a newer `tenure` may know it"
        }
        Target::Url(_) => "check the address and that the server runs; the path is usually `/mcp`",
        Target::Command { .. } if greeting.is_none() => "check its name, or give its whole path",
        Target::Command { .. } => "it ended, or does not speak MCP; its output is above",
    };
    Failure::new(format!("cannot connect to `{target}`")).because(plain(cause.trim())).hint(hint)
}

fn timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "a time has a unit, such as 30s, 5m or 1h30m".to_owned())
}
