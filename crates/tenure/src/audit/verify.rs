//! Checks an audit log: every record has its place in the chain, heads are signed, and nothing is cut off.
//!
//! In: the files of a log in any order, and heads that were kept outside of it. Out: a summary, or the number of the
//! first record that is not as it was written.

use std::io::{self, BufRead};

use super::chain::{Chain, Head, LineFault, NOTHING, Place};

/// A longer line is not a record.
const LONGEST_LINE: usize = 1 << 20;

/// One file of a log, opened.
pub(crate) struct LogFile {
    pub(crate) name: String,
    pub(crate) lines: Box<dyn BufRead>,
}

/// The summary of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verified {
    pub(crate) records: u64,
    /// The number of the first record; more than 1 if earlier files were not given.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The number of the last head.
    pub(crate) signed: Option<u64>,
    /// The public key that signed the heads.
    pub(crate) key: Option<String>,
    pub(crate) end: LogEnd,
}

/// How a log ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogEnd {
    /// The process closed it.
    Closed,
    /// A process writes to it, or was killed.
    Open,
}

/// Where a log is broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Broken {
    pub(crate) file: String,
    /// The number of the first record that is not as it was written, or is not there.
    pub(crate) seq: u64,
    /// The line of the file.
    pub(crate) line: u64,
    pub(crate) why: &'static str,
}

/// The state of a check.
struct Check {
    chain: Option<Chain>,
    verified: Verified,
    heads: Vec<Head>,
}

/// Checks a log. `key` is the public key that has to have signed it.
///
/// # Errors
/// When a file cannot be read. A broken log is not an error here.
pub(crate) fn verify(
    files: Vec<LogFile>,
    heads: Vec<Head>,
    key: Option<&str>,
) -> io::Result<Result<Verified, Broken>> {
    let mut opened = Vec::new();
    for mut file in files {
        let first = read_line(&mut *file.lines)?;
        let seq = first.as_deref().and_then(|line| serde_json::from_slice::<Numbered>(line).ok());
        opened.push((seq.map_or(u64::MAX, |found| found.seq), file, first));
    }
    // A file without a readable first line comes last, where it is found to be broken.
    opened.sort_by_key(|(seq, ..)| *seq);
    let verified = Verified {
        records: 0,
        first: 1,
        last: 0,
        signed: None,
        key: key.map(str::to_owned),
        end: LogEnd::Open,
    };
    let mut check = Check { chain: None, verified, heads };
    let mut last_file = String::new();
    for (_, mut file, first) in opened {
        let (mut next, mut number) = (first, 0);
        while let Some(line) = next {
            number += 1;
            if let Err((seq, why)) = check.line(&line, number == 1) {
                return Ok(Err(Broken { file: file.name, seq, line: number, why }));
            }
            next = read_line(&mut *file.lines)?;
        }
        last_file = file.name;
    }
    Ok(check.end().map_err(|(seq, why)| Broken { file: last_file, seq, line: 0, why }))
}

#[derive(serde::Deserialize)]
struct Numbered {
    seq: u64,
}

/// The next line with its line break; `None` at the end.
fn read_line(lines: &mut dyn BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    io::Read::take(lines, LONGEST_LINE as u64).read_until(b'\n', &mut line)?;
    Ok((!line.is_empty()).then_some(line))
}

impl Check {
    fn line(&mut self, line: &[u8], begins_file: bool) -> Result<(), (u64, &'static str)> {
        let expected = self.chain.as_ref().map_or(1, |chain| chain.seq + 1);
        let Some(text) = line.strip_suffix(b"\n") else {
            return Err((
                expected,
                "the last line is not whole: the file was cut, or its process was killed just then",
            ));
        };
        let place = Place::read(text).map_err(|fault| {
            let why = match fault {
                LineFault::NoRecord => "the line is not a record",
                LineFault::OtherHash => "the line has another hash than it says: it was changed",
                LineFault::BadSignature => "the signature of the head is not that of its key",
            };
            (expected, why)
        })?;
        match &self.chain {
            Some(chain) if place.seq != chain.seq + 1 => {
                return Err((
                    expected,
                    "another record stands in its place: it was moved, removed or repeated",
                ));
            }
            Some(chain) if place.prev != chain.hash => {
                return Err((expected, "it does not follow from the record before it"));
            }
            Some(_) => {}
            None if place.seq == 1 && &*place.prev == NOTHING => {}
            // Earlier files need not be given; but a file begins with a record that says so.
            None if begins_file && place.seq > 1 && &*place.event == "audit_continued" => {
                self.verified.first = place.seq;
            }
            None => return Err((place.seq.saturating_sub(1).max(1), "the beginning of the file is missing")),
        }
        if place.is_head() {
            let key = place.key().unwrap_or_default();
            match &self.verified.key {
                Some(known) if known != key => {
                    return Err((place.seq, "the head was signed with another key"));
                }
                _ => self.verified.key = Some(key.to_owned()),
            }
            self.verified.signed = Some(place.seq);
        }
        for head in &self.heads {
            if head.seq == place.seq && head.hash != place.hash {
                return Err((place.seq, "the head that was kept outside of the log is another one"));
            }
        }
        self.verified.end = match &*place.event {
            "audit_closed" => LogEnd::Closed,
            // A head signs what came before it.
            "head" => self.verified.end,
            _ => LogEnd::Open,
        };
        self.verified.records += 1;
        self.verified.last = place.seq;
        self.chain = Some(place.chain());
        Ok(())
    }

    fn end(self) -> Result<Verified, (u64, &'static str)> {
        let last = self.verified.last;
        if self.heads.iter().any(|head| head.seq > last) {
            // The first one that is missing.
            return Err((
                last + 1,
                "the log was cut: a head that was kept outside of it has a higher number",
            ));
        }
        for head in &self.heads {
            if let (Some(own), Some(key)) = (&head.key, &self.verified.key)
                && **own != **key
            {
                return Err((
                    head.seq,
                    "the head that was kept outside of the log was signed with another key",
                ));
            }
        }
        Ok(self.verified)
    }
}

#[cfg(test)]
mod tests;
