//! Writes the methods of a wrapper around a server that hand on what they get.
//!
//! A layer changes how requests are answered and passes the rest on. The traits have default answers for most of the rest, so
//! a wrapper that leaves a method out compiles and hides the server's own answer; here none is left out.

/// Writes every method of [`Responder`](crate::backend::Responder) but `respond`, for a wrapper that has the other one in this field.
///
/// ```
/// # use std::sync::Arc;
/// # use tenure_protocol::Reply;
/// # use tenure_session::backend::{Call, Responder};
/// # use tenure_session::forward_responder;
/// # use tenure_session::port::BoxFuture;
/// struct Counted {
///     inner: Arc<dyn Responder>,
///     requests: std::sync::atomic::AtomicU64,
/// }
///
/// impl Responder for Counted {
///     fn respond(&self, call: Call) -> BoxFuture<Reply> {
///         self.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         self.inner.respond(call)
///     }
///
///     forward_responder!(inner);
/// }
/// ```
#[macro_export]
macro_rules! forward_responder {
    ($inner:ident) => {
        fn keeps_request_states(&self) -> bool {
            self.$inner.keeps_request_states()
        }

        fn keeps_tasks(&self, route: &$crate::Route) -> bool {
            self.$inner.keeps_tasks(route)
        }

        fn server_info(&self) -> ::std::option::Option<$crate::backend::forward::RawJson> {
            self.$inner.server_info()
        }

        fn forget(&self, principal: &$crate::Principal) {
            self.$inner.forget(principal);
        }

        fn close(&self) -> $crate::port::BoxFuture<()> {
            self.$inner.close()
        }

        fn begin(&self, fanout: $crate::call::Fanout) {
            self.$inner.begin(fanout);
        }
    };
}

/// Writes `close` and `echoes_cookies` of [`Link`](crate::backend::Link), for a wrapper that has the other one in this field.
#[macro_export]
macro_rules! forward_link {
    ($inner:ident) => {
        fn close(&self) -> $crate::port::BoxFuture<()> {
            self.$inner.close()
        }

        fn echoes_cookies(&self) -> bool {
            self.$inner.echoes_cookies()
        }
    };
}

#[doc(hidden)]
pub use tenure_protocol::RawJson;
