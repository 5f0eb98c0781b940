//! `tenure sessions`: look at sessions, end them, move them.
//!
//! Every command works on a running server, through the control socket in the store's folder, and on a store that no
//! server has open. Only a server has sessions that are awake.

mod list;
mod show;
pub(super) mod transfer;
mod data;

use clap::{Args, Subcommand};
use tenure_session::session::Changes;
use tenure_session::settings::{IdleTtl, Settings};

use self::list::SessionListArgs;
use self::transfer::{ExportArgs, ImportArgs};
use super::call::arguments;
use super::paint::Paint;
use super::rows::{note_missing, print_json, resolve, revoke, unknown};
use super::which_store::{Absent, StoreArgs};
use super::{Failure, block_on, note, say};
use crate::config::parse_duration;
use crate::operator::{SessionRow, now};
use crate::time_text::span;

#[derive(Subcommand, Debug)]
pub(super) enum SessionsCommand {
    /// List sessions: those that live first, and of each kind the most recently used.
    #[command(after_help = "\
States:
  awake      in the memory of a running server
  dormant    in the store only; the client's next request wakes it
  ended      over, and how: deleted by its client, expired, or revoked

Examples:
  tenure sessions list                          of the user's own store
  tenure sessions list --name server-everything-3f9a01c2
  tenure sessions list --store disk:/var/lib/tenure --state awake
  tenure sessions list --json | jq .label       one JSON object a line")]
    List(SessionListArgs),
    /// Show everything about one session, and what looks wrong with it.
    #[command(after_help = "\
Examples:
  tenure sessions show s-4f3a9c01               by the label that logs and `list` show
  tenure sessions show 4f3a                     by the first digits of its key
  tenure sessions show 4f3a --json | jq .record")]
    Show(ShowArgs),
    /// End sessions. Their clients are told that they were revoked.
    #[command(after_help = "\
Requests in flight are answered with an error, streams are closed, events are forgotten.

Example:
  tenure sessions revoke s-4f3a9c01 s-77aa0b12")]
    Revoke(RevokeArgs),
    /// Attach notes to a session, for operators and handlers, and say how long it lives unused.
    #[command(after_help = "\
`key=text` sets a text, `key:=json` any JSON, and `key:=null` removes. `show` shows what there is. A time of \
its own counts from now on and wins over `session.idle_ttl`, whatever that is changed to; \
`session.max_lifetime` ends the session all the same.

Examples:
  tenure sessions set s-4f3a9c01 ticket=4711 priority:=2
  tenure sessions set s-4f3a9c01 ticket:=null
  tenure sessions set s-4f3a9c01 --ttl 2h
  tenure sessions set s-4f3a9c01 --ttl default")]
    Set(SetArgs),
    /// Write sessions to a file, one JSON object a line.
    #[command(after_help = "\
The file holds no secret ids, only a hash of each, so it gives no access to a session. It does hold \
what clients and servers said to each other, so it is made for your eyes only (mode 0600). A session \
that goes on where it was exported exists twice once it is imported elsewhere: to move sessions, stop \
the server first. Data sessions are not exported: only a backup or a copy of the whole store carries them.

Examples:
  tenure sessions export --output sessions.jsonl        all of them
  tenure sessions export s-4f3a9c01 | jq .              one of them
  tenure sessions export | ssh other tenure sessions import -")]
    Export(ExportArgs),
    /// Put exported sessions into a store. Their clients go on with the ids they have.
    #[command(after_help = "\
Every line is checked before it is imported, and all of a file before the first. A session that is \
there already is refused; with --replace it is replaced, also if it has ended, but not while it is \
awake. If there is no store yet, a new one is made.

Examples:
  tenure sessions import sessions.jsonl --store disk:/var/lib/tenure
  tenure sessions import - --replace < sessions.jsonl")]
    Import(ImportArgs),
    /// Look at data sessions, make them, hand them out, end them.
    #[command(
        subcommand,
        after_help = "\
A data session is what a client keeps at a server under an id of its own, in whatever session it comes.

Example:
  tenure sessions data list"
    )]
    Data(data::DataSessionsCommand),
}

#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    /// The session: its key, the first digits of it, or its label. Its Mcp-Session-Id is understood too, but is
    /// a secret that does not belong in a shell's history.
    key: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Args, Debug)]
pub(super) struct RevokeArgs {
    /// The sessions: keys, the first digits of them, or labels.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Args, Debug)]
pub(super) struct SetArgs {
    /// The session: its key, the first digits of it, or its label.
    key: String,
    /// What to attach: `key=text` or `key:=json`.
    #[arg(required_unless_present = "ttl", value_name = "KEY=VALUE")]
    pairs: Vec<String>,
    /// How long it lives without use, such as 2h; `never`; or `default` for the value of `session.idle_ttl`.
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    ttl: Option<IdleTtl>,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn run(command: SessionsCommand) -> Result<(), Failure> {
    block_on(async {
        match command {
            SessionsCommand::List(args) => list::run(&args).await,
            SessionsCommand::Show(args) => {
                let store = args.store.open(Absent::Refuse).await?;
                let (_, key) = resolve::<SessionRow>(&store, &args.key).await?;
                let detail = store.show(key).await?.ok_or_else(|| unknown::<SessionRow>(&args.key))?;
                note_missing(&store);
                if args.json {
                    print_json(&detail)
                } else {
                    say(&show::text(&detail, now(), Paint::stdout()))
                }
            }
            SessionsCommand::Revoke(args) => {
                let store = args.store.open(Absent::Refuse).await?;
                revoke::<SessionRow>(&store, &args.keys).await.inspect_err(|_| note_missing(&store))
            }
            SessionsCommand::Set(args) => set(&args).await,
            SessionsCommand::Export(args) => transfer::export(&args).await,
            SessionsCommand::Import(args) => transfer::import(&args).await,
            SessionsCommand::Data(command) => data::run(command).await,
        }
    })
}

async fn set(args: &SetArgs) -> Result<(), Failure> {
    let changes = Changes { metadata: arguments::read(&args.pairs)?.into_object(), ttl: args.ttl };
    let store = args.store.open(Absent::Refuse).await?;
    let (_, key) = resolve::<SessionRow>(&store, &args.key).await?;
    let Settings { metadata, ttl } = store
        .annotate(key, &changes)
        .await?
        .ok_or_else(|| Failure::new(format!("{} is over, so nothing can be attached to it", key.label())))?;
    if args.ttl.is_some() {
        note(&ttl_words(&key.label(), ttl));
    }
    if args.pairs.is_empty() { Ok(()) } else { say(&format!("{:#}\n", serde_json::Value::Object(metadata))) }
}

fn ttl(text: &str) -> Result<IdleTtl, String> {
    match text {
        "default" => Ok(IdleTtl::Default),
        // The configuration says `infinity`.
        "never" | "infinity" => Ok(IdleTtl::Never),
        time => parse_duration(time).filter(|time| !time.is_zero()).map(IdleTtl::After).ok_or_else(|| {
            "a time has a unit, such as 30s, 5m or 2h; else it is `never` or `default`".to_owned()
        }),
    }
}

fn ttl_words(label: &str, ttl: IdleTtl) -> String {
    match ttl {
        IdleTtl::Default => format!("{label} expires after `session.idle_ttl` without use"),
        IdleTtl::After(time) => format!("{label} expires when it is not used for {}", span(time)),
        IdleTtl::Never => format!("{label} does not expire when it is not used"),
    }
}
