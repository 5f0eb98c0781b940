//! Why a disk store cannot be opened or worked on.
//!
//! The kinds are what an operator would act on: wait for the other process, free the disk or mend rights, take
//! another version, or have the store checked and repaired.

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
        /// The files, as far as that can be told, from the store's folder on.
        files: Vec<PathBuf>,
        /// What the engine said, if it was asked.
        #[source]
        cause: Option<fjall::Error>,
    },
    /// Something that was safely on the disk is gone.
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
    /// Sorts out what the engine said.
    pub(super) fn engine(folder: &Path, cause: fjall::Error) -> Self {
        use std::io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};

        let path = folder.to_owned();
        let cause = match cause {
            fjall::Error::Locked => return Self::InUse(path),
            fjall::Error::Storage(fjall::LsmError::Io(cause)) => fjall::Error::Io(cause),
            cause => cause,
        };
        match cause {
            // A file that is gone, ends too early or leads nowhere is no failure of the disk.
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
