//! Checks a store for damage before the engine opens it.
//!
//! The engine repairs by removing: it cuts a journal at the first bad batch, however many good ones follow, and
//! deletes a keyspace whose manifest is gone. That data could still be saved, so the engine never opens a damaged
//! store. The unsynced end of a journal is different: no client was promised it, and after a loss of power it may be
//! in any state. This file cuts it, because the engine cuts only some of the possible states, refuses others, and
//! trusts some lengths.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::DiskError;
use super::mark::Mark;
use super::raw::journal::{self, Part};
use super::raw::{self, batch_number, numbered};

/// The folder in which a repair builds the new data.
pub(super) const REPAIRING: &str = "data.repairing";

/// The folder in which a backup builds its copy.
pub(super) const COPYING: &str = "data.copying";

/// How often to try the lock, 100 ms apart: another process may be about to end.
const TRIES: usize = 3;

/// Checks that the engine may open the store in a folder.
pub(super) fn look(folder: &Path, mark: &Mark) -> Result<(), DiskError> {
    let io = DiskError::io(folder);
    let data = folder.join("data");
    if !data.exists() {
        let halves = [REPAIRING, COPYING].map(|name| folder.join(name));
        return match (halves.into_iter().find(|half| half.exists()), mark.batch()) {
            (Some(half), _) => Err(damaged(folder, vec![half])),
            (None, 0) => Ok(()),
            (None, missing) => Err(DiskError::Lost { path: folder.to_owned(), missing }),
        };
    }
    let _lock = lock(folder)?;
    let wrong = raw::missing(&data).map_err(&io)?;
    if !wrong.is_empty() {
        return Err(damaged(folder, wrong));
    }
    journals(folder, &data, mark)
}

/// Locks a store against other processes, as the engine does.
pub(super) fn lock(folder: &Path) -> Result<Option<File>, DiskError> {
    let io = DiskError::io(folder);
    let file = match OpenOptions::new().read(true).write(true).open(folder.join("data").join("lock")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    for tries in 1.. {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(io(error)),
            Err(TryLockError::WouldBlock) if tries < TRIES => std::thread::sleep(Duration::from_millis(100)),
            Err(TryLockError::WouldBlock) => return Err(DiskError::InUse(folder.to_owned())),
        }
    }
    Ok(Some(file))
}

fn damaged(folder: &Path, files: Vec<PathBuf>) -> DiskError {
    DiskError::Damaged { path: folder.to_owned(), files: inside(folder, files), cause: None }
}

/// Makes paths relative to the store's folder.
fn inside(folder: &Path, files: Vec<PathBuf>) -> Vec<PathBuf> {
    files.into_iter().map(|file| file.strip_prefix(folder).map(Path::to_owned).unwrap_or(file)).collect()
}

/// Adds the damaged files to an error of the engine.
pub(super) fn find_files(error: DiskError) -> DiskError {
    match error {
        DiskError::Damaged { path, files, cause } if files.is_empty() => {
            // If the search for them fails too, the store is still damaged.
            let files = raw::refused(&path.join("data")).unwrap_or_default();
            DiskError::Damaged { files: inside(&path, files), path, cause }
        }
        error => error,
    }
}

/// Looks for damage in the synced part of the journals, and cuts an unsynced end that is damaged.
fn journals(folder: &Path, data: &Path, mark: &Mark) -> Result<(), DiskError> {
    let io = DiskError::io(folder);
    let (meta, mut last) = raw::counted(data).map_err(&io)?;
    let paths = numbered(data, ".jnl").map_err(&io)?;
    for (n, (_, path)) in paths.iter().enumerate() {
        let bytes = journal::read(path).map_err(&io)?;
        // The offset of the first bad part.
        let mut wrong = None;
        for part in journal::parts(&bytes) {
            match part {
                Part::Bad { at, .. } => {
                    wrong.get_or_insert(at);
                }
                Part::Good(batch) => {
                    if batch.is_flawed {
                        wrong.get_or_insert(batch.at);
                    }
                    let number = batch_number(&batch.items, meta);
                    let was_promised =
                        number.is_some_and(|number| number <= mark.batch()) || mark.batch() == 0;
                    if wrong.is_some() && was_promised {
                        return Err(damaged(folder, vec![path.clone()]));
                    }
                    if wrong.is_none() {
                        last = number.or(last);
                    }
                }
            }
        }
        let Some(at) = wrong else { continue };
        // A journal is complete and synced before the next one is made.
        if n + 1 < paths.len() {
            return Err(damaged(folder, vec![path.clone()]));
        }
        reaches(folder, last, mark)?;
        let name = path.display();
        tracing::info!(journal = %name, at, "cut the incomplete end of a journal, which was never synced");
        let file = OpenOptions::new().write(true).open(path).map_err(&io)?;
        file.set_len(at as u64).and_then(|()| file.sync_all()).map_err(&io)?;
    }
    // A journal never ends before the batches in tables, even if the tables are complete without it. If it does, it was
    // cut, and not every keyspace need have been written into tables that far.
    reaches(folder, last, mark)
}

/// Checks that the last batch is not behind the mark.
fn reaches(folder: &Path, last: Option<u64>, mark: &Mark) -> Result<(), DiskError> {
    match mark.batch().saturating_sub(last.unwrap_or(0)) {
        0 => Ok(()),
        missing => Err(DiskError::Lost { path: folder.to_owned(), missing }),
    }
}
