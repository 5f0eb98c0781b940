//! The configuration of `tenure serve`: one table of keys, six layers.
//!
//! A value comes from the built-in defaults, a profile, `compat`, a file, the environment or a flag; the later
//! wins. `keys` is the table that everything else follows: what may be written, what it is called in
//! the environment, what errors say, what `tenure config show` prints and what `docs/configuration.md`
//! explains. Nothing here opens a file or looks at the process: texts come in as [`Sources`].
//!
//! Read in this order: `effective` (what comes out), `keys` and `forms` (what may be written),
//! `sources` and `backends` (where it is written), `layers` (which one wins), `checks` (what must fit together).

mod backends;
mod checks;
mod choices;
mod compat;
mod effective;
mod error;
mod forms;
mod keys;
mod layers;
mod lookup;
mod measures;
mod places;
mod profile;
mod renamed;
mod show;
mod sources;
mod units;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub use compat::Compat;
pub use effective::{
    Behind, Bridge, Child, Clients, Config, DataSessions, Descriptors, Durability, Exchanges, Inherited, Log,
    LogFormat, Lowered, Offer, Speaks, Tls, Upstream,
};
pub use error::{ConfigError, Warning};
pub(crate) use places::public_part;
pub use profile::Profile;
pub use sources::Sources;
pub(crate) use units::{parse_duration, write_duration};
