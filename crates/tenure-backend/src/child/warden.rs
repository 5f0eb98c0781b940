//! A helper process that ends our children if we are killed.
//!
//! We write the number of every process group that starts or ends to its pipe. When the pipe closes, we have ended,
//! and the warden ends the remaining groups. If the warden ends before us, a thread notices it, starts another one and
//! tells it all current groups.

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

use crate::backoff::Backoff;

/// How long children get between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(500);

/// The pause before the next warden is started, doubled for each warden that dies soon.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A handle to the warden process; dropping it ends the process.
pub struct Warden {
    shared: Arc<SharedWarden>,
    thread: Option<JoinHandle<()>>,
}

struct SharedWarden {
    program: PathBuf,
    arguments: Vec<String>,
    state: Mutex<WardenState>,
    /// Notified when the warden has to end.
    ends: Condvar,
}

struct WardenState {
    /// `None` while there is no process.
    child: Option<Child>,
    /// The current process groups, which every new warden has to be told.
    groups: BTreeSet<u32>,
    is_over: bool,
}

impl Warden {
    /// Starts the warden: a program that calls [`watch`] if it gets these arguments.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, arguments: &[&str]) -> std::io::Result<Self> {
        let shared = Arc::new(SharedWarden {
            program: program.to_owned(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            state: Mutex::new(WardenState { child: None, groups: BTreeSet::new(), is_over: false }),
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

impl SharedWarden {
    /// Starts a process, and tells it all groups.
    fn begin(&self, state: &mut WardenState) -> std::io::Result<()> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&self.program);
        // Its own group, so that a Ctrl-C on the terminal does not end it together with us.
        command.args(&self.arguments).process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        state.child = Some(command.spawn()?);
        for group in state.groups.clone() {
            state.say('+', group);
        }
        Ok(())
    }

    /// Restarts the warden whenever it ends, until `is_over`.
    fn keep(&self) {
        let mut pauses = Backoff::new(PAUSE, LONGEST_PAUSE);
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
                    "the warden process has ended; another one is started"
                );
            }
            if lived {
                pauses.reset();
            }
            self.ends.wait_for(&mut state, pauses.failed());
            if state.is_over {
                return;
            }
            if let Err(error) = self.begin(&mut state) {
                tracing::error!(
                    %error,
                    "could not start the warden process; children would survive if this process were killed"
                );
            }
        }
    }
}

/// Blocks until the process has ended, without reaping it. Returns how long that took.
fn wait_for_end(id: u32) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "a thread of its own, with real processes")]
    let began = std::time::Instant::now();
    let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) else { return Duration::ZERO };
    // Retry if a signal interrupted the wait.
    while let Err(rustix::io::Errno::INTR) =
        waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
    began.elapsed()
}

impl WardenState {
    /// A message that the warden misses because it has just ended is not lost: the next warden is told all groups.
    fn say(&mut self, what: char, group: u32) {
        let pipe = self.child.as_mut().and_then(|child| child.stdin.as_mut());
        if let Some(Err(error)) = pipe.map(|pipe| pipe.write_all(format!("{what}{group}\n").as_bytes())) {
            tracing::debug!(%error, "could not write to the warden process; it has ended");
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            state.is_over = true;
            // Closing the pipe ends the process, and with it the wait of the thread.
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

/// The main function of the warden process: reads until its parent has ended, and then ends the remaining groups.
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
