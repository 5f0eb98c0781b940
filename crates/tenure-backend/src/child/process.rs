//! One child process: started in its own process group, and ended together with that group.
//!
//! To end a child we close its input, then send SIGTERM, then SIGKILL. Processes that it left behind in its group are
//! killed too. A task always waits for the child, so it never stays as a zombie.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, kill_process_group, prlimit, waitid,
};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::command::{ChildCommand, ChildLimits};
use super::warden::Warden;
use crate::child::stderr_tail::StderrTail;

/// How long we go on reading a child's standard error after it has ended.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// A child and its pipes.
pub(super) struct Process {
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) handle: Handle,
}

/// A handle to a child; dropping it ends the child.
pub(super) struct Handle {
    pub(super) tail: StderrTail,
    pub(super) id: u32,
    /// Cancelled when the child has to end. The owner of the input must close it as well.
    leave: CancellationToken,
    /// The child closed its output before we told it to end. So it ended by itself, even if we see its exit later.
    hung_up: Arc<AtomicBool>,
    /// True when the child and its process group have ended.
    gone: watch::Receiver<bool>,
    /// Gets a message if the child ends without having been told to.
    pub(super) ended_by_itself: Option<oneshot::Receiver<()>>,
}

impl Process {
    /// Starts a child with these variables, beside those of its command. It holds its permit until it has ended, and ends when
    /// `restart` is cancelled.
    pub(super) fn start(
        command: &ChildCommand,
        variables: &[(&'static str, String)],
        warden: Option<Arc<Warden>>,
        (permit, restart): (OwnedSemaphorePermit, CancellationToken),
    ) -> std::io::Result<Self> {
        let mut run = Command::new(&command.program);
        // Our own settings and the secrets of other servers must not reach the child.
        run.env_clear().envs(std::env::vars_os().filter(|(name, _)| command.inherit.has(name)));
        run.args(&command.arguments).envs(command.environment.iter().map(|(name, value)| (name, value)));
        // Last, so that a command cannot claim another owner.
        run.envs(variables.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &command.folder {
            run.current_dir(folder);
        }
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // `kill_on_drop` is the last resort: it kills only the child and not its process group.
        run.process_group(0).kill_on_drop(true);
        let mut child = run.spawn()?;
        let missing = || std::io::Error::other("a pipe of the child is missing");
        let id = child.id().ok_or_else(missing)?;
        if let Some(warden) = &warden {
            warden.add(id);
        }
        bound(id, command);
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let errors = child.stderr.take().ok_or_else(missing)?;
        let tail = StderrTail::of(command.name.as_deref());
        let leave = CancellationToken::new();
        let (tell_gone, gone) = watch::channel(false);
        let (tell_ended, ended) = oneshot::channel();
        let hung_up = Arc::new(AtomicBool::new(false));
        let reaper = ChildReaper {
            child,
            id,
            leave: leave.clone(),
            restart,
            hung_up: Arc::clone(&hung_up),
            grace: command.limits.grace,
            tail: tail.clone(),
            warden,
            _permit: permit,
        };
        #[expect(clippy::disallowed_methods, reason = "both end with the child")]
        {
            let follow = tokio::spawn(tail.clone().follow(errors, id));
            tokio::spawn(async move {
                reaper.reap(tell_ended).await;
                // Operators need the last lines of stderr. The timeout is for a process outside of the group that keeps
                // the pipe open.
                drop(timeout(LAST_WORDS, follow).await);
                tell_gone.send_replace(true);
            });
        }
        let handle = Handle { tail, id, leave, hung_up, gone, ended_by_itself: Some(ended) };
        Ok(Self { input, output, handle })
    }
}

/// Sets the limits of the child, which its own children inherit from here on.
fn bound(id: u32, command: &ChildCommand) {
    let ChildLimits { max_memory, max_files, first_files, .. } = command.limits;
    let all = |most: u64| Rlimit { current: Some(most), maximum: Some(most) };
    let at_first = |first| Rlimit { current: Some(first), maximum: getrlimit(Resource::Nofile).maximum };
    let limits = [
        (Resource::As, max_memory.map(all)),
        (Resource::Nofile, max_files.map(all).or_else(|| first_files.map(at_first))),
    ];
    for (resource, limit) in limits {
        let Some(limit) = limit else { continue };
        if let Err(error) = prlimit(pid(id), resource, limit) {
            tracing::warn!(child = id, ?resource, %error, "could not set a limit of a child");
        }
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

struct ChildReaper {
    child: Child,
    id: u32,
    leave: CancellationToken,
    /// Cancelled when an operator wants another child in its place.
    restart: CancellationToken,
    hung_up: Arc<AtomicBool>,
    grace: Duration,
    tail: StderrTail,
    warden: Option<Arc<Warden>>,
    _permit: OwnedSemaphorePermit,
}

impl ChildReaper {
    async fn reap(mut self, ended: oneshot::Sender<()>) {
        let (status, told) = tokio::select! {
            status = self.child.wait() => (status, false),
            () = self.leave.cancelled() => (self.end().await, true),
            // Its sessions find that it has ended by itself, and so get another one.
            () = self.restart.cancelled() => (self.stop().await, false),
        };
        let (backend, session) = (self.tail.backend(), self.tail.session());
        match status {
            Err(error) => tracing::error!(
                backend, session, child = self.id, %error,
                "could not wait for a child"
            ),
            Ok(status) if !told || self.hung_up.load(Ordering::Relaxed) => {
                match self.restart.is_cancelled() {
                    true => {
                        tracing::info!(backend, session, child = self.id, %status, "the server ended for a restart")
                    }
                    false => {
                        tracing::warn!(backend, session, child = self.id, %status, "the server ended by itself")
                    }
                }
                // The receiver may have been dropped.
                let _ = ended.send(());
            }
            Ok(status) => tracing::debug!(backend, session, child = self.id, %status, "the server has left"),
        }
        // Kill what the child left behind in its group, even if the child itself ended normally.
        self.signal(Signal::KILL);
        if let Some(warden) = &self.warden {
            warden.remove(self.id);
        }
    }

    async fn end(&mut self) -> std::io::Result<ExitStatus> {
        if let Ok(status) = timeout(self.grace, self.child.wait()).await {
            return status;
        }
        self.stop().await
    }

    async fn stop(&mut self) -> std::io::Result<ExitStatus> {
        self.signal(Signal::TERM);
        if let Ok(status) = timeout(self.grace, self.child.wait()).await {
            return status;
        }
        let session = self.tail.session();
        tracing::warn!(
            backend = self.tail.backend(),
            session,
            child = self.id,
            "the server did not leave when it was told to; it is killed"
        );
        self.signal(Signal::KILL);
        self.child.wait().await
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = pid(self.id) {
            // Fails if the group has no process left.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Handle {
    /// A function for the reader to call when the child's output ends.
    pub(super) fn hang_up(&self) -> impl FnOnce() + Send + 'static {
        let (leave, hung_up) = (self.leave.clone(), Arc::clone(&self.hung_up));
        move || hung_up.store(!leave.is_cancelled(), Ordering::Relaxed)
    }

    /// Whether the child ended, or closed its output, before we told it to end.
    pub(super) fn left_by_itself(&self) -> bool {
        self.hung_up.load(Ordering::Relaxed)
    }

    /// Whether the child has ended by now. Asks the kernel, because the reaper task may not have noticed yet: when many
    /// children die at once, that can take a while.
    pub(super) fn has_ended(&self) -> bool {
        let Some(id) = pid(self.id) else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that the reaper has already waited for the child.
        !matches!(waitid(WaitId::Pid(id), options), Ok(None))
    }

    /// Tells the child to end; resolves when the child and its process group have ended.
    pub(super) fn end(&self) -> impl Future<Output = ()> + Send + 'static {
        self.leave.cancel();
        self.gone()
    }

    /// Resolves when the child and its process group have ended.
    pub(super) fn gone(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut gone = self.gone.clone();
        async move {
            // Fails only if the sender was dropped, because the runtime has ended.
            drop(gone.wait_for(|gone| *gone).await);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.leave.cancel();
    }
}
