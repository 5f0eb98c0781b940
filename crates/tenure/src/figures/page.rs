//! The listener of `/metrics`: a small server of its own, on an address that clients do not reach.
//!
//! It answers one path, without credentials, so it belongs on loopback or in a network of its own. At most a few connections are served at
//! once, and none for long.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::counted::Figures;
use crate::failure::Failure;

/// Connections at once. More wait in the accept queue.
const MOST_CONNECTIONS: usize = 16;

/// How long a connection may last, and its head may take.
const LONGEST: Duration = Duration::from_secs(30);
const HEAD: Duration = Duration::from_secs(5);

/// A pause after a failed accept: the process may be out of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The listener, bound and not yet served.
#[derive(Debug)]
pub(crate) struct MetricsPage {
    listener: TcpListener,
    address: SocketAddr,
    figures: Figures,
}

impl MetricsPage {
    /// Binds the address.
    pub(crate) fn bind(address: SocketAddr, figures: Figures) -> Result<Self, Failure> {
        let failed = |error| {
            Failure::new(format!("cannot listen on `{address}` for metrics"))
                .caused_by(error)
                .hint("stop the other process, or set `metrics.listen` to a free port")
        };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        Ok(Self { listener, address, figures })
    }

    /// The address that was bound.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves it until it is stopped.
    pub(crate) async fn run(self, stop: CancellationToken) {
        tracing::info!(address = %self.address, "metrics are served");
        let (permits, tasks) = (Arc::new(Semaphore::new(MOST_CONNECTIONS)), TaskTracker::new());
        let accepting = async {
            loop {
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
                match self.listener.accept().await {
                    Ok((socket, _)) => {
                        let (figures, stop) = (self.figures.clone(), stop.clone());
                        tasks.spawn(async move {
                            stop.run_until_cancelled(tokio::time::timeout(LONGEST, serve(socket, figures)))
                                .await;
                            drop(permit);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "could not accept a connection for metrics");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                    }
                }
            }
        };
        stop.run_until_cancelled(accepting).await;
        tasks.close();
        tasks.wait().await;
    }
}

async fn serve(socket: TcpStream, figures: Figures) {
    let service = service_fn(move |request| {
        let answer = answer(&figures, &request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = serving.await {
        tracing::debug!(%error, "a connection for metrics failed");
    }
}

fn answer<B>(figures: &Figures, request: &Request<B>) -> Response<Full<Bytes>> {
    let text = |status, kind: &'static str, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    };
    if request.uri().path() != "/metrics" {
        return text(StatusCode::NOT_FOUND, PLAIN, "metrics are at /metrics\n".to_owned());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    match accept.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
        true => text(StatusCode::OK, OPEN_METRICS, figures.open_metrics()),
        false => text(StatusCode::OK, PLAIN, figures.metrics_text()),
    }
}
