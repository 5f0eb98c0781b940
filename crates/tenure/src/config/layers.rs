//! Which value wins: defaults, then the profile, the file, the environment and the flags.

use super::auth;
use super::backends::{self, Backend};
use super::checks;
use super::compat::Compat;
use super::effective::{Config, Tls};
use super::error::{ConfigError, Problem};
use super::keys::{Draft, KEYS, key};
use super::lookup;
use super::profile::Profile;
use super::sources::{self, FileSettings, SettingEntry, Sources, ValueOrigin};
use super::value::choice::{Choice, OneOf};
use super::value::{SettingValue, ValueForm};

/// Every value in force, and where each comes from.
#[derive(Debug)]
pub(super) struct Layered {
    pub(super) draft: Draft,
    /// One for each key, in the order of the table.
    origins: Vec<ValueOrigin>,
    pub(super) backends: Vec<Backend>,
}

impl Layered {
    /// Reads every layer. Goes on after a problem, so that all problems are reported at once.
    pub(super) fn read(sources: &Sources) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let FileSettings { mut entries, backends: tables, issuers } = match &sources.file {
            None => FileSettings::default(),
            Some((path, text)) => sources::file(path, text).unwrap_or_else(|problem| {
                problems.push(problem);
                FileSettings::default()
            }),
        };
        entries.extend(sources::environment(&sources.env));
        entries.extend(sources::flags(&sources.flags));

        let mut layered = Self {
            draft: Draft::default(),
            origins: vec![ValueOrigin::Default; KEYS.len()],
            backends: Vec::new(),
        };
        // Profile and compat are below the layers that choose them, so they have to be known first.
        if let Some(profile) = named::<Profile>(&entries, "profile") {
            layered.lay_settings(profile.settings(), &ValueOrigin::Profile(profile));
        }
        if let Some(compat) = named::<Compat>(&entries, "compat") {
            layered.lay_settings(compat.settings(), &ValueOrigin::Compat);
        }
        for entry in &entries {
            if let Err(problem) = layered.lay(entry) {
                problems.push(problem);
            }
        }
        let tables = if layered.lay_command(&sources.command) { Vec::new() } else { tables };
        layered.draft.config.auth.issuers = auth::read(&issuers, &mut problems);
        layered.backends = backends::read(&tables, &layered.draft, &mut problems);
        ConfigError::unless_empty(problems)?;
        ConfigError::unless_empty(checks::problems(&layered))?;
        Ok(layered)
    }

    fn lay(&mut self, entry: &SettingEntry) -> Result<(), Problem> {
        let (index, key) = lookup::find(entry)?;
        (key.set)(&mut self.draft, &entry.raw).map_err(|refusal| {
            let (subject, expected) = (entry.origin.subject(key.path), (key.expected)());
            Problem { what: format!("{subject} is {}, expected {expected}", entry.found), hint: refusal.hint }
        })?;
        self.origins[index] = entry.origin.clone();
        Ok(())
    }

    /// Puts the command of the command line in place of all configured servers; false if there is no command.
    fn lay_command(&mut self, command: &[String]) -> bool {
        if command.is_empty() {
            return false;
        }
        self.draft.config.child.command = command.to_vec();
        self.draft.config.upstream.url = None;
        for (path, origin) in
            [("child.command", ValueOrigin::Flag("--".to_owned())), ("upstream.url", ValueOrigin::Default)]
        {
            let (index, _) = key(path).expect("a key of the table; a test serves a command");
            self.origins[index] = origin;
        }
        true
    }

    fn lay_settings(&mut self, settings: &[(&str, &str)], origin: &ValueOrigin) {
        for (path, text) in settings {
            let (index, key) = key(path).expect("settings name keys of the table; a test loads them all");
            let set = (key.set)(&mut self.draft, &SettingValue::Untyped((*text).to_owned()));
            set.expect("settings hold values that their keys accept; a test loads them all");
            self.origins[index] = origin.clone();
        }
    }

    /// Where the value of a key comes from.
    pub(super) fn origin(&self, path: &str) -> &ValueOrigin {
        key(path).map_or(&ValueOrigin::Default, |(index, _)| &self.origins[index])
    }

    /// The finished configuration.
    pub(super) fn config(self) -> Config {
        let is_store_chosen = *self.origin("store") != ValueOrigin::Default;
        let Draft { mut config, tls_cert, tls_key, tls_client_ca } = self.draft;
        config.rules.leniencies = config.compat.leniencies();
        let tls = tls_cert.zip(tls_key).map(|(cert, key)| Tls { cert, key, client_ca: tls_client_ca });
        let backends = self.backends.into_iter().map(|backend| backend.behind).collect();
        Config { tls, backends, is_store_chosen, ..config }
    }
}

/// The choice of the highest layer that makes one. A name that cannot be read is reported later, with its layer.
fn named<T: Choice>(entries: &[SettingEntry], path: &str) -> Option<T> {
    let named = entries.iter().filter(|entry| lookup::find(entry).is_ok_and(|(_, key)| key.path == path));
    named.filter_map(|entry| OneOf::<T>::read(&entry.raw).ok()).next_back()
}
