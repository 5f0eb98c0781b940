//! The file of the audit log: found again with the end of its chain, appended to, and put aside when it is full.
//!
//! One process writes to a log: it holds a lock on the file. A file that is put aside has the name of the log, with the number of
//! its first record behind. A line that a killed process left half written was never acknowledged, and is removed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::chain::{Chain, Head, Place};
use crate::failure::Failure;

/// The longest line that is looked for at the end of a file.
const LONGEST_LINE: u64 = 256 << 10;

/// How long to wait for a process that is just ending, and how often to look.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

/// Where lines go. A port, so that tests can have a disk that is full.
pub(super) trait AuditOutput: Send + 'static {
    /// Appends whole lines: all of them are with the operating system, or none.
    fn append(&mut self, lines: &[u8]) -> io::Result<()>;
    /// Waits until they are on the disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Bytes in the current file.
    fn len(&self) -> u64;
    /// Puts the file aside and begins another one, whose first record has this number. Returns the name of the old one.
    fn rotate(&mut self, first: u64) -> io::Result<String>;
    /// Keeps a head beside the log.
    fn keep_head(&mut self, line: &[u8]) -> io::Result<()>;
}

/// A log in a folder.
#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    head: PathBuf,
    file: File,
    len: u64,
    /// The number of its first record.
    first: u64,
}

/// A log that was opened, and how it was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) output: AuditFile,
    pub(super) chain: Chain,
    /// The file is new, and goes on with the chain of others.
    pub(super) continues: Option<String>,
    /// Bytes of a half-written line that were removed.
    pub(super) torn: u64,
}

/// Whether a part of a log exists: then its key must exist too.
pub(super) fn exists(path: &Path, head: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.len() > 0)
        || head.exists()
        || newest_aside(path).is_some()
}

impl AuditFile {
    /// Opens a log, or begins one.
    pub(super) fn open(path: &Path, head: &Path) -> Result<Found, Failure> {
        let what = || Failure::new(format!("cannot open the audit log `{}`", path.display()));
        let file = open_or_create(path).map_err(|error| {
            what().caused_by(error).hint("`audit.file` names a file in a folder that this user may write to")
        })?;
        lock(&file, path)?;
        let failed = |error: io::Error| what().caused_by(error);
        let len = file.metadata().map_err(failed)?.len();
        let (last, whole) = last_line(&file, len).map_err(failed)?;
        let torn = len - whole;
        if torn > 0 {
            file.set_len(whole).map_err(failed)?;
        }
        let broken = |path: &Path| {
            Failure::new(format!("the audit log `{}` does not end with a good record", path.display())).hint(
                "`tenure audit verify` says where it is broken; move it away, with its head, to begin another one",
            )
        };
        let (mut chain, mut continues) = (Chain::default(), None);
        if let Some(line) = last {
            chain = Place::read(&line).map_err(|_| broken(path))?.chain();
        } else if let Some(aside) = newest_aside(path) {
            let old = File::open(&aside).map_err(failed)?;
            let len = old.metadata().map_err(failed)?.len();
            let line = last_line(&old, len).map_err(failed)?.0.ok_or_else(|| broken(&aside))?;
            chain = Place::read(&line).map_err(|_| broken(&aside))?.chain();
            continues = Some(name_of(&aside));
        }
        let kept = match std::fs::read_to_string(head) {
            Ok(text) => Some(Head::read(&text).ok_or_else(|| {
                Failure::new(format!("the head of the audit log, `{}`, is not a head", head.display()))
                    .hint("move it away, with the log, to begin another one")
            })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        if let Some(kept) = kept
            && kept.seq > chain.seq
        {
            if chain != Chain::default() {
                return Err(Failure::new(format!("the audit log `{}` was cut", path.display()))
                    .because(format!("it ends at record {}, and record {} was signed", chain.seq, kept.seq))
                    .hint("bring it back, or move it away, with its head, to begin another one"));
            }
            // All files were moved away: the chain goes on where it was.
            chain = Chain { seq: kept.seq, hash: kept.hash };
            continues = Some(String::new());
        }
        let first = first_seq(&file).map_err(failed)?.unwrap_or(chain.seq + 1);
        let output = Self { path: path.to_owned(), head: head.to_owned(), file, len: whole, first };
        Ok(Found { output, chain, continues, torn })
    }
}

impl AuditOutput for AuditFile {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        match self.file.write_all(lines) {
            Ok(()) => {
                self.len += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                // A part of the lines may be written, and would stay in the middle of the log.
                let _ = self.file.set_len(self.len);
                Err(error)
            }
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn rotate(&mut self, first: u64) -> io::Result<String> {
        let aside = aside(&self.path, self.first);
        if aside.exists() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("`{}` exists", aside.display()),
            ));
        }
        std::fs::rename(&self.path, &aside)?;
        let opened = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&self.path);
        let file = match opened.and_then(|file| file.try_lock().map(|()| file).map_err(io::Error::from)) {
            Ok(file) => file,
            Err(error) => {
                std::fs::rename(&aside, &self.path)?;
                return Err(error);
            }
        };
        (self.file, self.len, self.first) = (file, 0, first);
        Ok(name_of(&aside))
    }

    fn keep_head(&mut self, line: &[u8]) -> io::Result<()> {
        let mut new = self.head.as_os_str().to_owned();
        new.push(".new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(line)?;
        file.sync_data()?;
        std::fs::rename(&new, &self.head)
    }
}

fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

fn lock(file: &File, path: &Path) -> Result<(), Failure> {
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if waited < PATIENCE => {
                std::thread::sleep(LOOK);
                waited += LOOK;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(format!(
                    "another process writes to the audit log `{}`",
                    path.display()
                ))
                .hint("each process needs a log of its own: set `audit.file` to another file"));
            }
            Err(TryLockError::Error(error)) => {
                return Err(
                    Failure::new(format!("cannot lock the audit log `{}`", path.display())).caused_by(error)
                );
            }
        }
    }
}

/// The last whole line of a file without its line break, and how long the file is up to its end.
fn last_line(mut file: &File, len: u64) -> io::Result<(Option<Vec<u8>>, u64)> {
    let begin = len.saturating_sub(2 * LONGEST_LINE);
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(begin))?;
    file.take(len - begin).read_to_end(&mut end)?;
    let Some(last_break) = end.iter().rposition(|byte| *byte == b'\n') else { return Ok((None, 0)) };
    let start = end[..last_break].iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
    Ok((Some(end[start..last_break].to_vec()), begin + last_break as u64 + 1))
}

fn first_seq(mut file: &File) -> io::Result<Option<u64>> {
    file.seek(SeekFrom::Start(0))?;
    let mut line = Vec::new();
    // A file that is not on a disk, such as a pipe, has no end.
    let len = file.metadata()?.len().min(LONGEST_LINE);
    BufReader::new(file.take(len)).read_until(b'\n', &mut line)?;
    Ok(Place::read(line.trim_ascii_end()).ok().map(|place| place.seq))
}

/// The name of a file that was put aside.
fn aside(path: &Path, first: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{first:012}"));
    name.into()
}

/// The newest file that was put aside.
fn newest_aside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let files = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let number = |file: &Path| -> Option<u64> {
        let digits = file.file_name()?.to_str()?.strip_prefix(name)?.strip_prefix('.')?;
        (digits.len() >= 12).then(|| digits.parse().ok())?
    };
    files.map(|file| file.path()).filter_map(|file| Some((number(&file)?, file))).max().map(|(_, file)| file)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
