//! A gateway in a process of its own, its log as it grows, and the processes that belong to it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::cli::process::tenure;
use crate::gateway::family::{self, CHILD, FAMILY, Process};
use crate::support::address::own_address;
use crate::support::node::patient_flags;
use crate::support::session::Session;
use crate::support::wait::{DEADLINE, until, within};

/// What a gateway is run with, so that it can be run again.
struct Run {
    settings: Vec<String>,
    command: Vec<String>,
    /// Written to a file.
    config: String,
    listen: String,
    /// Passed on as systemd does.
    socket: Option<std::net::TcpListener>,
}

/// A gateway, with a store on disk of its own.
pub(crate) struct Gateway {
    run: Run,
    child: Child,
    pub(crate) id: u32,
    pub(crate) address: SocketAddr,
    log: Log,
    mark: String,
    pub(crate) folder: TempDir,
}

/// Lines as they come.
struct Log {
    lines: watch::Receiver<Arc<Vec<String>>>,
    reading: AbortOnDropHandle<()>,
}

/// The example server that the tests steer.
pub(crate) fn echo() -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_tenure"));
    let example = binary.parent().expect("a folder").join("examples").join("echo_stdio");
    assert!(example.exists(), "run `cargo build -p tenure --example echo_stdio` first");
    example.display().to_string()
}

impl Gateway {
    /// In front of the example server.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        Self::before(settings, &[&echo()]).await
    }

    /// In front of the demo.
    pub(crate) async fn demo(settings: &[&str]) -> Self {
        let tenure = env!("CARGO_BIN_EXE_tenure");
        Self::before(settings, &[tenure, "stdio", "--store", "memory:", "--log-level", "warn"]).await
    }

    /// In front of any command.
    pub(crate) async fn before(settings: &[&str], command: &[&str]) -> Self {
        Self::run(settings, command, "").await
    }

    /// In front of what a file says.
    pub(crate) async fn configured(config: &str) -> Self {
        Self::run(&[], &[], config).await
    }

    async fn run(settings: &[&str], command: &[&str], config: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let mark = folder.path().file_name().unwrap().to_string_lossy().into_owned();
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let listen = own_address();
        let run = Run {
            settings: text(settings),
            command: text(command),
            config: config.to_owned(),
            listen,
            socket: None,
        };
        let (child, address, log) = run.begin(folder.path(), &mark, &[]).await;
        let id = child.id().expect("it runs");
        Self { run, child, id, address, log, mark, folder }
    }

    /// Kills it, and runs another one on the same address and store.
    pub(crate) async fn kill_and_start_again(&mut self) {
        self.kill().await;
        self.start_again().await;
    }

    /// SIGKILL: nothing is said or written on the way out.
    pub(crate) async fn kill(&mut self) {
        within("it dies", self.child.kill()).await.expect("it was alive");
    }

    pub(crate) async fn start_again(&mut self) {
        self.run.listen = self.address.to_string();
        let (child, address, log) = self.run.begin(self.folder.path(), &self.mark, &[]).await;
        (self.id, self.child, self.address, self.log) = (child.id().expect("it runs"), child, address, log);
    }

    /// Runs it on the same address and store with another server behind.
    pub(crate) async fn start_another(&mut self, settings: &[&str], command: &[&str]) {
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        (self.run.settings, self.run.command) = (text(settings), text(command));
        self.start_again().await;
    }

    /// On a socket that the test has open, as a service manager does.
    pub(crate) async fn on_socket(socket: std::net::TcpListener) -> Self {
        let folder = TempDir::new().unwrap();
        let mark = folder.path().file_name().unwrap().to_string_lossy().into_owned();
        let run = Run {
            settings: Vec::new(),
            command: vec![echo()],
            config: String::new(),
            listen: "127.0.0.1:0".to_owned(),
            socket: Some(socket),
        };
        let (child, address, log) = run.begin(folder.path(), &mark, &[]).await;
        let id = child.id().expect("it runs");
        Self { run, child, id, address, log, mark, folder }
    }

    /// Lets another process take its place, and waits until that one serves and this one has ended.
    pub(crate) async fn hand_over(&mut self) -> ExitStatus {
        self.run.listen = self.address.to_string();
        let (child, address, log) = self.run.begin(self.folder.path(), &self.mark, &["--take-over"]).await;
        assert_eq!(address, self.address);
        let status = within("it ends", self.child.wait()).await.expect("a status");
        (self.id, self.child, self.log) = (child.id().expect("it runs"), child, log);
        status
    }

    /// Tells it to end, and does not wait for it.
    pub(crate) async fn terminate(&self) {
        family::signal(self.id, "TERM").await;
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        within("it ends", self.child.wait()).await.expect("a status")
    }

    /// Ends it as a service manager does.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        self.terminate().await;
        self.ended().await
    }

    pub(crate) async fn session(&self) -> Session {
        Session::start(self.address).await
    }

    /// Its children and what they have started, without those that wait for a session.
    pub(crate) fn children(&self) -> Vec<Process> {
        family::having(CHILD, &self.mark)
    }

    /// Everything that belongs to it, itself included.
    pub(crate) fn family(&self) -> Vec<Process> {
        family::having(FAMILY, &self.mark)
    }

    /// Waits until this many children are left, and no zombie.
    pub(crate) async fn until_children(&self, count: usize) {
        let began = Instant::now();
        loop {
            let (children, zombies) = (self.children(), family::zombies_of(self.id));
            if children.len() == count && zombies.is_empty() {
                return;
            }
            let late = began.elapsed() > DEADLINE;
            assert!(
                !late,
                "not {count} children but {children:#?} and zombies {zombies:?}: {:#?}",
                self.log_so_far()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until no process of it is left.
    pub(crate) async fn until_no_process(&self) {
        until("no process is left", || self.family().is_empty()).await;
    }

    /// Waits for a line of the log that is as wanted.
    pub(crate) async fn logged(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.logged_again(what, 1, wanted).await
    }

    /// Waits for the line of that number among those that are as wanted.
    pub(crate) async fn logged_again(
        &self,
        what: &str,
        number: usize,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut lines = self.log.lines.clone();
        let find = async {
            loop {
                let found =
                    lines.borrow_and_update().iter().map(|line| entry(line)).filter(&wanted).nth(number - 1);
                if let Some(found) = found {
                    return found;
                }
                if lines.changed().await.is_err() {
                    panic!("{what}: not in the log: {:#?}", self.log_so_far());
                }
            }
        };
        within(what, find).await
    }

    /// Waits for a message in the log of the process that runs now, also when another has taken its place.
    pub(crate) fn logs_later(&self, message: &'static str) -> impl Future<Output = ()> + Send + use<> {
        let mut lines = self.log.lines.clone();
        async move {
            let found = lines.wait_for(|lines| lines.iter().any(|line| entry(line)["message"] == message));
            within(message, found).await.expect("it is in the log");
        }
    }

    pub(crate) fn log_so_far(&self) -> Vec<String> {
        self.log.lines.borrow().to_vec()
    }

    /// The whole log of a gateway that has ended.
    pub(crate) async fn whole_log(&mut self) -> Vec<String> {
        within("the end of the log", &mut self.log.reading).await.unwrap();
        self.log_so_far()
    }
}

impl Drop for Gateway {
    /// A test that failed leaves no process behind either: the warden ends the children.
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.start_kill();
    }
}

impl Run {
    async fn begin(&self, folder: &Path, mark: &str, flags: &[&str]) -> (Child, SocketAddr, Log) {
        let store = format!("disk:{}", folder.join("store").display());
        let child_mark = format!("child.env={CHILD}={mark}");
        let mut command = tenure(&["serve", "--listen", &self.listen, "--store", &store, "--log", "json"]);
        let file = folder.join("tenure.toml");
        std::fs::write(&file, &self.config).expect("it can be written");
        command.arg("--config").arg(file).args(flags);
        // Settings of the test come later, and win.
        command.args(["--set", &child_mark, "--set", "child.grace=300ms"]).args(patient_flags());
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        command.arg("--").args(&self.command).env(FAMILY, mark);
        if let Some(socket) = &self.socket {
            command = activated(&command, socket);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
        let log = Log::follow(child.stderr.take().expect("piped"));
        let url = within("the address", out.next_line()).await.expect("a line");
        let url = url.unwrap_or_else(|| panic!("no address: {:#?}", log.lines.borrow()));
        let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp"));
        (child, address.expect("an endpoint").parse().expect("an address"), log)
    }
}

/// The same command with a socket as descriptor 3, and the variables that say so. It is passed as standard input, because
/// the process id that they name is known only to the process itself.
fn activated(command: &Command, socket: &std::net::TcpListener) -> Command {
    const SCRIPT: &str = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
    let command = command.as_std();
    let mut shell = Command::new("sh");
    shell.args(["-c", SCRIPT, "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let socket = std::os::fd::OwnedFd::from(socket.try_clone().expect("a socket"));
    shell.stdin(Stdio::from(socket)).kill_on_drop(true);
    shell
}

impl Log {
    fn follow(from: tokio::process::ChildStderr) -> Self {
        let (tell, lines) = watch::channel(Arc::new(Vec::new()));
        let reading = tokio::spawn(async move {
            let mut from = BufReader::new(from).lines();
            while let Ok(Some(line)) = from.next_line().await {
                tell.send_modify(|lines| Arc::make_mut(lines).push(line));
            }
        });
        Self { lines, reading: AbortOnDropHandle::new(reading) }
    }
}

/// A line of the log, flat.
fn entry(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|_| json!({ "text": line }))
}

/// What the example server has heard besides requests, and its process id.
pub(crate) async fn heard(session: &Session, id: u64) -> (u32, Vec<String>) {
    let said = session.tool(id, "heard", &json!({})).await.json();
    let pid = said["result"]["pid"].as_u64().unwrap_or_else(|| panic!("no process id: {said}"));
    let heard = said["result"]["heard"].as_array().expect("a list").iter();
    (u32::try_from(pid).unwrap(), heard.map(|line| line.as_str().expect("text").to_owned()).collect())
}
