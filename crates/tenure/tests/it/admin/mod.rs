//! The API for operators: who gets in, what they see, and what they can do.

mod access;
mod changing;
mod crowd;
mod document;
mod reading;
mod servers;
mod starting;
mod strangers;
mod world;
