//! Connects to the engine, and waits for one that is not there yet.
//!
//! In: the options. Out: a connection whose engine is new enough and has JetStream, or an error that says why not.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerError};
use serde::Deserialize;
use tokio::time::Instant;

use crate::error::NatsError;
use crate::health::Health;
use crate::options::{Credentials, NatsOptions};
use crate::wire::{Fault, Wire, code};

const ONE_CONNECT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(250);
/// How often to say that the engine is not there yet.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// Silence after which a connection is tested; after a few tests without an answer another server is tried.
const PING: Duration = Duration::from_secs(1);
/// The oldest version whose compare-and-swap lets only one of two writers win.
const OLDEST: (u64, u64) = (2, 12);

#[derive(Deserialize)]
struct AccountInfo {
    #[serde(rename = "streams")]
    _streams: u64,
}

/// Connects, and checks the engine.
pub(crate) async fn connect(options: &NatsOptions) -> Result<Wire, NatsError> {
    let until = Instant::now() + options.patience;
    let health = Arc::new(Health::new());
    let client = dial(options, &health, until).await?;
    health.set_connected(true);
    let version = client.server_info().version;
    if !is_new_enough(&version) {
        return Err(NatsError::TooOld(version));
    }
    let wire = Wire::new(client, health, options.operation_timeout);
    has_jetstream(&wire, options, until).await?;
    Ok(wire)
}

/// Waits between tries, and says now and then why; fails when the time is up.
pub(crate) struct Waiting {
    began: Instant,
    until: Instant,
    said: Option<Instant>,
}

impl Waiting {
    pub(crate) fn until(until: Instant) -> Self {
        Self { began: Instant::now(), until, said: None }
    }

    pub(crate) async fn again(&mut self, why: impl FnOnce() -> String) -> Result<(), NatsError> {
        let now = Instant::now();
        if now + PAUSE >= self.until {
            return Err(NatsError::Away { waited: now - self.began, last: why() });
        }
        if self.said.is_none_or(|said| now - said >= SAY_EVERY) {
            self.said = Some(now);
            let left = self.until - now;
            tracing::warn!(why = why(), giving_up_in = ?left, "the NATS engine does not answer yet; retrying");
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

async fn dial(options: &NatsOptions, health: &Arc<Health>, until: Instant) -> Result<Client, NatsError> {
    let mut waiting = Waiting::until(until);
    loop {
        let error = match settings(options, health).await?.connect(options.servers.as_slice()).await {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        let text = chain(&error);
        match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                return Err(NatsError::Credentials(text));
            }
            ConnectErrorKind::Tls => return Err(NatsError::Tls(text)),
            ConnectErrorKind::ServerParse => return Err(NatsError::Servers(options.servers.join(","))),
            ConnectErrorKind::Dns
            | ConnectErrorKind::TimedOut
            | ConnectErrorKind::Io
            | ConnectErrorKind::MaxReconnects => waiting.again(|| text).await?,
        }
    }
}

/// An error with its causes; none of them names a secret.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

async fn settings(options: &NatsOptions, health: &Arc<Health>) -> Result<ConnectOptions, NatsError> {
    let events = Arc::clone(health);
    let mut settings = ConnectOptions::new()
        .name("tenure")
        .connection_timeout(ONE_CONNECT)
        .ping_interval(PING)
        .request_timeout(None)
        .reconnect_delay_callback(|attempts| {
            Duration::from_millis(50).saturating_mul(u32::try_from(attempts).unwrap_or(20).min(20))
        })
        .event_callback(move |event| {
            let health = Arc::clone(&events);
            async move { note(&health, event) }
        });
    settings = match &options.credentials {
        Credentials::None => settings,
        Credentials::File(file) => settings
            .credentials_file(file)
            .await
            .map_err(|error| NatsError::Credentials(format!("`{}`: {error}", file.display())))?,
        Credentials::Nkey(seed) => settings.nkey(seed.clone()),
        Credentials::Token(token) => settings.token(token.clone()),
        Credentials::User { name, password } => settings.user_and_password(name.clone(), password.clone()),
    };
    if options.tls.required {
        settings = settings.require_tls(true);
    }
    if let Some(roots) = &options.tls.roots {
        settings = settings.add_root_certificates(roots.clone());
    }
    if let Some((certificate, key)) = &options.tls.client {
        settings = settings.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(settings)
}

fn note(health: &Health, event: Event) {
    match event {
        Event::Connected => health.set_connected(true),
        Event::Disconnected | Event::Closed => health.set_connected(false),
        Event::ServerError(ServerError::Other(text)) => {
            tracing::warn!(text, "the NATS engine reported an error");
            if text.to_ascii_lowercase().contains("permissions violation") {
                health.deny(text);
            }
        }
        Event::ServerError(error) => tracing::warn!(%error, "the NATS engine reported an error"),
        Event::ClientError(error) => tracing::debug!(%error, "the NATS client reported an error"),
        Event::SlowConsumer(_) => tracing::warn!("answers of the NATS engine were dropped: too many at once"),
        Event::LameDuckMode | Event::Draining => {}
    }
}

/// Whether compare-and-swap lets only one of two writers win in this version.
pub(crate) fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split(['.', '-']).map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= OLDEST,
        _ => false,
    }
}

async fn has_jetstream(wire: &Wire, options: &NatsOptions, until: Instant) -> Result<(), NatsError> {
    let mut waiting = Waiting::until(until);
    // A server without JetStream answers nothing at all, as does one of a cluster that has no leader yet.
    let is_off = !wire.client.server_info().jetstream;
    if is_off && options.servers.len() == 1 && wire.client.server_info().cluster.is_none() {
        return Err(NatsError::NoJetStream("the server runs without it".to_owned()));
    }
    loop {
        let try_until = until.min(Instant::now() + ONE_CONNECT);
        match wire.ask::<AccountInfo>(try_until, "$JS.API.INFO".into(), String::new()).await {
            Ok(_) => return Ok(()),
            Err(Fault::Refused(refusal))
                if [code::NOT_ENABLED, code::NOT_ENABLED_FOR_ACCOUNT].contains(&refusal.err_code) =>
            {
                return Err(NatsError::NoJetStream(refusal.description));
            }
            Err(fault) => {
                if let Some(denied) = wire.health.denied() {
                    return Err(NatsError::Denied(denied));
                }
                let why = || match fault {
                    Fault::Refused(refusal) => refusal.description,
                    _ => "it has no leader, or JetStream is off".to_owned(),
                };
                waiting.again(why).await?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_2_12_are_refused() {
        for (version, expected) in [
            ("2.12.0", true),
            ("2.15.1", true),
            ("v3.0.0-beta.1", true),
            ("2.12", true),
            ("2.11.11", false),
            ("2.9.10", false),
            ("", false),
            ("tomorrow", false),
        ] {
            assert_eq!(is_new_enough(version), expected, "{version}");
        }
    }
}
