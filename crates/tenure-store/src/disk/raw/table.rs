//! Reads one of the engine's table files, as far as it can be read.
//!
//! A table is a sequence of blocks, each with a checksum of its own, followed by an index, a filter and metadata. A
//! table whose checksum fits is read as a whole. In any other table every block is checked by itself: adjacent good
//! blocks make a stretch, and between two stretches is a gap. This needs no index.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fjall::{CompressionType, Slice};
use lsm_tree::coding::Decode;
use lsm_tree::table::block::{BlockType, Header};
use lsm_tree::table::{Block, BlockHandle, BlockOffset, DataBlock, Scanner};
use lsm_tree::{Cache, Checksum, Table};
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::xxh3_128;

use super::RawEntry;

/// The first bytes of a block.
const MAGIC: &[u8] = b"LSM\x03";

/// A table as the manifest of its keyspace lists it.
#[derive(Clone, Debug)]
pub(super) struct ListedTable {
    pub(super) path: PathBuf,
    /// The checksum of the whole file; `None` without a manifest.
    pub(super) checksum: Option<u128>,
    /// The number to add to the sequence numbers inside.
    pub(super) base_seqno: u64,
}

/// Where keys may be missing.
#[derive(Clone, Debug)]
pub(in crate::disk) struct Gap {
    /// The last known key before it.
    pub(in crate::disk) after: Option<Slice>,
    /// The first known key after it.
    pub(in crate::disk) before: Option<Slice>,
    /// The highest sequence number that the gap can hold.
    pub(in crate::disk) seqno: u64,
}

/// The damage of a table.
#[derive(Clone, Debug)]
pub(in crate::disk) struct Flaw {
    /// The engine refuses to open a store with this table.
    pub(in crate::disk) is_refused: bool,
    pub(in crate::disk) gaps: Vec<Gap>,
    /// How many entries are missing, if that is known.
    pub(in crate::disk) lost: Option<u64>,
    /// The lowest sequence number in the table, if that is known.
    pub(in crate::disk) lowest_seqno: Option<u64>,
}

/// A table with its good stretches and its damage.
pub(super) struct Inspected {
    stretches: Vec<BlockStretch>,
    compression: CompressionType,
    base_seqno: u64,
    pub(super) bytes: u64,
    /// The highest sequence number inside, if it is known.
    pub(super) highest_seqno: Option<u64>,
    pub(super) flaw: Option<Flaw>,
}

/// Adjacent good blocks, at the beginning of a file.
struct BlockStretch {
    file: StretchFile,
    blocks: usize,
}

enum StretchFile {
    Itself(PathBuf),
    Copied(NamedTempFile),
}

impl StretchFile {
    fn path(&self) -> &Path {
        match self {
            Self::Itself(path) => path,
            Self::Copied(file) => file.path(),
        }
    }
}

impl Inspected {
    /// The readable entries, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = io::Result<RawEntry>> + '_ {
        self.stretches.iter().flat_map(move |stretch| scan(stretch, self.compression, self.base_seqno))
    }
}

type Entries = Box<dyn Iterator<Item = io::Result<RawEntry>>>;

fn scan(stretch: &BlockStretch, compression: CompressionType, base_seqno: u64) -> Entries {
    if stretch.blocks == 0 {
        return Box::new(std::iter::empty());
    }
    match Scanner::new(stretch.file.path(), stretch.blocks, compression, base_seqno) {
        Ok(scanner) => Box::new(scanner.map(|item| {
            let item = item.map_err(io::Error::other)?;
            let value = (!item.is_tombstone()).then_some(item.value);
            Ok(RawEntry { key: item.key.user_key, seqno: item.key.seqno, value })
        })),
        Err(error) => Box::new(std::iter::once(Err(io::Error::other(error)))),
    }
}

/// The metadata of a table that the engine can open.
struct TableMetadata {
    blocks: usize,
    entries: u64,
    compression: CompressionType,
    lowest_seqno: Option<u64>,
    highest_seqno: u64,
}

/// Whether the engine opens it.
pub(super) fn is_accepted(listed: &ListedTable) -> bool {
    open(listed).is_some()
}

/// Opens a table as the engine would.
fn open(listed: &ListedTable) -> Option<TableMetadata> {
    // The engine panics on invalid metadata, so check the checksum of the metadata before the engine reads it.
    let file = File::open(&listed.path).ok()?;
    let archive = sfa::Reader::new(&listed.path).ok()?;
    let figures = archive.toc().section(b"meta")?;
    let handle = BlockHandle::new(BlockOffset(figures.pos()), u32::try_from(figures.len()).ok()?);
    let figures = DataBlock::new(Block::from_file(&file, handle, CompressionType::None).ok()?);
    let lowest = figures.point_read(b"seqno#min", u64::MAX);
    let lowest = lowest.and_then(|lowest| Some(u64::from_le_bytes(lowest.value.as_ref().try_into().ok()?)));
    let cache = Arc::new(Cache::with_capacity_bytes(0));
    let checksum = Checksum::from_raw(0);
    let table =
        Table::recover(listed.path.clone(), checksum, listed.base_seqno, 0, cache, None, true, true).ok()?;
    Some(TableMetadata {
        blocks: usize::try_from(table.metadata.data_block_count).ok()?,
        entries: table.metadata.item_count,
        compression: table.metadata.data_block_compression,
        lowest_seqno: lowest.map(|lowest| lowest + listed.base_seqno),
        highest_seqno: table.get_highest_seqno(),
    })
}

/// Checks a table. An error means that the disk failed; damage is no error.
pub(super) fn inspect(listed: &ListedTable) -> io::Result<Inspected> {
    let bytes = match std::fs::read(&listed.path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(missing(listed)),
        Err(error) => return Err(error),
    };
    let known = open(listed);
    let mut inspected = Inspected {
        stretches: Vec::new(),
        compression: known.as_ref().map_or(CompressionType::None, |known| known.compression),
        base_seqno: listed.base_seqno,
        bytes: bytes.len() as u64,
        highest_seqno: known.as_ref().map(|known| known.highest_seqno),
        flaw: None,
    };
    if let Some(known) = &known
        && listed.checksum == Some(xxh3_128(&bytes))
    {
        let file = StretchFile::Itself(listed.path.clone());
        inspected.stretches.push(BlockStretch { file, blocks: known.blocks });
        return Ok(inspected);
    }
    let (rows, compression) = good_rows(&bytes);
    if known.is_none() {
        inspected.compression = compression;
    }
    for row in &rows {
        let file = match row.from {
            0 => StretchFile::Itself(listed.path.clone()),
            from => {
                let mut file = NamedTempFile::new()?;
                file.write_all(&bytes[from..row.to])?;
                StretchFile::Copied(file)
            }
        };
        inspected.stretches.push(BlockStretch { file, blocks: row.blocks });
    }
    let seqno = inspected.highest_seqno.unwrap_or(u64::MAX);
    let (gaps, count) = gaps(&inspected, &rows, data_end(&listed.path), seqno)?;
    let lost = if gaps.is_empty() {
        Some(0)
    } else {
        known.as_ref().map(|known| known.entries.saturating_sub(count))
    };
    // Without a manifest there is no checksum of the file, but every block has its own.
    if !(gaps.is_empty() && known.is_some() && listed.checksum.is_none()) {
        let lowest_seqno = known.as_ref().and_then(|known| known.lowest_seqno);
        inspected.flaw = Some(Flaw { is_refused: known.is_none(), gaps, lost, lowest_seqno });
    }
    Ok(inspected)
}

fn missing(listed: &ListedTable) -> Inspected {
    let gap = Gap { after: None, before: None, seqno: u64::MAX };
    Inspected {
        stretches: Vec::new(),
        compression: CompressionType::None,
        base_seqno: listed.base_seqno,
        bytes: 0,
        highest_seqno: None,
        flaw: Some(Flaw { is_refused: true, gaps: vec![gap], lost: None, lowest_seqno: None }),
    }
}

/// The offset at which the data blocks end, if the table of contents can be read.
fn data_end(path: &Path) -> Option<u64> {
    let archive = sfa::Reader::new(path).ok()?;
    let data = archive.toc().section(b"data")?;
    Some(data.pos() + data.len())
}

/// Reads the good blocks to find the keys around each gap. Also returns the number of entries.
fn gaps(
    inspected: &Inspected,
    rows: &[BlockRow],
    data_end: Option<u64>,
    seqno: u64,
) -> io::Result<(Vec<Gap>, u64)> {
    let (mut gaps, mut last, mut count) = (Vec::new(), None, 0);
    for (row, stretch) in rows.iter().zip(&inspected.stretches) {
        let mut is_first = true;
        for entry in scan(stretch, inspected.compression, inspected.base_seqno) {
            let key = entry?.key;
            if is_first && row.from > 0 {
                gaps.push(Gap { after: last.take(), before: Some(key.clone()), seqno });
            }
            (is_first, last) = (false, Some(key));
            count += 1;
        }
    }
    let end = rows.last().map_or(0, |row| row.to as u64);
    if data_end != Some(end) {
        gaps.push(Gap { after: last, before: None, seqno });
    }
    Ok((gaps, count))
}

/// A row of adjacent good data blocks in a file.
struct BlockRow {
    from: usize,
    to: usize,
    blocks: usize,
}

/// Finds the good data blocks and their compression.
fn good_rows(bytes: &[u8]) -> (Vec<BlockRow>, CompressionType) {
    let mut rows: Vec<BlockRow> = Vec::new();
    let mut compression = CompressionType::None;
    let mut at = 0;
    while let Some(found) = memchr::memmem::find(&bytes[at..], MAGIC) {
        let from = at + found;
        let Ok(header) = Header::decode_from(&mut &bytes[from..]) else {
            at = from + 1;
            continue;
        };
        let begin = from + Header::serialized_len();
        let to = begin + header.data_length as usize;
        let is_good = bytes.get(begin..to).is_some_and(|data| xxh3_128(data) == header.checksum.into_u128());
        // The header has a checksum of its own, so its length can be trusted.
        at = to.min(bytes.len());
        if !is_good || header.block_type != BlockType::Data {
            continue;
        }
        if header.data_length != header.uncompressed_length {
            compression = CompressionType::Lz4;
        }
        match rows.last_mut() {
            Some(row) if row.to == from => (row.to, row.blocks) = (to, row.blocks + 1),
            _ => rows.push(BlockRow { from, to, blocks: 1 }),
        }
    }
    (rows, compression)
}
