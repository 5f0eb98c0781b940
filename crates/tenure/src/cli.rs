//! The command line: commands, options, and the texts of failures.

// Serving.
mod serve;
mod stdio;
mod signals;

// Operators: sessions and stores.
mod sessions;
mod calls;
mod nodes;
mod keys;
mod principals;
mod audit;
mod admin;
mod usage;
mod limits;
mod store;
mod report;
mod rows;
mod which_store;

// Clients: calls to a server.
mod call;
mod tools;
mod resources;
mod prompts;
mod jar;
mod target;
mod connect;
mod listener;
mod ask;
mod schema;

// How texts look.
mod facts;
mod mistyped;
mod paint;
mod progress;
mod table;
mod words;

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::{Config, LogConfig, LogFormat, Sources};
use crate::escape::painted;
use crate::failure::Failure;

/// Keeps MCP sessions: durable, resumable and safe, in front of any MCP server.
#[derive(Parser, Debug)]
#[command(
    name = "tenure",
    version,
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve MCP over HTTP at /mcp.
    #[command(after_help = "Examples:\n  \
        tenure serve                                  the demo server on 127.0.0.1:8484\n  \
        tenure serve --port 9000                      on another port\n  \
        tenure serve --store disk:/var/lib/tenure     with its sessions in this folder\n  \
        tenure serve --name mine                      with its sessions in a folder of the user's own\n  \
        tenure serve --config tenure.toml             with a configuration file\n  \
        tenure serve --tls-cert c.pem --tls-key k.pem over HTTPS\n  \
        tenure serve --profile cluster                as a node of a cluster\n  \
        tenure serve -- npx -y some-mcp-server        in front of a server that speaks over stdio\n  \
        tenure serve --upstream https://host/mcp      in front of a server elsewhere\n  \
        tenure serve --admin                          with the page for operators on 127.0.0.1:8485\n  \
        tenure serve --take-over                      in the place of the one that runs, for a deploy")]
    Serve(RunArgs),
    /// Serve MCP over standard input and output, to the client that started it.
    #[command(
        after_help = "The session ends when standard input does, or on SIGTERM. Logs go to standard error.\n\n\
        Examples:\n  \
        tenure stdio                                  the demo server\n  \
        tenure stdio --store disk:                    keeping data sessions and tasks on disk\n  \
        tenure stdio --log-level warn                 with fewer logs\n  \
        tenure stdio <requests.jsonl                  with requests from a file, one a line"
    )]
    Stdio(StdioArgs),
    /// Call a tool of a server, in the session that was used last.
    #[command(
        override_usage = "tenure call [OPTIONS] <URL> <TOOL> [ARGUMENTS]...\n       \
        tenure call [OPTIONS] <TOOL> [ARGUMENTS]... -- <COMMAND>...",
        after_help = "The session of each server is kept in the jar, and begun if the jar has none: see `tenure jar`. \
        Prints the tool's text; if the tool fails, on standard error, and the exit status is 1. What the server asks \
        meanwhile is asked on the terminal, and declined if there is no terminal.\n\n\
        Examples:\n  \
        tenure call http://127.0.0.1:8484/mcp notebook_append '{\"text\":\"remember this\"}'\n  \
        tenure call http://127.0.0.1:8484/mcp notebook_append text='remember this'\n  \
        tenure call http://127.0.0.1:8484/mcp long_task seconds=3\n  \
        tenure call http://127.0.0.1:8484/mcp some_tool filter:='{\"a\":1}'\n  \
        tenure call http://127.0.0.1:8484/mcp notebook_read --json | jq -r '.notes[]'\n  \
        tenure call notebook_read -- npx -y notes       with a server that is started for this call"
    )]
    Call(call::CallArgs),
    /// List the tools of a server, or show one with all that it takes.
    #[command(
        override_usage = "tenure tools [OPTIONS] <URL> [TOOL]\n       tenure tools [OPTIONS] [TOOL] -- <COMMAND>...",
        after_help = "Examples:\n  \
        tenure tools http://127.0.0.1:8484/mcp\n  \
        tenure tools http://127.0.0.1:8484/mcp notebook_append\n  \
        tenure tools http://127.0.0.1:8484/mcp --json | jq 'select(.name == \"notebook_append\").inputSchema'\n  \
        tenure tools -- npx -y notes"
    )]
    Tools(tools::ToolsArgs),
    /// List the resources of a server, and the templates of their URIs.
    #[command(
        override_usage = "tenure resources [OPTIONS] <URL>\n       tenure resources [OPTIONS] -- <COMMAND>...",
        after_help = "Examples:\n  \
        tenure resources http://127.0.0.1:8484/mcp\n  \
        tenure resources --json -- npx -y @modelcontextprotocol/server-everything | jq -r .uri"
    )]
    Resources(resources::ResourcesArgs),
    /// Read a resource of a server.
    #[command(
        override_usage = "tenure read [OPTIONS] <URL> <URI>\n       tenure read [OPTIONS] <URI> -- <COMMAND>...",
        after_help = "Prints text as it is, and bytes if standard output is no terminal.\n\n\
        Examples:\n  \
        tenure read http://127.0.0.1:8484/mcp demo://about\n  \
        tenure read http://127.0.0.1:8484/mcp demo://about >about.txt"
    )]
    Read(resources::ReadArgs),
    /// List the prompts of a server, or get one.
    #[command(
        override_usage = "tenure prompts [OPTIONS] <URL> [PROMPT [ARGUMENTS]...]\n       \
        tenure prompts [OPTIONS] [PROMPT [ARGUMENTS]...] -- <COMMAND>...",
        after_help = "Examples:\n  \
        tenure prompts http://127.0.0.1:8484/mcp\n  \
        tenure prompts http://127.0.0.1:8484/mcp review code='fn main() {}'\n  \
        tenure prompts review code='fn main() {}' --json -- npx -y reviews"
    )]
    Prompts(prompts::PromptsArgs),
    /// List, choose, begin or forget the sessions that calls use.
    #[command(subcommand)]
    Jar(jar::JarCommand),
    /// Look at sessions, end them, move them.
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// List the open calls of a running server, in sessions and without.
    #[command(after_help = "States:\n  \
        in a session  a request of a session; its client waits, or can resume its stream\n  \
        running       a request without a session, whose client waits\n  \
        parked        its client was asked something and has not come back with the answers\n  \
        task          its client comes back for the outcome\n  \
        listening     it tells its client of changes\n\n\
        A call that is answered at once is not seen here.\n\n\
        Examples:\n  \
        tenure calls\n  \
        tenure calls --owner alice\n  \
        tenure calls --json | jq 'select(.waits_for == \"client\")'")]
    Calls(calls::CallsArgs),
    /// Look at the nodes of a cluster: whether they serve, and what they have.
    #[command(after_help = "States:\n  \
        serving    it takes sessions\n  \
        draining   it stops soon, and takes no new ones\n  \
        not ready  it takes none; the last column says why\n  \
        silent     it did not answer within 2 s; the last column says why\n  \
        recorded   no server of the cluster runs here, so it was not asked\n\n\
        LEASE is the age of the last renewal: of this node since it was sent, of others since this node saw it. CLOCK is how far \
        the clock of a node is ahead of that of the node that was asked.\n\n\
        Examples:\n  \
        tenure nodes\n  \
        tenure nodes --store nats://10.0.0.1:4222\n  \
        tenure nodes --json | jq 'select(.state != \"serving\")'")]
    Nodes(nodes::NodesArgs),
    /// Show how much memory and room clients use in a server, and which of them use most.
    #[command(after_help = "Examples:\n  \
        tenure usage\n  \
        tenure usage --json | jq 'select(.used * 2 > .total)'")]
    Usage(usage::UsageArgs),
    /// Show how much principals have left of their limits in a running server.
    #[command(subcommand)]
    Limits(limits::LimitsCommand),
    /// Make, list and revoke keys for clients.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// List the principals that have something on a server, and revoke one of them.
    #[command(subcommand)]
    Principals(principals::PrincipalsCommand),
    /// Verify an audit log, or show its records.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Open the page for operators.
    #[command(subcommand)]
    Admin(admin::AdminCommand),
    /// Check, repair, back up, copy or encrypt a store.
    #[command(subcommand)]
    Store(store::StoresCommand),
    /// Check or show the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Ends the children of a process that was killed. Only that process starts it.
    #[command(hide = true)]
    Warden,
    /// Print shell completions.
    #[command(
        after_help = "Example:\n  tenure completions bash > ~/.local/share/bash-completion/completions/tenure"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Say whether the configuration can be used, and what is wrong with it.
    Check(ServeArgs),
    /// Show the configuration in force and where each value comes from.
    Show(ServeArgs),
}

#[derive(Args, Debug)]
struct RunArgs {
    /// Takes the place of the server that has the store open: gets its socket, waits until it has finished, and goes on
    /// with its sessions. No client is refused meanwhile. Without such a server it starts like any other.
    #[arg(long)]
    take_over: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Args, Debug)]
struct ServeArgs {
    /// The address to listen on; port 0 takes a free one. [default: 127.0.0.1:8484]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The port to listen on, for this machine alone; the same as `--listen 127.0.0.1:PORT`.
    #[arg(long, value_name = "PORT", conflicts_with = "listen")]
    port: Option<u16>,
    #[command(flatten)]
    store: ServeStoreArgs,
    /// Serves the page for operators too, which `tenure admin open` opens. [with no value: 127.0.0.1:8485]
    #[arg(
        long,
        value_name = "ADDRESS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "127.0.0.1:8485"
    )]
    admin: Option<String>,
    /// The certificate chain (PEM); turns TLS on.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// The certificate's private key (PEM).
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Host names to answer to, besides loopback; `*` for any. May be given several times.
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Origins to answer to, besides loopback; `*` for any. May be given several times.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Opens a door for clients that do not speak Streamable HTTP: sse (GET /sse of revision 2024-11-05), rpc (POST
    /// /rpc), post_sse (POST /sse), mcp_sse (GET /mcp/sse) or websocket (/ws). May be given several times.
    #[arg(long, value_name = "DOOR", value_parser = ["sse", "rpc", "post_sse", "mcp_sse", "websocket"], hide_possible_values = true)]
    door: Vec<String>,
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    behind: BehindArgs,
}

#[derive(Args, Debug)]
struct StdioArgs {
    #[command(flatten)]
    store: ServeStoreArgs,
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    behind: BehindArgs,
}

/// The server behind.
#[derive(Args, Debug)]
struct BehindArgs {
    /// A server elsewhere that speaks MCP over HTTP.
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// A server that speaks MCP over its standard input and output, and its arguments. [default: the demo server]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl BehindArgs {
    /// The command, which wins over a file. Refuses a command together with `--upstream`.
    fn command(&self) -> Result<Vec<String>, Failure> {
        match &self.upstream {
            Some(url) if !self.command.is_empty() => {
                let url = crate::url_text::marked(url);
                Err(Failure::new(format!("two servers: `--upstream {url}`, and a command after `--`"))
                    .hint("leave out one of them; several servers stand in a file, each as a `[[backend]]`"))
            }
            _ => Ok(self.command.clone()),
        }
    }
}

/// Where sessions are kept, and where the rest is set.
#[derive(Args, Debug)]
struct ServeStoreArgs {
    /// Where sessions are kept: disk:PATH, disk: for a folder of the user's own, memory:, or nats://HOST:PORT for nodes that
    /// share them. [default: disk:, for stdio memory:]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The name of the folder for the sessions, in the user's own data. [default: from the server behind]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What an event survives once a client has seen it: os (a kill) or disk (a loss of power). [default: os]
    #[arg(long, value_name = "os|disk")]
    durability: Option<String>,
    /// A file with the key that encrypts the store.
    #[arg(long, value_name = "FILE")]
    store_key_file: Option<String>,
    /// A configuration file.
    #[arg(long, value_name = "FILE", env = "TENURE_CONFIG")]
    config: Option<PathBuf>,
    /// A set of defaults: development, single_node, cluster, high_volume or long_running.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

/// What is logged, and any other setting.
#[derive(Args, Debug)]
struct SettingArgs {
    /// How logs look: auto, pretty or json. [default: auto]
    #[arg(long, value_name = "FORMAT")]
    log: Option<String>,
    /// What is logged: error, warn, info, debug, trace, or a filter. [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Any setting by its name, such as `--set session.idle_ttl=1h`. May be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl ServeArgs {
    fn sources(&self) -> Result<Sources, Failure> {
        let list = |values: &[String]| (!values.is_empty()).then(|| values.join(","));
        let own = [
            ("listen", self.listen.clone().or_else(|| Some(format!("127.0.0.1:{}", self.port?)))),
            ("admin.listen", self.admin.clone()),
            ("tls.cert", self.tls_cert.clone()),
            ("tls.key", self.tls_key.clone()),
            ("http.allowed_hosts", list(&self.allow_host)),
            ("http.allowed_origins", list(&self.allow_origin)),
            ("upstream.url", self.behind.upstream.clone()),
        ];
        let mut sources = flagged(&self.store, &self.settings, own)?;
        let doors = self.door.iter().map(|door| (format!("doors.{door}"), "true".to_owned()));
        // First, so that a `--set` of the same key wins.
        sources.flags.splice(0..0, doors);
        sources.command = self.behind.command()?;
        Ok(sources)
    }

    fn config(&self) -> Result<Config, Failure> {
        load(&self.sources()?)
    }
}

impl StdioArgs {
    fn config(&self) -> Result<Config, Failure> {
        let own = [("upstream.url", self.behind.upstream.clone())];
        let mut sources = flagged(&self.store, &self.settings, own)?;
        sources.command = self.behind.command()?;
        let mut config = load(&sources)?;
        let is_told =
            config.is_store_chosen || config.name.is_some() || crate::stores::given_folder().is_some();
        // The session ends with the connection, so there is little to keep, and a client may start several processes,
        // which could not share a store.
        if !is_told {
            "memory:".clone_into(&mut config.store);
        }
        Ok(config)
    }
}

/// Loads the configuration and prints its warnings.
fn load(sources: &Sources) -> Result<Config, Failure> {
    let (config, warnings) = Config::load(sources)?;
    for warning in warnings {
        note(&format!("warning: {warning}"));
    }
    Ok(config)
}

/// All sources, with the flags of a command that serves.
fn flagged<const N: usize>(
    store: &ServeStoreArgs,
    settings: &SettingArgs,
    own: [(&str, Option<String>); N],
) -> Result<Sources, Failure> {
    let shared = [
        ("profile", store.profile.clone()),
        ("store", store.store.clone()),
        ("name", store.name.clone()),
        ("durability", store.durability.clone()),
        ("store_key_file", store.store_key_file.clone()),
        ("log.format", settings.log.clone()),
        ("log.level", settings.log_level.clone()),
    ];
    let named = shared.into_iter().chain(own);
    let mut flags: Vec<(String, String)> =
        named.filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    for set in &settings.set {
        let Some((key, value)) = set.split_once('=') else {
            return Err(Failure::new(format!("`--set {set}` has no value"))
                .hint("write it as `--set session.idle_ttl=1h`"));
        };
        flags.push((key.trim().to_owned(), value.trim().to_owned()));
    }
    sources(store.config.as_deref(), flags)
}

/// The texts of all sources: the file, the environment and the command line.
fn sources(file: Option<&Path>, flags: Vec<(String, String)>) -> Result<Sources, Failure> {
    let file = match file {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::new(format!("cannot read the configuration `{}`", path.display())).caused_by(error)
            })?;
            Some((path.to_owned(), text))
        }
    };
    let ours =
        |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("TENURE_") && name != "TENURE_CONFIG";
    // Only our variables become text, because others may not be valid UTF-8.
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let env = std::env::vars_os().filter(|(name, _)| ours(name));
    let env = env.map(|(name, value)| (text(name), text(value))).collect();
    Ok(Sources { file, env, flags, command: Vec::new() })
}

/// Runs the command.
pub fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| mistyped::exit(&error));
    match run(cli) {
        Ok(code) => {
            crate::logs::finish();
            code
        }
        Err(failure) => {
            let text = failure.to_string();
            let text = if std::io::stderr().is_terminal() { painted(&text) } else { Cow::Borrowed(&*text) };
            crate::logs::last_words(&text);
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Serve(args) => {
            let start = if args.take_over { serve::Start::TakeOver } else { serve::Start::Alone };
            serve::run(&args.serve.config()?, start)?;
        }
        Command::Stdio(args) => stdio::run(&args.config()?)?,
        Command::Call(args) => return call::run(&args),
        Command::Tools(args) => tools::run(&args)?,
        Command::Resources(args) => resources::list(&args)?,
        Command::Read(args) => resources::read(&args)?,
        Command::Prompts(args) => prompts::run(&args)?,
        Command::Jar(command) => jar::run(command)?,
        Command::Sessions(command) => sessions::run(command)?,
        Command::Calls(args) => calls::run(&args)?,
        Command::Nodes(args) => nodes::run(&args)?,
        Command::Usage(args) => usage::run(&args)?,
        Command::Limits(command) => limits::run(&command)?,
        Command::Keys(command) => keys::run(command)?,
        Command::Principals(command) => principals::run(command)?,
        Command::Audit(command) => return audit::run(command),
        Command::Admin(command) => admin::run(command)?,
        Command::Store(command) => return store::run(command),
        Command::Config(ConfigCommand::Check(args)) => {
            let config = args.config()?;
            crate::wire::look_for_parts(&config)?;
            crate::admin::OperatorKeys::new(&config, None)?;
            if let Some(lowered) = crate::descriptors::would_fit(&config) {
                note(&format!("note: {lowered}; fewer are admitted than configured"));
            }
            say("the configuration can be used\n")?;
        }
        Command::Config(ConfigCommand::Show(args)) => {
            let shown = Config::show(&args.sources()?)?;
            say(&shown)?;
        }
        Command::Warden => crate::wire::watch_over_children(),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "tenure", &mut std::io::stdout());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints to standard output. On a terminal, all control sequences but colours are escaped; a file gets the text as it
/// is.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let text = if out.is_terminal() { painted(text) } else { Cow::Borrowed(text) };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has closed the pipe, as `head` does.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new("cannot write to standard output").caused_by(error))
        }
        _ => Ok(()),
    }
}

/// Prints to standard error; on a terminal as [`say`] does.
fn note(text: &str) {
    let mut out = std::io::stderr();
    let text = if out.is_terminal() { painted(text) } else { Cow::Borrowed(text) };
    // If standard error is gone, there is no other place for the text.
    let _ = writeln!(out, "{text}");
}

/// Runs a short command to its end.
fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_on_with_logs("warn", command)
}

fn block_on_with_logs<T>(
    level: &str,
    command: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    crate::logs::start(&LogConfig { format: LogFormat::Pretty, level: level.to_owned(), access: false })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start the async runtime").caused_by(error))?;
    runtime.block_on(command)
}
