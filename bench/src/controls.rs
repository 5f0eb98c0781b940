//! Question: how much server CPU time do credentials, limits, logs, metrics and traces add to a `tools/call`?
//!
//! One server, with one thing switched on in each row, beside the same server without any. Rounds are interleaved over all
//! rows, with a fresh process each time; a ratio is taken within a round.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::calls::{self, cpu};
use crate::cli::ControlsArgs;
use crate::client::Calling;
use crate::load::Load;
use crate::report::Section;
use crate::rounds::interleave;
use crate::rows::{Row, Rows};
use crate::stats::median;
use crate::table::Table;
use crate::target::{self, Target};

/// What the others are held against.
const PLAIN: &str = "native-plain";

/// What a call may cost, against one without the thing.
const BOUNDS: [(&str, f64); 4] =
    [("native-token", 1.10), ("native-key", 1.10), ("native-limits", 1.03), ("native-access", 1.10)];

/// What metrics and traces add to a server that writes the access log, as it does by default.
const LOGGED: &str = "native-access";
const SIGHT: [(&str, f64); 2] = [("access-metrics", 1.03), ("access-traces", 1.03)];

const ROUNDS: usize = 10;
const SECONDS: f64 = 1.5;

pub(crate) async fn run(rows: &Rows, args: &ControlsArgs) -> Result<Section> {
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { ROUNDS });
    let seconds = args.seconds.unwrap_or(if args.quick { 0.2 } else { SECONDS });
    ensure!(rounds > 0, "`--rounds` must be at least 1");
    let window = Duration::try_from_secs_f64(seconds).context("read a number of seconds")?;
    let connections = if args.quick { 8 } else { 64 };
    let load = Load { connections, warm_up: window / 4, window };
    let measured = interleave("controls", rounds, rows.iter().collect(), async |row: &&Row| {
        calls::measure(row, load, Calling::Echo).await
    });
    let rows = measured.await?;
    let plain = rows.iter().find(|row| row.case.name == PLAIN);

    let mut targets = Vec::new();
    for (name, bound) in BOUNDS {
        if let Some(row) = rows.iter().find(|row| row.case.name == name) {
            let what = format!("CPU per call, `{name}` ÷ `{PLAIN}`");
            targets.push(Target::at_most(what, bound, "", median(row.ratio(plain, cpu))));
        }
    }
    let logged = rows.iter().find(|row| row.case.name == LOGGED);
    for (name, bound) in SIGHT {
        if let Some(row) = rows.iter().find(|row| row.case.name == name) {
            let what = format!("CPU per call, `{name}` ÷ `{LOGGED}`");
            targets.push(Target::at_most(what, bound, "", median(row.ratio(logged, cpu))));
        }
    }
    let quick = if args.quick { " --quick" } else { "" };
    let command = format!("./dev bench controls{quick} --rounds {rounds} --seconds {seconds}");
    let mut text = format!(
        "## Credentials, limits, logs, metrics and traces\n\n`tools/call` echo on live sessions; {connections} connections, one session and one call in flight each; {rounds} interleaved rounds of {seconds} s, a fresh process each. All clients are one principal, and show their credentials with each call. Median (min–max).\n\n`{command}`\n\n"
    );
    text += &Table::of(&rows)
        .text("row", |row| row.case.name)
        .text("what", |row| row.case.what)
        .spread("server CPU µs/call", 1, cpu)
        .samples(&format!("÷ {PLAIN}"), 2, |row| row.ratio(plain, cpu))
        .rates()
        .markdown();
    text += &target::table(&targets);
    let figures = json!({ "command": command, "connections": connections, "seconds": seconds, "rows": rows, "targets": targets });
    let failed = if args.hold { target::missed(&targets) } else { Vec::new() };
    Ok(Section::new("controls", figures, text).failing(failed))
}
