//! The cookie jar: the cookies of all servers, kept across connections and processes.
//!
//! `place` is the jar that programs use, in memory or in a file. `server` makes the key under which a server's
//! cookies are kept, `book` reads and changes the entries (pure), `file` reads and writes the disk. The format is
//! version 3 of the one that fast-agent uses.

mod place;
mod server;
mod book;
mod file;

pub use book::{Book, JarRecord, KeptCookie};
pub use place::Jar;
pub use server::JarServer;
