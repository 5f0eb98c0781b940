//! The file of keys: names, hashes, scopes, times.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::secret::{self, KeySecret};
use crate::identity::is_plain_name;
use crate::scope::ScopeSet;
use crate::time::UnixSeconds;

/// Keys with the same name at the same time: one in use, and the next one.
const PER_NAME: usize = 2;

/// A larger file is not read.
const MAX_BYTES: u64 = 16 << 20;

/// Where keys are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiKeyFile(PathBuf);

/// A key to be made.
#[derive(Clone, Debug, Default)]
pub struct NewKey {
    /// Who uses it; the principal is `key:NAME`.
    pub name: String,
    /// What it grants.
    pub scopes: ScopeSet,
    /// When it expires.
    pub expires: Option<UnixSeconds>,
    /// A note for people.
    pub note: String,
}

/// A key without its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyInfo {
    /// Who uses it.
    pub name: String,
    /// The hash of the secret.
    pub sha256: [u8; 32],
    /// What it grants.
    pub scopes: ScopeSet,
    /// When it was made.
    pub created: UnixSeconds,
    /// When it expires; [`UnixSeconds::NEVER`] if it does not.
    pub expires: UnixSeconds,
    /// A note for people.
    pub note: String,
}

impl KeyInfo {
    /// A short name of this very key: the first eight digits of its hash.
    pub fn label(&self) -> String {
        hex(&self.sha256)[..8].to_owned()
    }
}

/// Why keys cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeyFileError {
    /// The file cannot be read.
    #[error("could not read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The file cannot be written.
    #[error("could not write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
    /// Other users can change the file, so its keys prove nothing.
    #[error("other users can write {} (mode {mode:03o}); run: chmod go-w {}", path.display(), path.display())]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The text is not that of a key file.
    #[error("{} is not a file of keys: {}", .0.display(), .1)]
    Content(PathBuf, String),
    /// The name cannot be used.
    #[error("`{0}` cannot be the name of a key: use up to 255 printable characters without `:`")]
    Name(String),
    /// There are enough keys of this name.
    #[error("there are two keys with the name `{0}` already; revoke one of them first")]
    TooMany(String),
    /// There is no such key.
    #[error("there is no key `{0}`")]
    NotFound(String),
    /// The operating system has no randomness.
    #[error("the operating system gave no randomness")]
    Random(#[source] getrandom::Error),
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    key: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default)]
    created: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    note: String,
}

impl ApiKeyFile {
    /// The keys at this path. The file need not exist yet.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a key, and returns its secret, which is kept nowhere.
    pub fn add(&self, new: NewKey, now: UnixSeconds) -> Result<KeySecret, ApiKeyFileError> {
        if !is_plain_name(&new.name) || new.name.contains(':') {
            return Err(ApiKeyFileError::Name(new.name));
        }
        let _lock = self.lock()?;
        let mut keys = self.list()?;
        let same_name = keys.iter().filter(|key| key.name == new.name && now < key.expires).count();
        if same_name >= PER_NAME {
            return Err(ApiKeyFileError::TooMany(new.name));
        }
        let secret = KeySecret::random().map_err(ApiKeyFileError::Random)?;
        keys.push(KeyInfo {
            sha256: secret::hash(secret.expose()).expect("a new key is a key"),
            name: new.name,
            scopes: new.scopes,
            created: now,
            expires: new.expires.unwrap_or(UnixSeconds::NEVER),
            note: new.note,
        });
        self.write(&keys)?;
        Ok(secret)
    }

    /// Removes the keys with this name or label, and returns them.
    pub fn revoke(&self, name: &str) -> Result<Vec<KeyInfo>, ApiKeyFileError> {
        let _lock = self.lock()?;
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.list()?.into_iter().partition(|key| key.name == name || key.label() == name);
        if gone.is_empty() {
            return Err(ApiKeyFileError::NotFound(name.to_owned()));
        }
        self.write(&kept)?;
        Ok(gone)
    }

    /// All keys. A file that is not there has none.
    pub fn list(&self) -> Result<Vec<KeyInfo>, ApiKeyFileError> {
        let Some(text) = self.read()? else { return Ok(Vec::new()) };
        let wrong = |why: String| ApiKeyFileError::Content(self.0.clone(), why);
        let content: Content = toml::from_str(&text).map_err(|error| wrong(error.message().to_owned()))?;
        let mut hashes = BTreeSet::new();
        let mut keys = Vec::new();
        for entry in content.key {
            let name = entry.name.clone();
            let key = entry.info().ok_or_else(|| wrong(format!("the key `{name}` cannot be read")))?;
            if !hashes.insert(key.sha256) {
                return Err(wrong(format!("the key `{name}` stands in it twice")));
            }
            keys.push(key);
        }
        Ok(keys)
    }

    /// What the file looks like from outside, to see that it has to be read again.
    pub(crate) fn stamp(&self) -> Option<FileStamp> {
        fs::metadata(&self.0).ok().map(|metadata| FileStamp::of(&metadata))
    }

    /// Keeps other processes from changing the file until the lock is dropped: otherwise a key that one of them revokes
    /// could come back with the list that another has read before.
    fn lock(&self) -> Result<fs::File, ApiKeyFileError> {
        let failed = |error| ApiKeyFileError::Write(self.0.clone(), error);
        if let Some(folder) = self.0.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(self.0.with_extension("lock")).map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(file)
    }

    fn read(&self) -> Result<Option<String>, ApiKeyFileError> {
        let failed = |error| ApiKeyFileError::Read(self.0.clone(), error);
        let metadata = match fs::metadata(&self.0) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        self.check_mode(&metadata)?;
        if metadata.len() > MAX_BYTES {
            return Err(ApiKeyFileError::Content(self.0.clone(), "it is larger than 16 MiB".to_owned()));
        }
        fs::read_to_string(&self.0).map(Some).map_err(failed)
    }

    fn check_mode(&self, metadata: &fs::Metadata) -> Result<(), ApiKeyFileError> {
        match foreign_write_mode(metadata) {
            None => Ok(()),
            Some(mode) => Err(ApiKeyFileError::Writable { path: self.0.clone(), mode }),
        }
    }

    /// Writes all keys beside the file and renames: a reader sees the old file or the new one.
    fn write(&self, keys: &[KeyInfo]) -> Result<(), ApiKeyFileError> {
        let failed = |error| ApiKeyFileError::Write(self.0.clone(), error);
        let content = Content { key: keys.iter().map(Entry::of).collect() };
        let text = toml::to_string(&content)
            .map_err(|error| ApiKeyFileError::Content(self.0.clone(), error.to_string()))?;
        let new = self.0.with_extension("new");
        // A file of that name is left of a process that was killed, or was put there by another user.
        let _ = fs::remove_file(&new);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&new).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&new, &self.0).map_err(failed)
    }
}

impl Entry {
    fn of(key: &KeyInfo) -> Self {
        Self {
            name: key.name.clone(),
            sha256: hex(&key.sha256),
            scopes: key.scopes.iter().map(str::to_owned).collect(),
            created: key.created.0,
            expires: (key.expires != UnixSeconds::NEVER).then_some(key.expires.0),
            note: key.note.clone(),
        }
    }

    fn info(self) -> Option<KeyInfo> {
        (is_plain_name(&self.name) && !self.name.contains(':')).then_some(())?;
        Some(KeyInfo {
            sha256: from_hex(&self.sha256)?,
            scopes: ScopeSet::of(self.scopes.iter().map(String::as_str))?,
            created: UnixSeconds(self.created),
            expires: self.expires.map_or(UnixSeconds::NEVER, UnixSeconds),
            name: self.name,
            note: self.note,
        })
    }
}

/// What a file looks like from outside. A change of its mode or owner counts too: a file that was refused for its mode
/// is read again when that was mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
    changed: (i64, i64),
    inode: u64,
}

impl FileStamp {
    #[cfg(unix)]
    fn of(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Self { modified: metadata.modified().ok(), bytes: metadata.len(), changed, inode: metadata.ino() }
    }

    #[cfg(not(unix))]
    fn of(metadata: &fs::Metadata) -> Self {
        Self { modified: metadata.modified().ok(), bytes: metadata.len(), changed: (0, 0), inode: 0 }
    }
}

/// Whether users other than its owner can write a file.
pub(crate) fn is_writable_by_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| foreign_write_mode(&metadata).is_some())
}

/// The mode of a file that users other than its owner can write.
#[cfg(unix)]
fn foreign_write_mode(metadata: &fs::Metadata) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = metadata.permissions().mode() & 0o777;
    (mode & 0o022 != 0).then_some(mode)
}

#[cfg(not(unix))]
fn foreign_write_mode(_: &fs::Metadata) -> Option<u32> {
    None
}

pub(super) fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (number, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * number..2 * number + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_000);

    fn new(name: &str) -> NewKey {
        NewKey { name: name.to_owned(), ..NewKey::default() }
    }

    #[test]
    fn keys_are_made_listed_and_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let file = ApiKeyFile::at(folder.path().join("sub/keys.toml"));
        assert_eq!(file.list().unwrap(), []);
        let scopes = ScopeSet::parse("files:read").unwrap();
        let made = NewKey { scopes: scopes.clone(), expires: Some(UnixSeconds(2_000)), ..new("ci") };
        let secret = file.add(made, NOW).unwrap();
        file.add(new("ops"), NOW).unwrap();
        let keys = file.list().unwrap();
        assert_eq!(
            (keys[0].name.as_str(), &keys[0].scopes, keys[0].expires),
            ("ci", &scopes, UnixSeconds(2_000))
        );
        assert_eq!(keys[1].expires, UnixSeconds::NEVER);
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(!text.contains(&secret.expose()[4..20]), "{text}");

        file.add(new("ci"), NOW).unwrap();
        assert!(matches!(file.add(new("ci"), NOW), Err(ApiKeyFileError::TooMany(_))));
        let first = keys[0].label();
        assert_eq!(file.revoke(&first).unwrap().len(), 1);
        assert_eq!(file.revoke("ci").unwrap().len(), 1);
        assert!(matches!(file.revoke("ci"), Err(ApiKeyFileError::NotFound(_))));
        assert_eq!(file.list().unwrap().len(), 1);
        for bad in ["", "a:b", "a\nb"] {
            assert!(matches!(file.add(new(bad), NOW), Err(ApiKeyFileError::Name(_))), "{bad:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = ApiKeyFile::at(folder.path().join("keys.toml"));
        file.add(new("ci"), NOW).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o620)).unwrap();
        let error = file.list().unwrap_err().to_string();
        assert!(error.contains("mode 620") && error.contains("chmod go-w"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_file_of_keys_is_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = ApiKeyFile::at(folder.path().join("keys.toml"));
        let hash = "ab".repeat(32);
        let rows = [
            ("nonsense".to_owned(), "not a file of keys"),
            (format!("[[key]]\nname='a'\nsha256='{hash}'\nscope=['x']"), "unknown field"),
            ("[[key]]\nname='a'\nsha256='12'".to_owned(), "key `a`"),
            (format!("[[key]]\nname='a'\nsha256='{hash}'\n[[key]]\nname='b'\nsha256='{hash}'"), "twice"),
        ];
        for (text, expected) in rows {
            fs::write(file.path(), &text).unwrap();
            #[cfg(unix)]
            fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            let error = file.list().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
