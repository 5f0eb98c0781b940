//! Reads the engine's files without the engine, as far as they can be read, and changes none of them.
//!
//! The engine opens a store only if all of it is in order, and mends what it takes for the end of a journal by
//! cutting it off. To find out what is wrong, and to save the rest, its files are read here one by one: what
//! belongs to a keyspace (`tree`), its tables (`table`) and the journals (`journal`). What was written last
//! wins, as in the engine; a key that is damaged in one place and whole in an older one comes back as it was.

pub(super) mod journal;
mod merge;
pub(super) mod table;
mod tree;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use fjall::Slice;

use self::journal::Part;
use self::merge::Merged;
use self::table::{Flaw, Inspected, Listed};
use super::layout;

/// What the engine writes into its folder to know it by.
const ENGINE: &[u8] = b"FJL\x03";

/// What one key was given or lost at some time.
pub(super) struct Entry {
    pub(super) key: Slice,
    pub(super) seqno: u64,
    /// Nothing if it was removed.
    pub(super) value: Option<Slice>,
}

/// How much was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stage {
    /// Bytes that were dealt with.
    pub done: u64,
    /// Bytes that there are to deal with, as far as it is known.
    pub of: u64,
}

/// A journal that is not as it was written.
pub(super) struct JournalFlaw {
    pub(super) file: PathBuf,
    /// How many batches are gone from the middle of it.
    pub(super) lost: u64,
    /// Only its end is not whole, as when the process was killed while it wrote.
    pub(super) is_unfinished: bool,
    /// Keyspaces and keys that can be made out in what is damaged.
    pub(super) keys: Vec<(u64, Vec<u8>)>,
}

/// What was written since it was last put into tables, by key and then from new to old.
type Recent = BTreeMap<(Slice, Reverse<u64>), Option<Slice>>;

/// All files of a store's engine.
pub(super) struct Files {
    data: PathBuf,
    trees: BTreeMap<u64, Vec<Vec<Inspected>>>,
    recent: BTreeMap<u64, Recent>,
    /// The keyspaces' numbers, by name.
    ids: BTreeMap<String, u64>,
    /// Tables that are not as they were written, with the keyspace's number.
    pub(super) tables: Vec<(u64, PathBuf, Flaw)>,
    /// Manifests and other small files that are not as they were written, and whether something may be lost
    /// that nothing else knows of.
    pub(super) manifests: Vec<(PathBuf, bool)>,
    pub(super) journals: Vec<JournalFlaw>,
    /// The number of the last batch in the journals, or in tables if the journals are empty.
    pub(super) last_batch: Option<u64>,
}

impl Files {
    /// Reads everything below a store's data folder. An error is one of the disk, not of what is on it.
    pub(super) fn read(data: &Path, progress: &mut dyn FnMut(Stage)) -> io::Result<Self> {
        let mut files = Self {
            data: data.to_owned(),
            trees: BTreeMap::new(),
            recent: BTreeMap::new(),
            ids: BTreeMap::new(),
            tables: Vec::new(),
            manifests: Vec::new(),
            journals: Vec::new(),
            last_batch: None,
        };
        files.manifests = cornerstones(data)?.iter().map(|file| (files.name(file), false)).collect();
        let mut stage = Stage { done: 0, of: size(data)? };
        for (id, folder) in numbered(&data.join("keyspaces"), "")? {
            let tree = tree::read(&folder)?;
            files.manifests.extend(tree.flaw.map(|file| (files.name(&file), id > 0)));
            let mut flaws = Vec::new();
            let runs = inspect(tree.runs, |listed, table| {
                flaws.extend(table.flaw.take().map(|flaw| (id, files.name(&listed.path), flaw)));
                stage.done += table.bytes;
                progress(stage);
            })?;
            files.tables.extend(flaws);
            files.trees.insert(id, runs);
        }
        files.manifests.dedup();
        files.ids = name_keyspaces(files.trees.get(&0).map_or(&[], Vec::as_slice))?;
        let meta = files.ids.get("meta").copied().unwrap_or_default();
        files.last_batch = batch_in_tables(files.trees.get(&meta).map_or(&[], Vec::as_slice))?;
        let journals = numbered(data, ".jnl")?;
        for (n, (_, path)) in journals.iter().enumerate() {
            stage.done += files.read_journal(path, meta, n + 1 == journals.len())?;
            progress(stage);
        }
        Ok(files)
    }

    /// The newest entry of every key of a keyspace that was not removed, in order.
    pub(super) fn entries(&self, keyspace: &str) -> Merged<'_> {
        let id = self.ids.get(keyspace);
        let runs = id.and_then(|id| self.trees.get(id)).into_iter().flatten();
        let recent = id.and_then(|id| self.recent.get(id)).into_iter().flatten();
        Merged::new(runs.map(Vec::as_slice), recent)
    }

    /// The name of a keyspace.
    pub(super) fn keyspace(&self, id: u64) -> Option<&str> {
        self.ids.iter().find(|(_, known)| **known == id).map(|(name, _)| name.as_str())
    }

    /// How a file is called in a report.
    fn name(&self, file: &Path) -> PathBuf {
        let folder = self.data.parent().unwrap_or(&self.data);
        file.strip_prefix(folder).unwrap_or(file).to_owned()
    }

    fn read_journal(&mut self, path: &Path, meta: u64, is_last: bool) -> io::Result<u64> {
        let bytes = journal::read(path)?;
        let (mut lost, mut keys) = (0, Vec::new());
        let (mut is_behind_damage, mut is_damaged) = (false, false);
        for part in journal::parts(&bytes) {
            match part {
                Part::Bad { items, .. } => {
                    keys.extend(items.iter().map(|item| (item.keyspace, item.key.to_vec())));
                    is_behind_damage = true;
                }
                Part::Good(batch) => {
                    is_damaged |= is_behind_damage || batch.is_flawed;
                    if let Some(number) = batch_number(&batch.items, meta) {
                        if is_behind_damage {
                            lost += number.saturating_sub(self.last_batch.unwrap_or(0) + 1);
                        }
                        is_behind_damage = false;
                        self.last_batch = Some(number);
                    }
                    self.keep(batch)?;
                }
            }
        }
        if is_damaged || is_behind_damage {
            let is_unfinished = !is_damaged && is_last;
            self.journals.push(JournalFlaw { file: self.name(path), lost, is_unfinished, keys });
        }
        Ok(bytes.len() as u64)
    }

    fn keep(&mut self, batch: journal::Batch<'_>) -> io::Result<()> {
        for item in batch.items {
            let value = item.value().map_err(io::Error::other)?.map(|value| Slice::from(value.as_ref()));
            let recent = self.recent.entry(item.keyspace).or_default();
            // The last item of a batch wins over an earlier one of the same key.
            recent.insert((Slice::from(item.key), Reverse(batch.seqno)), value);
        }
        Ok(())
    }
}

/// Reads the tables of a keyspace.
fn inspect(
    listed: Vec<Vec<Listed>>,
    mut each: impl FnMut(&Listed, &mut Inspected),
) -> io::Result<Vec<Vec<Inspected>>> {
    let mut runs = Vec::new();
    for run in listed {
        let mut tables = Vec::new();
        for listed in run {
            let mut table = table::inspect(&listed)?;
            each(&listed, &mut table);
            tables.push(table);
        }
        runs.push(tables);
    }
    Ok(runs)
}

/// The engine's own keyspace says what the others are called. Without it they are taken for those that a new
/// store makes, in that order.
fn name_keyspaces(own: &[Vec<Inspected>]) -> io::Result<BTreeMap<String, u64>> {
    let mut ids = BTreeMap::new();
    for entry in Merged::new(own.iter().map(Vec::as_slice), std::iter::empty()) {
        let entry = entry?;
        let Some(id) = entry.key.strip_prefix(b"n").and_then(|id| layout::read_u64(id, 0)) else { continue };
        let name = entry.value.map(|value| String::from_utf8_lossy(&value).into_owned());
        ids.extend(name.map(|name| (name, id)));
    }
    for (name, id) in layout::NAMES.into_iter().zip(1..) {
        if !ids.contains_key(name) && !ids.values().any(|known| *known == id) {
            ids.insert(name.to_owned(), id);
        }
    }
    Ok(ids)
}

/// The number of the last batch that went into the tables of the keyspace that keeps count of them.
fn batch_in_tables(meta: &[Vec<Inspected>]) -> io::Result<Option<u64>> {
    for entry in Merged::new(meta.iter().map(Vec::as_slice), std::iter::empty()) {
        let entry = entry?;
        if *entry.key == *layout::META_BATCH {
            return Ok(entry.value.and_then(|value| layout::read_u64(&value, 0)));
        }
    }
    Ok(None)
}

/// The number of the keyspace that keeps count of batches, and of the last batch in its tables.
pub(super) fn counted(data: &Path) -> io::Result<(u64, Option<u64>)> {
    let tables = |id: u64| {
        let folder = data.join("keyspaces").join(id.to_string());
        inspect(tree::read(&folder)?.runs, |_, _| {})
    };
    let meta = name_keyspaces(&tables(0)?)?.get("meta").copied().unwrap_or_default();
    Ok((meta, batch_in_tables(&tables(meta)?)?))
}

/// Manifests that are damaged or gone, and listed tables that are gone. Costs no more than reading manifests.
pub(super) fn missing(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut missing = cornerstones(data)?;
    for (_, folder) in numbered(&data.join("keyspaces"), "")? {
        let tree = tree::read(&folder)?;
        missing.extend(tree.flaw);
        missing.extend(tree.runs.into_iter().flatten().map(|table| table.path).filter(|path| !path.exists()));
    }
    missing.dedup();
    Ok(missing)
}

/// Files that are damaged or gone without which the engine takes the others for leftovers.
fn cornerstones(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut wrong = Vec::new();
    // A store that was never finished has no keyspaces but the engine's own.
    if numbered(&data.join("keyspaces"), "")?.iter().any(|(id, _)| *id > 0) {
        let (version, own) = (data.join("version"), data.join("keyspaces").join("0").join("current"));
        let is_right = match std::fs::read(&version) {
            Ok(bytes) => bytes == ENGINE,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        wrong.extend((!is_right).then_some(version));
        wrong.extend((!own.exists()).then_some(own));
    }
    Ok(wrong)
}

/// Tables that the engine does not open. Costs no more than it does to the engine.
pub(super) fn refused(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut refused = Vec::new();
    for (_, folder) in numbered(&data.join("keyspaces"), "")? {
        let tables = tree::read(&folder)?.runs.into_iter().flatten();
        refused.extend(tables.filter(|table| !table::is_accepted(table)).map(|table| table.path));
    }
    Ok(refused)
}

/// The number that our writer gave to a batch; the engine's own have none.
pub(super) fn batch_number(items: &[journal::Item<'_>], meta: u64) -> Option<u64> {
    let item = items.iter().rfind(|item| item.keyspace == meta && item.key == layout::META_BATCH)?;
    layout::read_u64(&item.value().ok()??, 0)
}

/// What is in a folder and has a number for a name, with an ending; in order.
pub(super) fn numbered(folder: &Path, ending: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(ending));
        if let Some(number) = name.and_then(|name| name.parse().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}

/// The bytes of all files below a folder.
fn size(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let data = entry.metadata()?;
        sum += if data.is_dir() { size(&entry.path())? } else { data.len() };
    }
    Ok(sum)
}
