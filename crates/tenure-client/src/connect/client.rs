//! The connected client: rmcp's client together with the handle to its sessions.

use std::{fmt, ops::Deref};

use rmcp::{
    RoleClient, Service,
    model::ProtocolVersion,
    service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, RunningService},
    transport::Transport,
};
use tenure_protocol::Era;

use crate::{
    call::RequestSender,
    error::{ClientErrorKind, Error},
    layer::{EraChoice, SessionHandle, SessionOptions, SessionTransport, Ungreeted},
};

/// A connected client: rmcp's own (by `Deref`), together with the handle to its sessions.
pub struct ConnectedClient<H: Service<RoleClient> = ()> {
    service: RunningService<RoleClient, H>,
    sessions: SessionHandle,
    era: Era,
}

impl<H: Service<RoleClient>> ConnectedClient<H> {
    /// Greets a server over any transport: finds out its era, and does the handshake if the era has one.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::Closed` if the handshake fails.
    ///
    /// # Cancel safety
    ///
    /// The connection is closed.
    pub async fn start<T>(handler: H, layer: (SessionTransport<T>, SessionHandle)) -> Result<Self, Error>
    where
        T: Transport<RoleClient> + 'static,
    {
        let (mut transport, sessions) = layer;
        let greeted = transport.greet(&handler.get_info()).await;
        let era = greeted.map_err(|ungreeted| handshake_failed(ungreeted.error))?;
        Self::start_greeted(handler, (transport, sessions), era).await
    }

    /// As `start`, over a transport that `make` can open again: if a server closes the connection at
    /// `server/discover`, a new connection is opened and starts with `initialize`. `was_there` tells such a server
    /// from one that was never reached.
    pub(super) async fn start_with<T>(
        handler: H,
        options: SessionOptions,
        make: impl Fn(SessionOptions) -> Result<(SessionTransport<T>, SessionHandle), Error>,
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
                (transport, sessions) = make(SessionOptions { eras: EraChoice::Legacy, ..options })?;
                transport.greet(&info).await
            }
            greeted => greeted,
        };
        let era = era.map_err(|ungreeted| handshake_failed(ungreeted.error))?;
        Self::start_greeted(handler, (transport, sessions), era).await
    }

    async fn start_greeted<T>(
        handler: H,
        (transport, sessions): (SessionTransport<T>, SessionHandle),
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

    /// The era that is used with the server.
    pub fn era(&self) -> Era {
        self.era
    }

    /// The handle to the session of this connection.
    pub fn sessions(&self) -> &SessionHandle {
        &self.sessions
    }

    /// A sender of requests with a time limit.
    pub fn caller(&self) -> RequestSender {
        RequestSender::new(self.service.peer().clone())
    }

    /// The two parts, for programs that keep rmcp's service by itself.
    pub fn into_parts(self) -> (RunningService<RoleClient, H>, SessionHandle) {
        (self.service, self.sessions)
    }

    /// Writes the session to the jar, then closes the connection. The session goes on at the server.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::Closed` if the connection's task failed.
    ///
    /// # Cancel safety
    ///
    /// The connection is closed anyway.
    pub async fn close(self) -> Result<(), Error> {
        let closed = self.service.cancel().await;
        closed
            .map(drop)
            .map_err(|error| Error::with_source(ClientErrorKind::Closed, "close the connection", error))
    }
}

impl<H: Service<RoleClient>> Deref for ConnectedClient<H> {
    type Target = RunningService<RoleClient, H>;

    fn deref(&self) -> &Self::Target {
        &self.service
    }
}

impl<H: Service<RoleClient>> fmt::Debug for ConnectedClient<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectedClient").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

fn handshake_failed(error: ClientInitializeError) -> Error {
    Error::with_source(ClientErrorKind::Closed, "the handshake failed", error)
}
