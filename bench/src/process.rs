//! A server under test as a process: started, asked for its CPU time and memory, and killed.
//!
//! The figures come from the kernel's files under `/proc`, never from the server itself. Dropping a
//! `Server` kills it and removes the folder it kept its store in, so every way out of the harness ends what
//! it started.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::client::Endpoint;
use crate::progress;
use crate::rows::{FOLDER, Row};
use crate::scratch::Scratch;

const START_DEADLINE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(20);
/// Linux reports times in `/proc/<pid>/stat` in hundredths of a second on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// A process that was started. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub(crate) id: u32,
    /// Its log goes to a file, where it costs the harness nothing to take it.
    log: File,
    /// Held open: a server that prints a second line must not die of a closed pipe.
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Process> {
        let log = tempfile::tempfile().context("create a file for a log")?;
        let name = command.as_std().get_program().to_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().context("share the file for a log")?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start `{}`", name.display()))?;
        let id = child.id().context("read a process id")?;
        let stdout = child.stdout.take().context("read a process's output")?;
        Ok(Process { child, id, log, stdout: BufReader::new(stdout).lines() })
    }

    /// The first line that it prints.
    pub(crate) async fn endpoint(&mut self, deadline: Duration) -> Result<String> {
        match timeout(deadline, self.stdout.next_line()).await {
            Ok(line) => match line.context("read the endpoint")? {
                Some(line) => Ok(line.trim().to_owned()),
                None => bail!("it ended without an endpoint{}", self.log()),
            },
            Err(_) => bail!("it printed no endpoint within {} s{}", deadline.as_secs(), self.log()),
        }
    }

    /// Waits until somebody listens on a port of this machine.
    pub(crate) async fn listens_on(&mut self, port: u16, deadline: Duration) -> Result<()> {
        let listening = async {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
                if let Some(status) = self.child.try_wait()? {
                    bail!("it ended ({status}) before it listened{}", self.log());
                }
                sleep(LOOK).await;
            }
            Ok(())
        };
        timeout(deadline, listening).await.context("wait until it listens")?
    }

    /// Kills it and waits until it is gone. It must not have ended by itself.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "it ended by itself{}", self.log());
        self.child.kill().await.context("kill it")
    }

    /// The last lines of its log, to go behind an error.
    pub(crate) fn log(&self) -> String {
        let mut text = String::new();
        let read = self.log.try_clone().and_then(|mut log| {
            log.seek(SeekFrom::Start(0))?;
            log.read_to_string(&mut text)
        });
        let lines: Vec<_> = text.lines().collect();
        if read.is_err() || lines.is_empty() {
            return String::new();
        }
        format!("; its log ends with:\n{}", lines[lines.len().saturating_sub(10)..].join("\n"))
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    process: Process,
    endpoint: Endpoint,
    /// Where its store is. Behind the process, because fields are dropped in this order.
    _folder: Option<Scratch>,
}

impl Server {
    /// Starts a row's server and waits for its endpoint.
    pub(crate) async fn start(row: &Row) -> Result<Server> {
        let folder = row.keeps_files().then(|| Scratch::new(row.dir.as_deref())).transpose()?;
        let place = folder.as_ref().map_or_else(String::new, |folder| folder.path().display().to_string());
        let authorization = match (&row.control, &folder) {
            (Some(control), Some(folder)) => control.prepare(folder.path())?,
            _ => None,
        };
        let mut command = Command::new(&row.program);
        command.args(row.args.iter().map(|arg| arg.replace(FOLDER, &place)));
        // All clients are on this machine, and so one peer.
        command.env("TENURE_HTTP_MAX_CONNECTIONS_PER_PEER", "20000");
        let start = async {
            let mut process = Process::start(&mut command)?;
            let endpoint = Endpoint::parse(&process.endpoint(START_DEADLINE).await?)?;
            let endpoint = endpoint.with_authorization(authorization);
            anyhow::Ok((process, endpoint))
        };
        let (process, endpoint) = start.await.with_context(|| format!("start server `{}`", row.name))?;
        Ok(Server { name: row.name, process, endpoint, _folder: folder })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The CPU time it has used so far.
    pub(crate) fn cpu(&self) -> Result<CpuTime> {
        CpuTime::of(&self.process.id.to_string())
            .with_context(|| format!("read the CPU time of `{}`", self.name))
    }

    /// Bytes of anonymous memory in RAM: heap and stacks, without the pages of the binary.
    pub(crate) fn memory(&self) -> Result<u64> {
        let memory = Memory::of(&self.process.id.to_string());
        Ok(memory.with_context(|| format!("read the memory of `{}`", self.name))?.anonymous)
    }

    /// Waits at least `at_least`, then until memory stands still, and returns it.
    pub(crate) async fn settled_memory(&self, at_least: Duration) -> Result<u64> {
        const STEP: Duration = Duration::from_millis(250);
        const SAME_STEPS: u32 = 4;
        const MAX_STEPS: u32 = 120;
        sleep(at_least).await;
        let mut settled = self.memory()?;
        let mut same = 0;
        for _ in 0..MAX_STEPS {
            sleep(STEP).await;
            let now = self.memory()?;
            if now.abs_diff(settled) <= (settled / 1_000).max(64 * 1024) {
                same += 1;
            } else {
                (same, settled) = (0, now);
            }
            if same == SAME_STEPS {
                return Ok(now);
            }
        }
        progress::warn(&format!("the memory of `{}` does not settle; the figure is a snapshot", self.name));
        self.memory()
    }

    /// Waits until the server does next to nothing.
    pub(crate) async fn quiet(&self) -> Result<()> {
        const STEP: Duration = Duration::from_millis(100);
        const MAX_STEPS: u32 = 300;
        let mut before = self.cpu()?;
        let mut calm = 0;
        for _ in 0..MAX_STEPS {
            sleep(STEP).await;
            let now = self.cpu()?;
            calm = if now.since(before) < STEP / 50 { calm + 1 } else { 0 };
            before = now;
            if calm == 3 {
                return Ok(());
            }
        }
        bail!("server `{}` does not become quiet", self.name)
    }

    /// Kills it and waits until it is gone, so that the next row has the machine for itself.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.process.kill().await.with_context(|| format!("stop server `{}`", self.name))
    }
}

/// CPU time, user and system, of a whole process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuTime {
    /// The sum over the threads alive, in nanoseconds of precision.
    threads: Duration,
    /// The process as a whole, in ticks, with the threads that have ended.
    ticks: Duration,
}

impl CpuTime {
    /// Of a process id, or of `self`.
    pub(crate) fn of(process: &str) -> Result<CpuTime> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).context("read its stat")?;
        // The name in brackets may hold spaces, so the fields are counted from its end.
        let fields = stat.rsplit_once(')').context("find the fields of its stat")?.1;
        let mut times = fields.split_ascii_whitespace().skip(11);
        let mut tick_count = || times.next().and_then(|text| text.parse::<u32>().ok());
        let (user, system) = tick_count().zip(tick_count()).context("find the times in its stat")?;

        let mut nanos = 0;
        for thread in std::fs::read_dir(format!("/proc/{process}/task")).context("list its threads")? {
            let path = thread.context("list its threads")?.path().join("schedstat");
            // A thread may end between the listing and the reading.
            let text = std::fs::read_to_string(path).unwrap_or_default();
            nanos += text.split_ascii_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0);
        }
        Ok(CpuTime { threads: Duration::from_nanos(nanos), ticks: (user + system) * TICK })
    }

    /// The time spent between two readings.
    pub(crate) fn since(self, earlier: CpuTime) -> Duration {
        let threads = self.threads.saturating_sub(earlier.threads);
        let ticks = self.ticks.saturating_sub(earlier.ticks);
        // A thread that ended in between took its share along (and a kernel without scheduler
        // statistics has none): the ticks then know better, and are only a tick or two off.
        if ticks > threads + 3 * TICK { ticks } else { threads }
    }
}

/// Lifts the limit of open files as far as we may; servers inherit it.
pub(crate) fn raise_file_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("raise the limit of open files")
}

/// Fails with a hint unless so many files may be open at once, here and in a server.
pub(crate) fn require_files(count: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    ensure!(
        limit >= count,
        "this needs {count} open files, but only {limit} are allowed\n\nhint: raise the hard limit (`ulimit -Hn`), or open fewer streams"
    );
    Ok(())
}

/// Bytes of memory that a process holds in RAM.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Everything, the pages of files it maps included.
    pub(crate) rss: u64,
    /// Heap and stacks.
    pub(crate) anonymous: u64,
}

impl Memory {
    /// Of a process id, or of `self`.
    pub(crate) fn of(process: &str) -> Result<Memory> {
        // The counters in `statm` may lag behind by some pages per core; the rollup counts anew.
        let path = format!("/proc/{process}/smaps_rollup");
        let rollup = std::fs::read_to_string(path).context("read its memory")?;
        let bytes = |key: &str| {
            let line = rollup.lines().find_map(|line| line.strip_prefix(key)).context("find the line")?;
            let kibibytes = line.trim().trim_end_matches("kB").trim().parse::<u64>();
            anyhow::Ok(kibibytes.context("read the number")? * 1024)
        };
        Ok(Memory { rss: bytes("Rss:")?, anonymous: bytes("Anonymous:")? })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CpuTime, Memory, TICK};

    fn cpu(threads_ms: u64, ticks_ms: u64) -> CpuTime {
        CpuTime { threads: Duration::from_millis(threads_ms), ticks: Duration::from_millis(ticks_ms) }
    }

    #[test]
    fn ticks_count_only_when_a_thread_has_ended() {
        assert_eq!(cpu(105, 110).since(cpu(50, 50)), Duration::from_millis(55));
        assert_eq!(cpu(20, 150).since(cpu(50, 50)), Duration::from_millis(100));
    }

    #[test]
    fn this_process_has_used_time_and_memory() {
        let before = CpuTime::of("self").unwrap();
        let mut sum = 0u64;
        while CpuTime::of("self").unwrap().since(before) < 2 * TICK {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        let memory = Memory::of("self").unwrap();
        assert!(memory.anonymous > 4096 && memory.rss >= memory.anonymous, "{memory:?}");
    }
}
