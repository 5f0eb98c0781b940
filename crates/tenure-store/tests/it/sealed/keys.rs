//! Which keys open a store: a wrong key, no key, older keys, and keys from a file.

use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;
use tenure_session::port::store::{Expected, RecordKey, Space, Store, StoreError};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_store::sealed::keys::{KeyFileError, generate};
use tenure_store::sealed::{SealError, SealKeys, Sealed, check_plain};
use tenure_testkit::faulty::Faulty;

use crate::sealed::{Shared, fresh_keys, key, unavailable};

#[tokio::test]
async fn without_the_right_key_nothing_opens_and_the_error_says_so() {
    let inner: Shared = Arc::new(Memory::new());
    let right = fresh_keys();
    drop(Sealed::open(Arc::clone(&inner), right.clone()).await.unwrap());
    let before = inner.list(Space::Store, None, 9).await.unwrap();
    let wrong = Sealed::open(Arc::clone(&inner), fresh_keys()).await.unwrap_err();
    assert_eq!(wrong, SealError::WrongKey { needs: right.id() });
    assert_eq!(
        wrong.to_string(),
        format!("the store is encrypted with key {}, which is not in the key file", right.id())
    );
    let none = check_plain(inner.as_ref()).await.unwrap_err();
    assert_eq!(none.to_string(), "the store is encrypted; give its key with `--store-key-file`");
    assert_eq!(inner.list(Space::Store, None, 9).await.unwrap(), before, "and nothing was written");
    Sealed::open(inner, right).await.unwrap();
}

#[tokio::test]
async fn a_plain_store_is_not_sealed_in_place() {
    for space in [Space::Session, Space::Rmcp, Space::Task] {
        let inner: Shared = Arc::new(Memory::new());
        assert_eq!(check_plain(inner.as_ref()).await, Ok(()));
        let record = RecordKey { space, key: key(1) };
        inner.put(record, Bytes::from_static(b"plain"), Expected::Absent, None).await.unwrap();
        let refused = Sealed::open(Arc::clone(&inner), fresh_keys()).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the store is not encrypted; copy it with `tenure store copy` into a new one"
        );
        assert_eq!(check_plain(inner.as_ref()).await, Ok(()), "it is as it was");
    }
}

#[tokio::test]
async fn keys_rotate() {
    let inner: Shared = Arc::new(Memory::new());
    let (old_line, new_line) = (generate(), generate());
    let old = SealKeys::parse(&old_line).unwrap();
    let new = SealKeys::parse(&new_line).unwrap();
    let both = SealKeys::parse(&format!("{}\n{}\n", *new_line, *old_line)).unwrap();
    let (before, after) = (RecordKey::session(key(1)), RecordKey::session(key(2)));
    let value = |text: &'static str| Bytes::from_static(text.as_bytes());
    let store = Sealed::open(Arc::clone(&inner), old.clone()).await.unwrap();
    store.put(before, value("before"), Expected::Absent, None).await.unwrap();

    let store = Sealed::open(Arc::clone(&inner), both.clone()).await.unwrap();
    assert_eq!(store.get(before).await.unwrap().unwrap().value, value("before"));
    store.put(after, value("after"), Expected::Absent, None).await.unwrap();
    // The check is sealed with the new key from now on, so the old one alone no longer opens the store.
    let refused = Sealed::open(Arc::clone(&inner), old.clone()).await.unwrap_err();
    assert_eq!(refused, SealError::WrongKey { needs: new.id() });

    // The new key alone opens what it sealed, and says which key the rest needs.
    let store = Sealed::open(Arc::clone(&inner), new).await.unwrap();
    assert_eq!(store.get(after).await.unwrap().unwrap().value, value("after"));
    let text = unavailable(store.get(before).await);
    assert!(text.contains(&format!("sealed with key {}, which is not among the keys", old.id())), "{text}");

    // Opening with both keys again writes nothing, because the check record is up to date.
    let check = inner.list(Space::Store, None, 9).await.unwrap();
    Sealed::open(Arc::clone(&inner), both).await.unwrap();
    assert_eq!(inner.list(Space::Store, None, 9).await.unwrap(), check);
}

#[tokio::test]
async fn a_check_that_was_changed_is_no_wrong_key() {
    let inner: Shared = Arc::new(Memory::new());
    let keys = fresh_keys();
    drop(Sealed::open(Arc::clone(&inner), keys.clone()).await.unwrap());
    let (name, check) = inner.list(Space::Store, None, 9).await.unwrap().remove(0);
    let mut changed = check.value.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    let record = RecordKey { space: Space::Store, key: name };
    inner.put(record, changed.into(), Expected::Version(check.version), None).await.unwrap();
    assert_eq!(Sealed::open(inner, keys).await.unwrap_err(), SealError::Changed);
}

#[tokio::test]
async fn a_store_that_fails_is_neither_sealed_nor_plain() {
    let faulty = Arc::new(Faulty::new(Arc::new(Memory::new())));
    faulty.set_broken(true);
    let refused = Sealed::open(Arc::clone(&faulty) as Shared, fresh_keys()).await.unwrap_err();
    assert!(matches!(refused, SealError::Store(StoreError::Unavailable(_))), "{refused}");
    let refused = check_plain(faulty.as_ref()).await.unwrap_err();
    assert!(matches!(refused, SealError::Store(StoreError::Unavailable(_))), "{refused}");
}

#[tokio::test]
async fn two_who_seal_an_empty_store_at_once_agree() {
    for _ in 0..8 {
        let folder = TempDir::new().unwrap();
        let inner: Shared = Arc::new(Disk::open(folder.path(), Sync::Os).unwrap());
        let (keys, record) = (fresh_keys(), RecordKey::session(key(1)));
        let open = || Sealed::open(Arc::clone(&inner), keys.clone());
        // The first opener writes a record at once, so the second may find records before it finds the check.
        let one = async {
            let one = open().await.unwrap();
            one.put(record, Bytes::from_static(b"x"), Expected::Absent, None).await.unwrap();
        };
        let ((), two) = tokio::join!(one, open());
        assert_eq!(two.unwrap().get(record).await.unwrap().unwrap().value, &b"x"[..]);
        assert_eq!(inner.list(Space::Store, None, 9).await.unwrap().len(), 1);
    }
}

#[test]
fn a_key_file_that_is_of_no_use_says_where_and_why() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("keys");
    let missing = SealKeys::read(&path).unwrap_err();
    assert!(matches!(missing, KeyFileError::Io { .. }), "{missing}");
    assert_eq!(missing.to_string(), format!("the key file `{}` cannot be read", path.display()));
    let chain = |error: KeyFileError| {
        let cause = std::error::Error::source(&error).unwrap().to_string();
        (error.to_string(), cause)
    };
    let of_no_use = format!("the key file `{}` is of no use", path.display());
    let not_a_key = "line 3 is not a key: it takes 64 hex digits, or 32 bytes in base64".to_owned();
    for (third, cause) in [(&b"0123"[..], &not_a_key), (b"\xff\xfe", &not_a_key)] {
        std::fs::write(&path, [b"# keys\n\n", third, b"\n"].concat()).unwrap();
        assert_eq!(chain(SealKeys::read(&path).unwrap_err()), (of_no_use.clone(), cause.clone()));
    }
    std::fs::write(&path, "# none yet\n").unwrap();
    assert_eq!(chain(SealKeys::read(&path).unwrap_err()), (of_no_use, "there is no key in it".to_owned()));
}

#[cfg(unix)]
#[test]
fn a_key_file_that_others_may_read_is_warned_about() {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[derive(Clone, Default)]
    struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let folder = TempDir::new().unwrap();
    let path = folder.path().join("keys");
    let line = generate();
    std::fs::write(&path, &*line).unwrap();
    for (mode, warned) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let keys = tracing::subscriber::with_default(subscriber, || SealKeys::read(&path)).unwrap();
        assert_eq!(keys.id(), SealKeys::parse(&line).unwrap().id());
        let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.contains("the key file is open to others"), warned, "{mode:o}: {log}");
        assert!(!log.contains(&line[..16]), "no key is ever logged");
    }
}
