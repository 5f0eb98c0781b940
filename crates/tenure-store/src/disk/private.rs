//! The permissions of a store's folders and files: 0700 and 0600, for their owner alone.
//!
//! A store holds the messages of clients and servers. The engine makes its files with the permissions that the
//! `umask` of the process leaves, and the folder of a store may be older than the store. So this code makes the
//! folders before the engine does, opening a store corrects all permissions in it, and the keeper corrects files that
//! the engine makes later; until then the closed folder around them keeps other users out. A folder that also holds
//! other files keeps its permissions, because other users may need it.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The names in the folder of a store, alone or followed by a dot and more, as in `data.damaged-1`.
const OURS: [&str; 4] = ["data", "high-water", "numbers", "control.sock"];

/// The permission bits of other users in a mode.
const OTHERS: u32 = 0o077;

/// Makes a folder for its owner alone. An existing folder keeps its permissions.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Makes the folder of a store for its owner alone, or removes the permissions of other users from an existing one.
pub(super) fn make_store(folder: &Path) -> io::Result<()> {
    make(folder)?;
    if holds_only_a_store(folder)? {
        close_one(folder);
    }
    Ok(())
}

/// Makes a file for its owner alone, or empties an existing one.
pub(super) fn create(file: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)
}

/// Removes the permissions of other users from everything in the folder of a store.
pub(super) fn close(folder: &Path) -> io::Result<()> {
    let mut closed = 0;
    let mut left = tops(folder)?;
    while let Some(path) = left.pop() {
        closed += usize::from(close_one(&path));
        if is_folder(&path) {
            left.extend(entries(&path)?);
        }
    }
    if closed > 0 {
        tracing::debug!(folder = %folder.display(), closed, "removed the permissions of other users");
    }
    Ok(())
}

/// The paths of a store that other users can read or reach; an exposed folder stands for its contents.
pub(super) fn exposed(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_open = |path: &PathBuf| found(path).is_some_and(|found| found.permissions().mode() & OTHERS != 0);
    Ok(tops(folder)?.into_iter().filter(is_open).collect())
}

/// Notices new files in a folder and removes the permissions of other users from them.
pub(super) struct Watch {
    folders: Vec<Watched>,
}

struct Watched {
    path: PathBuf,
    /// When an entry was last added to it or removed.
    changed: Option<SystemTime>,
    /// Whether a whole round has passed since then. Times are coarse, so a file may come without changing `changed`.
    is_settled: bool,
}

impl Watch {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folders: vec![Watched::new(folder.to_owned())] }
    }

    /// Looks for new files. Without new files it costs one `stat` per folder.
    pub(super) fn round(&mut self) {
        let mut at = 0;
        while let Some(watched) = self.folders.get_mut(at) {
            at += 1;
            let Some(changed) = found(&watched.path).and_then(|found| found.modified().ok()) else {
                at -= 1;
                self.folders.swap_remove(at);
                continue;
            };
            if watched.changed == Some(changed) && watched.is_settled {
                continue;
            }
            watched.is_settled = watched.changed == Some(changed);
            watched.changed = Some(changed);
            let new = entries(&watched.path).unwrap_or_default();
            for path in new {
                close_one(&path);
                if is_folder(&path) && self.folders.iter().all(|known| known.path != path) {
                    self.folders.push(Watched::new(path));
                }
            }
        }
    }
}

impl Watched {
    fn new(path: PathBuf) -> Self {
        Self { path, changed: None, is_settled: false }
    }
}

/// The folder of a store, or the entries that belong to the store in a folder that holds other files too.
fn tops(folder: &Path) -> io::Result<Vec<PathBuf>> {
    if holds_only_a_store(folder)? {
        return Ok(vec![folder.to_owned()]);
    }
    Ok(entries(folder)?.into_iter().filter(|path| is_ours(path)).collect())
}

fn holds_only_a_store(folder: &Path) -> io::Result<bool> {
    Ok(entries(folder)?.iter().all(|path| is_ours(path)))
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    OURS.iter().any(|ours| {
        let rest = name.strip_prefix(ours);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// The metadata of the path itself, not of the target of a link.
fn found(path: &Path) -> Option<Metadata> {
    path.symlink_metadata().ok()
}

fn is_folder(path: &Path) -> bool {
    found(path).is_some_and(|found| found.is_dir())
}

/// Returns whether it removed permissions. It leaves links alone, and files of another user.
fn close_one(path: &Path) -> bool {
    let Some(found) = found(path).filter(|found| !found.is_symlink()) else { return false };
    let mode = found.permissions().mode();
    if mode & OTHERS == 0 {
        return false;
    }
    match fs::set_permissions(path, Permissions::from_mode(mode & 0o7700)) {
        Ok(()) => true,
        // The engine may remove a file at any time.
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => {
            let mode = format!("{:03o}", mode & 0o777);
            tracing::warn!(path = %path.display(), mode, %error, "other users can read the store");
            false
        }
    }
}
