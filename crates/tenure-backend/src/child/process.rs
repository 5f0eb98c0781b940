//! One child process: started in a group of its own, and ended with everything it has started.
//!
//! It is asked to leave by closing its input, then told to, then made to. Whatever it has left behind in its group
//! goes with it. Somebody always waits for it, so it never stays as a zombie.

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
use crate::child::stderr_tail::Tail;

/// How long a child's standard error is read on when it is gone.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// A child and its pipes.
pub(super) struct Process {
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) handle: Handle,
}

/// The hold on a child; it is ended when this is dropped.
pub(super) struct Handle {
    pub(super) tail: Tail,
    pub(super) id: u32,
    /// Cancelled: the child has to go. The input must be closed by whoever has it.
    leave: CancellationToken,
    /// It closed its output before anybody told it to go, and so left by itself, whatever is seen first.
    hung_up: Arc<AtomicBool>,
    /// True when it is gone, and all it started.
    gone: watch::Receiver<bool>,
    /// Told if it ends without having been told to.
    pub(super) ended_by_itself: Option<oneshot::Receiver<()>>,
}

impl Process {
    /// Starts one, which keeps its place until it is gone.
    pub(super) fn start(
        command: &ChildCommand,
        warden: Option<Arc<Warden>>,
        place: OwnedSemaphorePermit,
    ) -> std::io::Result<Self> {
        let mut run = Command::new(&command.program);
        // Neither what steers us nor a secret of another server is meant for it.
        run.env_clear().envs(std::env::vars_os().filter(|(name, _)| command.inherit.has(name)));
        run.args(&command.arguments).envs(command.environment.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &command.folder {
            run.current_dir(folder);
        }
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Only if all else fails: this reaches the child alone, and not what it started.
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
        let tail = Tail::of(command.name.as_deref());
        let leave = CancellationToken::new();
        let (tell_gone, gone) = watch::channel(false);
        let (tell_ended, ended) = oneshot::channel();
        let hung_up = Arc::new(AtomicBool::new(false));
        let keeper = Keeper {
            child,
            id,
            leave: leave.clone(),
            hung_up: Arc::clone(&hung_up),
            grace: command.limits.grace,
            tail: tail.clone(),
            warden,
            _place: place,
        };
        #[expect(clippy::disallowed_methods, reason = "both end with the child")]
        {
            let follow = tokio::spawn(tail.clone().follow(errors, id));
            tokio::spawn(async move {
                keeper.keep(tell_ended).await;
                // Its last words are what an operator wants to see; somebody out of reach may keep the pipe open.
                drop(timeout(LAST_WORDS, follow).await);
                tell_gone.send_replace(true);
            });
        }
        let handle = Handle { tail, id, leave, hung_up, gone, ended_by_itself: Some(ended) };
        Ok(Self { input, output, handle })
    }
}

/// Bounds apply to the child from here on, and to whatever it starts.
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
            tracing::warn!(child = id, ?resource, %error, "could not bound a child");
        }
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

struct Keeper {
    child: Child,
    id: u32,
    leave: CancellationToken,
    hung_up: Arc<AtomicBool>,
    grace: Duration,
    tail: Tail,
    warden: Option<Arc<Warden>>,
    _place: OwnedSemaphorePermit,
}

impl Keeper {
    async fn keep(mut self, ended: oneshot::Sender<()>) {
        let (status, told) = tokio::select! {
            status = self.child.wait() => (status, false),
            () = self.leave.cancelled() => (self.end().await, true),
        };
        let (backend, session) = (self.tail.backend(), self.tail.session());
        match status {
            Err(error) => tracing::error!(backend, session, child = self.id, %error, "lost track of a child"),
            Ok(status) if !told || self.hung_up.load(Ordering::Relaxed) => {
                tracing::warn!(backend, session, child = self.id, %status, "the server ended by itself");
                // Nobody may be interested.
                let _ = ended.send(());
            }
            Ok(status) => tracing::debug!(backend, session, child = self.id, %status, "the server has left"),
        }
        // What it started and left behind, also if it left in good order.
        self.signal(Signal::KILL);
        if let Some(warden) = &self.warden {
            warden.remove(self.id);
        }
    }

    async fn end(&mut self) -> std::io::Result<ExitStatus> {
        if let Ok(status) = timeout(self.grace, self.child.wait()).await {
            return status;
        }
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
            // No such group: everybody has left.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Handle {
    /// To be called when its output ends.
    pub(super) fn hang_up(&self) -> impl FnOnce() + Send + 'static {
        let (leave, hung_up) = (self.leave.clone(), Arc::clone(&self.hung_up));
        move || hung_up.store(!leave.is_cancelled(), Ordering::Relaxed)
    }

    /// Whether it ended, or closed its output, before it was told to go.
    pub(super) fn left_by_itself(&self) -> bool {
        self.hung_up.load(Ordering::Relaxed)
    }

    /// Whether the child has ended by now. The kernel is asked, since the keeper may not have been told yet: when many
    /// die at once, that can take a while.
    pub(super) fn has_ended(&self) -> bool {
        let Some(id) = pid(self.id) else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error: the keeper has waited for it, so it is not a child of ours any more.
        !matches!(waitid(WaitId::Pid(id), options), Ok(None))
    }

    /// Tells the child to go; resolves when it is gone, and all it started.
    pub(super) fn end(&self) -> impl Future<Output = ()> + Send + 'static {
        self.leave.cancel();
        self.gone()
    }

    /// Resolves when the child is gone, and all it started.
    pub(super) fn gone(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut gone = self.gone.clone();
        async move {
            // Gone without a word: the runtime has ended.
            drop(gone.wait_for(|gone| *gone).await);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.leave.cancel();
    }
}
