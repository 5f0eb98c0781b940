//! Temporary folders: where they are made, how their pages leave the file cache, and that they are removed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};

use crate::progress;

/// How often, and how far apart, removal is tried.
const TRIES: u32 = 40;
const BETWEEN: Duration = Duration::from_millis(50);

/// A folder that is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A fresh folder in `dir`, or where the system keeps temporary things.
    pub(crate) fn new(dir: Option<&Path>) -> Result<Scratch> {
        let dir = dir.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = tempfile::Builder::new().prefix("tenure-bench-").tempdir_in(&dir);
        let folder = folder.with_context(|| format!("make a temporary folder in `{}`", dir.display()))?;
        Ok(Scratch { path: folder.keep() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A process that was killed a moment ago may still be making files while it dies.
        for _ in 0..TRIES {
            let _ = std::fs::remove_dir_all(&self.path);
            if !self.path.exists() {
                return;
            }
            std::thread::sleep(BETWEEN);
        }
        progress::warn(&format!("could not remove `{}`", self.path.display()));
    }
}

/// Writes a folder's files out and drops their pages from the file cache, so that the next read of each
/// comes from the disk.
pub(crate) fn drop_file_cache(folder: &Path) -> Result<()> {
    for path in files(folder)? {
        let drop = || -> std::io::Result<()> {
            let file = File::open(&path)?;
            // Only clean pages can be dropped.
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
            Ok(())
        };
        drop().with_context(|| format!("drop `{}` from the file cache", path.display()))?;
    }
    Ok(())
}

/// Bytes that a folder takes on the disk.
pub(crate) fn disk_bytes(folder: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    // The kernel counts in units of 512 bytes, whatever the filesystem's blocks are. A file may go while
    // we look: a store at work removes what it has merged.
    let bytes =
        files(folder)?.into_iter().filter_map(|path| path.metadata().ok()).map(|file| file.blocks() * 512);
    Ok(bytes.sum())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let list = || format!("list `{}`", folder.display());
        for entry in std::fs::read_dir(&folder).with_context(list)? {
            let entry = entry.with_context(list)?;
            let kind = entry.file_type().with_context(list)?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// What kind of filesystem temporary folders are on that are made in `dir`, such as `ext4`.
pub(crate) fn filesystem(dir: Option<&Path>) -> String {
    let dir = dir.map_or_else(std::env::temp_dir, Path::to_owned);
    // The last mount whose point is a prefix of the path is the one that shows.
    let folder = dir.canonicalize().unwrap_or(dir);
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let mount = fields.filter(|(point, _)| folder.starts_with(point)).max_by_key(|(point, _)| point.len());
    mount.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Scratch, disk_bytes, drop_file_cache, filesystem};

    #[test]
    fn a_folder_is_gone_when_it_is_dropped_and_can_leave_the_cache_before() {
        let scratch = Scratch::new(None).unwrap();
        let path = scratch.path().to_owned();
        std::fs::create_dir(path.join("inner")).unwrap();
        std::fs::write(path.join("inner/file"), vec![7; 10_000]).unwrap();
        drop_file_cache(&path).unwrap();
        assert!(disk_bytes(&path).unwrap() >= 8_192);
        assert_eq!(std::fs::read(path.join("inner/file")).unwrap(), vec![7; 10_000]);
        assert_ne!(filesystem(Some(&path)), "unknown");
        drop(scratch);
        assert!(!path.exists());
    }
}
