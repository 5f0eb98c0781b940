//! The traits that the runtime needs from outside: the store, the clock, and the seal for data that clients carry.

pub mod store;
pub mod forward_store;
pub mod clock;
pub mod seal;

/// A boxed future that borrows nothing.
pub type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;
