//! Data sessions and handles, as clients and models see them.

mod carried;
mod handles;
mod transcripts;
mod world;
