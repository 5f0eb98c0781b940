//! The server under test as a process: started, killed, repaired; its log in a file.
//!
//! Dropping a `Server` kills it, so every way out of the harness ends what it started.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, timeout};

use crate::cli::Durability;
use crate::power::Power;

/// How long a start may take, recovery included.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// How much of the log is shown with a failure.
const TAIL_LINES: usize = 40;

/// How to start the server, the same each time.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) store: Store,
    pub(crate) durability: Option<Durability>,
    /// If every kill is a loss of power.
    pub(crate) power: Option<Power>,
    pub(crate) log: PathBuf,
    pub(crate) log_level: String,
}

/// Where the server keeps its sessions.
#[derive(Debug)]
pub(crate) enum Store {
    Memory,
    Disk(PathBuf),
}

impl Store {
    fn url(&self) -> String {
        match self {
            Store::Memory => "memory:".to_owned(),
            Store::Disk(folder) => format!("disk:{}", folder.display()),
        }
    }
}

/// A process that was started; whether it serves is another question.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    started: Instant,
}

/// Why a server that was started does not serve.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It ended with this status.
    Ended(ExitStatus),
    /// It said nothing in time.
    Silent,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Ended(status) => write!(f, "it ended with {status}"),
            Refusal::Silent => write!(f, "it printed no endpoint within {} s", START_DEADLINE.as_secs()),
        }
    }
}

impl Launch {
    /// Starts a process and does not wait for it.
    pub(crate) fn start(&self) -> Result<Server> {
        let mut command = Command::new(&self.binary);
        command
            .args(["serve", "--log", "json", "--log-level", &self.log_level])
            .args(["--listen", &self.address.to_string(), "--store", &self.store.url()])
            // An id that is not in the log must be refused and not quietly answered with another stream.
            .args(["--set", "streams.unknown_event_id=error"])
            // A run of hours must not be disturbed by sessions that expire.
            .args(["--set", "session.idle_ttl=1d"])
            // Sessions sleep and are woken all the time, not only after a kill.
            .args(["--set", "session.dormant_after=300ms"]);
        if let Some(durability) = self.durability {
            let word = match durability {
                Durability::Os => "os",
                Durability::Disk => "disk",
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
        Ok(Server { child, stdout: BufReader::new(stdout).lines(), started })
    }

    /// Repairs the store after data was lost that had been synced. The server refuses to start then,
    /// because what it would serve is older than what it had promised to keep.
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

    /// Whether the server's last words say that it found its data lost or damaged.
    pub(crate) fn speaks_of_lost_data(&self) -> bool {
        let tail = self.tail().to_lowercase();
        let last: Vec<_> = tail.lines().rev().take(8).collect();
        ["lost", "damaged", "missing", "corrupt"]
            .iter()
            .any(|word| last.iter().any(|line| line.contains(word)))
    }

    /// The last lines of the server's log.
    pub(crate) fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    fn open_log(&self) -> Result<File> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        log.with_context(|| format!("open `{}`", self.log.display()))
    }
}

impl Server {
    /// Waits until the server has said where it is, which it does when it serves.
    pub(crate) async fn ready(&mut self) -> Result<Result<(), Refusal>> {
        match timeout(START_DEADLINE, self.stdout.next_line()).await {
            Ok(Ok(Some(_))) => Ok(Ok(())),
            Ok(Ok(None)) => {
                let status = self.child.wait().await.context("wait for the server that ended")?;
                Ok(Err(Refusal::Ended(status)))
            }
            Ok(Err(error)) => Err(error).context("read from the server"),
            Err(_) => Ok(Err(Refusal::Silent)),
        }
    }

    /// How long ago it was started, in milliseconds.
    pub(crate) fn age_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
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

/// A free port below those that the system gives to outgoing connections. One of those could be taken
/// by a client while the server is down; a client could even be connected to itself.
pub(crate) fn free_port(rng: &mut fastrand::Rng) -> Result<SocketAddr> {
    for _ in 0..200 {
        let address = SocketAddr::from(([127, 0, 0, 1], rng.u16(12_000..32_000)));
        if std::net::TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port was found")
}

/// The server beside this program, unless another one is named.
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
