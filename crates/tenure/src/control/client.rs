//! Asks a running server, on its control socket.
//!
//! Each request has its own connection: that is cheap here, and no connection is left half used. If the socket accepts
//! a connection, a server has the store open; the socket of a killed process refuses.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, http};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio_util::task::TaskTracker;

use super::operations::ControlRequest;
use super::{BASE, BackupLine, BackupOrder, Predecessor, missing, path, take_over};
use crate::admin;
use crate::failure::Failure;
use crate::operator::MissingNode;
use crate::wire::{BackedUp, ByteProgress, Engine};

/// How long the server may take for anything but a backup.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// A running server, as a command reaches it.
#[derive(Debug)]
pub(crate) struct ControlClient {
    socket: PathBuf,
    tasks: TaskTracker,
    /// The nodes that did not answer, by name.
    missing: Mutex<BTreeMap<String, MissingNode>>,
}

impl ControlClient {
    /// The server that has the store in this folder open; `None` if no server answers.
    pub(crate) async fn find(folder: &Path) -> Option<Self> {
        Self::at(path(folder)).await.ok()
    }

    /// The server at a socket, if it answers.
    pub(super) async fn at(socket: PathBuf) -> io::Result<Self> {
        let client = Self { socket, tasks: TaskTracker::new(), missing: Mutex::default() };
        client.connect().await.map(|_| client)
    }

    /// The process id of the server, if the system tells it.
    pub(crate) async fn pid(&self) -> Option<i32> {
        self.connect().await.ok()?.peer_cred().ok()?.pid()
    }

    /// The engine that the server keeps its sessions on; `None` if it keeps them otherwise.
    pub(crate) async fn engine(&self) -> Result<Option<Engine>, Failure> {
        self.ask(ControlRequest { method: Method::GET, path: "/engine".to_owned(), body: Bytes::new() }).await
    }

    /// The nodes of the server's cluster that did not answer one of the requests so far.
    pub(crate) fn missing_nodes(&self) -> Vec<MissingNode> {
        self.missing.lock().values().cloned().collect()
    }

    /// See [`Operator::backup`](crate::operator::Operator::backup).
    pub(crate) async fn backup(
        &self,
        to: &Path,
        mut progress: impl FnMut(ByteProgress),
    ) -> Result<BackedUp, Failure> {
        let order = serde_json::to_vec(&BackupOrder { to: to.to_owned() })
            .map_err(|error| Failure::new(format!("cannot name `{}`", to.display())).caused_by(error))?;
        let request = ControlRequest { method: Method::POST, path: "/backup".to_owned(), body: order.into() };
        let mut body = self.send(request).await?.into_body();
        let mut read = Vec::new();
        // No deadline: a backup may take long, and a server that ends closes the connection.
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| lost().caused_by(error))?;
            read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = read.drain(..=end).collect();
                match decode(&line)? {
                    BackupLine::Progress { done, of } => progress(ByteProgress { done, of }),
                    BackupLine::Complete { sessions, data_sessions } => {
                        return Ok(BackedUp { sessions, data_sessions });
                    }
                    BackupLine::Failed(failure) => return Err(failure),
                }
            }
        }
        Err(lost().hint("the folder of the backup is not complete"))
    }

    /// Asks to take the server's place. Nothing happens to it before [`Predecessor::release`].
    pub(crate) async fn take_over(&self) -> Result<Predecessor, Failure> {
        let failed = || Failure::new("the server that has the store open cannot be taken over");
        let request = Predecessor::request(request(Method::POST, take_over::PATH));
        let request = request.body(Full::new(Bytes::new())).map_err(|error| failed().caused_by(error))?;
        let response = self.exchange(request).await?;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                Predecessor::meet(response).await.map_err(|error| failed().caused_by(error))
            }
            StatusCode::UNPROCESSABLE_ENTITY => {
                let body = response.into_body().collect().await.map_err(|error| lost().caused_by(error))?;
                Err(decode(&body.to_bytes())?)
            }
            _ => Err(failed().hint(
                "it is of an earlier version, or serves over stdio: stop it, and start this one without `--take-over`",
            )),
        }
    }

    /// The answer of the API for operators to a request.
    pub(super) async fn ask_api<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        #[derive(Deserialize)]
        struct Refused {
            message: String,
            #[serde(default)]
            hint: Option<String>,
        }
        let cannot = || Failure::new("cannot ask the server");
        let body = serde_json::to_vec(body).map_err(|error| cannot().caused_by(error))?;
        let request = Request::builder().method(method).uri(format!("{}/{path}", admin::BASE));
        let request = request.header("host", "control").body(Full::new(body.into()));
        let request = request.map_err(|error| cannot().caused_by(error))?;
        let answer = async {
            let response = self.exchange(request).await?;
            let is_done = response.status().is_success();
            let body = response.into_body().collect().await.map_err(|error| lost().caused_by(error))?;
            if is_done {
                return decode(&body.to_bytes());
            }
            let Refused { message, hint } = decode(&body.to_bytes())?;
            let failure = Failure::new(message);
            Err(hint.into_iter().fold(failure, Failure::hint))
        };
        match tokio::time::timeout(ANSWER_TIME, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::new(format!("the server did not answer within {ANSWER_TIME:?}"))),
        }
    }

    /// The answer to a request.
    pub(super) async fn ask<T: DeserializeOwned>(&self, request: ControlRequest) -> Result<T, Failure> {
        let answer = async {
            let body = self.send(request).await?.into_body();
            let body = body.collect().await.map_err(|error| lost().caused_by(error))?;
            decode(&body.to_bytes())
        };
        match tokio::time::timeout(ANSWER_TIME, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::new(format!("the server did not answer within {ANSWER_TIME:?}"))),
        }
    }

    /// Sends a request. A response with another status than 200 becomes a failure.
    async fn send(&self, sent: ControlRequest) -> Result<Response<Incoming>, Failure> {
        let request = request(sent.method, &sent.path)
            .body(Full::new(sent.body))
            .map_err(|error| Failure::new("cannot ask the server").caused_by(error))?;
        let response = self.exchange(request).await?;
        let missing = missing::read(response.headers());
        self.missing.lock().extend(missing.into_iter().map(|node| (node.node.clone(), node)));
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let known = response.status() == StatusCode::UNPROCESSABLE_ENTITY;
        let body = response.into_body().collect().await.map_err(|error| lost().caused_by(error))?;
        Err(if known { decode(&body.to_bytes())? } else { other_version() })
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        let stream = self.connect().await.map_err(|error| lost().caused_by(error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| lost().caused_by(error))?;
        // The task that waits for the answer gets the errors of the connection.
        self.tasks.spawn(async move { drop(connection.with_upgrades().await) });
        sender.send_request(request).await.map_err(|error| lost().caused_by(error))
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(&self.socket).await
    }
}

fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("{BASE}{path}")).header("host", "control")
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| other_version().caused_by(error))
}

fn lost() -> Failure {
    Failure::new("the server went away before it answered")
}

fn other_version() -> Failure {
    Failure::new("the server that has the store open does not understand this command")
        .hint("use the `tenure` of the same version as the server")
}
