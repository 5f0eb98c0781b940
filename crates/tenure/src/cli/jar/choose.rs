//! `tenure jar use|new|clear|forget`: choose the session that calls to a server use, or stop using sessions.

use clap::Args;
use tenure_client::{Book, ClientErrorKind, Create, DataSessionId, Error, Jar, JarServer};

use super::{ClearArgs, find, short_id, split};
use crate::cli::connect::{ClientArgs, ServerConnection, close, session_failure};
use crate::cli::target::{JarArgs, Target, moment};
use crate::cli::words::sessions;
use crate::cli::{Failure, note, say};
use crate::escape::plain;

/// The reason in the jar for sessions that were put aside.
const CLEARED: &str = "cleared";

#[derive(Args, Debug)]
pub(in crate::cli) struct UseArgs {
    /// The server's URL (left out if a command follows `--`), and the id or the beginning of it.
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
    /// The command that starts the server, with its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Also look among the sessions of other servers, and send that one's id to this server.
    #[arg(long)]
    carry: bool,
    #[command(flatten)]
    jar: JarArgs,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct NewArgs {
    /// The server's URL; left out if a command follows `--`.
    #[arg(value_name = "URL")]
    words: Vec<String>,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct ForgetArgs {
    /// The server's URL (left out if a command follows `--`), and the id of one session or the beginning of it.
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// Also end them at the server, with what is kept in them.
    #[arg(long)]
    delete: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// `tenure jar use`.
pub(super) fn select(args: &UseArgs) -> Result<(), Failure> {
    let (target, id) = split(&args.words, &args.command, 1)?;
    let id = id.ok_or_else(|| no_id(&target))?;
    let server = target.server(args.jar.principal());
    // Find and choose under one lock: another process may be writing a newer cookie of the same session.
    change(&args.jar.open()?, |book| {
        let key = server.key();
        let anywhere = || if args.carry { find(book, None, id) } else { Ok(None) };
        let found = match find(book, key.as_deref(), id)? {
            Some(found) => Some(found),
            None => anywhere()?,
        };
        let (record, kept) = found.ok_or_else(|| unknown(book, &target, id))?;
        let name = short_id(kept.cookie.id().reveal());
        if kept.cookie.is_expired(moment()) {
            let call = target.typed("tenure call --session ID", "TOOL");
            return Err(Failure::new(format!("the session {name} has expired"))
                .hint(format!("`{call}` asks the server whether it still has it")));
        }
        if let Some((_, Some(why))) =
            kept.invalidated.as_ref().filter(|(_, why)| why.as_deref() != Some(CLEARED))
        {
            note(&format!("the server refused it before ({}); the next call tries it again", plain(why)));
        }
        let server = match &record.identity {
            Some(identity) => server.clone().with_identity(identity),
            None => server.clone(),
        };
        book.keep_as_used(&server, &kept.cookie, moment());
        say(&format!("calls to `{target}` use {name}\n"))
    })
}

/// `tenure jar new`.
pub(super) async fn make(args: &NewArgs) -> Result<(), Failure> {
    let client = &args.client;
    let (target, _) = split(&args.words, &client.command, 0)?;
    let connection = client.open(&target, client.connect.listener(), Create::Never).await?;
    let made = connection.sessions().create(None, None).await;
    let said = match made {
        Ok(session) => say(&format!("calls to `{target}` use {}\n", short_id(session.id.reveal()))),
        Err(error) => Err(session_failure("cannot begin a new session", &error)),
    };
    close(connection).await;
    said
}

/// `tenure jar clear`.
pub(super) fn clear(args: &ClearArgs) -> Result<(), Failure> {
    let (target, _) = split(&args.server.words, &args.server.command, 0)?;
    let server = target.server(args.jar.principal());
    let count = change(&args.jar.open()?, |book| {
        // All of them: if only the last used one was put aside, the jar would use the next newest.
        let active = ids(book, &server, Which::Active);
        for id in &active {
            book.invalidate(&server, id, CLEARED, moment());
        }
        Ok(active.len() as u64)
    })?;
    match count {
        0 => note(&format!("no session of `{target}` is in use")),
        count => {
            let back = target.typed("tenure jar use", "ID");
            say(&format!("put {} of `{target}` aside; `{back}` brings one back\n", sessions(count)))?;
        }
    }
    Ok(())
}

/// `tenure jar forget`.
pub(super) async fn forget(args: &ForgetArgs) -> Result<(), Failure> {
    let client = &args.client;
    let (target, id) = split(&args.words, &client.command, 1)?;
    let server = target.server(client.jar.principal());
    let jar = client.jar.open()?;
    let book = jar.read().map_err(cannot_use)?;
    let chosen = match id {
        Some(id) => {
            let found = find(&book, server.key().as_deref(), id)?;
            vec![found.ok_or_else(|| unknown(&book, &target, id))?.1.cookie.id().clone()]
        }
        None => ids(&book, &server, Which::All),
    };
    if chosen.is_empty() {
        note(&format!("the jar holds no session of `{target}`"));
        return Ok(());
    }
    if args.delete {
        let connection = client.open(&target, client.connect.listener(), Create::Never).await?;
        let deleted = delete(&connection, &chosen).await;
        close(connection).await;
        deleted?;
    }
    change(&jar, |book| {
        for id in &chosen {
            book.forget(&server, id);
        }
        if ids(book, &server, Which::All).is_empty() {
            book.forget_server(&server);
        }
        Ok(())
    })?;
    let done = if args.delete { "deleted" } else { "forgot" };
    say(&format!("{done} {} of `{target}`\n", sessions(chosen.len() as u64)))
}

/// Ends sessions at the server. A session that the server does not know has already ended.
async fn delete(connection: &ServerConnection, chosen: &[DataSessionId]) -> Result<(), Failure> {
    let sessions = connection.sessions();
    for id in chosen {
        let deleted: Result<(), Error> = async {
            sessions.resume(id.clone()).await?;
            sessions.delete().await
        }
        .await;
        match deleted {
            Err(error) if error.kind() != ClientErrorKind::NotFound => {
                return Err(session_failure(format!("cannot delete {}", short_id(id.reveal())), &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Which sessions of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    Active,
}

fn ids(book: &Book, server: &JarServer, which: Which) -> Vec<DataSessionId> {
    let key = server.key();
    let records = book.records().into_iter().filter(|record| Some(&record.key) == key.as_ref());
    let cookies = records.flat_map(|record| record.cookies);
    let chosen = cookies.filter(|kept| {
        which == Which::All || (kept.invalidated.is_none() && !kept.cookie.is_expired(moment()))
    });
    chosen.map(|kept| kept.cookie.id().clone()).collect()
}

fn change<T>(jar: &Jar, change: impl FnOnce(&mut Book) -> Result<T, Failure>) -> Result<T, Failure> {
    jar.update(change).map_err(cannot_use)?
}

fn cannot_use(error: Error) -> Failure {
    Failure::new("cannot use the jar").caused_by(error)
}

fn no_id(target: &Target) -> Failure {
    let list = target.typed("tenure jar list", "");
    Failure::new("which session?").hint(format!("`{list}` shows how the ids begin"))
}

fn unknown(book: &Book, target: &Target, id: &str) -> Failure {
    let failure =
        Failure::new(format!("the jar holds no session of `{target}` that begins with `{}`", plain(id)));
    match find(book, None, id) {
        Ok(Some(_)) => failure.hint(
            "a session of another server begins so; if both are the same server, add `--carry` to `tenure jar use`",
        ),
        _ => {
            let call = target.typed("tenure call --session ID", "TOOL");
            failure.hint(format!("one that the jar has never seen is used with its whole id: `{call}`"))
        }
    }
}
