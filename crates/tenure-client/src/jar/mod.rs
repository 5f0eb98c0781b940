//! The cookie jar: the cookies of all servers, kept across connections and processes.
//!
//! `place` is a jar as programs use it. `server` says under which key a server's cookies are kept, `book` what
//! is done with them (pure), `file` how they lie on the disk. The format is the one that fast-agent reads and
//! writes, version 3.

mod place;
mod server;

mod book;
mod file;

pub use book::{Book, KeptCookie, Record};
pub use place::Jar;
pub use server::Server;
