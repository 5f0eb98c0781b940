//! Only the owner can read a store, in every kind of folder and whenever a file is made.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tenure_session::id::{NodeId, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, NewEvent, Store};
use tenure_store::disk::{Disk, Sync, check, repair};

use super::sample::{Sample, flip};
use super::tools::{files, key, noise, until};

fn mode(path: &Path) -> u32 {
    // A file may go between two looks.
    path.symlink_metadata().map_or(0, |found| found.permissions().mode() & 0o777)
}

fn set(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A folder, and everything below it.
fn everything(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        at += 1;
        if let Ok(entries) = std::fs::read_dir(&path) {
            found.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    found
}

/// The paths to which other users have any permission.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    everything(folder).into_iter().filter(|path| mode(path) & 0o077 != 0).collect()
}

/// A folder with the permissions that `mkdir` and service managers give.
fn wide_folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    set(folder.path(), 0o755);
    folder
}

/// A store as earlier versions left it in such a folder.
async fn wide_store() -> Sample {
    let sample = Sample::write().await;
    for path in everything(sample.path()) {
        set(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    sample
}

#[tokio::test]
async fn a_store_in_a_folder_that_was_there_is_for_its_owner_alone() {
    let folder = wide_folder();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    assert_eq!((mode(folder.path()), mode(&folder.path().join("data"))), (0o700, 0o700));
    assert_eq!(open_to_others(folder.path()), Vec::<PathBuf>::new());
    drop(store);
}

#[tokio::test]
async fn files_that_are_made_later_are_for_the_owner_alone() {
    let folder = wide_folder();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    let made = |what: &str| {
        let is = |path: &Path| path.parent().unwrap().ends_with("tables") || path.extension().is_some();
        let found = files(&folder.path().join("data"), is);
        let ends = |path: &PathBuf| path.to_string_lossy().contains(what);
        found.into_iter().filter(ends).count()
    };
    let journals = made(".jnl");
    let epoch = store.claim(key(1), NodeId::random(), None).await.unwrap();
    // More than the engine keeps in memory or in one journal, so that it makes tables and another journal.
    for number in 0..100 {
        let (stream, body) = (StreamId::new(0), noise(number, 1 << 20));
        let event = NewEvent { stream, body, place: EntryPlace::Middle, at: Time(1) };
        store.append(key(1), epoch, vec![event]).await.unwrap();
    }
    until("tables are made", Duration::from_secs(60), async || made("/tables/") > 0).await;
    assert!(made(".jnl") >= journals);
    until("all of it is closed to others", Duration::from_secs(60), async || {
        open_to_others(folder.path()).is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_store_that_others_could_read_is_closed_to_them_when_it_is_opened() {
    let sample = wide_store().await;
    let store = Disk::open(sample.path(), Sync::Os).unwrap();
    assert_eq!(open_to_others(sample.path()), Vec::<PathBuf>::new());
    drop(store);
}

#[tokio::test]
async fn a_folder_with_other_things_keeps_its_rights_and_the_store_in_it_has_its_own() {
    let folder = wide_folder();
    let other = folder.path().join("notes.txt");
    std::fs::write(&other, "not ours").unwrap();
    set(&other, 0o644);
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    assert_eq!((mode(folder.path()), mode(&other)), (0o755, 0o644), "not ours to change");
    let mut open = open_to_others(folder.path());
    open.sort_unstable();
    assert_eq!(open, [folder.path().to_owned(), other]);
    drop(store);
}

#[tokio::test]
async fn a_backup_into_a_folder_that_was_there_is_for_its_owner_alone() {
    let (sample, to) = (Sample::write().await, wide_folder());
    let store = Disk::open(sample.path(), Sync::Os).unwrap();
    store.backup(to.path(), |_| {}).await.unwrap();
    assert_eq!(open_to_others(to.path()), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_check_tells_what_others_can_read_and_a_repair_closes_it() {
    let sample = wide_store().await;
    let told = check(sample.path(), |_| {}).unwrap();
    assert!(told.is_sound(), "it is no damage");
    assert_eq!(told.exposed, [sample.path().to_owned()]);
    assert_eq!(mode(sample.path()), 0o755, "a check changes nothing");
    // In a folder with other files, the report names the parts of the store.
    std::fs::write(sample.path().join("notes.txt"), "not ours").unwrap();
    let mut told = check(sample.path(), |_| {}).unwrap().exposed;
    told.sort_unstable();
    assert_eq!(told, ["data", "high-water", "numbers"].map(|name| sample.path().join(name)));
    assert_eq!(repair(sample.path(), |_| {}).unwrap().exposed.len(), 3, "it was so");
    assert_eq!(check(sample.path(), |_| {}).unwrap().exposed, Vec::<PathBuf>::new());
}

#[tokio::test]
async fn what_a_repair_leaves_is_for_its_owner_alone() {
    let sample = wide_store().await;
    flip(&sample.journal(), 50);
    let report = repair(sample.path(), |_| {}).unwrap();
    assert!(report.kept.is_some(), "there was something to repair");
    assert_eq!(open_to_others(sample.path()), Vec::<PathBuf>::new());
}
