//! A TCP proxy that cuts its connections when told, as a bad network does.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Passes bytes on in both directions until cut. New connections are taken again at once.
pub(crate) struct Proxy {
    address: SocketAddr,
    cuts: watch::Sender<usize>,
    accepted: watch::Receiver<usize>,
    _running: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Starts a proxy for this server.
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let cuts = watch::Sender::new(0);
        let (counter, accepted) = watch::channel(0);
        let running = AbortOnDropHandle::new(tokio::spawn(run(listener, server, cuts.clone(), counter)));
        Self { address, cuts, accepted, _running: running }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Drops every connection there is, without a goodbye.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many connections there have been.
    pub(crate) fn accepted(&self) -> usize {
        *self.accepted.borrow()
    }
}

async fn run(
    listener: TcpListener,
    server: SocketAddr,
    cuts: watch::Sender<usize>,
    accepted: watch::Sender<usize>,
) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        accepted.send_modify(|accepted| *accepted += 1);
        connections.spawn(pass(client, server, cuts.subscribe()));
    }
}

async fn pass(mut client: TcpStream, server: SocketAddr, mut cuts: watch::Receiver<usize>) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    // A reset, as of a router that forgot the connection, rather than an orderly close.
    for end in [&client, &server] {
        end.set_zero_linger().expect("a socket option");
    }
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = cuts.changed() => {}
    }
}
