//! Several nodes that share a store: any of them serves any session, and one that is lost is replaced.

mod world;
mod fleet;
mod calls;
mod identity;
mod recording;
mod doors;
mod losing;
mod modern;
mod news;
mod passed_on;
mod observing;
mod rolling;
mod operators;
mod stopping;
mod strangers;
mod streams;
