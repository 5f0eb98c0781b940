//! Who asks: a user of this machine at the control socket, a browser with a cookie, or a script with a key or a token.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::Serialize;
use tenure_auth::{Authenticator, Identity, UnixSeconds};
use tenure_session::port::clock::{Clock, SystemClock};

use super::login::LoginWatch;
use super::role::AdminRole;
use crate::audit::AdminIdentity;

/// Who asks, and what they may do.
#[derive(Clone, Debug)]
pub(crate) struct AdminCaller {
    /// As the page and the log show it.
    pub(super) name: String,
    pub(super) role: AdminRole,
    pub(super) via: Via,
    /// The user of this machine, if the operator is one.
    pub(super) uid: Option<u32>,
    pub(super) remote: Option<SocketAddr>,
    /// Tells when the caller may no longer ask.
    pub(super) standing: Standing,
}

/// How a caller came to be known.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Via {
    /// The control socket.
    Socket,
    /// A one-time link, which became a cookie.
    Link,
    /// A static key.
    Key,
    /// A token of an issuer, or a certificate.
    Token,
}

/// Whether a caller may still ask. Streams look at it while they last.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    /// As long as the connection lasts.
    Connection,
    /// While the login lasts.
    Login(LoginWatch),
    /// While the credentials are good.
    Credentials(Authenticator, Arc<Identity>),
}

/// Whose share of what is bounded a request counts to: a login, a key or the subject of tokens, or a user of the machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum CallerShare {
    User(Option<u32>),
    Login(u64),
    Principal(String),
}

impl CallerShare {
    /// What it is called in words.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Login(_) => "login",
            Self::Principal(_) => "key",
        }
    }
}

impl AdminCaller {
    /// Whose share its requests count to.
    pub(super) fn share(&self) -> CallerShare {
        match &self.standing {
            Standing::Connection => CallerShare::User(self.uid),
            Standing::Login(watch) => CallerShare::Login(watch.number()),
            Standing::Credentials(..) => CallerShare::Principal(self.name.clone()),
        }
    }

    /// A user of this machine who may open the control socket.
    pub(crate) fn at_socket(uid: Option<u32>) -> Self {
        Self {
            name: user_name(uid),
            role: AdminRole::Admin,
            via: Via::Socket,
            uid,
            remote: None,
            standing: Standing::Connection,
        }
    }

    /// As the audit log has it.
    pub(super) fn identity(&self) -> AdminIdentity<'_> {
        match self.via {
            Via::Socket | Via::Link => AdminIdentity::User(self.uid),
            Via::Key | Via::Token => AdminIdentity::Principal(&self.name),
        }
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.remote.map(|remote| remote.ip())
    }

    /// Whether it may still ask.
    pub(super) fn is_welcome(&self) -> bool {
        match &self.standing {
            Standing::Connection => true,
            Standing::Login(watch) => watch.is_good(),
            Standing::Credentials(authenticator, identity) => {
                let now = UnixSeconds(SystemClock.now().0 / 1000);
                !authenticator.is_taken_back(identity) && now < identity.accepted_until()
            }
        }
    }
}

/// What a user of this machine is called.
pub(super) fn user_name(uid: Option<u32>) -> String {
    uid.map_or_else(|| "operator".to_owned(), |uid| format!("uid-{uid}"))
}
