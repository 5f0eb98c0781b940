//! The listening socket: bound here, passed on by systemd, or taken over from the process before this one.
//!
//! A socket that outlives the process loses no connection between two processes: new connections wait in its backlog.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use crate::config::Config;
use crate::control::{ControlClient, Predecessor};
use crate::failure::Failure;
use crate::wire;

/// Connections that may wait in the kernel's queue. The kernel may use a lower bound.
const BACKLOG: u32 = 4096;

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listener: TcpListener,
    pub(crate) after_us: AfterUs,
    /// The process that has the store open until this one may open it.
    pub(crate) predecessor: Option<Predecessor>,
}

/// What happens to the socket when this process has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterUs {
    /// It is closed.
    Closes,
    /// Another program has it open, and passes it to the next process.
    StaysOpen,
}

impl Socket {
    /// Binds an address.
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let listener = listen(address).map_err(|error| {
            let hint = bind_hint(address, error.kind());
            Failure::new(format!("cannot listen on `{address}`")).caused_by(error).hint(hint)
        })?;
        Ok(Self { listener, after_us: AfterUs::Closes, predecessor: None })
    }

    /// The socket that systemd, or a program with the same protocol, has opened for this process; `None` without one.
    #[cfg(feature = "cli")]
    pub(crate) fn activated() -> Result<Option<Self>, Failure> {
        let mut given = listenfd::ListenFd::from_env();
        if given.len() == 0 {
            return Ok(None);
        }
        let bad = |what: &str| {
            Failure::new(format!("cannot use the socket that was passed on: {what}"))
                .hint("the `.socket` unit has to have one `ListenStream=` with an address and a port")
        };
        if given.len() > 1 {
            return Err(bad("there are several"));
        }
        let listener =
            given.take_tcp_listener(0).map_err(|error| bad("it is not a TCP socket").caused_by(error))?;
        let listener = listener.ok_or_else(|| bad("it is gone"))?;
        Ok(Some(Self { listener, after_us: AfterUs::StaysOpen, predecessor: None }))
    }

    /// The socket of the process that has the store open; `None` without such a process.
    pub(crate) async fn taken_over(config: &Config) -> Result<Option<Self>, Failure> {
        let store = wire::store_url(config)?;
        let folder = wire::folder(&store)
            .map_err(|failure| Failure::new("cannot take over another process").caused_by(failure))?;
        let Some(running) = ControlClient::find(&folder).await else {
            tracing::info!(store, "there is no process to take over");
            return Ok(None);
        };
        let predecessor = running.take_over().await?;
        let failed =
            |error| Failure::new("cannot use the socket of the process to take over").caused_by(error);
        let address = predecessor.address().map_err(failed)?;
        let listener = if config.listen.port() == 0 || config.listen == address {
            predecessor.listener().map_err(failed)?
        } else {
            tracing::warn!(before = %address, now = %config.listen, "the address has changed: clients of the old one find no server there");
            Self::bind(config.listen)?.listener
        };
        Ok(Some(Self { listener, after_us: AfterUs::Closes, predecessor: Some(predecessor) }))
    }
}

/// The hint for an address that cannot be bound.
fn bind_hint(address: SocketAddr, why: ErrorKind) -> String {
    match why {
        ErrorKind::PermissionDenied => format!(
            "port {} needs a privilege that this user has not: choose one above 1023 with `--port`, or let systemd open the socket",
            address.port()
        ),
        ErrorKind::AddrNotAvailable => format!(
            "no interface of this machine has the address {}: listen on `127.0.0.1`, or on `0.0.0.0` for all of them",
            address.ip()
        ),
        _ => {
            "stop the other process, take its place with `--take-over`, or choose another port with `--port`"
                .to_owned()
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket =
        if address.is_ipv4() { tokio::net::TcpSocket::new_v4()? } else { tokio::net::TcpSocket::new_v6()? };
    // The port can then be bound again while connections of the last process are still being closed.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_depends_on_why() {
        let address = "10.1.2.3:80".parse().unwrap();
        let kinds = [ErrorKind::AddrInUse, ErrorKind::PermissionDenied, ErrorKind::AddrNotAvailable];
        let hints: String = kinds.map(|kind| format!("{kind}: {}\n", bind_hint(address, kind))).concat();
        expect_test::expect![[r"
            address in use: stop the other process, take its place with `--take-over`, or choose another port with `--port`
            permission denied: port 80 needs a privilege that this user has not: choose one above 1023 with `--port`, or let systemd open the socket
            address not available: no interface of this machine has the address 10.1.2.3: listen on `127.0.0.1`, or on `0.0.0.0` for all of them
        "]]
        .assert_eq(&hints);
    }
}
