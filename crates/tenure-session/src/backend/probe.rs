//! Asks a server one request of the modern era, and reports how it answered.
//!
//! For a caller that has both halves of a server of unknown era, and has to choose one:
//!
//! - **Modern half**, a [`Probe`]: ask `server/discover` with [`Probe::probe`] and read [`ProbeAttempt::verdict`]. The
//!   attempt says more than a reply: the HTTP status of the answer, and whether the error comes from the server or from
//!   us. If the verdict is *yes*, requests go through [`Responder::respond`] from then on; an error in one of their
//!   answers may revoke the verdict ([`evidence::of_exchange`]).
//! - **Legacy half**, a [`Backend`](crate::backend::Backend): open a link, and read [`opening`]. An error
//!   that the server sent in answer to `initialize` is passed on with its code and data, also if it came with a 4xx
//!   status. If the server sent no error, the error is ours (-31011). It says nothing about the era, and `data.status`
//!   has the status.
//!
//! The verdict *unknown* must not be cached: the server may be down or busy, or refuse these credentials. A probe of a
//! program ends a child process that is not modern, because a legacy server may refuse `initialize` after another
//! request. So both halves may be tried in any order, each with its own process.

use crate::backend::{Call, Opened, Responder};
use crate::port::BoxFuture;
use tenure_protocol::translate::evidence::{self, AnsweredOver, ServerAnswer, Verdict};
use tenure_protocol::{Reply, RpcError};

/// A responder for a server that may not speak the modern era.
pub trait Probe: Responder {
    /// Sends the server a request, and reports how it answered. Meant for `server/discover`. Over pipes,
    /// where silence counts as an answer, it waits no longer than a server may take to start.
    ///
    /// # Cancel safety
    /// As for [`Responder::respond`].
    fn probe(&self, call: Call) -> BoxFuture<ProbeAttempt>;
}

/// The outcome of a probe.
#[derive(Clone, Debug)]
pub struct ProbeAttempt {
    /// How the request reached the server.
    pub way: AnsweredOver,
    /// The server's answer.
    pub answer: ProbeAnswer,
}

/// A server's answer to a probe.
#[derive(Clone, Debug)]
pub enum ProbeAnswer {
    /// A result or an error from the server.
    Said(Reply),
    /// No answer, or not a valid one. Holds the error for the caller.
    Nothing(RpcError),
    /// The request could not be sent. Holds the reason.
    NotAsked(RpcError),
}

impl ProbeAttempt {
    /// What the answer says about the modern era, if the request was `server/discover`. `version` is the revision that
    /// we speak.
    pub fn verdict(&self, version: &str) -> Verdict {
        match &self.answer {
            ProbeAnswer::Said(reply) => evidence::of_discover(self.way, said(reply), version),
            ProbeAnswer::Nothing(_) => evidence::of_discover(self.way, ServerAnswer::Nothing, version),
            ProbeAnswer::NotAsked(_) => Verdict::Unknown,
        }
    }

    /// The reply for the caller.
    ///
    /// # Errors
    /// The server's error, or the reason why there is no answer.
    pub fn into_reply(self) -> Reply {
        match self.answer {
            ProbeAnswer::Said(reply) => reply,
            ProbeAnswer::Nothing(error) => Err(error),
            ProbeAnswer::NotAsked(error) => Err(error.not_taken()),
        }
    }
}

/// What the opening of a link tells about the legacy era.
pub fn opening(opened: &Result<Opened, RpcError>) -> Verdict {
    match opened {
        Ok(opened) => evidence::of_initialize(ServerAnswer::Result(&opened.result)),
        Err(error) => evidence::of_initialize(ServerAnswer::Error(error)),
    }
}

fn said(reply: &Reply) -> ServerAnswer<'_> {
    match reply {
        Ok(result) => ServerAnswer::Result(result),
        Err(error) => ServerAnswer::Error(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_protocol::RawJson;
    use tenure_protocol::Reason;

    #[test]
    fn only_what_the_server_wrote_is_its_word() {
        let ours = || RpcError::of(Reason::BackendUnavailable, "gone");
        let (http, none) = (AnsweredOver::Http(Some(404)), AnsweredOver::Http(None));
        let of = |way, answer| ProbeAttempt { way, answer }.verdict("2026-07-28");
        let discovered = RawJson::trusted(r#"{"supportedVersions":["2026-07-28"]}"#);
        assert_eq!(of(AnsweredOver::Http(Some(200)), ProbeAnswer::Said(Ok(discovered))), Verdict::Yes);
        assert_eq!(of(http, ProbeAnswer::Said(Err(RpcError::new(-32601, "m")))), Verdict::No);
        assert_eq!(of(http, ProbeAnswer::Nothing(ours())), Verdict::No);
        assert_eq!(of(none, ProbeAnswer::Nothing(ours())), Verdict::Unknown);
        assert_eq!(of(AnsweredOver::Pipes, ProbeAnswer::Nothing(ours())), Verdict::No);
        assert_eq!(of(AnsweredOver::Pipes, ProbeAnswer::NotAsked(ours())), Verdict::Unknown);
        assert_eq!(opening(&Err(ours())), Verdict::Unknown);
        assert_eq!(opening(&Err(RpcError::new(-32601, "m"))), Verdict::No);
    }
}
