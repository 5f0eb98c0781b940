//! Passes sockets from one process to the next, over the control socket.
//!
//! A connection is a line with the number of bytes that were already read of its next request, followed by those bytes.
//! The descriptor is attached to the line (`SCM_RIGHTS`), so that it arrives no later than the line itself.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tenure_transport::serve::KeptConnection;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use super::take_over::RELEASED;

/// The beginning of a connection's line; the number of bytes follows.
const CONNECTION: &str = "connection ";

/// The longest line, and the most bytes that can have been read of a request: more than a head may have.
const MAX_LINE: usize = 64;
const MAX_READ: usize = 16 << 20;

/// The pause between two attempts when too many descriptors are in flight.
const PAUSE: Duration = Duration::from_millis(5);

/// The most bytes of one read.
const PIECE: usize = 8 << 10;

/// Sends a line with a descriptor attached.
pub(super) async fn send_fd(stream: &UnixStream, line: &[u8], fd: &impl AsFd) -> io::Result<()> {
    let sent = stream
        .async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [fd.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&fds));
            Ok(rustix::net::sendmsg(stream, &[IoSlice::new(line)], &mut control, SendFlags::empty())?)
        })
        .await?;
    if sent == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Passes a connection on. The caller bounds how long that may take.
pub(super) async fn send_kept(stream: &mut UnixStream, kept: &KeptConnection) -> io::Result<()> {
    let line = format!("{CONNECTION}{}\n", kept.read.len());
    loop {
        match send_fd(stream, line.as_bytes(), &kept.stream).await {
            // The kernel bounds the number of descriptors in flight; it falls as the other process receives them.
            Err(error) if error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error()) => {
                tokio::time::sleep(PAUSE).await;
            }
            sent => break sent?,
        }
    }
    stream.write_all(&kept.read).await
}

/// Waits for this line and its descriptor.
pub(super) async fn receive_one(stream: &UnixStream, line: &[u8]) -> io::Result<OwnedFd> {
    let mut said = vec![0; line.len()];
    let (read, fd) = receive(stream, &mut said).await?;
    let fd = (said[..read] == *line).then_some(fd).flatten();
    fd.ok_or_else(|| io::Error::other("it did not pass its socket on"))
}

async fn receive(stream: &UnixStream, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    stream
        .async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            // Child processes must not inherit it.
            let flags = RecvFlags::CMSG_CLOEXEC;
            let read = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(into)], &mut control, flags)?;
            let fds = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            });
            Ok((read.bytes, fds.flatten().next()))
        })
        .await
}

/// Reads what the process that is taken over sends.
pub(super) struct Arrivals {
    stream: UnixStream,
    read: BytesMut,
    /// The descriptors of the lines in `read`, in the same order.
    fds: VecDeque<OwnedFd>,
}

/// One message of that process.
pub(super) enum Arrived {
    /// A connection to go on with.
    Kept(KeptConnection),
    /// The store is closed.
    Released,
    /// The process is gone.
    End,
}

impl Arrivals {
    pub(super) fn on(stream: UnixStream) -> Self {
        Self { stream, read: BytesMut::new(), fds: VecDeque::new() }
    }

    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> io::Result<Arrived> {
        loop {
            if let Some(arrived) = self.parse()? {
                return Ok(arrived);
            }
            let mut piece = [0; PIECE];
            let (read, fd) = receive(&self.stream, &mut piece).await?;
            self.fds.extend(fd);
            self.read.extend_from_slice(&piece[..read]);
            if read == 0 {
                return Ok(Arrived::End);
            }
        }
    }

    fn parse(&mut self) -> io::Result<Option<Arrived>> {
        let unknown = || io::Error::other("it said something else than was expected");
        let Some(end) = self.read.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
            return if self.read.len() < MAX_LINE { Ok(None) } else { Err(unknown()) };
        };
        if self.read[..=end] == *RELEASED {
            self.read.advance(end + 1);
            return Ok(Some(Arrived::Released));
        }
        let line = std::str::from_utf8(&self.read[..end]).map_err(|_| unknown())?;
        let count: usize =
            line.strip_prefix(CONNECTION).and_then(|count| count.parse().ok()).ok_or_else(unknown)?;
        if count > MAX_READ {
            return Err(unknown());
        }
        if self.read.len() - end - 1 < count {
            return Ok(None);
        }
        self.read.advance(end + 1);
        let read: Bytes = self.read.split_to(count).freeze();
        // Without a descriptor this process has reached its limit of open files. Which connection is missing is
        // unknown.
        let fd = self.fds.pop_front().ok_or_else(|| io::Error::other("a connection did not come"))?;
        Ok(Some(Arrived::Kept(KeptConnection { stream: TcpStream::from(fd), read })))
    }
}
