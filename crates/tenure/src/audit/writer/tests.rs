//! The writing thread in front of disks that are full, files that rotate, and what a kill leaves.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_session::port::clock::SystemClock;

use super::super::file::AuditFile;
use super::super::verify::{LogEnd, LogFile, Verified, verify};
use super::*;

/// A disk on which so many bytes fit.
#[derive(Clone, Default)]
struct Disk {
    lines: Arc<Mutex<Vec<u8>>>,
    room: Arc<AtomicUsize>,
}

impl AuditOutput for Disk {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut written = self.lines.lock();
        if written.len() + lines.len() > self.room.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        written.extend_from_slice(lines);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> u64 {
        self.lines.lock().len() as u64
    }

    fn rotate(&mut self, _: u64) -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn keep_head(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

fn parts(output: Box<dyn AuditOutput>, chain: Chain, max_bytes: u64) -> WriterParts {
    let key = Arc::new(AuditKey::new(&[1; 32]).unwrap());
    WriterParts { output, chain, key, node: "host/1".to_owned(), max_bytes }
}

fn record(name: &str) -> Box<Record> {
    let mut record = Record::new(Event::CallFinished, Time(0));
    record.name = Some(name.into());
    Box::new(record)
}

fn verified(text: &[u8]) -> Verified {
    let file = LogFile { name: "disk".to_owned(), lines: Box::new(io::Cursor::new(text.to_vec())) };
    verify(vec![file], Vec::new(), None).unwrap().unwrap()
}

#[tokio::test]
async fn al4_what_does_not_fit_is_not_kept_and_the_log_says_so_when_there_is_room_again() {
    let disk = Disk::default();
    disk.room.store(usize::MAX, Ordering::SeqCst);
    let writer =
        AuditWriter::start(parts(Box::new(disk.clone()), Chain::default(), u64::MAX), Arc::new(SystemClock))
            .unwrap();
    assert!(writer.record(record("first")).kept().await);
    disk.room.store(disk.lines.lock().len() + 10, Ordering::SeqCst);
    for _ in 0..3 {
        assert!(!writer.record(record("lost")).kept().await);
    }
    disk.room.store(usize::MAX, Ordering::SeqCst);
    assert!(writer.record(record("second")).kept().await);
    writer.close().await;
    let text = disk.lines.lock().clone();
    let text = std::str::from_utf8(&text).unwrap();
    assert!(
        text.contains(r#""count":3,"event":"audit_lost""#) && !text.contains(r#""name":"lost""#),
        "{text}"
    );
    let found = verified(text.as_bytes());
    assert_eq!((found.last, found.end, found.signed), (5, LogEnd::Closed, Some(5)));
    assert!(!writer.record(record("late")).kept().await, "a log that was closed takes nothing");
}

#[tokio::test]
async fn al3_a_log_that_is_rotated_while_many_write_goes_on_in_the_next_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let head = folder.path().join("audit.jsonl.head");
    let found = AuditFile::open(&path, &head).unwrap();
    let writer =
        AuditWriter::start(parts(Box::new(found.output), found.chain, 4096), Arc::new(SystemClock)).unwrap();
    let writers = (0..8).map(|number| {
        let writer = writer.clone();
        async move {
            for call in 0..50 {
                assert!(writer.record(record(&format!("{number}-{call}"))).kept().await);
            }
        }
    });
    futures_util::future::join_all(writers).await;
    writer.rotate();
    writer.close().await;
    let mut files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| *file != head);
    assert!(files.len() > 3, "{files:?}");
    let open = |path: &std::path::PathBuf| LogFile {
        name: path.display().to_string(),
        lines: Box::new(io::BufReader::new(std::fs::File::open(path).unwrap())),
    };
    let kept = super::super::chain::Head::read(&std::fs::read_to_string(&head).unwrap()).unwrap();
    let found = verify(files.iter().map(open).collect(), vec![kept], None).unwrap().unwrap();
    let text: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    assert_eq!(text.matches(r#""event":"call_finished""#).count(), 400);
    assert_eq!(text.lines().count() as u64, found.records);
}

#[tokio::test]
async fn al2_a_line_that_was_half_written_is_removed_and_the_chain_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let head = folder.path().join("audit.jsonl.head");
    for round in 0..3 {
        let found = AuditFile::open(&path, &head).unwrap();
        assert_eq!(found.torn, if round == 0 { 0 } else { 9 });
        let parts = parts(Box::new(found.output), found.chain, u64::MAX);
        let writer = AuditWriter::start(parts, Arc::new(SystemClock)).unwrap();
        assert!(writer.record(record("call")).kept().await);
        writer.close().await;
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        io::Write::write_all(&mut file, br#"{"backend"#).unwrap();
    }
    let found = AuditFile::open(&path, &head).unwrap();
    assert_eq!(found.chain.seq, 9, "a call, an end and a head each");
    drop(found);
    assert_eq!(verified(&std::fs::read(&path).unwrap()).last, 9);
}

#[test]
fn al1_a_process_does_not_go_on_with_a_log_that_was_cut_or_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let head = folder.path().join("audit.jsonl.head");
    let (mut chain, key) = (Chain::default(), AuditKey::new(&[1; 32]).unwrap());
    let mut first = Vec::new();
    chain.append(*record("first"), "host/1", &mut first);
    let signed = chain.sign(&key, "host/1", Time(0));
    let refusal = |lines: &[&[u8]]| {
        std::fs::write(&path, lines.concat()).unwrap();
        AuditFile::open(&path, &head).map(|_| ()).map_err(|failure| failure.to_string()).unwrap_err()
    };
    std::fs::write(&head, &signed).unwrap();
    assert!(refusal(&[&first]).contains("was cut"), "the head says more");
    let changed = String::from_utf8(signed.clone()).unwrap().replace("host/1", "host/2");
    assert!(refusal(&[&first, changed.as_bytes()]).contains("does not end with a good record"));
    std::fs::write(&path, [&first[..], &signed].concat()).unwrap();
    assert_eq!(AuditFile::open(&path, &head).unwrap().chain.seq, 2);
    // Moved away by a log collector: the chain goes on, since its head is still there.
    std::fs::remove_file(&path).unwrap();
    let found = AuditFile::open(&path, &head).unwrap();
    assert_eq!((found.chain.seq, found.continues), (2, Some(String::new())));
}
