//! What these tests share: nodes to talk to, a raw HTTP client, a session held by that client, and a proxy
//! that cuts connections.

pub(crate) mod address;
pub(crate) mod client;
pub(crate) mod events;
pub(crate) mod example;
pub(crate) mod modern;
pub(crate) mod node;
pub(crate) mod proxy;
pub(crate) mod session;
pub(crate) mod wait;
