//! Logs that were tampered with, one byte and one line at a time.

use std::io::Cursor;

use tenure_session::port::clock::Time;

use super::super::key::AuditKey;
use super::super::record::{Event, Record};
use super::*;

const NODE: &str = "host/1";

fn key(secret: u8) -> AuditKey {
    AuditKey::new(&[secret; 32]).unwrap()
}

/// Appends a record, and returns its line.
fn appended(chain: &mut Chain, record: Record) -> Vec<u8> {
    let mut line = Vec::new();
    chain.append(record, NODE, &mut line);
    line
}

/// The lines of a log with heads after the records with these numbers.
fn lines(records: u64, heads: &[u64]) -> Vec<Vec<u8>> {
    let (mut chain, key) = (Chain::default(), key(1));
    let mut lines = Vec::new();
    for number in 1..=records {
        if heads.contains(&number) {
            lines.push(chain.sign(&key, NODE, Time(number)));
            continue;
        }
        let mut record = Record::new(Event::CallFinished, Time(number));
        record.name = Some(format!("tool \"{number}\",\"hash\":\"0\"").into());
        record.bytes_in = Some(number);
        lines.push(appended(&mut chain, record));
    }
    lines
}

fn check_with(files: &[&[Vec<u8>]], heads: Vec<Head>) -> Result<Verified, Broken> {
    let files = files.iter().enumerate().map(|(place, lines)| LogFile {
        name: format!("file {place}"),
        lines: Box::new(Cursor::new(lines.concat())),
    });
    verify(files.collect(), heads, None).unwrap()
}

fn check(lines: &[Vec<u8>]) -> Result<Verified, Broken> {
    check_with(&[lines], Vec::new())
}

#[test]
fn al1_a_whole_log_is_good() {
    let verified = check(&lines(9, &[4, 8])).unwrap();
    let (first, last, signed) = (verified.first, verified.last, verified.signed);
    assert_eq!((verified.records, first, last, signed), (9, 1, 9, Some(8)));
    assert_eq!(verified.key.as_deref(), Some(key(1).public()));
}

#[test]
fn al1_every_byte_that_is_changed_removed_or_inserted_is_found_in_its_record() {
    let good = lines(5, &[4]);
    let starts: Vec<usize> =
        good.iter().scan(0, |sum, line| Some(std::mem::replace(sum, *sum + line.len()))).collect();
    let whole = good.concat();
    for place in 0..whole.len() {
        let seq = starts.iter().rposition(|start| *start <= place).unwrap() as u64 + 1;
        let mut changed = whole.clone();
        let mut removed = whole.clone();
        let mut inserted = whole.clone();
        let mut swapped = whole.clone();
        changed[place] ^= 1;
        removed.remove(place);
        inserted.insert(place, whole[place] ^ 2);
        swapped.swap(place, (place + 1).min(whole.len() - 1));
        for (how, text) in
            [("changed", changed), ("removed", removed), ("inserted", inserted), ("swapped", swapped)]
        {
            if text == whole {
                continue;
            }
            let found = check(std::slice::from_ref(&text)).expect_err(how).seq;
            // A byte at the border of two lines may be read as one of either.
            assert!(found == seq || found == seq + 1, "{how} at {place}: {found}, not {seq}");
            if how == "changed" && !whole[place].eq(&b'\n') {
                assert_eq!(found, seq, "{how} at {place}");
            }
        }
    }
}

#[test]
fn al1_a_hash_that_stands_in_another_place_of_its_line_is_found() {
    let good = lines(3, &[]);
    let text = String::from_utf8(good[1].clone()).unwrap();
    let begin = text.find(",\"hash\":\"").unwrap();
    let member = &text[begin..begin + ",\"hash\":\"\"".len() + 64];
    let moved = text.replace(member, "").replace("}\n", &format!("{member}}}\n"));
    let moved = vec![good[0].clone(), moved.into_bytes(), good[2].clone()];
    assert_eq!(check(&moved).unwrap_err().seq, 2);
}

#[test]
fn al1_every_line_that_is_removed_repeated_or_moved_is_found() {
    let good = lines(8, &[3, 6]);
    for place in 0..good.len() {
        let seq = place as u64 + 1;
        let mut repeated = good.clone();
        repeated.insert(place, good[place].clone());
        assert_eq!(check(&repeated).unwrap_err().seq, seq + 1, "repeated");
        let mut moved = good.clone();
        let line = moved.remove(place);
        moved.insert((place + 3) % good.len(), line);
        let first = match (place + 3) % good.len() {
            // The file begins with it, so that all before it seems to be missing.
            0 => seq - 1,
            target => place.min(target) as u64 + 1,
        };
        assert_eq!(check(&moved).unwrap_err().seq, first, "moved");
        let mut removed = good.clone();
        removed.remove(place);
        if place + 1 < good.len() {
            assert_eq!(check(&removed).unwrap_err().seq, seq, "removed");
        }
        let mut blank = good.clone();
        blank.insert(place, b"\n".to_vec());
        assert_eq!(check(&blank).unwrap_err().seq, seq, "a blank line");
    }
}

#[test]
fn al1_a_tail_that_was_cut_off_is_found_against_a_head() {
    let good = lines(9, &[4, 8]);
    let head = |line: &[u8]| Head::read(std::str::from_utf8(line).unwrap()).unwrap();
    let (early, late) = (head(&good[3]), head(&good[7]));
    assert!(check_with(&[&good], vec![early.clone(), late.clone()]).is_ok());
    for length in 1..good.len() {
        let cut = check_with(&[&good[..length]], vec![late.clone()]);
        if length < 8 {
            assert_eq!(cut.unwrap_err().seq, length as u64 + 1, "{length}");
        } else {
            assert!(cut.is_ok(), "what came after the last head may be gone");
        }
    }
    let written_down = Head::read(&format!("8:{}", late.hash)).unwrap();
    assert!(check_with(&[&good], vec![written_down]).is_ok());
    let other = Head { hash: early.hash.clone(), ..late };
    assert_eq!(check_with(&[&good], vec![other]).unwrap_err().seq, 8);
}

#[test]
fn al1_a_log_that_was_written_anew_is_found_by_its_key() {
    let good = lines(4, &[4]);
    let head = Head::read(std::str::from_utf8(&good[3]).unwrap()).unwrap();
    let mut chain = Chain::default();
    let mut forged: Vec<_> =
        (1..4).map(|number| appended(&mut chain, Record::new(Event::CallFinished, Time(number)))).collect();
    forged.push(chain.sign(&key(2), NODE, Time(4)));
    assert!(check(&forged).is_ok(), "by itself it is a log like any other");
    assert_eq!(check_with(&[&forged], vec![head]).unwrap_err().seq, 4);
    let file = LogFile { name: "forged".to_owned(), lines: Box::new(Cursor::new(forged.concat())) };
    let found = verify(vec![file], Vec::new(), Some(key(1).public())).unwrap();
    assert_eq!(found.unwrap_err().why, "the head was signed with another key");
}

#[test]
fn al3_files_are_put_in_order_and_one_that_is_missing_is_found() {
    let (mut chain, key) = (Chain::default(), key(1));
    let mut files: Vec<Vec<Vec<u8>>> = Vec::new();
    for number in 0..3 {
        let first = if number == 0 { Event::AuditOpened } else { Event::AuditContinued };
        let records = [first, Event::CallFinished, Event::AuditRotated];
        let mut lines: Vec<_> =
            records.into_iter().map(|event| appended(&mut chain, Record::new(event, Time(1)))).collect();
        lines.push(chain.sign(&key, NODE, Time(1)));
        files.push(lines);
    }
    let [one, two, three] = &files[..] else { panic!("three files") };
    let verified = check_with(&[three, one, two], Vec::new()).unwrap();
    assert_eq!((verified.records, verified.first, verified.last), (12, 1, 12));
    assert_eq!(check_with(&[three, one], Vec::new()).unwrap_err().seq, 5);
    assert_eq!(check_with(&[two, three], Vec::new()).unwrap().first, 5, "earlier files need not be given");
    let broken = check_with(&[&two[1..], three], Vec::new()).unwrap_err();
    assert_eq!(broken.seq, 5, "but the beginning of a file must be there");
    assert_eq!(check_with(&[&one[1..]], Vec::new()).unwrap_err().seq, 1);
}
