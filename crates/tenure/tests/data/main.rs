//! Data sessions and handles, as clients and models see them.

mod carried;
mod handles;
mod strangers;
mod transcripts;
mod world;
