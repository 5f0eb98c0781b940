//! The only file that names concrete stores and backends: from configuration to running parts.

use std::path::PathBuf;
use std::sync::Arc;

use tenure_session::port::backend::Backend;
use tenure_session::port::clock::SystemClock;
use tenure_session::runtime::{Parts, Sessions};
use tenure_store::disk::{DiskError, Sync};
pub(crate) use tenure_store::open::Opened;
use tenure_store::open::{Location, OpenError, Options};
use tenure_store::sealed::keys::Keys;
use tenure_transport::http::{Endpoint, Router};
use tenure_transport::serve::Server;
use tenure_transport::tls;

use crate::cli::Failure;
use crate::config::{Config, Durability};

/// The server behind a gateway that was given none: the demo.
pub(crate) fn backend() -> Arc<dyn Backend> {
    Arc::new(crate::demo::backend())
}

/// Where the store is, with the user's own folder in place of none.
pub(crate) fn location(url: &str) -> Result<Location, Failure> {
    if url == "disk:" {
        return own_folder().map(Location::Disk).ok_or_else(|| {
            Failure::new("cannot tell where to keep sessions: the user has no folder for data")
                .hint("name a folder with `--store disk:PATH`")
        });
    }
    Location::parse(url).map_err(|error| cannot_open(url, error))
}

/// A service manager names a folder for what a service keeps; otherwise it is the user's folder for data.
fn own_folder() -> Option<PathBuf> {
    let named = std::env::var_os("STATE_DIRECTORY").filter(|name| !name.is_empty());
    named.map(PathBuf::from).or_else(|| Some(dirs::data_local_dir()?.join("tenure")))
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
pub(crate) async fn store(config: &Config) -> Result<Opened, Failure> {
    let location = location(&config.store)?;
    let options = Options {
        sync: match config.durability {
            Durability::Os => Sync::Os,
            Durability::Disk => Sync::Disk,
        },
        max_event_bytes: config.max_total_event_bytes,
        keys: keys(config.store_key_file.as_ref())?,
    };
    location.open(options).await.map_err(|error| cannot_open(&config.store, error))
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
        OpenError::Disk(DiskError::Io { .. }) => "check that the folder can be written and the disk has room",
        OpenError::Disk(_) => "see what is left with `tenure store check`, and save it with `--repair`",
        OpenError::Seal(_) => "give the key that the store was made with: `--store-key-file FILE`",
        _ => return Failure::new(format!("cannot open the store `{url}`")).caused_by(error),
    };
    Failure::new(format!("cannot open the store `{url}`")).caused_by(error).hint(hint)
}

/// The parts of a running server.
pub(crate) struct Assembled {
    pub(crate) sessions: Sessions,
    pub(crate) server: Server,
    pub(crate) store: Opened,
}

/// Puts the sessions and the server together and binds the address.
pub(crate) async fn assemble(config: &Config, backend: Arc<dyn Backend>) -> Result<Assembled, Failure> {
    let tls = match &config.tls {
        None => None,
        Some(files) => Some(tls::acceptor(&files.cert, &files.key).map_err(|error| {
            Failure::new("cannot set up TLS")
                .caused_by(error)
                .hint("`tls.cert` and `tls.key` name PEM files: the certificate chain and its private key")
        })?),
    };
    let opened = store(config).await?;
    let (store, limits) = (Arc::clone(&opened.store), config.limits.clone());
    let sessions = Sessions::start(Parts { store, backend, clock: Arc::new(SystemClock), limits });
    let router = Router::new(Endpoint::new(sessions.clone(), config.rules.clone()));
    let server = Server::bind(config.listen, router, tls, config.bounds.clone()).await.map_err(|error| {
        Failure::new(format!("cannot listen on `{}`", config.listen))
            .caused_by(error)
            .hint("stop the other process, or choose another address with `--listen`")
    })?;
    Ok(Assembled { sessions, server, store: opened })
}
