//! From the configuration to running parts. Only this folder names concrete stores and backends.
//!
//! `backends` builds the servers behind the gateway, `auth` says who may use them, `limits` how much, `traces` what is traced, `store` opens the store, `cluster` joins the nodes that share it, and `node` puts all
//! of it together with the sessions and exchanges.

mod node;
mod cluster;
mod backends;
mod upstream_credentials;
mod audit;
mod auth;
mod limits;
mod traces;
mod store;
mod nats;

pub(crate) use tenure_store::copy::{CopyProgress, save_log};
#[cfg(test)]
pub(crate) use tenure_store::disk::ReportTotals;
pub(crate) use tenure_store::disk::{ByteProgress, Damage, DamageKind, Missing, Report};
pub(crate) use tenure_store::open::OpenedStore;

pub(crate) use auth::{Auth, check_mounted_without_auth};
pub(crate) use backends::{
    EmbeddedObservers, NamedRestarter, Program, Served, demo_kinds, served, watch_over_children,
};
pub(crate) use nats::{Engine, is_engine as is_nats};
pub(crate) use node::{Assembled, Runtimes, assemble, assemble_stdio, listening, look_for_parts};
pub(crate) use store::{
    Access, BackedUp, backup, check, copy, count, disk_url, existing_folder, folder, new_key, open,
    open_configured, repair, store_url,
};
