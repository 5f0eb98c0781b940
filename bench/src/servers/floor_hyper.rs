//! Floor: what HTTP itself costs. Bare hyper reads the body, finds the id by a plain scan and
//! answers fixed bytes: no routing, no JSON.

use std::convert::Infallible;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use memchr::memmem;
use tokio::net::TcpListener;

use crate::servers::answer;

pub(super) async fn serve(listener: TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await.context("accept a connection")?;
        stream.set_nodelay(true).context("switch off Nagle's algorithm")?;
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service_fn(handle));
        #[expect(clippy::disallowed_methods, reason = "this server has no shutdown: its process is killed")]
        tokio::spawn(async move {
            // A client that hangs up is no event for a floor.
            let _ = connection.await;
        });
    }
}

async fn handle(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::default();
    let echo = match request.headers().contains_key(answer::MODERN) {
        true => answer::modern_echo,
        false => answer::echo,
    };
    let Ok(body) = request.into_body().collect().await else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    };
    let body = body.to_bytes();
    match id(&body) {
        Some(id) => {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *response.body_mut() = Full::new(echo(id));
        }
        None => *response.status_mut() = StatusCode::ACCEPTED,
    }
    Ok(response)
}

/// The digits behind the first `"id":`.
fn id(body: &[u8]) -> Option<&[u8]> {
    let rest = &body[memmem::find(body, br#""id":"#)? + 5..];
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::id;

    #[test]
    fn the_scan_finds_the_id_of_a_request_and_none_in_a_notification() {
        assert_eq!(id(br#"{"jsonrpc":"2.0","id":42,"method":"m"}"#), Some(&b"42"[..]));
        assert_eq!(id(br#"{"jsonrpc":"2.0","method":"m"}"#), None);
    }
}
