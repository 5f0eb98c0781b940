//! Reads the engine's files without the engine, as far as they can be read, and changes none of them.
//!
//! The engine opens only a store without damage, and cuts off what it takes for the end of a journal. To find the
//! damage and save the rest, this module reads the files one by one: the list of a keyspace's tables (`tree`), the
//! tables (`table`) and the journals (`journal`). `merge` takes the newest entry of every key, as the engine does; if
//! the newest entry is damaged, an older one takes its place.

mod tree;
pub(super) mod table;
pub(super) mod journal;
mod merge;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use fjall::Slice;

use self::journal::Part;
use self::merge::Merged;
use self::table::{Flaw, Inspected, ListedTable};
use super::layout;

/// The contents of the engine's `version` file.
const ENGINE: &[u8] = b"FJL\x03";

/// One version of a key.
pub(super) struct RawEntry {
    pub(super) key: Slice,
    pub(super) seqno: u64,
    /// `None` if the key was removed.
    pub(super) value: Option<Slice>,
}

/// How far an operation has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ByteProgress {
    /// Bytes done.
    pub done: u64,
    /// Bytes in total, as far as that is known.
    pub of: u64,
}

/// A journal that is not as it was written.
pub(super) struct JournalFlaw {
    pub(super) file: PathBuf,
    /// Only its end is incomplete, as after a kill during a write.
    pub(super) is_unfinished: bool,
    /// The damaged stretches.
    pub(super) stretches: Vec<DamagedStretch>,
}

/// A stretch of a journal that cannot be read.
pub(super) struct DamagedStretch {
    /// How many batches are lost with it. At the end of the last journal this is unknown, and 0.
    pub(super) lost: u64,
    /// An entry with a higher sequence number was not written before this stretch.
    pub(super) after: u64,
    /// The range of numbers that it may have given to events: above the first, up to the second.
    pub(super) numbers: (u64, u64),
    /// The keyspaces and keys that can still be read.
    pub(super) keys: Vec<(u64, Vec<u8>)>,
    /// It is one batch, and `keys` are all its keys.
    pub(super) is_whole: bool,
}

/// The entries of the journals, by key and then from new to old.
type JournalEntries = BTreeMap<(Slice, Reverse<u64>), Option<Slice>>;

/// All files of a store's engine.
pub(super) struct Files {
    data: PathBuf,
    trees: BTreeMap<u64, Vec<Vec<Inspected>>>,
    recent: BTreeMap<u64, JournalEntries>,
    /// The keyspaces' numbers, by name.
    ids: BTreeMap<String, u64>,
    /// Damaged tables, with the keyspace's number.
    pub(super) tables: Vec<(u64, PathBuf, Flaw)>,
    /// Damaged manifests and other small files, and whether the damage may hide a loss that no other file shows.
    pub(super) manifests: Vec<(PathBuf, bool)>,
    pub(super) journals: Vec<JournalFlaw>,
    /// The number of the last batch in the journals, or in tables if the journals are empty.
    pub(super) last_batch: Option<u64>,
    /// The journals hold everything written from this sequence number on; 0 means everything ever written.
    pub(super) complete_from: Option<u64>,
    /// The sequence number of the last batch in the journals.
    last_seqno: Option<u64>,
    /// The highest number that the last batch in the journals gave out.
    last_given: u64,
    /// No batch with a number has come since the last damaged stretch.
    is_behind_damage: bool,
}

impl Files {
    /// Reads everything below a store's data folder. An error means that the disk failed; damage is no error.
    pub(super) fn read(data: &Path, progress: &mut dyn FnMut(ByteProgress)) -> io::Result<Self> {
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
        let mut stage = ByteProgress { done: 0, of: size(data)? };
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

    /// The newest entry of every key of a keyspace, in order, without removed keys.
    pub(super) fn entries(&self, keyspace: &str) -> impl Iterator<Item = io::Result<RawEntry>> {
        self.newest(keyspace).filter(|entry| entry.as_ref().map_or(true, |entry| entry.value.is_some()))
    }

    /// The newest known entry of every key of a keyspace, in order, with removed keys.
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

    /// The path of a file as a report shows it.
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
                    stretches.push(DamagedStretch {
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
                            // It is the first batch of the journals, and only the end of the tables is known.
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

    /// Advances the end of the journals to a batch that our writer numbered.
    fn go_on(&mut self, batch: &journal::JournalBatch<'_>, number: u64, meta: u64) {
        let follows = !self.is_behind_damage && self.last_batch.map(|last| last + 1) == Some(number);
        // The sequence number of a flawed batch is a guess.
        self.complete_from = match self.complete_from.filter(|_| follows) {
            _ if batch.is_flawed => None,
            // A copy of a store with one batch has this number too, but only counters: its entries are in tables.
            None if number == 1 && batch.items.iter().any(|item| item.keyspace != meta) => Some(0),
            None => Some(batch.seqno),
            from => from,
        };
        self.is_behind_damage = false;
        self.last_batch = Some(number);
        self.last_given = counter(&batch.items, meta, layout::META_SEQUENCE).unwrap_or(self.last_given);
    }

    fn keep(&mut self, batch: journal::JournalBatch<'_>) -> io::Result<()> {
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
    listed: Vec<Vec<ListedTable>>,
    mut each: impl FnMut(&ListedTable, &mut Inspected),
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

/// Reads the names of the keyspaces from the engine's own keyspace. Without it, they get the names and the order of a
/// new store.
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

/// The number of the last batch in the tables of the `meta` keyspace.
fn batch_in_tables(meta: &[Vec<Inspected>]) -> io::Result<Option<u64>> {
    for entry in Merged::new(meta.iter().map(Vec::as_slice), std::iter::empty()) {
        let entry = entry?;
        if *entry.key == *layout::META_BATCH {
            return Ok(entry.value.and_then(|value| layout::read_u64(&value, 0)));
        }
    }
    Ok(None)
}

/// The number of the `meta` keyspace, and of the last batch in its tables.
pub(super) fn counted(data: &Path) -> io::Result<(u64, Option<u64>)> {
    let tables = |id: u64| {
        let folder = data.join("keyspaces").join(id.to_string());
        inspect(tree::read(&folder)?.runs, |_, _| {})
    };
    let meta = name_keyspaces(&tables(0)?)?.get("meta").copied().unwrap_or_default();
    Ok((meta, batch_in_tables(&tables(meta)?)?))
}

/// Manifests that are damaged or gone, and listed tables that are gone. Reads only manifests.
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

/// Damaged or missing files without which the engine takes the other files for leftovers.
fn cornerstones(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut wrong = Vec::new();
    // An unfinished store has only the engine's own keyspace.
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

/// Tables that the engine refuses to open. Costs no more than opening the store.
pub(super) fn refused(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut refused = Vec::new();
    for (_, folder) in numbered(&data.join("keyspaces"), "")? {
        let tables = tree::read(&folder)?.runs.into_iter().flatten();
        refused.extend(tables.filter(|table| !table::is_accepted(table)).map(|table| table.path));
    }
    Ok(refused)
}

/// The number that our writer gave to a batch; batches of the engine itself have none.
pub(super) fn batch_number(items: &[journal::JournalItem<'_>], meta: u64) -> Option<u64> {
    counter(items, meta, layout::META_BATCH)
}

/// The value that a batch gives to a counter.
fn counter(items: &[journal::JournalItem<'_>], meta: u64, name: &[u8]) -> Option<u64> {
    let item = items.iter().rfind(|item| item.keyspace == meta && item.key == name)?;
    layout::read_u64(&item.value().ok()??, 0)
}

/// The entries of a folder that are named by a number and an ending, in order.
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
