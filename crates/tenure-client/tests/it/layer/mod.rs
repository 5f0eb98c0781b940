//! Tests of the layer with a scripted server that speaks raw lines of JSON.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod by_itself;
mod calls;
mod create;
mod failing;
mod handle;
mod lost;
mod modern;
mod required;
mod support;
mod use_of_cookies;
