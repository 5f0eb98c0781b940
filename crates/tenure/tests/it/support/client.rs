//! The raw HTTP/1.1 client of the testkit, and a connection from another address.

use std::net::SocketAddr;

pub(crate) use tenure_testkit::wire::{Ask, Connection, WholeResponse as Response, WireIo as Io, connect};
use tokio::net::{TcpSocket, TcpStream};

use super::wait::within;

/// Connects from another address of this machine, with so much room for what was not read yet.
pub(crate) async fn connect_from(from: [u8; 4], to: SocketAddr, room_bytes: u32) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(room_bytes).expect("a socket option");
    socket.bind(SocketAddr::from((from, 0))).expect("an address of this machine");
    within("connect", socket.connect(to)).await.expect("a connection")
}
