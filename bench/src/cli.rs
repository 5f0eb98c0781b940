//! The command line: subcommands, flags, defaults, and the examples under `--help`.
//!
//! Flags that belong to one question have names of their own, so that `all` can take all of them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  tenure-bench calls                               requests per second and CPU per call, every row
  tenure-bench calls --only axum,rmcp --rounds 5   two rows, five interleaved rounds
  tenure-bench idle --sessions 100000              bytes per idle session
  tenure-bench streams --streams 5000              bytes per open GET stream
  tenure-bench replay --events 10000               time to replay what a client missed
  tenure-bench store                               everything about storage, with full sizes
  tenure-bench store append open --rounds 5        two of its questions, five rounds
  tenure-bench store --quick                       a smoke run of a few seconds; no figures to show
  tenure-bench data                                what data sessions cost, and a million of them
  tenure-bench data --quick                        the same in a few seconds; no figures to show
  tenure-bench eras                                calls without sessions, and the bridges between the eras
  tenure-bench eras --quick                        the same in a few seconds; no figures to show
  tenure-bench controls                            what credentials, limits and logs add to a call
  tenure-bench controls --only native-plain,native-token
  tenure-bench gateway                             what gateways add to the server behind them
  tenure-bench all --json figures.json             everything but gateways, raw figures into a file

Rows: hyper, axum (floors), rmcp (its own HTTP service), tenure, tenure-disk, tenure-rmcp, tenure-native;
for `data`: plain, data, plain-disk, data-disk; for `controls`: native-plain, native-bytes, native-token, native-key,
native-limits, native-access, native-metrics, native-traces, access-metrics, access-traces, native-audit, native-all;
for `gateway`: pipes, tenure, tenure-share, supergateway, mcp-proxy-npm, mcp-proxy-pypi over stdio, and http, tenure-upstream, mcp-proxy-upstream, fastmcp over HTTP. Gateways of others are
installed with npm and pip first. `eras calls` has the first ones without tenure-disk; rows of `eras bridges` are named like
stdio-session-modern: how the server is reached, the era of the client, the era of the server.
Binaries of Tenure are looked up beside this one; build them first with
  cargo build --release -p tenure --bins --examples

The Markdown report goes to stdout, progress to stderr.";

/// Measures MCP servers side by side: calls, idle sessions, open streams, replay, storage, data sessions, credentials,
/// limits and logs, eras, gateways.
#[derive(Debug, Parser)]
#[command(name = "tenure-bench", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// How many `tools/call` per second, and how much server CPU time each?
    Calls(Asked<CallsArgs>),
    /// How many bytes does an idle session hold?
    Idle(Asked<IdleArgs>),
    /// How many bytes does an open GET (SSE) stream hold?
    Streams(Asked<StreamsArgs>),
    /// How long does it take to replay missed events?
    Replay(Asked<ReplayArgs>),
    /// What does storage cost, and who waits for it?
    Store(Asked<StoreArgs>),
    /// What do data sessions cost, and what do a million of them take?
    Data(Asked<DataArgs>),
    /// What does a call without a session cost (revision 2026-07-28), and what the bridges between the eras?
    Eras(Asked<QuestionArgs<ErasQuestion>>),
    /// What do credentials, limits and logs add to a call?
    Controls(Asked<ControlsArgs>),
    /// What do gateways add to the server behind them, ours and others'?
    Gateway(Asked<GatewayArgs>),
    /// All questions but `gateway`, which needs npm and pip, one after the other
    All(AllCommand),
    /// Run one of the built-in servers; prints its endpoint as the first line
    Server(ServerArgs),
    /// Make one measurement of `store` and print it; the harness starts these
    #[command(hide = true)]
    StoreWorker {
        /// What to measure, as JSON
        task: String,
    },
    /// Make one measurement of `data` and print it; the harness starts these
    #[command(hide = true)]
    DataWorker {
        /// What to measure, as JSON
        task: String,
    },
}

impl Command {
    /// Where the raw figures go, if anywhere.
    pub(crate) fn json(&self) -> Option<&Path> {
        let common = match self {
            Command::Calls(args) => &args.common,
            Command::Idle(args) => &args.common,
            Command::Streams(args) => &args.common,
            Command::Replay(args) => &args.common,
            Command::Store(args) => &args.common,
            Command::Data(args) => &args.common,
            Command::Eras(args) => &args.common,
            Command::Controls(args) => &args.common,
            Command::Gateway(args) => &args.common,
            Command::All(args) => &args.common,
            Command::Server(_) | Command::StoreWorker { .. } | Command::DataWorker { .. } => return None,
        };
        common.json.as_deref()
    }
}

/// The flags of one question, and those that all have.
#[derive(Debug, Args)]
pub(crate) struct Asked<A: Args> {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) args: A,
}

#[derive(Debug, Args)]
pub(crate) struct AllCommand {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) calls: CallsArgs,
    #[command(flatten)]
    pub(crate) idle: IdleArgs,
    #[command(flatten)]
    pub(crate) streams: StreamsArgs,
    #[command(flatten)]
    pub(crate) replay: ReplayArgs,
    /// Sessions in the store that is opened [default: 1000000]
    #[arg(long, value_name = "SESSIONS")]
    pub(crate) store_sessions: Option<u64>,
    /// Events in the store that is opened [default: 5000000]
    #[arg(long, value_name = "EVENTS")]
    pub(crate) store_events: Option<u64>,
    /// Data sessions in the store that is filled [default: 1000000]
    #[arg(long, value_name = "SESSIONS")]
    pub(crate) data_sessions: Option<u64>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CommonArgs {
    /// Measure only these rows
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Write the raw figures to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Where the release binaries are [default: the folder of this binary]
    #[arg(long, value_name = "DIR")]
    pub(crate) bin_dir: Option<PathBuf>,
    /// Where temporary folders are made [default: the system's folder for them]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CallsArgs {
    /// Seconds measured per server and round
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Seconds of load before each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) warm_up: f64,
    /// Interleaved rounds
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Connections, each with its own session and one call in flight
    #[arg(long, default_value_t = 64)]
    pub(crate) connections: usize,
}

#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    /// Idle sessions to open
    #[arg(long, default_value_t = 100_000)]
    pub(crate) sessions: usize,
    /// Idle sessions to open on rmcp, which is heavier
    #[arg(long, value_name = "SESSIONS", default_value_t = 10_000)]
    pub(crate) rmcp_sessions: usize,
    /// Interleaved rounds, each with a fresh server
    #[arg(long, value_name = "ROUNDS", default_value_t = 3)]
    pub(crate) idle_rounds: usize,
    /// Seconds the sessions stay idle before memory is read
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub(crate) idle_wait: f64,
}

#[derive(Debug, Args)]
pub(crate) struct StreamsArgs {
    /// GET streams to open, each on its own session and connection
    #[arg(long, default_value_t = 5_000)]
    pub(crate) streams: usize,
    /// Interleaved rounds, each with a fresh server
    #[arg(long, value_name = "ROUNDS", default_value_t = 3)]
    pub(crate) stream_rounds: usize,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Events to replay
    #[arg(long, default_value_t = 10_000)]
    pub(crate) events: usize,
    /// Replays per server, each of a fresh session
    #[arg(long, value_name = "TIMES", default_value_t = 5)]
    pub(crate) replays: usize,
}

/// The flags of a subcommand with several questions.
#[derive(Debug, Clone, Args)]
pub(crate) struct QuestionArgs<Q: ValueEnum + Clone + Send + Sync + 'static> {
    /// What to ask [default: everything]
    #[arg(value_enum, value_name = "QUESTION")]
    pub(crate) questions: Vec<Q>,
    /// Small sizes and short windows, to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Interleaved rounds [default: 3; of `data`: 30]
    #[arg(long)]
    pub(crate) rounds: Option<usize>,
    /// Seconds measured per row and round; stalls are looked for five times as long [default: 2; of `data`: 0.6, of
    /// `eras`: 4]
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
}

impl<Q: ValueEnum + Clone + Send + Sync + 'static> QuestionArgs<Q> {
    /// These questions, with full sizes.
    pub(crate) fn full(questions: Vec<Q>) -> QuestionArgs<Q> {
        QuestionArgs { questions, quick: false, rounds: None, seconds: None }
    }
}

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    pub(crate) asked: QuestionArgs<StoreQuestion>,
    /// Sessions in the store that is opened, and at most in the one that is looked up in [default: 1000000]
    #[arg(long)]
    pub(crate) sessions: Option<u64>,
    /// Events in the store that is opened [default: 5000000]
    #[arg(long)]
    pub(crate) events: Option<u64>,
}

/// What can be asked about storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreQuestion {
    /// Events per second against a plain file
    Append,
    /// Time to look up a session, and to enter one
    Lookup,
    /// Time to wake a dormant session
    Wake,
    /// Time and memory to open a large store
    Open,
    /// CPU per call, store on disk against store in memory
    Calls,
    /// Who waits while the store is written to
    Stalls,
}

#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    #[command(flatten)]
    pub(crate) asked: QuestionArgs<DataQuestion>,
    /// Data sessions in the store that is filled [default: 1000000]
    #[arg(long)]
    pub(crate) sessions: Option<u64>,
}

/// What can be asked about data sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataQuestion {
    /// CPU per call with and without them, in memory and on disk
    Calls,
    /// A million of them on disk: made, opened, found, listed
    Many,
}

/// What can be asked about the eras.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ErasQuestion {
    /// CPU per call without a session and in one, on the same servers
    Calls,
    /// CPU and latency of a gateway between a client and a server of either era
    Bridges,
}

#[derive(Debug, Default, Args)]
pub(crate) struct ControlsArgs {
    /// Few connections and a short window, to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Interleaved rounds [default: 10]
    #[arg(long)]
    pub(crate) rounds: Option<usize>,
    /// Seconds measured per row and round [default: 1.5]
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// Fail if a target does not hold
    #[arg(long)]
    pub(crate) hold: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    /// Seconds measured per row and round with all connections; alone it is half of that
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Seconds of load before each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub(crate) warm_up: f64,
    /// Interleaved rounds
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Connections, each with its own session and one call in flight
    #[arg(long, default_value_t = 64)]
    pub(crate) connections: usize,
    /// Further sessions that are opened, to see how fast and what they hold
    #[arg(long, default_value_t = 128)]
    pub(crate) sessions: usize,
    /// Where the gateways of others are installed
    #[arg(long, value_name = "DIR", default_value = ".dev/gateways")]
    pub(crate) peers: PathBuf,
    /// Leave out the gateways of others; nothing is installed
    #[arg(long)]
    pub(crate) no_peers: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Which server to run
    #[arg(value_enum)]
    pub(crate) name: ServerName,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Keep events for `replay` (costs memory and time, so off for the other questions)
    #[arg(long)]
    pub(crate) keep_events: bool,
    /// Exit when stdin is closed, so that the server never outlives the harness
    #[arg(long)]
    pub(crate) until_stdin_closes: bool,
}

/// The servers this binary carries itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerName {
    /// Bare hyper: the floor of HTTP itself
    Hyper,
    /// axum and the JSON-RPC envelope: the floor of an MCP answer
    Axum,
    /// rmcp's own Streamable HTTP service
    Rmcp,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn no_two_flags_of_a_command_have_one_name() {
        super::Cli::command().debug_assert();
    }
}
