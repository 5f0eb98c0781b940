//! A process that outlives us, should we be killed, just long enough to end our children.
//!
//! It is told the number of every process group that is started and ended, over a pipe. When the pipe closes we are
//! gone, and it ends the groups that are left.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How long children get between being told to leave and being made to.
const GRACE: Duration = Duration::from_millis(500);

/// The hold on the process.
pub struct Warden {
    child: Mutex<Child>,
}

impl Warden {
    /// Starts it: a program that calls [`watch`] when it is given these arguments.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, arguments: &[&str]) -> std::io::Result<Self> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(program);
        // A group of its own: a Ctrl-C on the terminal is for us, and it has to see what comes of it.
        command.args(arguments).process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Self { child: Mutex::new(command.spawn()?) })
    }

    pub(super) fn add(&self, group: u32) {
        self.say('+', group);
    }

    pub(super) fn remove(&self, group: u32) {
        self.say('-', group);
    }

    fn say(&self, what: char, group: u32) {
        let mut child = self.child.lock();
        let told = child.stdin.as_mut().map(|pipe| pipe.write_all(format!("{what}{group}\n").as_bytes()));
        if !matches!(told, Some(Ok(()))) {
            tracing::error!("the warden is gone: children may be left behind should this process be killed");
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        drop(child.stdin.take());
        drop(child.wait());
    }
}

impl std::fmt::Debug for Warden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Warden")
    }
}

/// What the process does: listens until whoever started it is gone, and ends the groups that are left.
pub fn watch(from: impl BufRead) {
    let mut groups = BTreeSet::new();
    for line in from.lines() {
        let Ok(line) = line else { break };
        match line.split_at_checked(1) {
            Some(("+", group)) => drop(group.parse::<i32>().map(|group| groups.insert(group))),
            Some(("-", group)) => drop(group.parse::<i32>().map(|group| groups.remove(&group))),
            _ => {}
        }
    }
    let groups: Vec<Pid> = groups.into_iter().filter_map(Pid::from_raw).collect();
    for group in &groups {
        let _ = kill_process_group(*group, Signal::TERM);
    }
    let deadline = 50;
    for _ in 0..deadline {
        if groups.iter().all(|group| test_kill_process_group(*group).is_err()) {
            return;
        }
        std::thread::sleep(GRACE / deadline);
    }
    for group in &groups {
        let _ = kill_process_group(*group, Signal::KILL);
    }
}
