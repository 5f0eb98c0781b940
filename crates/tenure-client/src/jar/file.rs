//! A jar in a file, which only its owner can read and which one process at a time changes.
//!
//! A write replaces the whole file, so writers lock a second file next to it. Readers need no lock.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use super::Book;
use crate::{
    clock,
    error::{ClientErrorKind, Error},
};

/// How often the lock is tried, and the pause between two tries: five seconds in all.
const LOCK_TRIES: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

pub(super) struct JarFile {
    path: PathBuf,
}

impl JarFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn read(&self) -> Result<Book, Error> {
        match self.load() {
            // A damaged jar is not set aside here: without the lock, another process may just have written a new one.
            Err(error) if error.kind() == ClientErrorKind::Invalid => {
                tracing::warn!(path = %self.path.display(), %error, "the jar is damaged, continuing without its content");
                Ok(Book::default())
            }
            loaded => loaded,
        }
    }

    pub(super) fn update<R>(&self, change: impl FnOnce(&mut Book) -> R) -> Result<R, Error> {
        let folder = self.folder();
        create_private_folder(folder).map_err(|error| self.failed("create the folder of the jar", error))?;
        // The lock ends when the file is closed, also if this process is killed.
        let _lock = self.lock()?;
        let before = match self.load() {
            Err(error) if error.kind() == ClientErrorKind::Invalid => {
                self.set_aside(&error)?;
                Book::default()
            }
            loaded => loaded?,
        };
        let mut book = before.clone();
        let result = change(&mut book);
        if book != before {
            self.write(&book).map_err(|error| self.failed("write the jar", error))?;
        }
        Ok(result)
    }

    fn load(&self) -> Result<Book, Error> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Book::default()),
            Err(error) => return Err(self.failed("read the jar", error)),
        };
        tighten(&self.path);
        Book::parse(&text)
    }

    fn lock(&self) -> Result<File, Error> {
        let mut options = for_owner();
        options.create(true).truncate(false);
        let path = self.beside(".lock");
        let file = options.open(&path).map_err(|error| self.failed("open the lock of the jar", error))?;
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) => return Err(self.failed("lock the jar", error)),
            }
        }
        Err(Error::new(ClientErrorKind::Jar, "lock the jar: another process has been holding it for seconds"))
    }

    fn write(&self, book: &Book) -> io::Result<()> {
        // The name is always the same, and the lock makes it ours: a file that a killed process left there is removed,
        // and a link there is never followed.
        let path = self.beside(".tmp");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = for_owner().create_new(true).open(&path)?;
        file.write_all(book.to_text().as_bytes())?;
        // Sync before the rename: otherwise a power loss can leave an empty file under the new name.
        file.sync_all()?;
        fs::rename(&path, &self.path)?;
        sync_folder(self.folder())
    }

    fn set_aside(&self, damage: &Error) -> Result<(), Error> {
        let aside = self.beside(&format!(".damaged-{}", clock::stamp(clock::now()).replace(':', "")));
        fs::rename(&self.path, &aside).map_err(|error| self.failed("set the damaged jar aside", error))?;
        tracing::warn!(path = %self.path.display(), aside = %aside.display(), %damage, "set a damaged jar aside");
        Ok(())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(suffix);
        self.path.with_file_name(name)
    }

    fn folder(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn failed(&self, what: &str, error: io::Error) -> Error {
        Error::with_source(ClientErrorKind::Jar, format!("{what} `{}`", self.path.display()), error)
    }
}

/// Opens a file for writing; a new file can be read only by its owner.
fn for_owner() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

#[cfg(unix)]
fn create_private_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn create_private_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// Removes the permissions of other users, because other programs write jars that everyone can read.
#[cfg(unix)]
fn tighten(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(metadata) = fs::metadata(path) else { return };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return;
    }
    let changed = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
    tracing::warn!(
        path = %path.display(), mode = format!("{mode:o}"), changed = changed.is_ok(),
        "other users could read the jar, which is only for its owner"
    );
}

#[cfg(not(unix))]
fn tighten(_path: &Path) {}

#[cfg(test)]
mod tests;
