//! A TCP proxy on one link, which can hold or delay each direction for itself.
//!
//! A held direction holds the end of a connection too: as in a real cut, neither end learns that the other one is gone.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::links::{LinkEnd, LinkFlow, Links};
use super::sockets;

const BUFFER_BYTES: usize = 16 << 10;

/// Who connects to a proxy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    /// Only this one knows the address.
    Is(LinkEnd),
    /// One of the nodes: the system says which one holds the other end of the connection.
    SomeNode,
}

/// A proxy. Dropping it ends its connections.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    _end: DropGuard,
}

impl Proxy {
    /// Listens on an address and passes everything on to another one.
    pub(super) async fn open(
        listen: SocketAddr,
        target: SocketAddr,
        caller: Caller,
        called: LinkEnd,
        links: &Arc<Links>,
    ) -> Result<Proxy> {
        let listener =
            TcpListener::bind(listen).await.with_context(|| format!("listen for {called} on {listen}"))?;
        let address = listener.local_addr().context("ask for the address of a proxy")?;
        let (end, tasks) = (CancellationToken::new(), TaskTracker::new());
        let accepting =
            accept(listener, target, caller, called, Arc::clone(links), tasks.clone(), end.clone());
        tasks.spawn(end.clone().run_until_cancelled_owned(accepting));
        Ok(Proxy { address, _end: end.drop_guard() })
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    caller: Caller,
    called: LinkEnd,
    links: Arc<Links>,
    tasks: TaskTracker,
    end: CancellationToken,
) {
    loop {
        let Ok((accepted, from)) = listener.accept().await else {
            // Too many open files, or a connection that is gone already.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            continue;
        };
        let caller = match caller {
            Caller::Is(caller) => Some(caller),
            Caller::SomeNode => {
                let owner = accepted
                    .local_addr()
                    .ok()
                    .and_then(|here| sockets::holder(from.port(), here.port(), &links.processes()));
                owner.map(LinkEnd::Node)
            }
        };
        // A node that is dead already holds nothing, and needs nothing.
        let Some(caller) = caller else { continue };
        let there = links.follow(caller, called);
        let back = links.follow(called, caller);
        let passing = async move {
            // Either end may be killed at any time.
            drop(pass(accepted, target, there, back).await);
        };
        tasks.spawn(end.clone().run_until_cancelled_owned(passing));
    }
}

async fn pass(caller: TcpStream, target: SocketAddr, there: LinkFlow, back: LinkFlow) -> io::Result<()> {
    let called = TcpStream::connect(target).await?;
    caller.set_nodelay(true)?;
    called.set_nodelay(true)?;
    let ((from_caller, to_caller), (from_called, to_called)) = (caller.into_split(), called.into_split());
    tokio::try_join!(copy(from_caller, to_called, there), copy(from_called, to_caller, back))?;
    Ok(())
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut flow: LinkFlow,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await;
        flow.pass().await;
        match read? {
            0 => return to.shutdown().await,
            length => to.write_all(&buffer[..length]).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::super::links::Flow;
    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
    /// Long enough for bytes that pass, and short enough to wait for bytes that do not.
    const SOON: Duration = Duration::from_millis(300);

    /// A proxied connection: its caller's end and its called end.
    async fn connection(caller: Caller, links: &Arc<Links>) -> (TcpStream, TcpStream, Proxy) {
        let target = TcpListener::bind(ANY).await.unwrap();
        let called = LinkEnd::Node(1);
        let proxy = Proxy::open(ANY, target.local_addr().unwrap(), caller, called, links).await.unwrap();
        let near = TcpStream::connect(proxy.address).await.unwrap();
        let (far, _) = target.accept().await.unwrap();
        (near, far, proxy)
    }

    async fn arrives(from: &mut TcpStream, to: &mut TcpStream) -> bool {
        from.write_all(b"x").await.unwrap();
        timeout(SOON, to.read_exact(&mut [0])).await.is_ok_and(|read| read.is_ok())
    }

    #[tokio::test]
    async fn one_direction_can_be_held_while_the_other_passes() {
        let links = Arc::new(Links::new(2));
        let (mut near, mut far, _proxy) = connection(Caller::Is(LinkEnd::Node(0)), &links).await;
        assert!(arrives(&mut near, &mut far).await);
        assert!(arrives(&mut far, &mut near).await);
        links.set(LinkEnd::Node(0), LinkEnd::Node(1), Flow::Held);
        assert!(!arrives(&mut near, &mut far).await, "it is held");
        assert!(arrives(&mut far, &mut near).await, "the other direction");
        drop(near);
        assert!(timeout(SOON, far.read(&mut [0])).await.is_err(), "not even the end is seen");
        links.heal();
        let mut rest = Vec::new();
        timeout(Duration::from_secs(10), far.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert_eq!(rest, b"x", "what was held arrives, and then the end");
    }

    #[tokio::test]
    async fn a_slow_direction_is_late() {
        let links = Arc::new(Links::new(2));
        let (mut near, mut far, _proxy) = connection(Caller::Is(LinkEnd::Node(0)), &links).await;
        let delay = Duration::from_millis(100);
        links.set(LinkEnd::Node(0), LinkEnd::Node(1), Flow::Slow(delay));
        let sent = Instant::now();
        assert!(arrives(&mut near, &mut far).await);
        assert!(sent.elapsed() >= delay);
    }

    #[tokio::test]
    async fn the_system_says_which_node_connects() {
        let links = Arc::new(Links::new(2));
        // This process stands for node 0.
        links.runs_as(0, Some(std::process::id()));
        let (mut near, mut far, _proxy) = connection(Caller::SomeNode, &links).await;
        assert!(arrives(&mut near, &mut far).await);
        links.set(LinkEnd::Node(0), LinkEnd::Node(1), Flow::Held);
        assert!(!arrives(&mut near, &mut far).await, "it was known as node 0");
    }
}
