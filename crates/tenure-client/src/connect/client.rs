//! A connected client: rmcp's own, with its sessions beside it.

use std::{fmt, ops::Deref};

use rmcp::{
    RoleClient, Service, ServiceExt as _,
    service::{ClientInitializeError, RunningService},
    transport::Transport,
};

use crate::{
    call::Caller,
    error::{Error, Kind},
    layer::{SessionTransport, Sessions},
};

/// A connected client. It is rmcp's own (`Deref`), with its sessions beside it.
pub struct Client<H: Service<RoleClient> = ()> {
    service: RunningService<RoleClient, H>,
    sessions: Sessions,
}

impl<H: Service<RoleClient>> Client<H> {
    /// Does the handshake over a transport of any kind.
    ///
    /// # Errors
    ///
    /// `Kind::Closed` if the handshake fails.
    ///
    /// # Cancel safety
    ///
    /// The connection is closed.
    pub async fn start<T>(handler: H, layer: (SessionTransport<T>, Sessions)) -> Result<Self, Error>
    where
        T: Transport<RoleClient> + 'static,
    {
        let (transport, sessions) = layer;
        let service = handler.serve(transport).await.map_err(handshake_failed)?;
        Ok(Self { service, sessions })
    }

    /// The handle to the session of this connection.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Sends requests with a time limit.
    pub fn caller(&self) -> Caller {
        Caller::new(self.service.peer().clone())
    }

    /// The parts, for programs that want to keep rmcp's service by itself.
    pub fn into_parts(self) -> (RunningService<RoleClient, H>, Sessions) {
        (self.service, self.sessions)
    }

    /// Closes the connection, after what is known of the session is in the jar. The session lives on.
    ///
    /// # Errors
    ///
    /// `Kind::Closed` if the connection's task failed.
    ///
    /// # Cancel safety
    ///
    /// The connection closes all the same.
    pub async fn close(self) -> Result<(), Error> {
        let closed = self.service.cancel().await;
        closed.map(drop).map_err(|error| Error::with_source(Kind::Closed, "close the connection", error))
    }
}

impl<H: Service<RoleClient>> Deref for Client<H> {
    type Target = RunningService<RoleClient, H>;

    fn deref(&self) -> &Self::Target {
        &self.service
    }
}

impl<H: Service<RoleClient>> fmt::Debug for Client<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

fn handshake_failed(error: ClientInitializeError) -> Error {
    Error::with_source(Kind::Closed, "the handshake failed", error)
}
