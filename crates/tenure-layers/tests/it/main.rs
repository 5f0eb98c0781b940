//! The layers over fake servers: both bridges and merged servers, with real runtimes in front of them.

mod bridge;
mod limited;
mod merge;
mod over_exchanges;
