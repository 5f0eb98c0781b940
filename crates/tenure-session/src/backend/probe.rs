//! What a server answered when it was asked in the words of an era.
//!
//! For whoever has both halves of a server that may be of either era, and has to choose one:
//!
//! - **Modern half**, a [`Probe`]: ask `server/discover` with [`Probe::probe`] and read [`Attempt::verdict`]. The
//!   attempt says more than a reply does: with which status an answer came, and whether the error is the server's own
//!   or ours. If the verdict is *yes*, requests go through [`Responder::respond`] from then on; an error among their
//!   answers may take it back ([`evidence::of_exchange`]).
//! - **Legacy half**, a [`Backend`](tenure_session::backend::Backend): just open a link, and read [`opening`]. An
//!   error that the server wrote in answer to `initialize` comes back as the server wrote it, code and data; so does
//!   one that came with a 4xx. Where there was none, the error is ours (-31011), which says nothing on the era, and
//!   `data.status` has the status.
//!
//! *Unknown* is no verdict to keep: the server may be down, busy or not to be had with these credentials. A
//! probe of a program leaves nothing behind that was asked in vain: a child that is not modern is ended, since
//! servers of sessions may not take `initialize` any more after something else. So both halves may be tried in any
//! order, each on a process of its own.

use crate::backend::{Call, Opened, Responder};
use crate::port::BoxFuture;
use tenure_protocol::translate::evidence::{self, Said, Verdict, Way};
use tenure_protocol::{Reply, RpcError};

/// A responder in front of a server that may not be of the modern era.
pub trait Probe: Responder {
    /// Asks the server something, and says how it answered. Meant for `server/discover`. It takes no longer than a
    /// server may take to come up, where silence is an answer.
    ///
    /// # Cancel safety
    /// As for [`Responder::respond`].
    fn probe(&self, call: Call) -> BoxFuture<Attempt>;
}

/// What became of a request in the words of an era.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// How the server was asked.
    pub way: Way,
    /// What it answered.
    pub answer: Answer,
}

/// What a server answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A result or an error that the server wrote.
    Said(Reply),
    /// Nothing, or nothing that is an answer; and how we say that.
    Nothing(RpcError),
    /// It could not even be asked, for this reason.
    NotAsked(RpcError),
}

impl Attempt {
    /// What it says about the modern era, if it was `server/discover` that was asked, and `version` the one that we
    /// speak.
    pub fn verdict(&self, version: &str) -> Verdict {
        match &self.answer {
            Answer::Said(reply) => evidence::of_discover(self.way, said(reply), version),
            Answer::Nothing(_) => evidence::of_discover(self.way, Said::Nothing, version),
            Answer::NotAsked(_) => Verdict::Unknown,
        }
    }

    /// The reply for whoever asked.
    ///
    /// # Errors
    /// What the server said, or why it said nothing.
    pub fn into_reply(self) -> Reply {
        match self.answer {
            Answer::Said(reply) => reply,
            Answer::Nothing(error) => Err(error),
            Answer::NotAsked(error) => Err(error.not_taken()),
        }
    }
}

/// What the opening of a link says about the legacy era.
pub fn opening(opened: &Result<Opened, RpcError>) -> Verdict {
    match opened {
        Ok(opened) => evidence::of_initialize(Said::Result(&opened.result)),
        Err(error) => evidence::of_initialize(Said::Error(error)),
    }
}

fn said(reply: &Reply) -> Said<'_> {
    match reply {
        Ok(result) => Said::Result(result),
        Err(error) => Said::Error(error),
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
        let (http, none) = (Way::Http(Some(404)), Way::Http(None));
        let of = |way, answer| Attempt { way, answer }.verdict("2026-07-28");
        let discovered = RawJson::trusted(r#"{"supportedVersions":["2026-07-28"]}"#);
        assert_eq!(of(Way::Http(Some(200)), Answer::Said(Ok(discovered))), Verdict::Yes);
        assert_eq!(of(http, Answer::Said(Err(RpcError::new(-32601, "m")))), Verdict::No);
        assert_eq!(of(http, Answer::Nothing(ours())), Verdict::No);
        assert_eq!(of(none, Answer::Nothing(ours())), Verdict::Unknown);
        assert_eq!(of(Way::Pipes, Answer::Nothing(ours())), Verdict::No);
        assert_eq!(of(Way::Pipes, Answer::NotAsked(ours())), Verdict::Unknown);
        assert_eq!(opening(&Err(ours())), Verdict::Unknown);
        assert_eq!(opening(&Err(RpcError::new(-32601, "m"))), Verdict::No);
    }
}
