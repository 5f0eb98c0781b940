//! Starts and kills the server under test, and repairs its store. The server's log goes to a file.
//!
//! Dropping a `ServerUnderTest` kills the process, so however the harness ends, no server stays behind.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, timeout};

use crate::cli::DurabilityFlag;
use crate::power::Power;

/// How long a start may take, with recovery.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// How many lines of the log are shown with a failure.
const TAIL_LINES: usize = 40;

/// How to start the server, the same each time.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) store: ServerStore,
    pub(crate) durability: Option<DurabilityFlag>,
    /// Set if every kill is a loss of power.
    pub(crate) power: Option<Power>,
    pub(crate) log: PathBuf,
    pub(crate) log_level: String,
    /// More settings, each `key=value`.
    pub(crate) settings: Vec<String>,
}

/// Where the server keeps its sessions.
#[derive(Debug)]
pub(crate) enum ServerStore {
    Memory,
    Disk(PathBuf),
    /// An engine that several nodes share, as a URL.
    Engine(String),
}

impl ServerStore {
    fn url(&self) -> String {
        match self {
            ServerStore::Memory => "memory:".to_owned(),
            ServerStore::Disk(folder) => format!("disk:{}", folder.display()),
            ServerStore::Engine(url) => url.clone(),
        }
    }
}

/// A started process, which need not serve yet.
#[derive(Debug)]
pub(crate) struct ServerUnderTest {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    started: Instant,
}

/// Why a started server does not serve.
#[derive(Debug)]
pub(crate) enum StartFailure {
    /// It ended with this status.
    Ended(ExitStatus),
    /// It printed no endpoint in time.
    Silent,
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartFailure::Ended(status) => write!(f, "it ended with {status}"),
            StartFailure::Silent => write!(f, "it printed no endpoint within {} s", START_DEADLINE.as_secs()),
        }
    }
}

impl Launch {
    /// Starts a process and does not wait for it.
    pub(crate) fn start(&self) -> Result<ServerUnderTest> {
        let mut command = Command::new(&self.binary);
        command
            .args(["serve", "--log", "json", "--log-level", &self.log_level])
            .args(["--listen", &self.address.to_string(), "--store", &self.store.url()])
            // The server must refuse an id that is not in its log, not silently answer with another stream.
            .args(["--set", "streams.unknown_event_id=error"])
            // Sessions must not expire during a run of hours.
            .args(["--set", "session.idle_ttl=1d"])
            // Makes sessions sleep and wake all the time, not only after a kill.
            .args(["--set", "session.dormant_after=300ms"]);
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        if let Some(durability) = self.durability {
            let word = match durability {
                DurabilityFlag::Os => "os",
                DurabilityFlag::Disk => "disk",
            };
            command.args(["--set", &format!("durability={word}")]);
        }
        if let Some(power) = &self.power {
            power.wire(&mut command);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.open_log()?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start `{}`", self.binary.display()))?;
        let started = Instant::now();
        let stdout = child.stdout.take().context("read the server's output")?;
        Ok(ServerUnderTest { child, stdout: BufReader::new(stdout).lines(), started })
    }

    /// Repairs the store after synced data was lost. The server refuses to start then, because its data is older than
    /// the data it promised to keep.
    pub(crate) async fn repair(&self) -> Result<()> {
        let status = Command::new(&self.binary)
            .args(["store", "check", "--repair", "--store", &self.store.url()])
            .stdin(Stdio::null())
            .stdout(self.open_log()?)
            .stderr(self.open_log()?)
            .kill_on_drop(true)
            .status()
            .await
            .context("run `tenure store check --repair`")?;
        if !status.success() {
            bail!("`tenure store check --repair` failed with {status}");
        }
        Ok(())
    }

    /// Whether the last lines of the log say that data is lost or damaged.
    pub(crate) fn speaks_of_lost_data(&self) -> bool {
        let tail = last_lines(&self.log).to_lowercase();
        let last: Vec<_> = tail.lines().rev().take(8).collect();
        ["lost", "damaged", "missing", "corrupt"]
            .iter()
            .any(|word| last.iter().any(|line| line.contains(word)))
    }

    fn open_log(&self) -> Result<File> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        log.with_context(|| format!("open `{}`", self.log.display()))
    }
}

impl ServerUnderTest {
    /// Waits until the server prints its endpoint, which it does when it serves.
    pub(crate) async fn ready(&mut self) -> Result<Result<(), StartFailure>> {
        match timeout(START_DEADLINE, self.stdout.next_line()).await {
            Ok(Ok(Some(_))) => Ok(Ok(())),
            Ok(Ok(None)) => {
                let status = self.child.wait().await.context("wait for the server that ended")?;
                Ok(Err(StartFailure::Ended(status)))
            }
            Ok(Err(error)) => Err(error).context("read from the server"),
            Err(_) => Ok(Err(StartFailure::Silent)),
        }
    }

    /// How long ago it was started.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The number of its process, while it runs.
    pub(crate) fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let process = self.child.id().and_then(|process| Pid::from_raw(i32::try_from(process).ok()?));
        let process = process.context("find the process of the server")?;
        kill_process(process, signal).with_context(|| format!("send {signal:?} to the server"))
    }

    /// How it ended, if it has.
    pub(crate) fn has_ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("look at the server")
    }

    /// Resolves if the server ends by itself.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus> {
        self.child.wait().await.context("wait for the server")
    }

    /// Kills it (SIGKILL) and waits until it is gone, so that its files and its port are free.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("kill the server")
    }
}

/// The last lines of a server's log, with a heading.
pub(crate) fn tail(log: &Path) -> String {
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    format!("{name} ends with:\n{}\n\n", last_lines(log))
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// A free port below the range for outgoing connections. While the server is down, a client could take a port of that
/// range, or even connect to itself.
pub(crate) fn free_port(rng: &mut fastrand::Rng) -> Result<SocketAddr> {
    for _ in 0..200 {
        let address = SocketAddr::from(([127, 0, 0, 1], rng.u16(12_000..32_000)));
        if std::net::TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port was found")
}

/// The path of the server: the given one, or `tenure` beside this program.
pub(crate) fn binary(named: Option<&Path>) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()
            .context("find this program")?
            .with_file_name(format!("tenure{}", std::env::consts::EXE_SUFFIX)),
    };
    if !path.is_file() {
        bail!("there is no server at `{}`\n\nhint: build it with `cargo build -p tenure`", path.display());
    }
    Ok(path)
}
