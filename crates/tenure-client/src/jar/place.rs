//! The jar that programs use: in memory, or in a file.

use std::{fmt, path::PathBuf, sync::Arc};

use parking_lot::Mutex;

use super::{Book, JarServer, file::JarFile};
use crate::{
    clock,
    cookie::{DataSessionId, SessionCookie},
    dialect::Dialect,
    error::{ClientErrorKind, Error},
};

/// Keeps cookies. Clones share one storage.
#[derive(Clone)]
pub struct Jar {
    storage: Arc<JarStorage>,
}

enum JarStorage {
    Memory(Mutex<Book>),
    File(JarFile),
}

impl Jar {
    /// A jar in memory, which ends with its last clone.
    pub fn in_memory() -> Self {
        Self { storage: Arc::new(JarStorage::Memory(Mutex::new(Book::default()))) }
    }

    /// A jar in this file, which need not exist. The file is not read before the first use.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { storage: Arc::new(JarStorage::File(JarFile::new(path.into()))) }
    }

    /// A jar in the file that all programs of this user share.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::Jar` if the system names no folder for the user's data.
    pub fn of_user() -> Result<Self, Error> {
        Self::user_path().map(Self::at).ok_or_else(|| {
            Error::new(
                ClientErrorKind::Jar,
                "the system names no folder for this user's data; name a jar file",
            )
        })
    }

    /// The file of `of_user`.
    pub fn user_path() -> Option<PathBuf> {
        dirs::data_local_dir().map(|folder| folder.join("tenure").join("mcp-cookie.json"))
    }

    /// The content of the jar.
    ///
    /// Takes no lock: writers replace the whole file, so a reader always sees a complete one.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::Jar` if the file cannot be read, or was written by a newer version of the format.
    pub fn read(&self) -> Result<Book, Error> {
        match &*self.storage {
            JarStorage::Memory(book) => Ok(book.lock().clone()),
            JarStorage::File(file) => file.read(),
        }
    }

    /// Changes the content of the jar under a lock, so that no other process changes it at the same time.
    ///
    /// Blocks on the lock and on the disk, so asynchronous callers run it with `spawn_blocking`.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::Jar` if the file cannot be read or written, or another process holds its lock for seconds.
    pub fn update<R>(&self, change: impl FnOnce(&mut Book) -> R) -> Result<R, Error> {
        match &*self.storage {
            JarStorage::Memory(book) => Ok(change(&mut book.lock())),
            JarStorage::File(file) => file.update(change),
        }
    }

    /// The cookie to continue with at this server: the one used last, else the newest. Invalidated and expired
    /// cookies do not count.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub fn active(&self, server: &JarServer, dialect: Dialect) -> Result<Option<SessionCookie>, Error> {
        Ok(self.read()?.active(server, dialect, clock::now()))
    }

    /// The cookie of one session at this server, if it may still be used.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub fn find(
        &self,
        server: &JarServer,
        dialect: Dialect,
        id: &DataSessionId,
    ) -> Result<Option<SessionCookie>, Error> {
        Ok(self.read()?.find(server, dialect, id, clock::now()))
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(*self.storage, JarStorage::Memory(_))
    }
}

impl fmt::Debug for Jar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.storage {
            JarStorage::Memory(_) => f.write_str("Jar(in memory)"),
            JarStorage::File(file) => f.debug_tuple("Jar").field(&file.path()).finish(),
        }
    }
}
