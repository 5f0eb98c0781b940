//! Shared by the tests of the disk engine: keys, events, folders, and reading a store.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, NewEvent, ReadLimit, Store};
use tenure_store::disk::Disk;

pub(crate) const ALL: ReadLimit = ReadLimit { events: usize::MAX, bytes: usize::MAX };

pub(crate) fn event(stream: u32, body: &str) -> NewEvent {
    let body = Bytes::copy_from_slice(body.as_bytes());
    NewEvent { stream: StreamId::new(stream), body, place: EntryPlace::Middle, at: Time(1_000) }
}

pub(crate) fn key(number: u8) -> SessionKey {
    SessionKey::from_bytes([number; 16])
}

pub(crate) async fn bodies(store: &Disk, session: SessionKey, stream: u32) -> Vec<String> {
    let stretch = store.read(session, StreamId::new(stream), Position::START, ALL).await.unwrap();
    stretch.events.iter().map(|event| String::from_utf8_lossy(&event.body).into_owned()).collect()
}

/// Bytes that cannot be compressed and differ with the number.
pub(crate) fn noise(number: u64, length: usize) -> Bytes {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // xorshift64, good enough to defeat LZ4.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

/// Asks until the answer is yes; fails after the deadline.
pub(crate) async fn until(what: &str, deadline: Duration, mut is: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is().await {
        assert!(start.elapsed() < deadline, "{what}: not within {deadline:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// All files below a folder whose name passes, the largest last.
pub(crate) fn files(folder: &Path, passes: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if passes(&path) {
                found.push(path);
            }
        }
    }
    found.sort_by_cached_key(|path| std::fs::metadata(path).map_or(0, |data| data.len()));
    found
}

/// Copies all files below a folder.
pub(crate) fn copy(from: &Path, to: &Path) {
    for file in files(from, |_| true) {
        let to = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(file, to).unwrap();
    }
}

/// Copies all files below a folder that a store has open, as they are at one moment. The store replaces files while it
/// works, so what was read counts only if the next look finds the same.
pub(crate) fn copy_at_one_moment(from: &Path, to: &Path) {
    let mut before = read_all(from);
    for _ in 0..1000 {
        let now = read_all(from);
        if let Some(files) = now.as_ref().filter(|_| now == before) {
            for (file, bytes) in files {
                let to = to.join(file.strip_prefix(from).unwrap());
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::write(to, bytes).unwrap();
            }
            return;
        }
        before = now;
    }
    panic!("{} never stays the same", from.display());
}

/// All files below a folder; `None` if one was removed meanwhile.
fn read_all(folder: &Path) -> Option<Vec<(PathBuf, Vec<u8>)>> {
    let files = files(folder, |_| true).into_iter();
    let mut read =
        files.map(|file| Some((file.clone(), std::fs::read(file).ok()?))).collect::<Option<Vec<_>>>()?;
    read.sort_by(|(one, _), (other, _)| one.cmp(other));
    Some(read)
}
