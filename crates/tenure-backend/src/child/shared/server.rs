//! One process that serves many sessions: our handshake with it, and its end.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tenure_protocol::{Method, RawJson, Reason, Reply, Revision, RpcError};
use tenure_session::port::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::command::ChildLimits;
use super::super::link::Failure;
use super::super::pipes::{OUT, Pipes};
use super::super::process::{Handle, Process};
use super::super::restarts::Life;
use super::super::splice;
use super::traffic::SharedTraffic;
use crate::child::shared::members::ServerMembers;

pub(super) struct SharedServer {
    pub(super) members: Arc<ServerMembers>,
    handle: Handle,
    pipes: Pipes,
    /// Its result of `initialize`.
    result: RawJson,
    revision: Revision,
}

/// Why there is no server. Its process has ended.
pub(super) enum NoServer {
    /// No session waits for the server any more.
    GivenUp,
    Failed(Failure),
}

impl SharedServer {
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
        let (out, messages) = mpsc::channel(OUT);
        let members = ServerMembers::new(SharedTraffic::new(out, limits.start_timeout));
        let pipes = Pipes::start(input, output, messages, limits.max_line_bytes, &handle, &members);
        let shaking = tokio::time::timeout(patience, shake_hands(&members.traffic));
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
                members.traffic.notify(&Method::Initialized, None);
                // Copy it: the original buffer holds many lines.
                let result = result.detached();
                return Ok((Self { members, handle, pipes, result, revision }, Life { began, ended }));
            }
            Err(error) => {
                pipes.close_input();
                // End the child before reading its stderr tail: until it has ended it may write more.
                handle.end().await;
                (error, handle.tail.last())
            }
        };
        let ended_by_itself = handle.left_by_itself();
        Err(NoServer::Failed(Failure { what: error.to_string(), error, tail, ended_by_itself }))
    }

    /// The result for a session's `initialize`. A session that asked for an older revision gets that revision: results
    /// have the same shape in all revisions, and a shared server does not know which revision each client speaks.
    pub(super) fn introduction(&self, asked: Revision) -> RawJson {
        if asked >= self.revision {
            return self.result.clone();
        }
        splice::replace(&self.result, "protocolVersion", format!("\"{asked}\"").as_bytes())
    }

    pub(super) fn id(&self) -> u32 {
        self.handle.id
    }

    /// Ends the server if it has no sessions.
    pub(super) fn end_if_empty(&self) {
        if self.members.close_if_empty() {
            // Dropping the future is fine: the server ends without it.
            drop(self.end());
        }
    }

    /// Ends the server; resolves when its process has ended.
    pub(super) fn end(&self) -> BoxFuture<()> {
        self.members.end();
        self.pipes.close_input();
        Box::pin(self.handle.end())
    }
}

async fn shake_hands(traffic: &Arc<SharedTraffic>) -> Reply {
    let params = RawJson::of(&serde_json::json!({
        "protocolVersion": Revision::LATEST.as_str(),
        // Empty: a shared server cannot say which of its clients it wants to ask.
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
