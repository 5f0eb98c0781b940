//! `tenure sessions export` and `import`: sessions to a file, and from there into a store.
//!
//! A file has one session per line, so that neither side ever holds more than one session in memory.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use tenure_session::SessionKey;
use tenure_session::session::Existing;

use crate::cli::progress::{Unit, WorkProgress};
use crate::cli::rows::{each_page, resolve_all};
use crate::cli::which_store::{Absent, StoreArgs};
use crate::cli::{Failure, note, words};
use crate::control::Operations;
use crate::escape;
use crate::operator::{MAX_LINE_BYTES, Saved, SessionRow, now, parse_key};

#[derive(Args, Debug)]
pub(in crate::cli) struct ExportArgs {
    /// The sessions: keys, the first digits of them, or labels. Without keys: all sessions.
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// The file to write, which must not be there yet; standard output by default.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct ImportArgs {
    /// The file that `export` wrote, or `-` for standard input.
    file: PathBuf,
    /// Put sessions in the place of those that are there already.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn export(args: &ExportArgs) -> Result<(), Failure> {
    let store = args.store.open(Absent::Refuse).await?;
    let keys = match &args.keys[..] {
        [] => all(&store).await?,
        names => resolve_all::<SessionRow>(&store, names).await?.into_iter().map(|(_, key)| key).collect(),
    };
    let Some(file) = &args.output else {
        let out = std::io::stdout();
        if out.is_terminal() {
            write(&store, &keys, &mut escape::HarmlessLines(out), |_| {}).await?;
        } else {
            write(&store, &keys, &mut out.lock(), |_| {}).await?;
        }
        return tell_what_is_missing(&store, args).await;
    };
    let mut out = BufWriter::new(make_private(file)?);
    let mut progress = WorkProgress::start("exporting", Unit::Things("sessions"));
    let written = write(&store, &keys, &mut out, |done| progress.at(done, keys.len() as u64)).await;
    drop(progress);
    match written.and_then(|count| out.get_ref().sync_all().map(|()| count).map_err(cannot_write)) {
        Ok(count) => {
            note(&format!("exported {} to `{}`", words::sessions(count), file.display()));
            tell_what_is_missing(&store, args).await
        }
        Err(failure) => {
            // An incomplete file would look like a complete one.
            drop(std::fs::remove_file(file));
            Err(failure)
        }
    }
}

/// Tells the user of a full export that it does not contain data sessions.
async fn tell_what_is_missing(store: &Operations, args: &ExportArgs) -> Result<(), Failure> {
    if args.keys.is_empty() {
        match store.data_count().await? {
            0 => {}
            count => {
                let count = words::data_sessions(count);
                note(&format!("not exported: {count}, which only a backup or a copy of the store carries"));
            }
        }
    }
    Ok(())
}

async fn all(store: &Operations) -> Result<Vec<SessionKey>, Failure> {
    let mut keys = Vec::new();
    each_page(store, |rows: Vec<SessionRow>| {
        keys.extend(rows.iter().filter_map(|row| parse_key(&row.key)));
        ControlFlow::Continue(())
    })
    .await?;
    Ok(keys)
}

/// Writes a line per session; returns how many. A session that has been removed meanwhile is left out.
async fn write(
    store: &Operations,
    keys: &[SessionKey],
    out: &mut impl Write,
    mut progress: impl FnMut(u64),
) -> Result<u64, Failure> {
    let mut count = 0;
    for (number, key) in keys.iter().enumerate() {
        if let Some(saved) = store.export(*key).await? {
            let mut line = saved.line();
            line.push(b'\n');
            match out.write_all(&line) {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(count),
                written => written.map_err(cannot_write)?,
            }
            count += 1;
        }
        progress(number as u64 + 1);
    }
    match out.flush() {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        flushed => flushed.map_err(cannot_write)?,
    }
    Ok(count)
}

fn cannot_write(error: std::io::Error) -> Failure {
    Failure::new("cannot write the export").caused_by(error)
}

/// Creates a file that only its owner may read. Fails if it exists.
pub(in crate::cli) fn make_private(file: &Path) -> Result<File, Failure> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    made.map_err(|error| {
        let is_there = error.kind() == std::io::ErrorKind::AlreadyExists;
        let failure = Failure::new(format!("cannot make `{}`", file.display())).caused_by(error);
        if is_there { failure.hint("name a file that is not there yet") } else { failure }
    })
}

pub(super) async fn import(args: &ImportArgs) -> Result<(), Failure> {
    let existing = if args.replace { Existing::Replace } else { Existing::Keep };
    let standard = args.file.as_os_str() == "-";
    let name = if standard { "standard input".to_owned() } else { format!("`{}`", args.file.display()) };
    // Standard input can be read only once, so a bad line in it is found after earlier ones were imported.
    let total = if standard { None } else { Some(check(&args.file, &name)?) };
    let store = args.store.open(Absent::Make).await?;
    let reader: Box<dyn Read> =
        if standard { Box::new(std::io::stdin()) } else { Box::new(open(&args.file)?) };
    let mut lines = SavedLines::new(reader, &name);
    let mut progress = total.map(|total| (WorkProgress::start("importing", Unit::Things("sessions")), total));
    let (mut imported, mut overdue) = (0, 0);
    while let Some((number, saved)) = lines.next()? {
        let is_overdue = saved.deadline().is_some_and(|deadline| deadline <= now());
        if let Err(failure) = store.import(saved, existing).await {
            drop(progress);
            if imported > 0 {
                let imported = words::sessions(imported);
                note(&format!("imported {imported}, those before line {number} of {name}"));
            }
            return Err(failure);
        }
        imported += 1;
        overdue += u64::from(is_overdue);
        if let Some((progress, total)) = &mut progress {
            progress.at(imported, *total);
        }
    }
    drop(progress);
    note(&format!("imported {}", words::sessions(imported)));
    if overdue > 0 {
        note(&format!(
            "past their time, to expire when a server looks at them: {}",
            words::sessions(overdue)
        ));
    }
    Ok(())
}

/// Checks a whole file without importing it; returns the number of its sessions.
fn check(file: &Path, name: &str) -> Result<u64, Failure> {
    let mut lines = SavedLines::new(open(file)?, name);
    let mut count = 0;
    while let Some((number, saved)) = lines.next()? {
        saved.check().map_err(|error| bad_line(number, name).caused_by(error))?;
        count += 1;
    }
    Ok(count)
}

fn open(file: &Path) -> Result<File, Failure> {
    File::open(file)
        .map_err(|error| Failure::new(format!("cannot read `{}`", file.display())).caused_by(error))
}

fn bad_line(number: u64, name: &str) -> Failure {
    Failure::new(format!("line {number} of {name} is not a session"))
        .hint("nothing from this line on was imported; write such files with `tenure sessions export`")
}

/// The lines of a file, one in memory at a time.
struct SavedLines<'a, R> {
    reader: BufReader<R>,
    name: &'a str,
    number: u64,
}

impl<'a, R: Read> SavedLines<'a, R> {
    fn new(reader: R, name: &'a str) -> Self {
        Self { reader: BufReader::new(reader), name, number: 0 }
    }

    /// The next session and the number of its line. Empty lines do not count.
    fn next(&mut self) -> Result<Option<(u64, Saved)>, Failure> {
        loop {
            let mut line = Vec::new();
            let most = MAX_LINE_BYTES as u64 + 1;
            let read = (&mut self.reader).take(most).read_until(b'\n', &mut line);
            let read =
                read.map_err(|error| Failure::new(format!("cannot read {}", self.name)).caused_by(error))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if line.len() > MAX_LINE_BYTES {
                return Err(bad_line(self.number, self.name).hint("the line is too long"));
            }
            if !line.trim_ascii().is_empty() {
                let saved = Saved::parse(&line);
                let saved = saved.map_err(|error| bad_line(self.number, self.name).caused_by(error))?;
                return Ok(Some((self.number, saved)));
            }
        }
    }
}
