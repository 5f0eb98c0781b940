//! What agents use: a client layer that keeps its state across reconnects.
//!
//! Nothing is here yet. The crate holds the name and the arrow: it will depend on no server crate.
