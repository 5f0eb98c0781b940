//! A process that outlives us, should we be killed, just long enough to end our children.
//!
//! It is told the number of every process group that is started and ended, over a pipe. When the pipe closes we are
//! gone, and it ends the groups that are left. Should it end before us, a thread that waits for that starts another one,
//! and tells it of all groups that there are.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};

/// How long children get between being told to leave and being made to.
const GRACE: Duration = Duration::from_millis(500);

/// Between the end of one and the start of the next, if that one failed too. Doubled each time, up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The hold on the process.
pub struct Warden {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    program: PathBuf,
    arguments: Vec<String>,
    state: Mutex<State>,
    /// Notified when it is to end.
    ends: Condvar,
}

struct State {
    /// None while there is no process.
    child: Option<Child>,
    /// Those that it has to know.
    groups: BTreeSet<u32>,
    is_over: bool,
}

impl Warden {
    /// Starts it: a program that calls [`watch`] when it is given these arguments.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, arguments: &[&str]) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            program: program.to_owned(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            state: Mutex::new(State { child: None, groups: BTreeSet::new(), is_over: false }),
            ends: Condvar::new(),
        });
        shared.begin(&mut shared.state.lock())?;
        let kept = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("warden".to_owned()).spawn(move || kept.keep())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn add(&self, group: u32) {
        let mut state = self.shared.state.lock();
        state.groups.insert(group);
        state.say('+', group);
    }

    pub(super) fn remove(&self, group: u32) {
        let mut state = self.shared.state.lock();
        state.groups.remove(&group);
        state.say('-', group);
    }
}

impl Shared {
    /// Starts a process, and tells it of all groups.
    fn begin(&self, state: &mut State) -> std::io::Result<()> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&self.program);
        // A group of its own: a Ctrl-C on the terminal is for us, and it has to see what comes of it.
        command.args(&self.arguments).process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        state.child = Some(command.spawn()?);
        for group in state.groups.clone() {
            state.say('+', group);
        }
        Ok(())
    }

    /// Sees to it that there is one, until it is to end.
    fn keep(&self) {
        let mut pause = PAUSE;
        loop {
            let id = self.state.lock().child.as_ref().map(Child::id);
            let lived = id.is_some_and(|id| wait_for_end(id) > LONGEST_PAUSE);
            let mut state = self.state.lock();
            if state.is_over {
                return;
            }
            if let Some(mut child) = state.child.take() {
                // The process has ended, so the wait returns at once; no other thread waits for it.
                let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                tracing::warn!(
                    warden = child.id(),
                    status,
                    "the process that ends children should this one be killed has ended; another one is started"
                );
            }
            pause = if lived { PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            self.ends.wait_for(&mut state, pause);
            if state.is_over {
                return;
            }
            if let Err(error) = self.begin(&mut state) {
                tracing::error!(%error, "could not start the process that ends children should this one be killed");
            }
        }
    }
}

/// Blocks until a child has ended, and leaves it to be waited for. Returns how long that took.
fn wait_for_end(id: u32) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "a thread of its own, with real processes")]
    let began = std::time::Instant::now();
    let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) else { return Duration::ZERO };
    // Interrupted by a signal: not yet.
    while let Err(rustix::io::Errno::INTR) =
        waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
    began.elapsed()
}

impl State {
    /// What it does not hear, since it has just ended, the next one is told.
    fn say(&mut self, what: char, group: u32) {
        let pipe = self.child.as_mut().and_then(|child| child.stdin.as_mut());
        if let Some(Err(error)) = pipe.map(|pipe| pipe.write_all(format!("{what}{group}\n").as_bytes())) {
            tracing::debug!(%error, "the warden is gone");
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            state.is_over = true;
            // It ends when its pipe does, and with it the wait of the thread.
            drop(state.child.as_mut().and_then(|child| child.stdin.take()));
        }
        self.shared.ends.notify_all();
        drop(self.thread.take().map(JoinHandle::join));
        drop(self.shared.state.lock().child.as_mut().map(Child::wait));
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
