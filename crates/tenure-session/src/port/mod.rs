//! What the runtime asks of others: a place to keep things, a server to talk to, the time.

pub mod clock;
pub mod seal;
pub mod store;

/// A future that owns all it needs.
pub type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;
