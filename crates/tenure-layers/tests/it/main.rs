//! The layers over fake servers: both bridges, with real runtimes in front of them.

mod bridge;
mod over_exchanges;
