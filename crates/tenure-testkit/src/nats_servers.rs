//! Real NATS servers for tests: one, or three that replicate, on loopback and in a folder that is deleted.
//!
//! Servers are installed by `tests/nats/install` when they are not there yet. `TENURE_NATS_SERVER` names another one to use
//! as the newest. Every server ends with the value that started it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Which server to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatsVersion {
    /// The newest that there is.
    Newest,
    /// The oldest that a store accepts.
    Oldest,
    /// One that is too old.
    Refused,
}

impl NatsVersion {
    const fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Oldest => "oldest",
            Self::Refused => "refused",
        }
    }

    /// The program; installed first if it is missing.
    fn program(self) -> PathBuf {
        if let (Self::Newest, Some(program)) = (self, std::env::var_os("TENURE_NATS_SERVER")) {
            return program.into();
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
        let folder = root.join(".dev/nats");
        let installed =
            Command::new(root.join("tests/nats/install")).arg(&folder).stdout(Stdio::null()).status();
        assert!(installed.expect("tests/nats/install runs").success(), "could not install the NATS servers");
        folder.join(self.name())
    }
}

/// NATS servers. Dropping them ends them.
#[derive(Debug)]
pub struct NatsServers {
    folder: TempDir,
    program: PathBuf,
    servers: Vec<NatsServer>,
    /// Lines for the configuration of every server.
    settings: String,
}

#[derive(Debug)]
struct NatsServer {
    port: u16,
    route: u16,
    process: Option<Child>,
}

/// How to run servers.
#[derive(Clone, Debug)]
pub struct NatsSetup {
    /// Which server.
    pub version: NatsVersion,
    /// How many: 1, or 3 that replicate.
    pub servers: usize,
    /// Whether they have JetStream.
    pub jetstream: bool,
    /// More lines of configuration.
    pub settings: String,
}

impl Default for NatsSetup {
    fn default() -> Self {
        Self { version: NatsVersion::Newest, servers: 1, jetstream: true, settings: String::new() }
    }
}

impl NatsServers {
    /// One server, or three.
    pub fn start(servers: usize) -> Self {
        Self::set_up(NatsSetup { servers, ..NatsSetup::default() })
    }

    /// Servers as a test wants them.
    pub fn set_up(setup: NatsSetup) -> Self {
        let mut all = Self::planned(setup);
        for index in 0..all.servers.len() {
            all.restart(index);
        }
        all
    }

    /// Servers that have ports, and do not run yet.
    pub fn planned(setup: NatsSetup) -> Self {
        let NatsSetup { version, servers, jetstream, mut settings } = setup;
        settings.push_str("\nmax_payload: 8MB\n");
        if jetstream {
            settings.push_str("jetstream { store_dir: \"DATA\" }\n");
        }
        let server = |_| NatsServer { port: free_port(), route: free_port(), process: None };
        let servers = (0..servers).map(server).collect();
        Self { folder: TempDir::new().expect("a folder"), program: version.program(), servers, settings }
    }

    /// The addresses of all servers.
    pub fn addresses(&self) -> Vec<String> {
        (0..self.servers.len()).map(|index| self.address(index)).collect()
    }

    /// The address of one server.
    pub fn address(&self, index: usize) -> String {
        format!("127.0.0.1:{}", self.servers[index].port)
    }

    /// The name of one server, as the engine says it.
    pub fn name(&self, index: usize) -> String {
        format!("n{index}")
    }

    /// The number of the server of this name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        (0..self.servers.len()).find(|index| self.name(*index) == name)
    }

    /// What a server has logged.
    pub fn log(&self, index: usize) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{index}.log"))).unwrap_or_default()
    }

    /// Starts a server again, with the data it had.
    pub fn restart(&mut self, index: usize) {
        let folder = self.folder.path().to_owned();
        let data = folder.join(format!("data-{index}"));
        let mut settings = self.settings.replace("DATA", &data.display().to_string());
        let NatsServer { port, route, .. } = &self.servers[index];
        settings.push_str(&format!("server_name: {}\nlisten: 127.0.0.1:{port}\n", self.name(index)));
        if self.servers.len() > 1 {
            let routes = self.servers.iter().map(|server| format!("nats://127.0.0.1:{}", server.route));
            let routes = routes.collect::<Vec<_>>().join(", ");
            settings.push_str(&format!(
                "cluster {{ name: tests, listen: 127.0.0.1:{route}, routes: [{routes}] }}\n"
            ));
        }
        let file = folder.join(format!("{index}.conf"));
        std::fs::write(&file, settings).expect("a configuration");
        let log = folder.join(format!("{index}.log"));
        let log = std::fs::OpenOptions::new().append(true).create(true).open(log).expect("a log");
        let process = Command::new(&self.program)
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.servers[index].process = Some(process.expect("the NATS server starts"));
    }

    /// Ends a server like `kill -9`.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.servers[index].process.take() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops a server as SIGSTOP does, or lets it go on.
    pub fn signal(&self, index: usize, signal: &str) {
        let process = self.servers[index].process.as_ref().expect("it runs");
        let sent = Command::new("kill").args(["-s", signal, &process.id().to_string()]).status();
        assert!(sent.expect("kill runs").success(), "{signal}");
    }

    /// Takes away what a server has kept, so that it starts empty. It must not run.
    pub fn put_data_aside(&self, index: usize) {
        assert!(self.servers[index].process.is_none(), "it runs");
        let folder = self.folder.path();
        std::fs::rename(folder.join(format!("data-{index}")), folder.join(format!("aside-{index}")))
            .expect("moves");
    }

    /// Puts back what was put aside, in place of what the server has kept since. It must not run.
    pub fn put_data_back(&self, index: usize) {
        assert!(self.servers[index].process.is_none(), "it runs");
        let folder = self.folder.path();
        let data = folder.join(format!("data-{index}"));
        if data.exists() {
            std::fs::remove_dir_all(&data).expect("deletes");
        }
        std::fs::rename(folder.join(format!("aside-{index}")), data).expect("moves");
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        for index in 0..self.servers.len() {
            self.kill(index);
        }
        if std::thread::panicking() {
            for index in 0..self.servers.len() {
                let log = self.log(index);
                let lines: Vec<&str> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(20)..].join("\n");
                // Beside the failure, since the folder is deleted.
                write_error(&format!("the last lines of server {index}:\n{last}\n"));
            }
        }
    }
}

fn write_error(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A port that is free now. It is below those that systems give to outgoing connections, so that a server that is
/// restarted finds it free again.
fn free_port() -> u16 {
    loop {
        let random = getrandom::u32().expect("the operating system provides randomness");
        let port = 10_000 + u16::try_from(random % 20_000).expect("below 20000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
