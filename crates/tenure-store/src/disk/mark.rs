//! The high-water mark: how far the store was once known to be on the disk.
//!
//! After a damaged journal the engine opens without its later part and says nothing. The mark is kept in a
//! file of its own, beside the data, and is only ever written after a sync, so a store that comes back
//! behind it has lost something that was safe. Only a repair ever lowers it.

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
    /// Reads the mark of a store; a new store has none. One that cannot be read is as good as none.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Self::read(folder.join(NAME))
    }

    /// Reads up to where numbers may have been given out, which is kept in the same form.
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

    /// Whether there is a mark that cannot be read.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The last batch that was on the disk.
    pub(super) fn batch(&self) -> u64 {
        self.written
    }

    /// Notes that everything up to this batch is on the disk.
    pub(super) fn raise(&mut self, batch: u64) -> io::Result<()> {
        if batch <= self.written {
            return Ok(());
        }
        self.set(batch)
    }

    /// Notes which batch is the last on the disk, whatever was noted before.
    pub(super) fn set(&mut self, batch: u64) -> io::Result<()> {
        // Written aside and renamed, so that there is always a whole mark.
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
