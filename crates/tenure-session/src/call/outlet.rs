//! The outlet for a server's messages to a client.

use std::sync::{Arc, Weak};

use tenure_protocol::{Error, Method, RawJson, Reason, Request, RpcError};

use super::{CallContext, Client, Origin};
use crate::id::Principal;

/// Sends a server's messages to a client.
#[derive(Clone)]
pub struct Outlet {
    /// Weak, because a server may keep an outlet longer than its client exists.
    client: Weak<dyn Client>,
    origin: Origin,
    loss: Loss,
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlet")
            .field("origin", &self.origin)
            .field("loss", &self.loss)
            .finish_non_exhaustive()
    }
}

/// What [`Outlet::link_lost`] reports.
#[derive(Clone)]
enum Loss {
    /// The loss of the link with this number, to the client's session.
    OfLink(u64),
    /// The loss of one of several servers behind the link, by this function. The session's link stays.
    OfPart(Arc<dyn Fn() + Send + Sync>),
}

impl std::fmt::Debug for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OfLink(number) => write!(f, "OfLink({number})"),
            Self::OfPart(_) => f.write_str("OfPart"),
        }
    }
}

impl Outlet {
    /// An outlet for messages to a client that belong to no request.
    pub fn to(client: &Arc<dyn Client>) -> Self {
        Self::new(client, Origin::Unasked)
    }

    pub(super) fn new(client: &Arc<dyn Client>, origin: Origin) -> Self {
        Self { client: Arc::downgrade(client), origin, loss: Loss::OfLink(0) }
    }

    /// The same for a link of the client's session.
    pub(crate) fn of_link(client: &Arc<dyn Client>, link: u64) -> Self {
        Self { loss: Loss::OfLink(link), ..Self::to(client) }
    }

    /// The same for one of several servers behind the link. If that server is lost, `lost` is called, and the session
    /// is not told.
    #[must_use]
    pub fn of_part(&self, lost: impl Fn() + Send + Sync + 'static) -> Self {
        Self { loss: Loss::OfPart(Arc::new(lost)), ..self.clone() }
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// When the client or the request is gone.
    pub async fn notify(&self, method: &Method, params: Option<&RawJson>) -> Result<(), Error> {
        self.alive()?.notify(&self.origin, method, params).await
    }

    /// Asks the client something and waits for the answer.
    ///
    /// # Errors
    /// The client's error, or the reason why it could not be asked.
    pub async fn ask(&self, method: &Method, params: Option<&RawJson>) -> Result<RawJson, RpcError> {
        self.alive().map_err(|error| error.to_rpc())?.ask(&self.origin, method, params).await
    }

    /// Reports to this session that `uri` changed, if the session watches it. For resources of one session;
    /// shared resources go through [`Fanout::resource_updated`](super::Fanout::resource_updated).
    ///
    /// # Errors
    /// When the session is over.
    pub async fn resource_updated(&self, uri: &str) -> Result<(), Error> {
        let client = self.alive()?;
        if !client.watches(uri) {
            return Ok(());
        }
        let params = RawJson::of(&serde_json::json!({ "uri": uri }));
        client.notify(&Origin::Unasked, &Method::ResourceUpdated, Some(&params)).await
    }

    /// The context of our own request to the server. The client does not know it.
    ///
    /// # Errors
    /// When the client is gone.
    pub fn inquiry(&self, request: &Request) -> Result<CallContext, Error> {
        Ok(CallContext::our_own(self.alive()?, request))
    }

    /// Reports that the link ended without being closed. The session gets another link with its next request.
    pub fn link_lost(&self) {
        match &self.loss {
            Loss::OfPart(lost) => lost(),
            Loss::OfLink(link) => {
                if let Some(client) = self.client.upgrade() {
                    client.link_lost(*link);
                }
            }
        }
    }

    /// The principal of the client; anonymous if the client is gone.
    pub fn principal(&self) -> Principal {
        self.client.upgrade().map_or(Principal::ANONYMOUS, |client| client.principal())
    }

    /// The client's name in logs.
    pub fn session_label(&self) -> String {
        self.client.upgrade().map_or_else(|| "s-gone".to_owned(), |client| client.label().to_owned())
    }

    fn alive(&self) -> Result<Arc<dyn Client>, Error> {
        self.client.upgrade().ok_or_else(|| Error::new(Reason::SessionNotFound, "the session is over"))
    }
}
