//! `tenure sessions data`: look at data sessions, make them, hand them out, end them.
//!
//! As with sessions, every command works on a running server and on a store that no server has open. Ids are secrets:
//! only `create` and `select` print one.

mod list;
mod show;
mod create;
mod select;

use clap::{Args, Subcommand};

use self::create::CreateArgs;
use self::list::DataListArgs;
use crate::cli::paint::Paint;
use crate::cli::rows::{print_json, resolve, resolve_all, revoke, unknown};
use crate::cli::which_store::{Absent, StoreArgs};
use crate::cli::{Failure, note, say};
use crate::operator::{DataRow, Show, now};
use crate::time_text::{date, until};

#[derive(Subcommand, Debug)]
pub(in crate::cli) enum DataSessionsCommand {
    /// List data sessions, the most recently used first.
    #[command(after_help = "\
States:
  active     a client can use it
  expired    it was not used for long; while it is kept, its client or you can bring it back
  ended      over for good, and how: deleted by its client, expired, or revoked

When one was last used and when it expires is written down only now and then: it may live a little longer.

Examples:
  tenure sessions data list                     of the user's own store
  tenure sessions data list --kind workspace --state active
  tenure sessions data list --json | jq .name   one JSON object a line")]
    List(DataListArgs),
    /// Show everything about one data session but its id.
    #[command(after_help = "\
Examples:
  tenure sessions data show d-4f3a9c01          by the name that logs and `list` show
  tenure sessions data show d-4f3a9c01 --data   and what it holds
  tenure sessions data show d-4f3a9c01 --data --json | jq .data")]
    Show(ShowArgs),
    /// Make a data session, and print the id with which a client uses it.
    #[command(after_help = "\
Everyone who has the id of an anonymous data session can use it, so treat it like a password. It is printed \
once: the store keeps only a hash of it. The id of one that belongs to a principal is of use to that \
principal alone, and `select` prints it again.

Examples:
  tenure sessions data create --label \"for the demo\"
  tenure sessions data create --data '{\"notes\":[\"read me\"]}'
  tenure sessions data create --data @notes.json --json
  tenure sessions data create --copy-of d-4f3a9c01")]
    Create(CreateArgs),
    /// Put off the expiry of data sessions, and bring back those that have expired.
    #[command(after_help = "\
One that has expired because it was not used is kept for `data_sessions.retention`; until then it can be resumed, \
and its client goes on with the id it has. One that was deleted or revoked, or that has reached its greatest \
age, stays dead.

Example:
  tenure sessions data resume d-4f3a9c01")]
    Resume(NamesArgs),
    /// Print what a client needs to use a data session.
    #[command(after_help = "\
Only the ids of data sessions that belong to a principal are in the store. Only its client knows the id \
of an anonymous one; make a copy of it with `create --copy-of`.

Examples:
  tenure sessions data select d-4f3a9c01
  tenure sessions data select d-4f3a9c01 --json | jq -r .id")]
    Select(SelectArgs),
    /// Empty data sessions. They go on, under the ids they have.
    #[command(after_help = "\
Example:
  tenure sessions data clear d-4f3a9c01")]
    Clear(NamesArgs),
    /// End data sessions. Their clients are told that they were revoked.
    #[command(after_help = "\
What they hold is removed at once, and their ids and handles are dead.

Example:
  tenure sessions data revoke d-4f3a9c01 d-77aa0b12")]
    Revoke(NamesArgs),
}

#[derive(Args, Debug)]
pub(in crate::cli) struct ShowArgs {
    /// The data session: its name in logs, the beginning of it, or its key. Its id and its handle are understood
    /// too, but are secrets that do not belong in a shell's history.
    name: String,
    /// Show what it holds.
    #[arg(long)]
    data: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct SelectArgs {
    /// The data session: its name in logs, the beginning of it, or its key.
    name: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct NamesArgs {
    /// The data sessions: names in logs, the beginnings of them, or keys.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn run(command: DataSessionsCommand) -> Result<(), Failure> {
    match command {
        DataSessionsCommand::List(args) => list::run(&args).await,
        DataSessionsCommand::Show(args) => {
            let store = args.store.open(Absent::Refuse).await?;
            let (_, key) = resolve::<DataRow>(&store, &args.name).await?;
            let asked = if args.data { Show::Contents } else { Show::Facts };
            let detail = store.data_show(key, asked).await?.ok_or_else(|| unknown::<DataRow>(&args.name))?;
            match args.json {
                true => print_json(&show::JsonForm::of(detail)),
                false => say(&show::text(&detail, now(), Paint::stdout())),
            }
        }
        DataSessionsCommand::Create(args) => create::run(&args).await,
        DataSessionsCommand::Resume(args) => resume(&args).await,
        DataSessionsCommand::Select(args) => {
            let store = args.store.open(Absent::Refuse).await?;
            let (_, key) = resolve::<DataRow>(&store, &args.name).await?;
            let named = store.data_select(key).await?.ok_or_else(|| unknown::<DataRow>(&args.name))?;
            match args.json {
                true => print_json(&named)?,
                false => say(&select::text(&named, now(), Paint::stdout()))?,
            }
            note("the id and the handle are secrets, for its owner alone");
            Ok(())
        }
        DataSessionsCommand::Clear(args) => clear(&args).await,
        DataSessionsCommand::Revoke(args) => {
            revoke::<DataRow>(&args.store.open(Absent::Refuse).await?, &args.names).await
        }
    }
}

async fn resume(args: &NamesArgs) -> Result<(), Failure> {
    let store = args.store.open(Absent::Refuse).await?;
    for (DataRow { name, .. }, key) in resolve_all(&store, &args.names).await? {
        let resumed = store.data_resume(key).await?.ok_or_else(|| unknown::<DataRow>(&name))?;
        let done = if resumed.is_recovered { "recovered" } else { "resumed" };
        let lasts = match resumed.row.expires {
            Some(expires) => {
                format!("it expires {} ({}) if it is not used", until(expires, now()), date(expires))
            }
            None => "it does not expire".to_owned(),
        };
        say(&format!("{done} {name}; {lasts}\n"))?;
    }
    Ok(())
}

async fn clear(args: &NamesArgs) -> Result<(), Failure> {
    let store = args.store.open(Absent::Refuse).await?;
    for (DataRow { name, .. }, key) in resolve_all(&store, &args.names).await? {
        store.data_clear(key).await?.ok_or_else(|| unknown::<DataRow>(&name))?;
        say(&format!("cleared {name}\n"))?;
    }
    Ok(())
}
