//! The summary of a run as text: counters, violations, and errors in the server's log.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::World;

/// How many distinct errors of the server's log are shown.
const MAX_LOGGED: usize = 10;

/// The state of the run in one line.
pub(crate) fn line(world: &World) -> String {
    let tally = &world.tally;
    format!(
        "{} kills, {} sessions, {} calls, {} streams, {} resumes, {} events, {} interrupted, {} rerun, {} violations",
        world.kills(),
        get(&tally.sessions),
        get(&tally.calls),
        get(&tally.streamed),
        get(&tally.resumes),
        get(&tally.events),
        get(&tally.interrupted),
        get(&tally.rerun),
        world.violations().len(),
    )
}

/// The table at the end.
pub(crate) fn summary(world: &World) -> String {
    let tally = &world.tally;
    let number = |counter: &AtomicU64| get(counter).to_string();
    let mut rows = vec![
        ("seed", world.seed.to_string()),
        ("time", format!("{:.1} s", world.started().elapsed().as_secs_f32())),
        ("kills", world.kills().to_string()),
        ("restarts", number(&tally.restarts)),
        ("journals torn", number(&tally.torn)),
        ("losses of power", number(&tally.powerless)),
        ("stores repaired", number(&tally.repaired)),
        ("sessions", number(&tally.sessions)),
        ("  deleted", number(&tally.deleted)),
        ("  deleted ones asked", number(&tally.dead_checked)),
        ("calls answered as JSON", number(&tally.calls)),
        ("streamed requests", number(&tally.streamed)),
        ("  interrupted", number(&tally.interrupted)),
        ("  rerun or finished across a kill", number(&tally.rerun)),
        ("unanswered, no id to resume after", number(&tally.unanswered)),
        ("vanished with a torn journal", number(&tally.vanished)),
        ("hang-ups by clients", number(&tally.hang_ups)),
        ("resumes", number(&tally.resumes)),
        ("events checked", number(&tally.events)),
        ("  questions", number(&tally.questions)),
        ("  on standalone streams", number(&tally.news)),
        ("notebooks counted", number(&tally.states)),
        ("events replayed and compared", number(&tally.replayed)),
        ("restart to ready, median and longest", tally.readies.spread()),
        ("restart to first answer, same", tally.first_answers.spread()),
    ];
    if world.is_cluster() {
        rows.extend([
            ("troubles of all kinds", world.troubles().to_string()),
            ("refused for a while", number(&tally.refused)),
            ("counters that fit one order", number(&tally.counters)),
            ("wait for a sign of life, median and p99", tally.waits.tail()),
            ("  and the longest", tally.waits.spread()),
        ]);
        rows.extend(tally.cluster.rows());
    }
    rows.push(("violations", world.violations().len().to_string()));
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    rows.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

/// Every broken promise: first how many of each kind, then the details.
pub(crate) fn violations(world: &World) -> String {
    const MAX_SHOWN: usize = 100;
    let violations = world.violations();
    let mut kinds = BTreeMap::new();
    for violation in &violations {
        *kinds.entry(violation.kind).or_insert(0) += 1;
    }
    let mut text = String::new();
    for (kind, number) in kinds {
        writeln!(text, "{number} × {kind}").expect("a string takes any text");
    }
    for violation in violations.iter().take(MAX_SHOWN) {
        writeln!(text, "- {violation}").expect("a string takes any text");
    }
    if violations.len() > MAX_SHOWN {
        writeln!(text, "and {} more", violations.len() - MAX_SHOWN).expect("a string takes any text");
    }
    text
}

/// Panics, errors and warnings in the server's log.
#[derive(Debug, Default)]
pub(crate) struct ServerLog {
    pub(crate) panics: Vec<String>,
    errors: BTreeMap<String, u64>,
}

impl ServerLog {
    pub(crate) fn read<'a>(paths: impl Iterator<Item = &'a Path>) -> ServerLog {
        let mut log = ServerLog::default();
        let texts: Vec<String> =
            paths.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect();
        for line in texts.iter().flat_map(|text| text.lines()) {
            if line.contains("panicked") {
                log.panics.push(line.to_owned());
            }
            let entry: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let level = entry["level"].as_str().unwrap_or_default();
            if matches!(level, "ERROR" | "WARN") {
                let message = entry["message"].as_str().unwrap_or(line);
                let cause = entry["error"].as_str().map(|error| format!(": {error}")).unwrap_or_default();
                *log.errors.entry(format!("{level} {message}{cause}")).or_default() += 1;
            }
        }
        log
    }

    pub(crate) fn text(&self) -> String {
        let errors: String = self
            .errors
            .iter()
            .take(MAX_LOGGED)
            .map(|(line, number)| format!("  {number} × {line}\n"))
            .collect();
        if errors.is_empty() { errors } else { format!("\nin the server's log:\n{errors}") }
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
