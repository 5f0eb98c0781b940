//! The only file that names concrete stores and backends: from configuration to running parts.

use std::sync::Arc;

use tenure_session::port::backend::Backend;
use tenure_session::port::clock::SystemClock;
use tenure_session::runtime::{Parts, Sessions};
use tenure_transport::http::{Endpoint, Router};
use tenure_transport::serve::Server;
use tenure_transport::tls;

use crate::cli::Failure;
use crate::config::Config;

/// The server behind a gateway that was given none: the demo.
pub(crate) fn backend() -> Arc<dyn Backend> {
    Arc::new(crate::demo::backend())
}

pub(crate) fn store(config: &Config) -> Result<Arc<dyn tenure_session::port::store::Store>, Failure> {
    tenure_store::open::open(&config.store, config.max_total_event_bytes).map_err(|error| {
        Failure::new(format!("cannot open the store `{}`", config.store))
            .caused_by(error)
            .hint("use `memory:`; it keeps sessions until the process ends")
    })
}

/// Puts the sessions and the server together and binds the address.
pub(crate) async fn assemble(
    config: &Config,
    backend: Arc<dyn Backend>,
) -> Result<(Sessions, Server), Failure> {
    let store = store(config)?;
    let tls = match &config.tls {
        None => None,
        Some(files) => Some(tls::acceptor(&files.cert, &files.key).map_err(|error| {
            Failure::new("cannot set up TLS")
                .caused_by(error)
                .hint("`tls.cert` and `tls.key` name PEM files: the certificate chain and its private key")
        })?),
    };
    let limits = config.limits.clone();
    let sessions = Sessions::start(Parts { store, backend, clock: Arc::new(SystemClock), limits });
    let router = Router::new(Endpoint::new(sessions.clone(), config.rules.clone()));
    let server = Server::bind(config.listen, router, tls, config.bounds.clone()).await.map_err(|error| {
        Failure::new(format!("cannot listen on `{}`", config.listen))
            .caused_by(error)
            .hint("stop the other process, or choose another address with `--listen`")
    })?;
    Ok((sessions, server))
}
