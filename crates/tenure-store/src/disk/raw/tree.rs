//! Finds the tables of a keyspace.
//!
//! A keyspace is a folder. Its file `current` names the newest manifest and the manifest's checksum; the manifest
//! lists the tables, level by level and run by run, each with its checksum. The tables of a run do not overlap
//! and are in order. If the manifest is damaged or gone, every table in the folder counts as listed.

use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::table::ListedTable;

/// The tables of a keyspace.
pub(super) struct Tree {
    /// Runs of tables that do not overlap.
    pub(super) runs: Vec<Vec<ListedTable>>,
    /// The manifest, or the file that names it, if it is damaged or gone.
    pub(super) flaw: Option<PathBuf>,
}

/// Reads the list of tables in the folder of a keyspace.
pub(super) fn read(folder: &Path) -> io::Result<Tree> {
    let current = folder.join("current");
    match manifest(folder, &current) {
        Ok(runs) => Ok(Tree { runs, flaw: None }),
        Err(ManifestError::Disk(error)) => Err(error),
        Err(ManifestError::Damaged(file)) => {
            let runs = tables(folder)?.into_iter().map(|table| vec![table]).collect::<Vec<_>>();
            // An unfinished keyspace has none of these, and is not damaged.
            let flaw = (!runs.is_empty() || current.exists() || folder.join("v0").exists()).then_some(file);
            Ok(Tree { runs, flaw })
        }
    }
}

enum ManifestError {
    Disk(io::Error),
    Damaged(PathBuf),
}

fn load(path: &Path) -> Result<Vec<u8>, ManifestError> {
    std::fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ManifestError::Damaged(path.to_owned()),
        _ => ManifestError::Disk(error),
    })
}

fn manifest(folder: &Path, current: &Path) -> Result<Vec<Vec<ListedTable>>, ManifestError> {
    let damaged = |path: &Path| ManifestError::Damaged(path.to_owned());
    let pointer = load(current)?;
    let (id, checksum) = read_pointer(&pointer).ok_or_else(|| damaged(current))?;
    let path = folder.join(format!("v{id}"));
    let bytes = load(&path)?;
    if xxh3_128(&bytes) != checksum {
        return Err(damaged(&path));
    }
    let archive = sfa::Reader::new(&path).map_err(|_| damaged(&path))?;
    let section = archive.toc().section(b"tables").ok_or_else(|| damaged(&path))?;
    let (from, to) = (section.pos(), section.pos() + section.len());
    let list = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let list = list.and_then(|(from, to)| bytes.get(from..to)).ok_or_else(|| damaged(&path))?;
    read_list(list, &folder.join("tables")).ok_or_else(|| damaged(&path))
}

fn read_pointer(bytes: &[u8]) -> Option<(u64, u128)> {
    let id = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let checksum = u128::from_le_bytes(bytes.get(8..24)?.try_into().ok()?);
    Some((id, checksum))
}

fn read_list(bytes: &[u8], folder: &Path) -> Option<Vec<Vec<ListedTable>>> {
    let mut at = 0;
    let mut take = |count: usize| {
        let taken = bytes.get(at..at + count)?;
        at += count;
        Some(taken)
    };
    let mut runs = Vec::new();
    let levels = take(1)?[0];
    for _ in 0..levels {
        let count = take(1)?[0];
        for _ in 0..count {
            let tables = u32::from_le_bytes(take(4)?.try_into().ok()?);
            let mut run = Vec::new();
            for _ in 0..tables {
                let id = u64::from_le_bytes(take(8)?.try_into().ok()?);
                // The kind of checksum; only one exists.
                take(1)?;
                let checksum = Some(u128::from_le_bytes(take(16)?.try_into().ok()?));
                let base_seqno = u64::from_le_bytes(take(8)?.try_into().ok()?);
                run.push(ListedTable { path: folder.join(id.to_string()), checksum, base_seqno });
            }
            runs.push(run);
        }
    }
    Some(runs)
}

/// Every table in the folder, whether it is listed or not.
fn tables(folder: &Path) -> io::Result<Vec<ListedTable>> {
    let entries = match std::fs::read_dir(folder.join("tables")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        found.push(ListedTable { path: entry?.path(), checksum: None, base_seqno: 0 });
    }
    found.sort_by(|one, two| one.path.cmp(&two.path));
    Ok(found)
}
