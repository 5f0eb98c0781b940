//! One process that serves many sessions: the handshake that is ours, and the end.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tenure_protocol::{Method, RawJson, Reason, Reply, Revision, RpcError};
use tenure_session::port::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::backoff::Life;
use super::super::command::ChildLimits;
use super::super::link::Failure;
use super::super::pipes::{OUT, Pipes};
use super::super::process::{Handle, Process};
use super::super::splice;
use super::traffic::Traffic;
use crate::child::shared::members::Crowd;

pub(super) struct Server {
    pub(super) crowd: Arc<Crowd>,
    handle: Handle,
    pipes: Pipes,
    /// What it said to `initialize`.
    result: RawJson,
    revision: Revision,
}

/// Why there is no server. Its process is gone.
pub(super) enum NoServer {
    /// Nobody wanted it any more.
    GivenUp,
    Failed(Failure),
}

impl Server {
    /// Shakes hands with a process, which may take this long.
    pub(super) async fn start(
        process: Process,
        limits: &ChildLimits,
        patience: Duration,
        given_up: &CancellationToken,
    ) -> Result<(Self, Life), NoServer> {
        let began = Instant::now();
        let Process { input, output, mut handle } = process;
        let ended = handle.ended_by_itself.take().unwrap_or_else(|| tokio::sync::oneshot::channel().1);
        let (out, lines) = mpsc::channel(OUT);
        let crowd = Crowd::new(Traffic::new(out, limits.start_timeout));
        let pipes = Pipes::start(input, output, lines, limits.max_line_bytes, &handle, &crowd);
        let shaking = tokio::time::timeout(patience, shake_hands(&crowd.traffic));
        let Some(answer) = given_up.run_until_cancelled(shaking).await else {
            pipes.close_input();
            handle.end().await;
            return Err(NoServer::GivenUp);
        };
        let answer = answer.unwrap_or_else(|_| {
            Err(RpcError::of(Reason::TimedOut, "The server did not answer initialize in time"))
        });
        let (error, tail) = match answer.and_then(|result| Ok((speaks(&result)?, result))) {
            Ok((revision, result)) => {
                crowd.traffic.notify(&Method::Initialized, None);
                // Its buffer belongs to many lines.
                let result = result.detached();
                return Ok((Self { crowd, handle, pipes, result, revision }, Life { began, ended }));
            }
            Err(error) => {
                pipes.close_input();
                // Before its last words are looked at: until it is gone there may be more of them.
                handle.end().await;
                (error, handle.tail.last())
            }
        };
        let ended_by_itself = handle.left_by_itself();
        Err(NoServer::Failed(Failure { what: error.to_string(), error, tail, ended_by_itself }))
    }

    /// What to say to the `initialize` of a session. One that asked for an older revision gets that: results are of the
    /// same shape in all of them, and a server does not know which of its clients reads what.
    pub(super) fn introduction(&self, asked: Revision) -> RawJson {
        if asked >= self.revision {
            return self.result.clone();
        }
        splice::replace(&self.result, "protocolVersion", format!("\"{asked}\"").as_bytes())
    }

    pub(super) fn id(&self) -> u32 {
        self.handle.id
    }

    /// Ends it if it has no sessions.
    pub(super) fn end_if_empty(&self) {
        if self.crowd.close_if_empty() {
            // It goes whether or not anybody waits for that.
            drop(self.end());
        }
    }

    /// Resolves when it is gone.
    pub(super) fn end(&self) -> BoxFuture<()> {
        self.crowd.end();
        self.pipes.close_input();
        Box::pin(self.handle.end())
    }
}

async fn shake_hands(traffic: &Arc<Traffic>) -> Reply {
    let params = RawJson::of(&serde_json::json!({
        "protocolVersion": Revision::LATEST.as_str(),
        // None: it could not tell which of its clients it asks.
        "capabilities": {},
        "clientInfo": { "name": "tenure", "version": env!("CARGO_PKG_VERSION") },
    }));
    traffic.ask(&Method::Initialize, &params).await
}

fn speaks(result: &RawJson) -> Result<Revision, RpcError> {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    result.read::<Versioned>().ok().and_then(|said| Revision::parse(&said.version)).ok_or_else(|| {
        let words = "The server answered initialize with a version we do not know";
        RpcError::of(Reason::BackendUnavailable, words)
    })
}
