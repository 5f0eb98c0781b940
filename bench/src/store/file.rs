//! The baseline: a plain file that is only appended to.
//!
//! One thread takes what has queued up, writes it with one `pwrite`, syncs it if that is asked for, and
//! answers; where everything lies is kept in memory. Each entry has its length and checksum in front. It
//! cannot forget anything and has to be read as a whole to be opened, so it is no store; but a store that
//! keeps the same events in order cannot be faster for long.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use foldhash::fast::RandomState;
use tenure_session::id::SessionKey;
use tenure_store::disk::Sync;
use tokio::sync::{mpsc, oneshot};
use xxhash_rust::xxh3::xxh3_64;

use super::writers::Append;

/// As many as the store's own writer takes.
const QUEUE: usize = 4096;
const MAX_JOBS: usize = 1024;

/// How long after a write its bytes are on the disk at the latest, if no caller waits for that.
const SYNC_EVERY: Duration = Duration::from_millis(100);

/// Length, checksum, session and position stand before a body.
const HEAD: usize = 4 + 8 + 16 + 8;

struct FileJob {
    session: SessionKey,
    body: Bytes,
    done: oneshot::Sender<u64>,
}

/// An open file with its threads.
#[derive(Debug)]
pub(super) struct PlainFile {
    jobs: mpsc::Sender<FileJob>,
    writer: JoinHandle<Result<()>>,
    /// The one that syncs, and what stops it.
    syncer: Option<(JoinHandle<Result<()>>, std_mpsc::Sender<()>)>,
}

/// Where writers put their events.
#[derive(Debug, Clone)]
pub(super) struct IntoFile {
    jobs: mpsc::Sender<FileJob>,
    sessions: Arc<[SessionKey]>,
}

impl PlainFile {
    pub(super) fn create(folder: &Path, sync: Sync) -> Result<PlainFile> {
        let file = File::options().read(true).write(true).create_new(true).open(folder.join("log"));
        let file = Arc::new(file.context("make the baseline's file")?);
        let (jobs, queue) = mpsc::channel(QUEUE);
        let writer = {
            let file = Arc::clone(&file);
            std::thread::spawn(move || Writer::new(file, sync).run(queue))
        };
        let syncer = (sync == Sync::Os).then(|| {
            let (stop, stopped) = std_mpsc::channel();
            (std::thread::spawn(move || sync_now_and_then(&file, &stopped)), stop)
        });
        Ok(PlainFile { jobs, writer, syncer })
    }

    pub(super) fn of_sessions(&self, sessions: &[SessionKey]) -> IntoFile {
        IntoFile { jobs: self.jobs.clone(), sessions: sessions.into() }
    }

    /// Waits until everything is written; all writers must be gone.
    pub(super) fn close(self) -> Result<()> {
        drop(self.jobs);
        let ended =
            |thread: JoinHandle<Result<()>>| thread.join().map_err(|_| anyhow!("a thread panicked"))?;
        ended(self.writer)?;
        match self.syncer {
            Some((syncer, stop)) => {
                drop(stop);
                ended(syncer)
            }
            None => Ok(()),
        }
    }
}

impl Append for IntoFile {
    async fn append(&self, writer: usize, body: Bytes) -> Result<()> {
        let (done, position) = oneshot::channel();
        let job = FileJob { session: self.sessions[writer], body, done };
        self.jobs.send(job).await.ok().context("the file's writer has ended")?;
        position.await.context("the file's writer has ended")?;
        Ok(())
    }
}

fn sync_now_and_then(file: &File, stopped: &std_mpsc::Receiver<()>) -> Result<()> {
    loop {
        let last = stopped.recv_timeout(SYNC_EVERY) != Err(std_mpsc::RecvTimeoutError::Timeout);
        file.sync_data().context("sync the baseline's file")?;
        if last {
            return Ok(());
        }
    }
}

struct Writer {
    file: Arc<File>,
    sync: Sync,
    length: u64,
    position: u64,
    /// What the next `pwrite` writes.
    buffer: Vec<u8>,
    /// Where the events of each session lie, and how long they are.
    index: HashMap<SessionKey, Vec<(u64, u32)>, RandomState>,
    answers: Vec<(oneshot::Sender<u64>, u64)>,
}

impl Writer {
    fn new(file: Arc<File>, sync: Sync) -> Writer {
        Writer {
            file,
            sync,
            length: 0,
            position: 0,
            buffer: Vec::new(),
            index: HashMap::default(),
            answers: Vec::new(),
        }
    }

    fn run(mut self, mut queue: mpsc::Receiver<FileJob>) -> Result<()> {
        while let Some(first) = queue.blocking_recv() {
            self.take(first);
            while self.answers.len() < MAX_JOBS {
                let Ok(job) = queue.try_recv() else { break };
                self.take(job);
            }
            self.commit()?;
        }
        self.file.sync_data().context("sync the baseline's file")
    }

    fn take(&mut self, job: FileJob) {
        self.position += 1;
        let place = self.length + self.buffer.len() as u64;
        let length = u32::try_from(job.body.len()).unwrap_or(u32::MAX);
        let start = self.buffer.len();
        self.buffer.reserve(HEAD + job.body.len());
        self.buffer.extend_from_slice(&length.to_be_bytes());
        self.buffer.extend_from_slice(&[0; 8]);
        self.buffer.extend_from_slice(job.session.as_bytes());
        self.buffer.extend_from_slice(&self.position.to_be_bytes());
        self.buffer.extend_from_slice(&job.body);
        let sum = xxh3_64(&self.buffer[start + 12..]);
        self.buffer[start + 4..start + 12].copy_from_slice(&sum.to_be_bytes());
        self.index.entry(job.session).or_default().push((place, length));
        self.answers.push((job.done, self.position));
    }

    fn commit(&mut self) -> Result<()> {
        self.file.write_all_at(&self.buffer, self.length).context("write to the baseline's file")?;
        self.length += self.buffer.len() as u64;
        self.buffer.clear();
        if self.sync == Sync::Disk {
            self.file.sync_data().context("sync the baseline's file")?;
        }
        for (done, position) in self.answers.drain(..) {
            // The caller may be gone; then the answer is dropped.
            let _ = done.send(position);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tenure_store::disk::Sync;
    use xxhash_rust::xxh3::xxh3_64;

    use super::{HEAD, PlainFile};
    use crate::scratch::Scratch;
    use crate::store::material::{self, Bodies};
    use crate::store::writers::Append;

    #[tokio::test]
    async fn everything_that_was_answered_is_in_the_file_in_order() {
        let (scratch, bodies) = (Scratch::new(None).unwrap(), Bodies::new());
        let keys = [material::session(0).key(), material::session(1).key()];
        let file = PlainFile::create(scratch.path(), Sync::Os).unwrap();
        let into = file.of_sessions(&keys);
        for number in 0..50 {
            into.append(number % 2, bodies.get(number)).await.unwrap();
        }
        drop(into);
        file.close().unwrap();

        let written = std::fs::read(scratch.path().join("log")).unwrap();
        let mut rest = written.as_slice();
        for number in 0..50 {
            let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            let (entry, after) = rest.split_at(HEAD + length);
            assert_eq!(xxh3_64(&entry[12..]).to_be_bytes(), entry[4..12]);
            assert_eq!(&entry[12..28], keys[number % 2].as_bytes());
            assert_eq!(&entry[28..HEAD], (number as u64 + 1).to_be_bytes());
            assert_eq!(&entry[HEAD..], bodies.get(number));
            rest = after;
        }
        assert!(rest.is_empty());
    }
}
