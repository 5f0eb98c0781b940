//! Opens a store by its URL: picks the engine, checks the keys, and makes the store closable.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use tenure_session::port::members::Members;
use tenure_session::port::store::Store;

use crate::closable::Closable;
use crate::disk::{self, Disk, DiskError, Sync};
use crate::memory::Memory;
use crate::sealed::keys::SealKeys;
use crate::sealed::{self, SealError, Sealed};

/// Where a store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// In this process, and gone with it.
    Memory,
    /// In this folder.
    Disk(PathBuf),
}

/// How to open a store.
#[derive(Debug)]
pub struct StoreOptions {
    /// What a finished write of a store on disk survives.
    pub sync: Sync,
    /// Bytes of events that a store in memory keeps at most.
    pub max_event_bytes: usize,
    /// The keys of an encrypted store.
    pub keys: Option<SealKeys>,
    /// How many table files a store on disk keeps open; without a value the engine decides.
    pub max_files: Option<usize>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { sync: Sync::Os, max_event_bytes: usize::MAX, keys: None, max_files: None }
    }
}

/// An open store.
#[derive(Clone)]
pub struct OpenedStore {
    /// The store, as sessions use it.
    pub store: Arc<dyn Store>,
    /// The disk engine, if this is a store on disk: for backups. It is gone once the store is closed.
    pub disk: Option<Weak<Disk>>,
    /// The records of the nodes that share the store; `None` if it belongs to one process.
    pub members: Option<Arc<dyn Members>>,
    closable: Arc<Closable>,
}

impl OpenedStore {
    /// A store that the caller opened and will close. [`OpenedStore::close`] closes it only for users of this handle,
    /// and does not wait for other holders.
    pub fn lent(store: Arc<dyn Store>) -> Self {
        Self::around(Closable::lent(store), None)
    }

    /// A store on an engine that has no other owner: encrypted with these keys, or plain.
    ///
    /// # Errors
    /// When the keys do not fit the encryption of the store, or it does not answer.
    pub async fn on(engine: Arc<dyn Store>, keys: Option<SealKeys>) -> Result<Self, OpenError> {
        Ok(Self::around(Closable::new(with_keys(engine, keys).await?), None))
    }

    fn around(closable: Closable, disk: Option<Weak<Disk>>) -> Self {
        let closable = Arc::new(closable);
        Self { store: Arc::clone(&closable) as Arc<dyn Store>, disk, members: None, closable }
    }

    /// The same store, shared by the nodes of these records. They may hold its engine too, so that
    /// [`OpenedStore::close`] does not wait for its end.
    #[must_use]
    pub fn shared_by(self, members: Arc<dyn Members>) -> Self {
        self.closable.lend();
        Self { members: Some(members), ..self }
    }

    /// Closes the store for every holder, so that another process can open it.
    ///
    /// # Cancel safety
    /// The store is closed when the first poll returns; only the wait can be dropped.
    pub async fn close(&self) {
        self.closable.close().await;
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No engine has this name.
    #[error("no store engine is called `{0}`")]
    UnknownEngine(String),
    /// A store on disk without a folder.
    #[error("`disk:` needs the path of a folder")]
    NoFolder,
    /// The engine could not open it.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The keys do not fit the encryption of the store.
    #[error(transparent)]
    Seal(#[from] SealError),
}

impl Location {
    /// Reads a URL such as `memory:` or `disk:/var/lib/tenure`.
    ///
    /// # Errors
    /// When no engine has that name, or its folder is missing.
    pub fn parse(url: &str) -> Result<Self, OpenError> {
        match url.split_once(':').unwrap_or((url, "")) {
            ("memory", "") => Ok(Self::Memory),
            ("disk", "") => Err(OpenError::NoFolder),
            ("disk", folder) => Ok(Self::Disk(folder.into())),
            _ => Err(OpenError::UnknownEngine(url.to_owned())),
        }
    }

    /// Opens the store, or makes a new one there.
    ///
    /// # Errors
    /// When it is in use, damaged, of another version, or the keys do not fit.
    pub async fn open(&self, options: StoreOptions) -> Result<OpenedStore, OpenError> {
        let (store, disk): (Arc<dyn Store>, _) = match self {
            Self::Memory => (Arc::new(Memory::bounded(options.max_event_bytes)), None),
            Self::Disk(folder) => {
                let (sync, max_files) = (options.sync, options.max_files);
                let options = disk::DiskOptions { sync, max_files, ..disk::DiskOptions::default() };
                let disk = Arc::new(Disk::open_with(folder, options)?);
                let weak = Arc::downgrade(&disk);
                (disk as Arc<dyn Store>, Some(weak))
            }
        };
        let store = with_keys(store, options.keys).await?;
        Ok(OpenedStore::around(Closable::new(store), disk))
    }
}

/// Encrypts with the keys; without keys, makes sure that the store is not encrypted.
async fn with_keys(store: Arc<dyn Store>, keys: Option<SealKeys>) -> Result<Arc<dyn Store>, OpenError> {
    match keys {
        Some(keys) => Ok(Arc::new(Sealed::open(store, keys).await?)),
        None => {
            sealed::check_plain(store.as_ref()).await?;
            Ok(store)
        }
    }
}

/// Opens a store by its URL.
///
/// # Errors
/// As [`Location::parse`] and [`Location::open`].
pub async fn open(url: &str, options: StoreOptions) -> Result<OpenedStore, OpenError> {
    Location::parse(url)?.open(options).await
}

impl std::fmt::Debug for OpenedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenedStore").field("store", &self.closable).finish_non_exhaustive()
    }
}
