//! The high-water mark: the last batch that is known to be synced.
//!
//! If a journal is damaged, the engine drops its later part without an error. The mark lies in a file of its own beside
//! the data and is written only after a sync, so a store that is behind its mark has lost synced writes. Only a repair
//! lowers the mark.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::private;

const NAME: &str = "high-water";
const NUMBERS: &str = "numbers";

pub(super) struct Mark {
    path: PathBuf,
    written: u64,
    is_damaged: bool,
}

impl Mark {
    /// Reads the mark of a store. A missing or unreadable mark counts as 0.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Self::read(folder.join(NAME))
    }

    /// Reads the highest sequence number that may have been given out, which is kept in the same form.
    pub(super) fn of_numbers(folder: &Path) -> io::Result<Self> {
        Self::read(folder.join(NUMBERS))
    }

    fn read(path: PathBuf) -> io::Result<Self> {
        let read = match fs::read(&path) {
            Ok(bytes) => decode(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(0),
            Err(error) => return Err(error),
        };
        Ok(Self { path, written: read.unwrap_or(0), is_damaged: read.is_none() })
    }

    /// Whether the file exists but cannot be read.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The last batch that is known to be synced.
    pub(super) fn batch(&self) -> u64 {
        self.written
    }

    /// Raises the mark to a batch that is synced.
    pub(super) fn raise(&mut self, batch: u64) -> io::Result<()> {
        if batch <= self.written {
            return Ok(());
        }
        self.set(batch)
    }

    /// Sets the mark, whatever it was before.
    pub(super) fn set(&mut self, batch: u64) -> io::Result<()> {
        // Written to another file and renamed, so that there is always a complete mark.
        let aside = self.path.with_extension("new");
        let mut file = private::create(&aside)?;
        file.write_all(&encode(batch))?;
        file.sync_data()?;
        fs::rename(&aside, &self.path)?;
        (self.written, self.is_damaged) = (batch, false);
        Ok(())
    }
}

fn check(number: &[u8]) -> [u8; 8] {
    let digest = Sha256::new().chain_update(b"tenure mark\0").chain_update(number).finalize();
    let mut check = [0; 8];
    check.copy_from_slice(&digest[..8]);
    check
}

fn encode(batch: u64) -> Vec<u8> {
    let number = batch.to_be_bytes();
    [number, check(&number)].concat()
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let (number, sum) = (bytes.get(..8)?, bytes.get(8..)?);
    (sum == check(number)).then_some(())?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_whole_or_nothing() {
        let bytes = encode(7);
        assert_eq!(decode(&bytes), Some(7));
        assert_eq!(decode(&bytes[..15]), None);
        assert_eq!(decode(b""), None);
        let mut flipped = bytes;
        flipped[3] ^= 1;
        assert_eq!(decode(&flipped), None);
    }
}
