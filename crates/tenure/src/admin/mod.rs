//! The API for operators, `/api/v1`, and the page on top of it.
//!
//! One implementation answers on the control socket, where the file's mode says who may ask, and on a port of its own, where
//! operators log in. `routes` is the one table of what can be asked: requests are checked against it, rights too, and the
//! OpenAPI document is made from it. Nothing changes by GET, every change has a reason, and the audit log has every change.
//!
//! Read in this order: `routes` (the table), `request` (what was asked), `looks` (looks that were recorded lately), `api` (the way of a request), `answers` (what is
//! read), `changes`, `live` (news as a stream), `through` (requests to servers behind), `caller` (who asks), `login` (codes and cookies), `keys`, `guard` (what may
//! come from a browser), `refused` (callers that are not let in), `front` (the port's requests and the page), `listener` (the port).

mod role;
mod error;
mod routes;
mod openapi;
mod request;
mod caller;
mod looks;
mod api;
mod answers;
mod changes;
mod live;
mod through;
mod login;
mod keys;
mod guard;
mod refused;
mod front;
mod listener;

pub(crate) use api::{AdminApi, BASE};
pub(crate) use caller::AdminCaller;
pub(crate) use changes::difference;
pub(crate) use keys::OperatorKeys;
pub(crate) use listener::{AddressBefore, AdminListener};
pub(crate) use login::LoginCode;
pub(crate) use role::AdminRole;
