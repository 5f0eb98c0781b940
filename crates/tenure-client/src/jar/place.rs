//! A jar as programs use it: in memory, or in a file.

use std::{fmt, path::PathBuf, sync::Arc};

use parking_lot::Mutex;

use super::{Book, Server, file::JarFile};
use crate::{
    clock,
    cookie::{Cookie, SessionId},
    dialect::Dialect,
    error::{Error, Kind},
};

/// Where cookies are kept. Clones share one place.
#[derive(Clone)]
pub struct Jar {
    place: Arc<Place>,
}

enum Place {
    Memory(Mutex<Book>),
    File(JarFile),
}

impl Jar {
    /// A jar that is gone when its last clone is.
    pub fn in_memory() -> Self {
        Self { place: Arc::new(Place::Memory(Mutex::new(Book::default()))) }
    }

    /// A jar in this file, which need not exist. Nothing is read before it is used.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { place: Arc::new(Place::File(JarFile::new(path.into()))) }
    }

    /// A jar in the file that all programs of this user share.
    ///
    /// # Errors
    ///
    /// `Kind::Jar` if the system names no place for a user's data.
    pub fn of_user() -> Result<Self, Error> {
        Self::user_path().map(Self::at).ok_or_else(|| {
            Error::new(Kind::Jar, "the system names no folder for this user's data; name a jar file")
        })
    }

    /// The file of `of_user`.
    pub fn user_path() -> Option<PathBuf> {
        dirs::data_local_dir().map(|folder| folder.join("tenure").join("mcp-cookie.json"))
    }

    /// All that is in the jar.
    ///
    /// Takes no lock: a file is replaced as a whole, so what is read is complete.
    ///
    /// # Errors
    ///
    /// `Kind::Jar` if the file cannot be read, or was written by a newer version of the format.
    pub fn read(&self) -> Result<Book, Error> {
        match &*self.place {
            Place::Memory(book) => Ok(book.lock().clone()),
            Place::File(file) => file.read(),
        }
    }

    /// Changes what is in the jar, alone: no other process changes it meanwhile.
    ///
    /// Waits for a lock and for the disk, so asynchronous callers run it with `spawn_blocking`.
    ///
    /// # Errors
    ///
    /// `Kind::Jar` if the file cannot be read or written, or another process holds its lock for seconds.
    pub fn update<R>(&self, change: impl FnOnce(&mut Book) -> R) -> Result<R, Error> {
        match &*self.place {
            Place::Memory(book) => Ok(change(&mut book.lock())),
            Place::File(file) => file.update(change),
        }
    }

    /// The cookie to go on with at this server: the last used one, else the newest, that is neither
    /// invalidated nor expired.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub fn active(&self, server: &Server, dialect: Dialect) -> Result<Option<Cookie>, Error> {
        Ok(self.read()?.active(server, dialect, clock::now()))
    }

    /// The cookie of one session at this server, if it may still be used.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub fn find(&self, server: &Server, dialect: Dialect, id: &SessionId) -> Result<Option<Cookie>, Error> {
        Ok(self.read()?.find(server, dialect, id))
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(*self.place, Place::Memory(_))
    }
}

impl fmt::Debug for Jar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.place {
            Place::Memory(_) => f.write_str("Jar(in memory)"),
            Place::File(file) => f.debug_tuple("Jar").field(&file.path()).finish(),
        }
    }
}
