//! The endpoint and the router as `tower` services. An embedder's server passes the peer as an extension of the request.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};

use super::body::Body;
use super::endpoint::{Endpoint, Remote};
use super::router::Router;

macro_rules! service {
    ($($name:ty),*) => {$(
        impl<B> tower_service::Service<Request<B>> for $name
        where
            B: http_body::Body<Data = Bytes> + Send + 'static,
            B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        {
            type Response = Response<Body>;
            type Error = Infallible;
            type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: Request<B>) -> Self::Future {
                let this = self.clone();
                let remote = request.extensions().get::<Remote>().cloned();
                Box::pin(async move { Ok(this.handle(request, remote.as_ref()).await) })
            }
        }
    )*};
}

service!(Endpoint, Router);
