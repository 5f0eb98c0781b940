//! One measurement in a process of its own: what the harness sends, and how it gets the answer.
//!
//! A fresh process has caches, threads and CPU time that belong to nothing else. The harness starts this
//! binary again with `store-worker` and the task as JSON; the worker prints a line of JSON when it is done.
//! It ends when its stdin is closed, so none outlives the harness.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use super::{append, fill, lookup, open, stalls, wake};
use crate::data::many;
use crate::servers::exit_with_stdin;

/// What a worker can do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Task {
    Fill(fill::Fill),
    Append(append::Job),
    Lookup(lookup::Job),
    Cold(lookup::Cold),
    Wake(wake::Job),
    Open(open::Job),
    /// Writes until it is killed.
    Churn(open::Churn),
    Stalls(stalls::Job),
    Data(many::Job),
}

impl Task {
    async fn run(self) -> Result<()> {
        match self {
            Task::Fill(job) => tell(&job.run().await?),
            Task::Append(job) => tell(&job.run().await?),
            Task::Lookup(job) => tell(&job.run().await?),
            Task::Cold(job) => tell(&job.run().await?),
            Task::Wake(job) => tell(&job.run().await?),
            Task::Open(job) => tell(&job.run().await?),
            Task::Churn(job) => job.run().await,
            Task::Stalls(job) => tell(&job.run().await?),
            Task::Data(job) => tell(&job.run().await?),
        }
    }
}

/// Prints a line for the harness.
pub(super) fn tell(what: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(what).context("encode the figures as JSON")?;
    writeln!(std::io::stdout(), "{line}").context("print the figures")
}

/// Does what the harness asked for.
pub(crate) fn run(task: &str) -> Result<()> {
    exit_with_stdin();
    let task: Task = serde_json::from_str(task).context("read the task")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        // On a worker thread, where requests of a server run too: the thread that waits here is none of them.
        let mut task = JoinSet::from_iter([task.run()]);
        task.join_next().await.context("the task is gone")?.context("run the task")?
    })
}

/// A worker that was started. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    /// Held open: the worker ends with it.
    _stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(super) fn start(task: &Task) -> Result<Worker> {
        let own = std::env::current_exe().context("find this binary")?;
        let task = serde_json::to_string(task).context("encode the task as JSON")?;
        let mut child = Command::new(own)
            .args(["store-worker", &task])
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
    pub(super) async fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
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
    pub(super) async fn kill(mut self) -> Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "the worker ended by itself; see above");
        self.child.kill().await.context("kill the worker")
    }
}

/// Runs a task to its end.
pub(super) async fn ask<T: DeserializeOwned>(task: &Task) -> Result<T> {
    let mut worker = Worker::start(task)?;
    let answer = worker.hear().await?;
    worker.end().await?;
    Ok(answer)
}

/// The same for the questions about data sessions.
pub(crate) async fn ask_about_data<T: DeserializeOwned>(job: many::Job) -> Result<T> {
    ask(&Task::Data(job)).await
}
