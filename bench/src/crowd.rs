//! Many sessions and streams over few connections, for the questions about memory.
//!
//! The connections are opened, and used once, before memory is first read: what they cost is no
//! part of a session.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Calling, Connection, Endpoint, ToolCall, open_session, stream_request};

const CONNECTIONS: usize = 64;
const BUFFER_BYTES: usize = 8 * 1024;
/// A stream's buffer only has to hold the header section of its answer.
const STREAM_BUFFER_BYTES: usize = 2 * 1024;
const WARM_UP_CALLS: usize = 20;
const DEADLINE: Duration = Duration::from_secs(600);

/// The id of a session, or `None` from a server that keeps no sessions.
pub(crate) type Session = Option<String>;

#[derive(Debug)]
pub(crate) struct Crowd {
    endpoint: Endpoint,
    connections: Vec<Connection>,
}

impl Crowd {
    /// Opens the connections and warms each with a session and some calls.
    pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Crowd> {
        let mut connections = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            let mut connection = endpoint.connect(BUFFER_BYTES).await?;
            let session = open_session(&mut connection, endpoint).await?;
            // One call object per session: its ids grow, and no id may be used twice in a session.
            let mut call = ToolCall::new(endpoint, session.as_deref(), Calling::Echo, None);
            for _ in 0..WARM_UP_CALLS {
                echo(&mut connection, &mut call).await?;
            }
            connections.push(connection);
        }
        Ok(Crowd { endpoint: endpoint.clone(), connections })
    }

    /// Opens so many more sessions, all connections at once.
    pub(crate) async fn open_sessions(&mut self, count: usize) -> Result<Vec<Session>> {
        let mut openers = JoinSet::new();
        for (place, mut connection) in self.connections.drain(..).enumerate() {
            let endpoint = self.endpoint.clone();
            openers.spawn(async move {
                let mut sessions = Vec::new();
                for _ in 0..share(count, place) {
                    sessions.push(open_session(&mut connection, &endpoint).await?);
                }
                anyhow::Ok((connection, sessions))
            });
        }
        let mut sessions = Vec::with_capacity(count);
        let opened = async {
            while let Some(opener) = openers.join_next().await {
                let (connection, opened) = opener.context("run an opener")??;
                self.connections.push(connection);
                sessions.extend(opened);
            }
            anyhow::Ok(())
        };
        timeout(DEADLINE, opened).await.with_context(|| format!("open {count} sessions"))??;
        Ok(sessions)
    }

    /// Opens a GET stream for each session, each on a connection of its own.
    pub(crate) async fn open_streams(&self, sessions: &[Session]) -> Result<Vec<Connection>> {
        let mut openers = JoinSet::new();
        for group in sessions.chunks(sessions.len().div_ceil(CONNECTIONS).max(1)) {
            let (endpoint, group) = (self.endpoint.clone(), group.to_vec());
            openers.spawn(async move {
                let mut streams = Vec::with_capacity(group.len());
                for session in group {
                    streams.push(open_stream(&endpoint, session.as_deref()).await?);
                }
                anyhow::Ok(streams)
            });
        }
        let mut streams = Vec::with_capacity(sessions.len());
        let opened = async {
            while let Some(opener) = openers.join_next().await {
                streams.extend(opener.context("run an opener")??);
            }
            anyhow::Ok(())
        };
        timeout(DEADLINE, opened).await.with_context(|| format!("open {} streams", sessions.len()))??;
        Ok(streams)
    }

    /// Calls a tool on up to `sample` sessions spread over all of them: a server that forgot its
    /// sessions must not win.
    pub(crate) async fn check_alive(&mut self, sessions: &[Session], sample: usize) -> Result<()> {
        let connection = self.connections.first_mut().context("the crowd has a connection")?;
        for session in sessions.iter().step_by(sessions.len().div_ceil(sample).max(1)) {
            let mut call = ToolCall::new(&self.endpoint, session.as_deref(), Calling::Echo, None);
            echo(connection, &mut call).await.context("call on an idle session")?;
        }
        Ok(())
    }
}

/// How many of `count` things the connection at `place` handles.
fn share(count: usize, place: usize) -> usize {
    count / CONNECTIONS + usize::from(place < count % CONNECTIONS)
}

async fn echo(connection: &mut Connection, call: &mut ToolCall) -> Result<()> {
    let (head, body) = connection.exchange(call.next_request()).await?;
    call.check(head.status, body)
}

async fn open_stream(endpoint: &Endpoint, session: Option<&str>) -> Result<Connection> {
    let mut connection = endpoint.connect(STREAM_BUFFER_BYTES).await?;
    connection.send(&stream_request(endpoint, session, None)).await?;
    let head = connection.head().await?;
    ensure!(head.status == 200 && head.is_event_stream(), "GET was answered with status {}", head.status);
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::{CONNECTIONS, share};

    #[test]
    fn the_shares_add_up() {
        for count in [0, 1, 63, 64, 65, 100_000] {
            assert_eq!((0..CONNECTIONS).map(|place| share(count, place)).sum::<usize>(), count);
        }
    }
}
