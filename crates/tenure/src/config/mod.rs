//! The configuration of `tenure serve`: one table of keys, six layers.
//!
//! A value comes from the built-in defaults, a profile, `compat`, a file, the environment or a flag; the later one
//! wins. The table in `keys` decides everything else: the values that may be written, their environment variables, the
//! texts of errors, the output of `tenure config show` and `docs/configuration.md`. Nothing here opens a file or reads
//! the environment: texts come in as [`Sources`].
//!
//! Read in this order: `effective` (the result), `keys` and `value` (which values may be written), `sources`,
//! `backends`, `auth`, `cluster` and `upstream_auth` (where they are written), `layers` (which one wins), `checks` (which values must fit together).

mod effective;
mod keys;
mod value;
mod sources;
mod backends;
mod admin;
mod audit;
mod metrics;
mod traces;
mod nats;
mod auth;
mod cluster;
mod upstream_auth;
mod layers;
mod profile;
mod compat;
mod lookup;
mod renamed;
mod checks;
mod error;
mod show;
mod shown;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub use admin::AdminConfig;
pub use audit::{AuditConfig, AuditDurability};
pub use auth::{AuthConfig, AuthMode, IssuerConfig};
pub use cluster::ClusterConfig;
pub(crate) use cluster::is_shared;
pub use compat::Compat;
pub use effective::{
    Behind, Bridge, ChildConfig, Clients, Config, DataOffer, DataSessions, Descriptors, ExchangesConfig,
    Inherited, LogConfig, LogFormat, Lowered, RateConfig, Speaks, Tls, UpstreamConfig, WriteDurability,
};
pub use error::{ConfigError, Warning};
pub use metrics::MetricsConfig;
pub use nats::NatsConfig;
pub use profile::Profile;
pub use shown::ShownSetting;
pub use sources::Sources;
pub use traces::TracesConfig;
pub use upstream_auth::{UpstreamAuthConfig, UpstreamAuthMode};
pub(crate) use value::units::{parse_duration, write_duration};
