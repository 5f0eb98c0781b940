//! What is measured and for how long, full and quick, and the command that repeats a figure.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cli::{CommonArgs, ErasArgs, ErasQuestion};
use crate::eras::bridges;
use crate::gateway;
use crate::load::Load;
use crate::rows::{Bench, Rows};

#[derive(Debug)]
pub(crate) struct Plan {
    /// Called in both eras.
    servers: Rows,
    /// Pairs of a client and a server.
    pub(super) bridges: Vec<gateway::Row>,
    pub(super) dir: Option<PathBuf>,
    quick: bool,
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    pub(super) load: Load,
}

impl Plan {
    pub(crate) fn new(common: &CommonArgs, args: &ErasArgs) -> Result<Plan> {
        let asks = |question| args.questions.is_empty() || args.questions.contains(&question);
        let (calls, bridges) = (asks(ErasQuestion::Calls), asks(ErasQuestion::Bridges));
        ensure!(
            common.only.is_empty() || !(calls && bridges),
            "`--only` names rows of one question\n\nhint: name the question too: `eras calls` or `eras bridges`"
        );
        let servers = if calls { Rows::select(common, Bench::Eras)? } else { Rows::none() };
        Plan::of(servers, bridges, common, args)
    }

    /// The part of a run of everything. Whoever names rows wants those servers and no more.
    pub(crate) fn of_all(common: &CommonArgs) -> Result<Plan> {
        let args = ErasArgs { questions: Vec::new(), quick: false, rounds: None, seconds: None };
        Plan::of(Rows::select_any(common, Bench::Eras)?, common.only.is_empty(), common, &args)
    }

    fn of(servers: Rows, bridges: bool, common: &CommonArgs, args: &ErasArgs) -> Result<Plan> {
        let quick = args.quick;
        let rounds = args.rounds.unwrap_or(if quick { 1 } else { 3 });
        let seconds = args.seconds.unwrap_or(if quick { 0.2 } else { 4.0 });
        ensure!(rounds > 0, "`--rounds` must be at least 1");
        let window = Duration::try_from_secs_f64(seconds).context("read a number of seconds")?;
        let bridges = match bridges {
            true => gateway::select(bridges::ENTRIES, &common.only, common.bin_dir.as_deref())?,
            false => Vec::new(),
        };
        Ok(Plan {
            servers,
            bridges,
            dir: common.dir.clone(),
            quick,
            rounds,
            seconds,
            load: Load { connections: if quick { 8 } else { 64 }, warm_up: window / 4, window },
        })
    }

    /// The servers that are called in both eras.
    pub(crate) fn servers(&self) -> &Rows {
        &self.servers
    }

    /// Whether nothing is asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.bridges.is_empty()
    }

    /// The command that repeats the figures of a question.
    pub(super) fn command(&self, question: &str) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        format!("./dev bench eras {question}{quick} --rounds {} --seconds {}", self.rounds, self.seconds)
    }
}
