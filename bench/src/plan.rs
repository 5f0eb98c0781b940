//! How much is measured, full and quick, and the command that repeats a figure.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::cli::{CommonArgs, DataQuestion, ErasQuestion, QuestionArgs, StoreQuestion};
use crate::load::Load;

/// The sizes that flags can change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Sessions, or data sessions, in the store that is filled.
    sessions: u64,
    events: u64,
    rounds: usize,
    seconds: f64,
}

/// The questions of one subcommand.
pub(crate) trait Question: ValueEnum + Copy + PartialEq + Debug + Send + Sync + 'static {
    const COMMAND: &'static str;
    const FULL: Sizes;
    const QUICK: Sizes;

    /// The flags that its figures depend on.
    fn flags(self) -> &'static [&'static str];
}

impl Question for StoreQuestion {
    const COMMAND: &'static str = "store";
    const FULL: Sizes = Sizes { sessions: 1_000_000, events: 5_000_000, rounds: 3, seconds: 2.0 };
    const QUICK: Sizes = Sizes { sessions: 2_000, events: 10_000, rounds: 1, seconds: 0.2 };

    fn flags(self) -> &'static [&'static str] {
        match self {
            StoreQuestion::Append | StoreQuestion::Calls => &["rounds", "seconds"],
            StoreQuestion::Lookup => &["sessions"],
            StoreQuestion::Wake => &[],
            StoreQuestion::Open => &["sessions", "events", "rounds", "seconds"],
            StoreQuestion::Stalls => &["seconds"],
        }
    }
}

impl Question for DataQuestion {
    const COMMAND: &'static str = "data";
    // Many short rounds: how fast the machine is changes within seconds, and ratios are taken within a round.
    const FULL: Sizes = Sizes { sessions: 1_000_000, events: 0, rounds: 30, seconds: 0.6 };
    const QUICK: Sizes = Sizes { sessions: 5_000, events: 0, rounds: 1, seconds: 0.2 };

    fn flags(self) -> &'static [&'static str] {
        match self {
            DataQuestion::Calls => &["rounds", "seconds"],
            DataQuestion::Many => &["sessions"],
        }
    }
}

impl Question for ErasQuestion {
    const COMMAND: &'static str = "eras";
    const FULL: Sizes = Sizes { sessions: 1, events: 0, rounds: 3, seconds: 4.0 };
    const QUICK: Sizes = Sizes { sessions: 1, events: 0, rounds: 1, seconds: 0.2 };

    fn flags(self) -> &'static [&'static str] {
        &["rounds", "seconds"]
    }
}

/// What is asked, and how much is measured for it.
#[derive(Debug)]
pub(crate) struct Plan<Q> {
    pub(crate) questions: Vec<Q>,
    pub(crate) dir: Option<PathBuf>,
    quick: bool,
    pub(crate) sessions: u64,
    pub(crate) events: u64,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    /// The same as a time: how long calls and appends are measured, and how long a process writes before it is killed.
    pub(crate) window: Duration,
}

impl<Q: Question> Plan<Q> {
    pub(crate) fn new(
        common: &CommonArgs,
        args: &QuestionArgs<Q>,
        sessions: Option<u64>,
        events: Option<u64>,
    ) -> Result<Plan<Q>> {
        let sizes = if args.quick { Q::QUICK } else { Q::FULL };
        let (sessions, rounds) = (sessions.unwrap_or(sizes.sessions), args.rounds.unwrap_or(sizes.rounds));
        ensure!(sessions > 0 && rounds > 0, "`--sessions` and `--rounds` must be at least 1");
        let seconds = args.seconds.unwrap_or(sizes.seconds);
        let all = args.questions.is_empty();
        Ok(Plan {
            questions: if all { Q::value_variants().to_vec() } else { args.questions.clone() },
            dir: common.dir.clone(),
            quick: args.quick,
            sessions,
            events: events.unwrap_or(sizes.events),
            rounds,
            seconds,
            window: Duration::try_from_secs_f64(seconds).context("read a number of seconds")?,
        })
    }

    pub(crate) fn asks(&self, question: Q) -> bool {
        self.questions.contains(&question)
    }

    /// A size without a flag.
    pub(crate) fn choose<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// How servers are called.
    pub(crate) fn load(&self, connections: usize) -> Load {
        Load { connections, warm_up: self.window / 4, window: self.window }
    }

    /// The command that repeats the figures of a question.
    pub(crate) fn command(&self, question: Q) -> String {
        let value = question.to_possible_value().expect("no question is hidden");
        let mut command = format!("./dev bench {} {}", Q::COMMAND, value.get_name());
        if self.quick {
            command += " --quick";
        }
        for flag in question.flags() {
            let size = match *flag {
                "sessions" => self.sessions.to_string(),
                "events" => self.events.to_string(),
                "rounds" => self.rounds.to_string(),
                _ => self.seconds.to_string(),
            };
            command += &format!(" --{flag} {size}");
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use clap::{Parser, ValueEnum};

    use super::{Plan, Question};
    use crate::cli::{Asked, Cli, Command, DataQuestion, ErasQuestion, StoreQuestion};

    /// The questions of a command line, and the commands that repeat their figures.
    fn commands(line: &str) -> Vec<String> {
        fn of<Q: Question>(plan: &Plan<Q>) -> Vec<String> {
            plan.questions.iter().map(|question| plan.command(*question)).collect()
        }
        let cli = Cli::try_parse_from(line.split(' ').skip(1)).unwrap();
        match cli.command {
            Command::Store(Asked { common, args }) => {
                of(&Plan::new(&common, &args.asked, args.sessions, args.events).unwrap())
            }
            Command::Data(Asked { common, args }) => {
                of(&Plan::new(&common, &args.asked, args.sessions, None).unwrap())
            }
            Command::Eras(Asked { common, args }) => of(&Plan::new(&common, &args, None, None).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_of_a_figure_repeats_it() {
        let first = commands("./dev bench store open append --quick --sessions 50");
        let open = "./dev bench store open --quick --sessions 50 --events 10000 --rounds 1 --seconds 0.2";
        assert_eq!(first, [open, "./dev bench store append --quick --rounds 1 --seconds 0.2"]);
        for line in ["store", "store --quick", "data --quick --sessions 50", "eras --seconds 0.1"] {
            for command in commands(&format!("./dev bench {line}")) {
                assert_eq!(commands(&command), [command.as_str()]);
            }
        }
    }

    #[test]
    fn without_a_name_every_question_is_asked() {
        assert_eq!(commands("./dev bench store").len(), StoreQuestion::value_variants().len());
        assert_eq!(commands("./dev bench data").len(), DataQuestion::value_variants().len());
        assert_eq!(commands("./dev bench eras").len(), ErasQuestion::value_variants().len());
    }
}
