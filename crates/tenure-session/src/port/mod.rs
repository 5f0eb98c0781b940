//! The traits that the runtime needs from outside: the store, the nodes of a cluster, the clock, the seal for data that
//! clients carry, and an observer.

pub mod store;
pub mod members;
pub mod forward_store;
pub mod clock;
pub mod seal;
pub mod observer;

/// A boxed future that borrows nothing.
pub type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;
