//! Every way to be refused, and the status, code and reason that say so.

mod cors;
mod guards;
mod headers;
mod in_session;
mod messages;
mod sizes;
mod versions;
