//! The store: opened for a server or for a command, checked, repaired, backed up and copied.
//!
//! In: the configuration, or the URL of a store. Out: an open store, or a [`Failure`] with a hint for the operator.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use tenure_session::SessionKey;
use tenure_session::port::seal::Seal;
use tenure_session::port::store::{Expected, RecordKey, Space, Store, StoreError};
use tenure_store::copy::{self, CopyError};
use tenure_store::disk::{self, DiskError, Sync};
use tenure_store::open::{Location, OpenError, StoreOptions};
use tenure_store::sealed::keys::{self, SealKeys};

use super::{ByteProgress, CopyProgress, OpenedStore, Report, nats};
use crate::config::{Config, NatsConfig, WriteDurability};
use crate::failure::Failure;
use crate::stores;

/// The URL of the configured store; for `disk:` without a folder, with the default folder.
pub(crate) fn store_url(config: &Config) -> Result<String, Failure> {
    match config.store.as_str() {
        "disk:" => Ok(disk_url(&stores::own_folder(config)?)),
        url => Ok(url.to_owned()),
    }
}

/// The URL of the store in a folder.
pub(crate) fn disk_url(folder: &Path) -> String {
    format!("disk:{}", folder.display())
}

/// Where the store of a URL is.
pub(super) fn location(url: &str) -> Result<Location, Failure> {
    match stores::given_folder() {
        Some(folder) if url == "disk:" => Ok(Location::Disk(folder)),
        _ => Location::parse(url).map_err(|error| cannot_open(url, error)),
    }
}

/// Checks that the configuration names a place where a store can be. Opens nothing.
pub(super) fn look_for_place(config: &Config) -> Result<(), Failure> {
    let url = store_url(config)?;
    if nats::is_engine(&url) {
        return nats::options(&url, &config.nats).map(drop);
    }
    location(&url).map(drop)
}

/// The keys of an encrypted store.
pub(super) fn keys(file: Option<&PathBuf>) -> Result<Option<SealKeys>, Failure> {
    let Some(file) = file else { return Ok(None) };
    SealKeys::read(file).map(Some).map_err(|error| {
        Failure::new(format!("cannot read the key file `{}`", file.display()))
            .caused_by(error)
            .hint("a key is 64 hex digits on a line of its own; make one with `tenure store new-key`")
    })
}

/// Opens the store that the configuration names.
pub(crate) async fn open_configured(config: &Config) -> Result<Access, Failure> {
    let url = store_url(config)?;
    if nats::is_engine(&url) {
        let keys = keys(config.store_key_file.as_ref())?;
        return nats::open(&url, &config.nats, keys).await.map(Access::Open);
    }
    let location = location(&url)?;
    if let (Location::Disk(folder), "disk:") = (&location, config.store.as_str())
        && let Some(earlier) = stores::passed_over(folder)
    {
        tracing::warn!(
            earlier = %earlier.display(), now = %folder.display(),
            hint = format!("to go on with those sessions: --store {}", disk_url(&earlier)),
            "an earlier version kept sessions in another folder"
        );
    }
    let options = StoreOptions {
        sync: match config.durability {
            WriteDurability::Os => Sync::Os,
            WriteDurability::Disk => Sync::Disk,
        },
        max_event_bytes: config.max_total_event_bytes,
        keys: keys(config.store_key_file.as_ref())?,
        max_files: config.descriptors.store,
    };
    match access(&url, location.open(options).await)? {
        Access::InUse(failure) if config.store == "disk:" => Ok(Access::InUse(failure.hint(
            "another tenure serves the same server: connect to that one, or give this one sessions of its own with \
             `--name NAME`",
        ))),
        access => Ok(access),
    }
}

/// The failure of a store that cannot be opened, with a hint for the operator.
pub(super) fn cannot_open(url: &str, error: OpenError) -> Failure {
    let hint = match &error {
        OpenError::UnknownEngine(_) | OpenError::NoFolder => {
            "use `disk:PATH`, `nats://HOST:PORT`, or `memory:` to forget sessions when the process ends"
        }
        OpenError::Disk(DiskError::InUse(_)) => {
            "stop the other process, or keep these sessions elsewhere with `--store disk:PATH`"
        }
        OpenError::Disk(DiskError::Format { .. }) => "use the version of tenure that wrote it",
        OpenError::Disk(DiskError::Io { cause, .. })
            if cause.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            "the folder belongs to another user: run as that one, or keep these sessions elsewhere with `--store disk:PATH`"
        }
        OpenError::Disk(DiskError::Io { .. }) => "check that the folder can be written and the disk has room",
        OpenError::Disk(_) => "check the store with `tenure store check`, and save its data with `--repair`",
        OpenError::Seal(_) => "give the key that the store was made with: `--store-key-file FILE`",
        _ => return Failure::new(format!("cannot open the store `{url}`")).caused_by(error),
    };
    Failure::new(format!("cannot open the store `{url}`")).caused_by(error).hint(hint)
}

/// The folder of a store on disk.
pub(crate) fn folder(url: &str) -> Result<PathBuf, Failure> {
    if nats::is_engine(url) {
        return Err(nats::no_folder(url));
    }
    match location(url)? {
        Location::Disk(folder) => Ok(folder),
        Location::Memory => Err(Failure::new(format!("`{url}` is the memory of a server, and gone with it"))
            .hint("name the folder of a store with `--store disk:PATH`")),
    }
}

/// The folder of a store on disk, which must exist.
pub(crate) fn existing_folder(url: &str) -> Result<PathBuf, Failure> {
    let folder = folder(url)?;
    if stores::is_store(&folder) {
        return Ok(folder);
    }
    Err(Failure::new(format!("there is no store in `{}`", folder.display()))
        .hint("name the folder that `tenure serve` uses, as in `--store disk:PATH`; `tenure store list` shows your own stores"))
}

/// The result of opening a store that a server may have open.
pub(crate) enum Access {
    /// It is open.
    Open(OpenedStore),
    /// Another process has it open; the failure says so.
    InUse(Failure),
}

/// Opens a store for a command. Creates it if it does not exist.
pub(crate) async fn open(
    url: &str,
    key_file: Option<&PathBuf>,
    engine: &NatsConfig,
) -> Result<Access, Failure> {
    if nats::is_engine(url) {
        return nats::open(url, engine, keys(key_file)?).await.map(Access::Open);
    }
    let options = StoreOptions { keys: keys(key_file)?, ..StoreOptions::default() };
    access(url, location(url)?.open(options).await)
}

fn access(url: &str, opened: Result<OpenedStore, OpenError>) -> Result<Access, Failure> {
    match opened {
        Ok(opened) => Ok(Access::Open(opened)),
        Err(error) if matches!(error, OpenError::Disk(DiskError::InUse(_))) => {
            Ok(Access::InUse(cannot_open(url, error)))
        }
        Err(error) => Err(cannot_open(url, error)),
    }
}

/// How often the key in the store is looked for again.
const KEY_TRIES: usize = 3;

/// Seals the request state that clients carry between attempts at a request. Its key comes from a file, or is kept in
/// the store, so that the states stay valid in the next process.
pub(super) async fn request_state_seal(
    config: &Config,
    store: &Arc<dyn Store>,
) -> Result<Arc<dyn Seal>, Failure> {
    if let Some(keys) = keys(config.exchanges.state_key_file.as_ref())? {
        return Ok(Arc::new(keys));
    }
    let failed = |error: StoreError| Failure::new("cannot keep a key in the store").caused_by(error);
    let place = RecordKey { space: Space::Store, key: SessionKey::from_bytes(*b"request states\0\0") };
    let mut tries = 0;
    let text = loop {
        if let Some(kept) = store.get(place).await.map_err(failed)? {
            break String::from_utf8_lossy(&kept.value).into_owned();
        }
        let made = keys::generate().to_string();
        match store.put(place, made.clone().into(), Expected::Absent, None).await {
            Ok(_) => break made,
            // Another process that starts at the same time was first, or may have been: its key is the one that counts.
            Err(StoreError::Conflict { .. } | StoreError::Unknown) if tries < KEY_TRIES => tries += 1,
            Err(error) => return Err(failed(error)),
        }
    };
    let keys = SealKeys::parse(&text)
        .map_err(|error| Failure::new("the key that the store keeps cannot be read").caused_by(error))?;
    Ok(Arc::new(keys))
}

/// The folder of the control socket: the store's folder, if it has one.
pub(super) fn control_folder(config: &Config, opened: &OpenedStore) -> Result<Option<PathBuf>, Failure> {
    opened.disk.is_some().then(|| folder(&store_url(config)?)).transpose()
}

/// Checks the store in a folder without changing it.
pub(crate) fn check(folder: &Path, progress: impl FnMut(ByteProgress)) -> Result<Report, Failure> {
    disk::check(folder, progress).map_err(|error| cannot_check(folder, error))
}

/// Replaces a damaged store by a new one with everything that can still be read.
pub(crate) fn repair(folder: &Path, progress: impl FnMut(ByteProgress)) -> Result<Report, Failure> {
    disk::repair(folder, progress).map_err(|error| cannot_check(folder, error))
}

fn cannot_check(folder: &Path, error: DiskError) -> Failure {
    let failure = Failure::new(format!("cannot check the store in `{}`", folder.display()));
    let hint = match &error {
        DiskError::InUse(_) => {
            "stop the server first, or copy the store with `tenure store backup` and check the copy"
        }
        DiskError::Format { .. } => "use the version of tenure that wrote it",
        _ => "check that the disk works, has room, and lets you read and write the folder",
    };
    failure.caused_by(error).hint(hint)
}

/// What a backup contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BackedUp {
    pub(crate) sessions: u64,
    pub(crate) data_sessions: u64,
}

/// Copies a store into a folder while it is in use.
pub(crate) async fn backup(
    store: &OpenedStore,
    to: &Path,
    progress: impl FnMut(ByteProgress) + Send + 'static,
) -> Result<BackedUp, Failure> {
    let failed = |what: &str| Failure::new(format!("cannot back up to `{}`: {what}", to.display()));
    let Some(disk) = store.disk.as_ref().and_then(Weak::upgrade) else {
        return Err(failed("the store is not on a disk")
            .hint("a NATS engine is backed up by its own servers (`nats account backup`)"));
    };
    match disk.backup(to, progress).await {
        Ok(totals) => Ok(BackedUp { sessions: totals.sessions, data_sessions: totals.data_sessions }),
        Err(DiskError::Io { cause, .. }) => Err(match cause.kind() {
            std::io::ErrorKind::DirectoryNotEmpty => {
                failed("the folder is not empty").hint("name a folder that is empty or not there yet")
            }
            std::io::ErrorKind::StorageFull => {
                failed("there is no room").hint("name a folder on another disk")
            }
            _ => failed("the folder cannot be used").caused_by(cause),
        }),
        Err(error) => Err(failed("the store cannot be read").caused_by(error)),
    }
}

/// How many records a copy of this store will have.
pub(crate) async fn count(store: &dyn Store) -> Result<u64, Failure> {
    const PAGE: usize = 1000;
    let mut count = 0;
    for space in Space::ALL.into_iter().filter(|space| *space != Space::Store) {
        let mut after = None;
        loop {
            let page = store
                .list(space, after, PAGE)
                .await
                .map_err(|error| Failure::new("cannot read the store").caused_by(error))?;
            count += page.len() as u64;
            after = page.last().map(|(key, _)| *key);
            if page.len() < PAGE {
                break;
            }
        }
    }
    Ok(count)
}

/// Copies everything from one store to another.
pub(crate) async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    progress: impl FnMut(CopyProgress),
) -> Result<copy::CopyTotals, Failure> {
    copy::copy(from, to, progress).await.map_err(|error| {
        let hint = match &error {
            CopyError::NotEmpty => "name a folder that has no store yet",
            _ => "the copy is not complete: remove it, and copy again",
        };
        Failure::new("cannot copy the store").caused_by(error).hint(hint)
    })
}

/// A new key as the text of a key file, and the id by which messages name it.
pub(crate) fn new_key() -> (impl std::ops::Deref<Target = String>, String) {
    let key = keys::generate();
    let id = SealKeys::parse(&key).map(|keys| keys.id().to_string());
    (key, id.expect("a fresh key is a key"))
}
