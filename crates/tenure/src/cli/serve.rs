//! `tenure serve`: runs until it is told to stop.

use std::io::Write;
use std::time::Duration;

use sd_notify::NotifyState;
use tenure_session::port::store::{Grade, Trouble};

use super::Failure;
use super::signals::Signals;
use crate::config::Config;
use crate::descriptors;
use crate::node::Node;
use crate::socket::Socket;
use crate::wire::{self, OpenedStore};

/// How often the state of the store is checked.
const STORE_LOOKS: Duration = Duration::from_secs(1);

/// How long the end of the process waits for threads that still work.
const LEFT_BEHIND: Duration = Duration::from_secs(5);

/// Serves until SIGINT or SIGTERM.
pub(super) fn run(config: &Config, start: Start) -> Result<(), Failure> {
    to_the_end(config, async |config| serve(config, start).await)
}

/// How a server starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// With a store that no other process has open.
    Alone,
    /// In the place of the process that has the store open, if there is one.
    TakeOver,
}

/// Starts the log and the runtime, and runs `serve` to its end.
pub(super) fn to_the_end(
    config: &Config,
    serve: impl AsyncFnOnce(&Config) -> Result<(), Failure>,
) -> Result<(), Failure> {
    crate::logs::start(&config.log)?;
    let mut config = config.clone();
    descriptors::fit(&mut config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start the async runtime").caused_by(error))?;
    let served = runtime.block_on(serve(&config));
    // A thread may still be busy with a backup or with a write to a pipe without a reader, and must not delay the end.
    // An unfinished backup does no harm: its folder becomes a store only when it is complete.
    runtime.shutdown_timeout(LEFT_BEHIND);
    served
}

async fn serve(config: &Config, start: Start) -> Result<(), Failure> {
    // Before the address is announced, so that a signal right after that is not missed.
    let mut signals = Signals::listen()?;
    let node = Node::builder(config).start_on(socket(config, start).await?).await?;
    tracing::info!(url = node.url(), store = wire::store_url(config)?, "listening");
    for behind in &config.backends {
        tracing::info!(url = format!("{}/{}", node.url(), behind.name), backend = behind.name, "listening");
    }
    if let Some(lowered) = config.descriptors.lowered {
        tracing::info!(
            files = lowered.most,
            connections = lowered.connections,
            children = lowered.children,
            "fewer are admitted than configured: this process may have no more files open"
        );
    }
    announce(&node.url())?;
    tell(NotifyState::Ready);
    let mut outcome = Ok(());
    tokio::select! {
        signal = signals.next_but(|| node.rotate_audit()) => tracing::info!(signal, "stopping"),
        () = node.taken_over() => tracing::info!("another process takes over"),
        trouble = lost(node.store()) => outcome = Err(store_is_lost(&trouble)),
    }
    tell(NotifyState::Stopping);
    tokio::select! {
        () = node.stop() => tracing::info!("stopped"),
        signal = signals.next() => tracing::warn!(signal, "stopped at once, as asked a second time"),
    }
    outcome
}

/// Resolves when the store is in trouble that only a restart ends.
pub(super) async fn lost(store: &OpenedStore) -> String {
    loop {
        tokio::time::sleep(STORE_LOOKS).await;
        if let Some(Trouble { what, grade: Grade::Lost }) = store.store.trouble() {
            return what;
        }
    }
}

/// The failure of a process whose store does not come back. The service manager starts another process.
pub(super) fn store_is_lost(trouble: &str) -> Failure {
    tracing::error!(trouble, "the process ends, because its store does not come back");
    Failure::new(format!("the store is lost to this process: {trouble}"))
        .hint("start it again, or have systemd do so with `Restart=on-failure`: sessions go on from the disk")
}

/// The socket to listen on: from systemd, from the process to take over, or newly bound.
async fn socket(config: &Config, start: Start) -> Result<Socket, Failure> {
    if let Some(socket) = Socket::activated()? {
        return Ok(socket);
    }
    let taken_over = match start {
        Start::TakeOver => Socket::taken_over(config).await?,
        Start::Alone => None,
    };
    match taken_over {
        Some(socket) => Ok(socket),
        None => Socket::bind(config.listen),
    }
}

/// Reports the state of the process to systemd, if systemd has asked for it.
fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// The first line on standard output is the endpoint, so that scripts can use a free port.
fn announce(url: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    match writeln!(out, "{url}").and_then(|()| out.flush()) {
        // Without a reader the line is not needed.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new("cannot write to standard output").caused_by(error))
        }
        _ => Ok(()),
    }
}
