//! The report of a check or repair of a store, for people and as JSON.

use std::path::{Path, PathBuf};

use indicatif::HumanBytes;
use serde_json::{Value, json};

use super::paint::{Paint, Tone};
use super::words;
use crate::wire::{Damage, DamageKind, Missing, Report};

/// The most sessions that are named.
const NAMED: usize = 20;

/// Whether the damage was only found or also repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CheckMode {
    Check,
    Repair,
}

/// The report for people.
pub(super) fn text(folder: &Path, report: &Report, mode: CheckMode) -> String {
    render(folder, report, mode, Paint::stdout())
}

fn render(folder: &Path, report: &Report, mode: CheckMode, paint: Paint) -> String {
    let (tone, verdict) = match (report.is_sound(), mode) {
        (true, _) => (Tone::Good, "sound"),
        (false, CheckMode::Repair) => (Tone::Odd, "repaired"),
        (false, CheckMode::Check) => (Tone::Bad, "damaged"),
    };
    let mut text = format!("`{}` is {}\n", folder.display(), paint.tint(tone, verdict));
    let totals = report.totals;
    let mut line = |line: String| text.push_str(&format!("  {line}\n"));
    line(format!(
        "{}, {}, {}, {}, {}, {}",
        words::sessions(totals.sessions),
        words::data_sessions(totals.data_sessions),
        words::count(totals.tasks, "task", "tasks"),
        words::count(totals.other_records, "other record", "other records"),
        words::count(totals.events, "event", "events"),
        HumanBytes(totals.bytes)
    ));
    for damage in &report.damage {
        line(format!("{}: {}", damage.file.display(), damage_words(damage)));
    }
    let counted = [
        (report.missing_batches, "batch of writes is missing", "batches of writes are missing"),
        (report.unreadable, "entry makes no sense", "entries make no sense"),
        (
            report.doubtful,
            "record may be older than one that is lost",
            "records may be older than ones that are lost",
        ),
        (report.missing_deadlines, "record would never expire", "records would never expire"),
        (report.stale_deadlines, "deadline belongs to no record", "deadlines belong to no record"),
    ];
    for (number, one, many) in counted.into_iter().filter(|(number, ..)| *number > 0) {
        line(words::count(number, one, many));
    }
    for (label, missing) in report.sessions.iter().take(NAMED) {
        line(format!("{label}: {}", missing_words(*missing)));
    }
    if report.sessions.len() > NAMED {
        line(format!("and {} more", words::sessions((report.sessions.len() - NAMED) as u64)));
    }
    if !report.exposed.is_empty() {
        line(exposed_words(&report.exposed, mode));
    }
    if let Some(kept) = &report.kept {
        line(format!("the earlier data is in `{}`", kept.display()));
    }
    text
}

fn damage_words(damage: &Damage) -> String {
    let what = match &damage.kind {
        DamageKind::Journal => "a damaged journal".to_owned(),
        DamageKind::Table(name) => format!("a damaged table of {name}"),
        DamageKind::Manifest => "a damaged list of tables".to_owned(),
        DamageKind::Mark => "a damaged high-water mark".to_owned(),
        _ => "a damaged file".to_owned(),
    };
    let lost = match (&damage.kind, damage.lost) {
        (_, Some(0)) => "nothing is lost".to_owned(),
        (DamageKind::Journal, Some(lost)) => {
            words::count(lost, "batch of writes in it is lost", "batches of writes in it are lost")
        }
        (_, Some(lost)) => words::count(lost, "entry in it is lost", "entries in it are lost"),
        (_, None) => "the loss is unknown".to_owned(),
    };
    let mut words = format!("{what}, {lost}");
    if damage.is_refused {
        words.push_str("; no server starts with it");
    }
    words
}

fn missing_words(missing: Missing) -> String {
    let words = [
        (missing.record, "its record is lost"),
        (missing.newer_record, "its record is there, and a newer one is lost"),
        (missing.owner, "it is lost which process had it last"),
        (missing.events, "some of its events may be lost"),
    ];
    let words: Vec<_> = words.into_iter().filter(|(is_so, _)| *is_so).map(|(_, words)| words).collect();
    if words.is_empty() { "may be affected".to_owned() } else { words.join("; ") }
}

fn exposed_words(paths: &[PathBuf], mode: CheckMode) -> String {
    if mode == CheckMode::Repair {
        return "other users of this machine could read it; now they cannot".to_owned();
    }
    let paths: Vec<String> = paths.iter().map(|path| for_shell(path)).collect();
    let command = format!("chmod -R go= {}", paths.join(" "));
    format!(
        "other users of this machine can read it: run `{command}`, or start a server on it, which does the same"
    )
}

/// A path, quoted for a shell if necessary.
fn for_shell(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+,@%".contains(letter);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The report as JSON: everything that was found, also if it has been repaired.
pub(super) fn json(report: &Report, mode: CheckMode) -> String {
    let damage = |damage: &Damage| {
        json!({
            "file": damage.file,
            "kind": match &damage.kind {
                DamageKind::Journal => "journal",
                DamageKind::Table(_) => "table",
                DamageKind::Manifest => "manifest",
                DamageKind::Mark => "mark",
                _ => "other",
            },
            "is_refused": damage.is_refused,
            "lost": damage.lost,
        })
    };
    let session = |(label, missing): (&String, &Missing)| {
        let Missing { record, newer_record, owner, events } = *missing;
        let missing =
            json!({ "record": record, "newer_record": newer_record, "owner": owner, "events": events });
        (label.clone(), missing)
    };
    let totals = report.totals;
    let report = json!({
        "is_sound": report.is_sound(),
        "is_repaired": mode == CheckMode::Repair && !report.is_sound(),
        "has_lost": report.has_lost(),
        "totals": {
            "sessions": totals.sessions,
            "data_sessions": totals.data_sessions,
            "tasks": totals.tasks,
            "other_records": totals.other_records,
            "owners": totals.owners,
            "deadlines": totals.deadlines,
            "events": totals.events,
            "notes": totals.notes,
            "bytes": totals.bytes,
        },
        "damage": report.damage.iter().map(damage).collect::<Vec<_>>(),
        "missing_batches": report.missing_batches,
        "unreadable": report.unreadable,
        "doubtful": report.doubtful,
        "missing_deadlines": report.missing_deadlines,
        "stale_deadlines": report.stale_deadlines,
        "sessions": report.sessions.iter().map(session).collect::<serde_json::Map<String, Value>>(),
        "exposed": report.exposed,
        "kept": report.kept,
    });
    serde_json::to_string_pretty(&report).expect("a report has a JSON form") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ReportTotals;

    fn damaged() -> Report {
        let damage =
            |file: &str, kind, is_refused, lost| Damage { file: file.into(), kind, is_refused, lost };
        let mut report = Report {
            totals: ReportTotals { sessions: 3, events: 1, bytes: 2048, ..ReportTotals::default() },
            damage: vec![
                damage("data/0.jnl", DamageKind::Journal, true, Some(1)),
                damage("data/keyspaces/5/tables/1", DamageKind::Table("events".to_owned()), false, Some(12)),
                damage("data/keyspaces/2/v1", DamageKind::Manifest, true, Some(0)),
                damage("data/keyspaces/2/tables/0", DamageKind::Table("records".to_owned()), true, None),
            ],
            missing_batches: 1,
            stale_deadlines: 2,
            ..Report::default()
        };
        let none = Missing::default();
        for (label, missing) in [
            ("s-00000001", Missing { record: true, events: true, ..none }),
            ("s-00000002", Missing { events: true, ..none }),
            ("s-00000003", Missing { newer_record: true, owner: true, ..none }),
        ] {
            report.sessions.insert(label.to_owned(), missing);
        }
        report
    }

    #[test]
    fn damage_is_told_file_by_file_and_session_by_session() {
        expect_test::expect![[r"
            `/store` is damaged
              3 sessions, 0 data sessions, 0 tasks, 0 other records, 1 event, 2.00 KiB
              data/0.jnl: a damaged journal, 1 batch of writes in it is lost; no server starts with it
              data/keyspaces/5/tables/1: a damaged table of events, 12 entries in it are lost
              data/keyspaces/2/v1: a damaged list of tables, nothing is lost; no server starts with it
              data/keyspaces/2/tables/0: a damaged table of records, the loss is unknown; no server starts with it
              1 batch of writes is missing
              2 deadlines belong to no record
              s-00000001: its record is lost; some of its events may be lost
              s-00000002: some of its events may be lost
              s-00000003: its record is there, and a newer one is lost; it is lost which process had it last
        "]]
        .assert_eq(&render(Path::new("/store"), &damaged(), CheckMode::Check, Paint::of(false)));
    }

    #[test]
    fn a_repair_says_where_the_old_files_are() {
        let report = Report { kept: Some("/store/data.damaged-1".into()), ..damaged() };
        let text = render(Path::new("/store"), &report, CheckMode::Repair, Paint::of(false));
        assert!(text.starts_with("`/store` is repaired\n"), "{text}");
        assert!(text.ends_with("the earlier data is in `/store/data.damaged-1`\n"), "{text}");
    }

    #[test]
    fn a_store_that_others_can_read_is_sound_and_comes_with_the_command_that_closes_it() {
        let told = |exposed: &[&str], mode| {
            let exposed = exposed.iter().map(PathBuf::from).collect();
            render(Path::new("/store"), &Report { exposed, ..Report::default() }, mode, Paint::of(false))
        };
        expect_test::expect![[r"
            `/store` is sound
              0 sessions, 0 data sessions, 0 tasks, 0 other records, 0 events, 0 B
              other users of this machine can read it: run `chmod -R go= /store`, or start a server on it, which does the same
        "]]
        .assert_eq(&told(&["/store"], CheckMode::Check));
        expect_test::expect![[r"
            `/store` is sound
              0 sessions, 0 data sessions, 0 tasks, 0 other records, 0 events, 0 B
              other users of this machine can read it: run `chmod -R go= '/it'\''s a store/data' /store/numbers`, or start a server on it, which does the same
        "]]
        .assert_eq(&told(&["/it's a store/data", "/store/numbers"], CheckMode::Check));
        expect_test::expect![[r"
            `/store` is sound
              0 sessions, 0 data sessions, 0 tasks, 0 other records, 0 events, 0 B
              other users of this machine could read it; now they cannot
        "]]
        .assert_eq(&told(&["/store"], CheckMode::Repair));
    }

    #[test]
    fn very_many_sessions_are_not_all_named() {
        let mut report = damaged();
        for number in 0..100 {
            report.sessions.insert(format!("s-1{number:07}"), Missing::default());
        }
        let text = render(Path::new("/store"), &report, CheckMode::Check, Paint::of(false));
        assert!(text.ends_with("  and 83 sessions more\n"), "{text}");
    }

    #[test]
    fn json_says_what_was_found_and_whether_it_is_mended() {
        let found: Value = serde_json::from_str(&json(&damaged(), CheckMode::Repair)).unwrap();
        assert_eq!((&found["is_sound"], &found["is_repaired"]), (&json!(false), &json!(true)));
        assert_eq!(
            found["damage"][1],
            json!({
                "file": "data/keyspaces/5/tables/1", "kind": "table", "is_refused": false, "lost": 12,
            })
        );
        assert_eq!(
            found["sessions"]["s-00000001"],
            json!({ "record": true, "newer_record": false, "owner": false, "events": true })
        );
        let sound: Value = serde_json::from_str(&json(&Report::default(), CheckMode::Repair)).unwrap();
        assert_eq!((&sound["is_sound"], &sound["is_repaired"]), (&json!(true), &json!(false)));
    }
}
