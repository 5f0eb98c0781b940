//! The high-water mark: how far the store was once known to be on the disk.
//!
//! After a damaged journal the engine opens without its later part and says nothing. The mark is kept in a
//! file of its own, beside the data, and is only ever written after a sync, so a store that comes back
//! behind it has lost something that was safe.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

const NAME: &str = "high-water";

pub(super) struct Mark {
    path: PathBuf,
    written: u64,
}

impl Mark {
    /// Reads the mark of a store; a new store has none. A mark that cannot be read is as good as none,
    /// except that it is said.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(NAME);
        let written = match fs::read(&path) {
            Ok(bytes) => decode(&bytes).unwrap_or_else(|| {
                tracing::warn!(file = %path.display(), "the high-water mark is damaged; going on without it");
                0
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(Self { path, written })
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
        // Written aside and renamed, so that there is always a whole mark.
        let aside = self.path.with_extension("new");
        let mut file = File::create(&aside)?;
        file.write_all(&encode(batch))?;
        file.sync_data()?;
        fs::rename(&aside, &self.path)?;
        self.written = batch;
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
