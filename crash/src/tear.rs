//! Cuts off the end of the store's journal, as a loss of power removes bytes that were not on the disk yet.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

/// The most bytes that are cut off.
const MAX_BYTES: usize = 4096;

/// Cuts the newest journal at a random byte near the end of the written bytes; returns how many of them are gone.
/// A store that has no journal yet loses nothing.
pub(crate) fn tear(store: &Path, rng: &mut fastrand::Rng) -> Result<usize> {
    let Some(journal) = newest_journal(&store.join("data"))? else { return Ok(0) };
    let bytes = std::fs::read(&journal).with_context(|| format!("read `{}`", journal.display()))?;
    // The file is longer than the written bytes: the engine reserves space, filled with zeros.
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let lost = rng.usize(0..=written.min(MAX_BYTES));
    let length = u64::try_from(written - lost).context("measure the journal")?;
    OpenOptions::new()
        .write(true)
        .open(&journal)
        .and_then(|file| file.set_len(length))
        .with_context(|| format!("cut `{}`", journal.display()))?;
    Ok(lost)
}

/// The journal that was written last.
fn newest_journal(folder: &Path) -> Result<Option<PathBuf>> {
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.with_context(|| format!("list `{}`", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "jnl") {
                let written = std::fs::metadata(&path)
                    .and_then(|metadata| metadata.modified())
                    .with_context(|| format!("look at `{}`", path.display()))?;
                let found = (written, path);
                if newest.as_ref().is_none_or(|newest| *newest < found) {
                    newest = Some(found);
                }
            }
        }
    }
    Ok(newest.map(|(_, path)| path))
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, tear};

    #[test]
    fn only_the_end_of_what_was_written_is_cut() {
        let store = tempfile::TempDir::new().unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        assert_eq!(tear(store.path(), &mut rng).unwrap(), 0, "nothing is there yet");
        let folder = store.path().join("data/deep");
        std::fs::create_dir_all(&folder).unwrap();
        let journal = folder.join("0.jnl");
        for _ in 0..20 {
            let mut bytes = vec![7; 10_000];
            bytes.resize(50_000, 0);
            std::fs::write(&journal, bytes).unwrap();
            let lost = tear(store.path(), &mut rng).unwrap();
            assert!(lost <= MAX_BYTES);
            assert_eq!(std::fs::read(&journal).unwrap(), vec![7; 10_000 - lost]);
        }
    }
}
