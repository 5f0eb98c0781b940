//! A connected client: rmcp's own, with its sessions beside it.

use std::{fmt, ops::Deref};

use rmcp::{
    RoleClient, Service,
    model::ProtocolVersion,
    service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, RunningService},
    transport::Transport,
};

use crate::{
    call::Caller,
    error::{Error, Kind},
    layer::{Era, Eras, Options, SessionTransport, Sessions, Ungreeted},
};

/// A connected client. It is rmcp's own (`Deref`), with its sessions beside it.
pub struct Client<H: Service<RoleClient> = ()> {
    service: RunningService<RoleClient, H>,
    sessions: Sessions,
    era: Era,
}

impl<H: Service<RoleClient>> Client<H> {
    /// Greets a server over a transport of any kind: finds out of which era it is, and does the handshake if it has one.
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
        let (mut transport, sessions) = layer;
        let greeted = transport.greet(&handler.get_info()).await;
        let era = greeted.map_err(|ungreeted| handshake_failed(ungreeted.error))?;
        Self::start_greeted(handler, (transport, sessions), era).await
    }

    /// As `start`, over a transport that can be made anew: a server that breaks off over `server/discover` is greeted once
    /// more, the old way. `was_there` tells such a server from one that was never reached.
    pub(super) async fn start_with<T>(
        handler: H,
        options: Options,
        make: impl Fn(Options) -> Result<(SessionTransport<T>, Sessions), Error>,
        was_there: impl Fn(&ClientInitializeError) -> bool,
    ) -> Result<Self, Error>
    where
        T: Transport<RoleClient> + 'static,
    {
        let info = handler.get_info();
        let (mut transport, mut sessions) = make(options.clone())?;
        let era = match transport.greet(&info).await {
            Err(Ungreeted { error, while_probing: true }) if was_there(&error) => {
                tracing::debug!(%error, "no answer to server/discover, trying initialize");
                (transport, sessions) = make(Options { eras: Eras::Legacy, ..options })?;
                transport.greet(&info).await
            }
            greeted => greeted,
        };
        let era = era.map_err(|ungreeted| handshake_failed(ungreeted.error))?;
        Self::start_greeted(handler, (transport, sessions), era).await
    }

    async fn start_greeted<T>(
        handler: H,
        (transport, sessions): (SessionTransport<T>, Sessions),
        era: Era,
    ) -> Result<Self, Error>
    where
        T: Transport<RoleClient> + 'static,
    {
        let mode = match era {
            Era::Legacy => ClientLifecycleMode::Initialize,
            Era::Modern => {
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
            }
        };
        let service = handler.serve_with_lifecycle(transport, mode).await.map_err(handshake_failed)?;
        Ok(Self { service, sessions, era })
    }

    /// The era in which the server is spoken to.
    pub fn era(&self) -> Era {
        self.era
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
