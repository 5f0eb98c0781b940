//! Where messages to a client go.

use std::sync::{Arc, Weak};

use tenure_protocol::{Error, Method, RawJson, Reason, Request, RpcError};

use super::{CallContext, Stage};
use crate::session::{Origin, Session};

/// Where messages to the client go.
#[derive(Clone, Debug)]
pub struct Outlet {
    to: To,
    loss: Loss,
}

/// Weak, because a server may keep an outlet longer than its client is there.
#[derive(Clone)]
enum To {
    Session(Weak<Session>, Origin),
    Stage(Weak<dyn Stage>),
}

impl std::fmt::Debug for To {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Session(_, origin) => f.debug_tuple("Session").field(origin).finish(),
            Self::Stage(_) => f.write_str("Stage"),
        }
    }
}

/// Whose loss is told through an outlet.
#[derive(Clone)]
enum Loss {
    /// That of the link with this number.
    OfLink(u64),
    /// That of something behind a link, which is no loss to the session.
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
    pub(crate) fn of_link(session: &Arc<Session>, link: u64) -> Self {
        Self { to: To::Session(Arc::downgrade(session), Origin::Session), loss: Loss::OfLink(link) }
    }

    pub(super) fn of_call(session: &Arc<Session>, origin: Origin) -> Self {
        Self { to: To::Session(Arc::downgrade(session), origin), loss: Loss::OfLink(0) }
    }

    /// An outlet to somebody who is no session.
    pub fn of_stage(stage: &Arc<dyn Stage>) -> Self {
        Self { to: To::Stage(Arc::downgrade(stage)), loss: Loss::OfLink(0) }
    }

    /// The same for one of several servers behind the link. When that one is lost, this is called in place of telling
    /// the session.
    #[must_use]
    pub fn of_part(&self, lost: impl Fn() + Send + Sync + 'static) -> Self {
        Self { to: self.to.clone(), loss: Loss::OfPart(Arc::new(lost)) }
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// When the client, or the request it belongs to, is gone.
    pub async fn notify(&self, method: &Method, params: Option<&RawJson>) -> Result<(), Error> {
        match &self.to {
            To::Session(session, origin) => alive(session)?.notify(origin, method, params).await,
            To::Stage(stage) => alive(stage)?.notify(method, params).await,
        }
    }

    /// Asks the client something and waits for the answer.
    ///
    /// # Errors
    /// What the client answered, or why it could not be asked.
    pub async fn ask(&self, method: &Method, params: Option<&RawJson>) -> Result<RawJson, RpcError> {
        let gone = |error: Error| error.to_rpc();
        match &self.to {
            To::Session(session, origin) => {
                alive(session).map_err(gone)?.ask(origin.clone(), method, params).await
            }
            To::Stage(stage) => alive(stage).map_err(gone)?.ask(method, params).await,
        }
    }

    /// Tells this session, if it watches `uri`, that it changed. For what belongs to one session alone;
    /// what is shared goes through [`Fanout::resource_updated`](super::Fanout::resource_updated).
    ///
    /// # Errors
    /// When the session is over.
    pub async fn resource_updated(&self, uri: &str) -> Result<(), Error> {
        let params = RawJson::of(&serde_json::json!({ "uri": uri }));
        match &self.to {
            To::Session(session, _) => {
                let session = alive(session)?;
                if !session.watches(uri) {
                    return Ok(());
                }
                session.notify(&Origin::Session, &Method::ResourceUpdated, Some(&params)).await
            }
            To::Stage(stage) => alive(stage)?.notify(&Method::ResourceUpdated, Some(&params)).await,
        }
    }

    /// The context of a request of ours to the server: the client knows nothing of it.
    ///
    /// # Errors
    /// When the client is gone.
    pub fn inquiry(&self, request: &Request) -> Result<CallContext, Error> {
        match &self.to {
            To::Session(session, _) => Ok(alive(session)?.inquiry(request)),
            To::Stage(stage) => {
                let stage = alive(stage)?;
                Ok(CallContext::on_stage(stage, request))
            }
        }
    }

    /// The link is gone without having been closed: the session gets another one with its next request.
    pub fn link_lost(&self) {
        match (&self.loss, &self.to) {
            (Loss::OfPart(lost), _) => lost(),
            (Loss::OfLink(link), To::Session(session, _)) => {
                if let Some(session) = session.upgrade() {
                    session.link_lost(*link);
                }
            }
            (Loss::OfLink(_), To::Stage(_)) => {}
        }
    }

    /// The client's name in logs.
    pub fn session_label(&self) -> String {
        let label = match &self.to {
            To::Session(session, _) => session.upgrade().map(|session| session.label().to_owned()),
            To::Stage(stage) => stage.upgrade().map(|stage| stage.label().to_owned()),
        };
        label.unwrap_or_else(|| "s-gone".to_owned())
    }
}

fn alive<T: ?Sized>(whom: &Weak<T>) -> Result<Arc<T>, Error> {
    whom.upgrade().ok_or_else(|| Error::new(Reason::SessionNotFound, "the session is over"))
}
