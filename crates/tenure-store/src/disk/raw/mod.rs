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
    /// Only its end is not whole, as when the process was killed while it wrote.
    pub(super) is_unfinished: bool,
    /// What is damaged in it.
    pub(super) stretches: Vec<Stretch>,
}

/// A stretch of a journal that cannot be read.
pub(super) struct Stretch {
    /// How many batches are gone with it. Unknown of the end of the last journal, where it is 0.
    pub(super) lost: u64,
    /// What has a higher sequence number was not written before it.
    pub(super) after: u64,
    /// The numbers that it may have given to events: after the first, up to the second.
    pub(super) numbers: (u64, u64),
    /// Keyspaces and keys that can be made out in it.
    pub(super) keys: Vec<(u64, Vec<u8>)>,
    /// It is one batch, and those are all its keys.
    pub(super) is_whole: bool,
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
    /// All that was written from this sequence number on is in the journals; with 0, all that ever was.
    pub(super) complete_from: Option<u64>,
    /// The sequence number of the last batch in the journals.
    last_seqno: Option<u64>,
    /// The highest number that the last batch in the journals gave to anything.
    last_given: u64,
    /// A stretch was damaged, and no batch with a number has come since.
    is_behind_damage: bool,
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
            complete_from: None,
            last_seqno: None,
            last_given: 0,
            is_behind_damage: false,
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
    pub(super) fn entries(&self, keyspace: &str) -> impl Iterator<Item = io::Result<Entry>> {
        self.newest(keyspace).filter(|entry| entry.as_ref().map_or(true, |entry| entry.value.is_some()))
    }

    /// The newest entry of every key of a keyspace, in order, those that were removed too, as far as it is known.
    pub(super) fn newest(&self, keyspace: &str) -> Merged<'_> {
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
        let (mut stretches, mut is_damaged) = (Vec::new(), false);
        for part in journal::parts(&bytes) {
            match part {
                Part::Bad { items, is_whole, .. } => {
                    let given = counter(&items, meta, layout::META_SEQUENCE);
                    stretches.push(Stretch {
                        lost: 0,
                        after: self.last_seqno.unwrap_or(u64::MAX),
                        numbers: (self.last_given, given.unwrap_or(u64::MAX)),
                        keys: items.iter().map(|item| (item.keyspace, item.key.to_vec())).collect(),
                        is_whole,
                    });
                    self.is_behind_damage = true;
                }
                Part::Good(batch) => {
                    is_damaged |= !stretches.is_empty() || batch.is_flawed;
                    let number = batch_number(&batch.items, meta);
                    let earlier = self.journals.last_mut().map(|flaw| &mut flaw.stretches);
                    let damaged = if stretches.is_empty() { earlier } else { Some(&mut stretches) };
                    if self.is_behind_damage
                        && let Some(stretch) = damaged.and_then(|damaged| damaged.last_mut())
                    {
                        stretch.lost += match (number, self.last_batch) {
                            (None, _) => 0,
                            // The journals begin with it, and all that is known is how far the tables go.
                            (Some(number), Some(last)) if number <= last => 1,
                            (Some(number), last) => number.saturating_sub(last.unwrap_or(0) + 1),
                        };
                        stretch.after = stretch.after.min(batch.seqno.saturating_sub(1));
                    }
                    if let Some(number) = number {
                        self.go_on(&batch, number, meta);
                    }
                    self.last_seqno = Some(batch.seqno);
                    self.keep(batch)?;
                }
            }
        }
        if is_damaged || !stretches.is_empty() {
            let is_unfinished = !is_damaged && is_last;
            self.journals.push(JournalFlaw { file: self.name(path), is_unfinished, stretches });
        }
        Ok(bytes.len() as u64)
    }

    /// Notes how far the journals go with a batch of ours.
    fn go_on(&mut self, batch: &journal::Batch<'_>, number: u64, meta: u64) {
        let follows = !self.is_behind_damage && self.last_batch.map(|last| last + 1) == Some(number);
        // The sequence number of one that is flawed is a guess.
        self.complete_from = match self.complete_from.filter(|_| follows) {
            _ if batch.is_flawed => None,
            // A copy of a store with one batch has that number too, but nothing in it: the rest went into tables.
            None if number == 1 && batch.items.iter().any(|item| item.keyspace != meta) => Some(0),
            None => Some(batch.seqno),
            from => from,
        };
        self.is_behind_damage = false;
        self.last_batch = Some(number);
        self.last_given = counter(&batch.items, meta, layout::META_SEQUENCE).unwrap_or(self.last_given);
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
    counter(items, meta, layout::META_BATCH)
}

/// What a batch sets a counter to.
fn counter(items: &[journal::Item<'_>], meta: u64, name: &[u8]) -> Option<u64> {
    let item = items.iter().rfind(|item| item.keyspace == meta && item.key == name)?;
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
