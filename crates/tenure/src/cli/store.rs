//! `tenure store`: check, repair, back up, copy and encrypt.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use serde::Serialize;

use super::progress::{Unit, WorkProgress};
use super::report::{self, CheckMode};
use super::sessions::transfer::make_private;
use super::which_store::{Absent, StoreArgs, place, say_which};
use super::{Failure, block_on, note, say, sources, words};
use crate::config::Config;
use crate::control::ControlClient;
use crate::stores;
use crate::wire::{self, Access, ByteProgress, OpenedStore};

/// The exit status of `check` when it has found damage.
const DAMAGED: u8 = 2;

#[derive(Subcommand, Debug)]
pub(super) enum StoresCommand {
    /// Look for damage, and save what is left of a damaged store.
    #[command(after_help = "\
Nothing is changed without --repair. A repair writes what can be read into fresh files and leaves \
the damaged ones beside them, in a folder `data.damaged-…`. The store must not be in use, and its key \
is not needed.

Exit codes: 0 the store is sound, or was repaired; 1 it could not be checked; 2 it is damaged.

Examples:
  tenure store check --store disk:/var/lib/tenure
  tenure store check --repair
  tenure store check --json | jq .damage")]
    Check(CheckArgs),
    /// Copy a store into a folder, also while a server uses it.
    #[command(after_help = "\
The copy is the store at one moment, and a store of its own: serve it with `--store disk:DEST`. It is \
as encrypted as the store. If a server has the store open, that server writes the copy, so it must be \
able to reach DEST.

Examples:
  tenure store backup /backups/tenure-monday
  tenure store backup /backups/tenure-monday --store disk:/var/lib/tenure")]
    Backup(BackupArgs),
    /// Copy everything into a new store, with or without encryption.
    #[command(after_help = "\
Sessions, their streams and the ids of their events stay as they are. Neither store may be in use: to \
copy from a running server, make a backup and copy that.

Examples:
  tenure store copy disk:/var/lib/tenure disk:/srv/tenure
  tenure store copy disk:old disk:new --to-key-file tenure.key     encrypt
  tenure store copy disk:/var/lib/tenure nats://10.0.0.1:4222      from a folder to a cluster
  tenure store copy disk:old disk:new --from-key-file old.key --to-key-file new.key")]
    Copy(CopyArgs),
    /// List the user's own stores: one for each server, in the user's folder for data.
    #[command(after_help = "\
Each line begins with the option that selects the store in other commands.

Examples:
  tenure store list
  tenure store list --json | jq -r .folder")]
    List(StoreListArgs),
    /// Make a key that encrypts a store.
    #[command(after_help = "\
The key gives access to the store, and the store cannot be read without it. Keep a copy in another place. To \
change keys, put the new one on the first line of the key file and leave the old one below it.

Examples:
  tenure store new-key --output tenure.key
  tenure serve --store disk:/var/lib/tenure --store-key-file tenure.key")]
    NewKey(NewKeyArgs),
}

#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// Save what can be read, and put that in the place of the damaged store.
    #[arg(long)]
    repair: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Args, Debug)]
pub(super) struct BackupArgs {
    /// The folder to copy into; it must be empty or not there yet.
    #[arg(value_name = "DEST")]
    to: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Args, Debug)]
pub(super) struct CopyArgs {
    /// The store to copy, such as disk:/var/lib/tenure or nats://127.0.0.1:4222.
    #[arg(value_name = "FROM")]
    from: String,
    /// The store to make, such as disk:/srv/tenure. It must have no sessions yet.
    #[arg(value_name = "TO")]
    to: String,
    /// A file with the key of the store that is copied.
    #[arg(long, value_name = "FILE")]
    from_key_file: Option<PathBuf>,
    /// A file with the key of the new store, which is then encrypted.
    #[arg(long, value_name = "FILE")]
    to_key_file: Option<PathBuf>,
    /// The configuration file that says how to reach a NATS engine.
    #[arg(long, value_name = "FILE", env = "TENURE_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(super) struct StoreListArgs {
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
}

/// One of the user's own stores, as JSON.
#[derive(Serialize)]
struct ListedStore<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    folder: &'a Path,
    served: bool,
}

#[derive(Args, Debug)]
pub(super) struct NewKeyArgs {
    /// The file to make, for your eyes only (mode 0600); standard output by default.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(command: StoresCommand) -> Result<ExitCode, Failure> {
    match command {
        StoresCommand::Check(args) => return check(&args),
        StoresCommand::Backup(args) => block_on(backup(&args))?,
        StoresCommand::Copy(args) => block_on(copy(&args))?,
        StoresCommand::List(args) => block_on(list(&args))?,
        StoresCommand::NewKey(args) => new_key(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let folder = block_on(async {
        let url = place(&args.store.config()?, Absent::Refuse).await?;
        wire::existing_folder(&url)
    })?;
    let mut progress = WorkProgress::start("reading", Unit::Bytes);
    let mut tell = |stage: ByteProgress| progress.at(stage.done, stage.of);
    let (mode, found) = match args.repair {
        true => (CheckMode::Repair, wire::repair(&folder, &mut tell)?),
        false => (CheckMode::Check, wire::check(&folder, &mut tell)?),
    };
    drop(progress);
    say(&if args.json { report::json(&found, mode) } else { report::text(&folder, &found, mode) })?;
    if found.is_sound() || mode == CheckMode::Repair {
        return Ok(ExitCode::SUCCESS);
    }
    note("\nhint: save the readable data with `tenure store check --repair`; the damaged files are kept");
    Ok(ExitCode::from(DAMAGED))
}

async fn backup(args: &BackupArgs) -> Result<(), Failure> {
    let store = args.store.open(Absent::Refuse).await?;
    // Absolute, because the server may run in another folder.
    let to = std::path::absolute(&args.to)
        .map_err(|error| Failure::new(format!("cannot find `{}`", args.to.display())).caused_by(error))?;
    let mut progress = WorkProgress::start("backing up", Unit::Bytes);
    let made = store.backup(&to, move |stage| progress.at(stage.done, stage.of)).await?;
    let mut what = words::sessions(made.sessions);
    if made.data_sessions > 0 {
        what.push_str(&format!(" and {}", words::data_sessions(made.data_sessions)));
    }
    note(&format!("backed up {what} to `{}`", to.display()));
    Ok(())
}

async fn copy(args: &CopyArgs) -> Result<(), Failure> {
    let is_folder = |url: &str| !wire::is_nats(url);
    let from = is_folder(&args.from).then(|| wire::existing_folder(&args.from)).transpose()?;
    let to = is_folder(&args.to).then(|| wire::folder(&args.to)).transpose()?;
    let is_same = match (&from, &to) {
        (Some(from), Some(to)) => {
            to.canonicalize().is_ok_and(|to| from.canonicalize().is_ok_and(|from| from == to))
        }
        _ => args.from == args.to,
    };
    if is_same {
        return Err(Failure::new("cannot copy a store onto itself").hint("name another place to copy to"));
    }
    // Only for a NATS engine: how to reach it.
    let (config, _) = Config::load(&sources(args.config.as_deref(), Vec::new())?)?;
    let source = open(&args.from, args.from_key_file.as_ref(), &config).await?;
    let target = open(&args.to, args.to_key_file.as_ref(), &config).await?;
    let records = wire::count(source.store.as_ref()).await?;
    let mut progress = WorkProgress::start("copying", Unit::Things("records"));
    let tell = |copied: wire::CopyProgress| progress.at(copied.totals.records, records);
    let totals = wire::copy(source.store.as_ref(), target.store.as_ref(), tell).await?;
    drop(progress);
    note(&format!(
        "copied {}, {} and {}, {}",
        words::count(totals.records, "record", "records"),
        words::count(totals.streams, "stream", "streams"),
        words::count(totals.events, "event", "events"),
        HumanBytes(totals.bytes)
    ));
    Ok(())
}

async fn list(args: &StoreListArgs) -> Result<(), Failure> {
    let own = stores::own_stores();
    if own.is_empty() && !args.json {
        note("there is no store in the user's folder for data");
    }
    for store in &own {
        let served = ControlClient::find(&store.folder).await.is_some();
        let line = if args.json {
            let listed = ListedStore { name: store.name.as_deref(), folder: &store.folder, served };
            serde_json::to_string(&listed)
                .map_err(|error| Failure::new("cannot list stores").caused_by(error))?
        } else {
            format!("{}{}", say_which(store), if served { "  (served now)" } else { "" })
        };
        say(&format!("{line}\n"))?;
    }
    Ok(())
}

async fn open(url: &str, key_file: Option<&PathBuf>, config: &Config) -> Result<OpenedStore, Failure> {
    match wire::open(url, key_file, &config.nats).await? {
        Access::Open(opened) => Ok(opened),
        Access::InUse(failure) => Err(failure.hint(
            "stop the process that has it open; to copy from a running server, copy a backup of it \
             (`tenure store backup`)",
        )),
    }
}

fn new_key(args: &NewKeyArgs) -> Result<(), Failure> {
    let (key, id) = wire::new_key();
    let Some(file) = &args.output else { return say(&format!("{}\n", *key)) };
    let mut made = make_private(file)?;
    made.write_all(key.as_bytes())
        .and_then(|()| made.write_all(b"\n"))
        .and_then(|()| made.sync_all())
        .map_err(|error| Failure::new(format!("cannot write `{}`", file.display())).caused_by(error))?;
    note(&format!("made key {id} in `{}`; keep a copy of it where the store is not", file.display()));
    Ok(())
}
