//! One measurement in a process of its own: what the harness sends, and how it gets the answer.
//!
//! A fresh process has caches, threads and CPU time that belong to nothing else. The harness starts this
//! binary again with the name of the worker and the task as JSON; the worker prints a line of JSON when it is done.
//! It ends when its stdin is closed, so none outlives the harness.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use crate::servers::exit_with_stdin;

/// Prints a line for the harness.
pub(crate) fn tell(what: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(what).context("encode the figures as JSON")?;
    writeln!(std::io::stdout(), "{line}").context("print the figures")
}

/// Runs what the harness asked for, in this process.
pub(crate) fn run<T: DeserializeOwned, F: Future<Output = Result<()>> + Send + 'static>(
    task: &str,
    work: impl FnOnce(T) -> F,
) -> Result<()> {
    exit_with_stdin();
    let task = work(serde_json::from_str(task).context("read the task")?);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        // On a worker thread, where requests of a server run too: the thread that waits here is not one of them.
        let mut task = JoinSet::from_iter([task]);
        task.join_next().await.context("the task is gone")?.context("run the task")?
    })
}

/// A worker that was started. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    /// Held open: the worker ends with it.
    _stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) fn start(worker: &str, task: &impl Serialize) -> Result<Worker> {
        let own = std::env::current_exe().context("find this binary")?;
        let task = serde_json::to_string(task).context("encode the task as JSON")?;
        let mut child = Command::new(own)
            .args([worker, &task])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start a worker")?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("read the worker's output")?;
        Ok(Worker { child, _stdin: stdin, lines: BufReader::new(stdout).lines() })
    }

    /// Waits for the next line.
    pub(crate) async fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.lines.next_line().await.context("read from the worker")?;
        let Some(line) = line else { bail!("the worker ended without an answer; see above") };
        serde_json::from_str(&line).context("read the worker's answer")
    }

    /// Waits for its end, which must be a good one.
    async fn end(mut self) -> Result<()> {
        let status = self.child.wait().await.context("wait for the worker")?;
        ensure!(status.success(), "the worker ended with {status}; see above");
        Ok(())
    }

    /// Kills it (SIGKILL) in the middle of what it does, and waits until it is gone.
    pub(crate) async fn kill(mut self) -> Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "the worker ended by itself; see above");
        self.child.kill().await.context("kill the worker")
    }
}

/// Runs a task to its end.
pub(crate) async fn ask<T: DeserializeOwned>(worker: &str, task: &impl Serialize) -> Result<T> {
    let mut worker = Worker::start(worker, task)?;
    let answer = worker.hear().await?;
    worker.end().await?;
    Ok(answer)
}
