//! Data sessions and handles, as clients and models see them.

mod carried;
mod handles;
mod modern;
mod strangers;
mod transcripts;
mod world;
