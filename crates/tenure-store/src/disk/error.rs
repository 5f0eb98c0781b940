//! Why a disk store cannot be opened or worked on.
//!
//! Each kind asks for another action of the operator: wait for the other process, free the disk or correct permissions,
//! use another version, or check and repair the store.

use std::path::{Path, PathBuf};

use super::layout;

/// Why a disk store cannot be opened, checked, repaired or backed up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// Another process has it open.
    #[error("`{}` is in use by another process", .0.display())]
    InUse(PathBuf),
    /// A file of it is not as it was written.
    #[error("`{}` is damaged{}", path.display(), in_files(files))]
    Damaged {
        /// Where the store is.
        path: PathBuf,
        /// The damaged files as far as they are known, relative to the store's folder.
        files: Vec<PathBuf>,
        /// The error of the engine, if the engine found the damage.
        #[source]
        cause: Option<fjall::Error>,
    },
    /// Synced writes are gone.
    #[error("`{}` has lost its last {missing} batches of writes: its journal is damaged", path.display())]
    Lost {
        /// Where.
        path: PathBuf,
        /// How many batches are missing.
        missing: u64,
    },
    /// The disk or the operating system refused.
    #[error("`{}` cannot be used", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// Written by another version of this program.
    #[error("`{}` has layout {found}; this version reads layout {}", path.display(), layout::FORMAT)]
    Format {
        /// Where.
        path: PathBuf,
        /// The layout that was found.
        found: u64,
    },
}

fn in_files(files: &[PathBuf]) -> String {
    match files {
        [] => String::new(),
        [one] => format!(" in `{}`", one.display()),
        [first, rest @ ..] => format!(" in `{}` and {} more", first.display(), rest.len()),
    }
}

impl DiskError {
    /// Maps an error of the engine.
    pub(super) fn engine(folder: &Path, cause: fjall::Error) -> Self {
        use std::io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};

        let path = folder.to_owned();
        let cause = match cause {
            fjall::Error::Locked => return Self::InUse(path),
            fjall::Error::Storage(fjall::LsmError::Io(cause)) => fjall::Error::Io(cause),
            cause => cause,
        };
        match cause {
            // A file that is gone, ends too early or has bad contents is damage, not a failure of the disk.
            fjall::Error::Io(io)
                if !matches!(io.kind(), NotFound | UnexpectedEof | InvalidData | InvalidInput) =>
            {
                Self::Io { path, cause: io }
            }
            cause => Self::Damaged { path, files: Vec::new(), cause: Some(cause) },
        }
    }

    pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |cause| Self::Io { path: path.to_owned(), cause }
    }
}
