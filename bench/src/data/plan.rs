//! How much is measured, full and quick, and the command that repeats a figure.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cli::{CommonArgs, DataArgs, DataQuestion};
use crate::load::Load;

#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) questions: Vec<DataQuestion>,
    pub(super) dir: Option<PathBuf>,
    quick: bool,
    /// States in the store that `many` fills.
    pub(super) states: u64,
    pub(super) rounds: usize,
    seconds: f64,
    pub(super) load: Load,
    pub(super) opens: usize,
    pub(super) finds: usize,
    pub(super) cold_finds: usize,
    pub(super) lists: usize,
    /// Made, and put off, one at a time.
    pub(super) writes: usize,
}

impl Plan {
    pub(crate) fn new(common: &CommonArgs, args: &DataArgs) -> Result<Plan> {
        let quick = args.quick;
        let choose = |full: usize, small: usize| if quick { small } else { full };
        let states = args.sessions.unwrap_or(if quick { 5_000 } else { 1_000_000 });
        // Many short ones: how fast the machine is changes within seconds, and ratios are taken within a round.
        let rounds = args.rounds.unwrap_or(choose(30, 1));
        let seconds = args.seconds.unwrap_or(if quick { 0.2 } else { 0.6 });
        ensure!(states > 0 && rounds > 0, "`--sessions` and `--rounds` must be at least 1");
        let window = Duration::try_from_secs_f64(seconds).context("read a number of seconds")?;
        let all = vec![DataQuestion::Calls, DataQuestion::Many];
        Ok(Plan {
            questions: if args.questions.is_empty() { all } else { args.questions.clone() },
            dir: common.dir.clone(),
            quick,
            states,
            rounds,
            seconds,
            load: Load { connections: 64, warm_up: window / 4, window },
            opens: choose(3, 1),
            finds: choose(100_000, 1_000),
            cold_finds: choose(2_000, 50),
            lists: choose(2_000, 20),
            writes: choose(5_000, 50),
        })
    }

    /// The part of a run of everything. Whoever names rows wants those servers and no more.
    pub(crate) fn of_all(common: &CommonArgs, sessions: Option<u64>) -> Result<Plan> {
        let questions = if common.only.is_empty() { Vec::new() } else { vec![DataQuestion::Calls] };
        let args = DataArgs { questions, quick: false, sessions, rounds: None, seconds: None };
        Plan::new(common, &args)
    }

    /// Whether servers are called.
    pub(crate) fn calls_servers(&self) -> bool {
        self.questions.contains(&DataQuestion::Calls)
    }

    /// The command that repeats the figures of a question.
    pub(super) fn command(&self, question: DataQuestion) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        match question {
            DataQuestion::Calls => {
                format!("./dev bench data calls{quick} --rounds {} --seconds {}", self.rounds, self.seconds)
            }
            DataQuestion::Many => format!("./dev bench data many{quick} --sessions {}", self.states),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Plan;
    use crate::cli::{Cli, Command, DataQuestion};

    fn plan(args: &[&str]) -> Plan {
        let cli = Cli::try_parse_from([&["tenure-bench", "data"], args].concat()).unwrap();
        let Command::Data(command) = cli.command else { panic!("a `data` command") };
        Plan::new(&command.common, &command.data).unwrap()
    }

    #[test]
    fn the_command_of_a_figure_repeats_it() {
        let first = plan(&["--quick", "--sessions", "50"]);
        assert_eq!(first.questions, [DataQuestion::Calls, DataQuestion::Many]);
        for question in first.questions.clone() {
            let command = first.command(question);
            let words: Vec<_> = command.split(' ').skip(3).collect();
            assert_eq!(plan(&words).command(question), command);
        }
    }
}
