//! When keys were last used, in a file beside theirs: `keys.used` for `keys.toml`.
//!
//! Written by servers now and then, read by `tenure keys list`. It is a help for people, and nothing is decided by it: a file
//! that is missing or cannot be read says that nothing is known.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use super::file::{ApiKeyFile, KeyInfo, hex};
use crate::time::UnixSeconds;

impl ApiKeyFile {
    fn uses(&self) -> PathBuf {
        self.path().with_extension("used")
    }

    /// When keys were last used, by their hashes in hexadecimal digits; at most a minute old for each server that uses them.
    fn noted_uses(&self) -> BTreeMap<String, u64> {
        fs::read_to_string(self.uses()).ok().and_then(|text| toml::from_str(&text).ok()).unwrap_or_default()
    }

    /// When these keys were last used, as far as servers have noted it.
    pub fn last_uses(&self, keys: &[KeyInfo]) -> Vec<Option<UnixSeconds>> {
        let noted = self.noted_uses();
        keys.iter().map(|key| noted.get(&hex(&key.sha256)).copied().map(UnixSeconds)).collect()
    }

    /// Notes these uses. Later ones that another server has noted stay, and keys that are gone are forgotten.
    pub(crate) fn note_uses(&self, uses: &[(KeyInfo, Option<UnixSeconds>)]) -> io::Result<()> {
        let before = self.noted_uses();
        let merged: BTreeMap<String, u64> = uses
            .iter()
            .filter_map(|(key, used)| {
                let name = hex(&key.sha256);
                let used = used.map(|used| used.0).into_iter().chain(before.get(&name).copied()).max()?;
                Some((name, used))
            })
            .collect();
        let text = toml::to_string(&merged).map_err(io::Error::other)?;
        let new = self.path().with_extension("used.new");
        let _ = fs::remove_file(&new);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&new)?.write_all(text.as_bytes())?;
        fs::rename(&new, self.uses())
    }
}
