//! How much is measured: the sizes behind the flags, full and quick, and the command that repeats a figure.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cli::{CallsArgs, CommonArgs, StoreArgs, StoreQuestion};

/// Sessions in the store that lookups are measured on: enough that most of it is in tables.
const LOOKUP_SESSIONS: u64 = 300_000;

#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) questions: Vec<StoreQuestion>,
    pub(super) dir: Option<PathBuf>,
    pub(super) quick: bool,
    /// Sessions and events of the store that `open` fills.
    pub(super) sessions: u64,
    pub(super) events: u64,
    pub(super) rounds: usize,
    /// How long appends and calls are measured, and how long a process writes before it is killed.
    pub(super) window: Duration,
    pub(super) stall_window: Duration,
    pub(super) lookup_sessions: u64,
    pub(super) lookups: usize,
    pub(super) cold_gets: usize,
    pub(super) inserts: u64,
    pub(super) wakes: u64,
    /// Gets between two looks at the memory of an opened store.
    pub(super) random_gets: usize,
}

impl Plan {
    pub(crate) fn new(common: &CommonArgs, args: &StoreArgs) -> Result<Plan> {
        let StoreArgs { quick, .. } = *args;
        let choose = |full: u64, small: u64| if quick { small } else { full };
        let count = |full: u64, small: u64| choose(full, small) as usize;
        let sessions = args.sessions.unwrap_or(choose(1_000_000, 2_000));
        let events = args.events.unwrap_or(choose(5_000_000, 10_000));
        let rounds = args.rounds.unwrap_or(count(3, 1));
        let seconds = args.seconds.unwrap_or(if quick { 0.2 } else { 2.0 });
        ensure!(sessions > 0 && rounds > 0, "`--sessions` and `--rounds` must be at least 1");
        let window = Duration::try_from_secs_f64(seconds).context("read a number of seconds")?;
        Ok(Plan {
            questions: if args.questions.is_empty() {
                StoreQuestion::ALL.to_vec()
            } else {
                args.questions.clone()
            },
            dir: common.dir.clone(),
            quick,
            sessions,
            events,
            rounds,
            window,
            stall_window: window * 5,
            lookup_sessions: sessions.min(LOOKUP_SESSIONS),
            lookups: count(100_000, 2_000),
            cold_gets: count(2_000, 100),
            inserts: choose(5_000, 200),
            wakes: choose(300, 20),
            random_gets: count(100_000, 2_000),
        })
    }

    /// The part of a run of everything.
    pub(crate) fn of_all(common: &CommonArgs, sessions: Option<u64>, events: Option<u64>) -> Result<Plan> {
        // Calls have a table of their own there, with the same two rows in it.
        let questions = StoreQuestion::ALL.into_iter().filter(|question| *question != StoreQuestion::Calls);
        let args = StoreArgs {
            questions: questions.collect(),
            quick: false,
            sessions,
            events,
            rounds: None,
            seconds: None,
        };
        Plan::new(common, &args)
    }

    /// How calls are measured.
    pub(super) fn calls(&self) -> CallsArgs {
        CallsArgs {
            seconds: self.window.as_secs_f64(),
            warm_up: self.window.as_secs_f64() / 2.5,
            rounds: self.rounds,
            connections: 64,
        }
    }

    /// The command that repeats the figures of a question.
    pub(super) fn command(&self, question: StoreQuestion) -> String {
        let mut command = format!("./dev bench store {}", question.as_str());
        if self.quick {
            command += " --quick";
        }
        let Plan { sessions, events, rounds, .. } = self;
        let seconds = self.window.as_secs_f64();
        command += &match question {
            StoreQuestion::Append | StoreQuestion::Calls => format!(" --rounds {rounds} --seconds {seconds}"),
            StoreQuestion::Lookup => format!(" --sessions {sessions}"),
            StoreQuestion::Wake => String::new(),
            StoreQuestion::Open => {
                format!(" --sessions {sessions} --events {events} --rounds {rounds} --seconds {seconds}")
            }
            StoreQuestion::Stalls => format!(" --seconds {seconds}"),
        };
        command
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Plan;
    use crate::cli::{Cli, Command, StoreQuestion};

    fn plan(args: &[&str]) -> Plan {
        let cli = Cli::try_parse_from([&["tenure-bench", "store"], args].concat()).unwrap();
        let Command::Store(command) = cli.command else { panic!("a `store` command") };
        Plan::new(&command.common, &command.store).unwrap()
    }

    #[test]
    fn the_command_of_a_figure_repeats_it() {
        let first = plan(&["open", "append", "--quick", "--sessions", "50"]);
        assert_eq!(first.questions, [StoreQuestion::Open, StoreQuestion::Append]);
        let command = first.command(StoreQuestion::Open);
        assert_eq!(
            command,
            "./dev bench store open --quick --sessions 50 --events 10000 --rounds 1 --seconds 0.2"
        );
        let words: Vec<_> = command.split(' ').skip(3).collect();
        assert_eq!(plan(&words).command(StoreQuestion::Open), command);
    }

    #[test]
    fn without_a_name_every_question_is_asked() {
        assert_eq!(plan(&[]).questions, StoreQuestion::ALL);
    }
}
