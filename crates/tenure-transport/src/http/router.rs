//! The paths of the server: the MCP endpoint and what operators ask.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};

use super::body::Body;
use super::endpoint::{Endpoint, Remote};

/// Everything the server answers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Router {
    mcp: Endpoint,
}

impl Router {
    /// Serves this endpoint at `/mcp`, with `/healthz` and `/readyz` beside it.
    pub fn new(mcp: Endpoint) -> Self {
        Self { mcp }
    }

    /// Answers one request.
    ///
    /// # Cancel safety
    /// A request that was admitted goes on when this future is dropped.
    pub async fn handle<B>(&self, request: Request<B>, remote: Option<Remote>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match request.uri().path() {
            "/mcp" => self.mcp.handle(request, remote).await,
            "/healthz" => Self::plain(request.method(), StatusCode::OK, "ok\n"),
            "/readyz" if self.mcp.sessions().is_ready() => {
                Self::plain(request.method(), StatusCode::OK, "ready\n")
            }
            "/readyz" => Self::plain(request.method(), StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            _ => Self::text(StatusCode::NOT_FOUND, "not found; the MCP endpoint is /mcp\n"),
        }
    }

    fn plain(method: &Method, status: StatusCode, text: &'static str) -> Response<Body> {
        if method != Method::GET && method != Method::HEAD {
            let mut response = Self::text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
            response.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        Self::text(status, text)
    }

    fn text(status: StatusCode, text: &'static str) -> Response<Body> {
        let mut response = Response::new(Body::full(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    }
}
