//! Which value wins: defaults, then the profile, the file, the environment and the flags.

use super::backends::{self, Backend};
use super::checks;
use super::choices::OneOf;
use super::effective::{Config, Tls};
use super::error::{ConfigError, Problem};
use super::forms::{Form, Raw};
use super::keys::{Draft, KEYS, key};
use super::lookup;
use super::profile::Profile;
use super::sources::{self, Entry, Origin, Sources};

/// Every value in force, and where each comes from.
#[derive(Debug)]
pub(super) struct Layered {
    pub(super) draft: Draft,
    /// One for each key, in the order of the table.
    origins: Vec<Origin>,
    pub(super) backends: Vec<Backend>,
}

impl Layered {
    /// Reads every layer. Goes on after a problem, so that all of them are told at once.
    pub(super) fn read(sources: &Sources) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let (mut entries, tables) = match &sources.file {
            None => (Vec::new(), Vec::new()),
            Some((path, text)) => sources::file(path, text).unwrap_or_else(|problem| {
                problems.push(problem);
                (Vec::new(), Vec::new())
            }),
        };
        entries.extend(sources::environment(&sources.env));
        entries.extend(sources::flags(&sources.flags));

        let mut layered = Self {
            draft: Draft::default(),
            origins: vec![Origin::Default; KEYS.len()],
            backends: Vec::new(),
        };
        // The profile lies below the layers that may name it, so it has to be known before them.
        if let Some(profile) = profile(&entries) {
            layered.lay_profile(profile);
        }
        for entry in &entries {
            if let Err(problem) = layered.lay(entry) {
                problems.push(problem);
            }
        }
        layered.backends = backends::read(&tables, &layered.draft, &mut problems);
        ConfigError::unless_empty(problems)?;
        ConfigError::unless_empty(checks::problems(&layered))?;
        Ok(layered)
    }

    fn lay(&mut self, entry: &Entry) -> Result<(), Problem> {
        let (index, key) = lookup::find(entry)?;
        (key.set)(&mut self.draft, &entry.raw).map_err(|refusal| {
            let (subject, expected) = (entry.origin.subject(key.path), (key.expected)());
            Problem { what: format!("{subject} is {}, expected {expected}", entry.found), hint: refusal.hint }
        })?;
        self.origins[index] = entry.origin.clone();
        Ok(())
    }

    fn lay_profile(&mut self, profile: Profile) {
        for (path, text) in profile.settings() {
            let (index, key) = key(path).expect("profiles name keys of the table; a test loads them all");
            let set = (key.set)(&mut self.draft, &Raw::Untyped((*text).to_owned()));
            set.expect("profiles hold values that their keys accept; a test loads them all");
            self.origins[index] = Origin::Profile(profile);
        }
    }

    /// Where the value of a key comes from.
    pub(super) fn origin(&self, path: &str) -> &Origin {
        key(path).map_or(&Origin::Default, |(index, _)| &self.origins[index])
    }

    /// The finished configuration.
    pub(super) fn config(self) -> Config {
        let is_store_chosen = *self.origin("store") != Origin::Default;
        let Draft { config, tls_cert, tls_key } = self.draft;
        let tls = tls_cert.zip(tls_key).map(|(cert, key)| Tls { cert, key });
        let backends = self.backends.into_iter().map(|backend| backend.behind).collect();
        Config { tls, backends, is_store_chosen, ..config }
    }
}

/// The profile that the highest layer names. A name that cannot be read is told of when its layer is laid.
fn profile(entries: &[Entry]) -> Option<Profile> {
    let named =
        entries.iter().filter(|entry| lookup::find(entry).is_ok_and(|(_, key)| key.path == "profile"));
    named.filter_map(|entry| OneOf::<Profile>::read(&entry.raw).ok()).next_back()
}
