//! `tenure jar`: the sessions that client commands keep: list them, choose one, make one, forget them.
//!
//! Only `new` and `forget --delete` connect to a server; the others only read and write the file. An id is a secret:
//! the part that is shown tells it from others, but cannot be used.

mod list;
mod choose;
mod find;

use clap::{Args, Subcommand};

use self::choose::{ForgetArgs, NewArgs, UseArgs};
pub(super) use self::find::{find, short_id};
use self::list::JarListArgs;
use super::Failure;
use super::connect::block_on;
use super::target::{JarArgs, ServerArgs, Target};

#[derive(Subcommand, Debug)]
pub(super) enum JarCommand {
    /// List the sessions in the jar, by server.
    #[command(
        override_usage = "tenure jar list [OPTIONS] [URL]\n       tenure jar list [OPTIONS] -- <COMMAND>...",
        after_help = "\
States:
  in use        the next call goes on with it
  active        it can be chosen with `tenure jar use`
  expired       its time is over, as far as the server has said
  invalidated   the server refused it, or it was cleared, and why

Examples:
  tenure jar list
  tenure jar list http://127.0.0.1:8484/mcp
  tenure jar list --json | jq -r .session       one JSON object a line"
    )]
    List(JarListArgs),
    /// Choose the session that calls go on with.
    #[command(
        override_usage = "tenure jar use [OPTIONS] <URL> <ID>\n       tenure jar use [OPTIONS] <ID> -- <COMMAND>...",
        after_help = "\
Examples:
  tenure jar use http://127.0.0.1:8484/mcp sess-4f3a
  tenure jar use sess-4f3a -- npx -y notes
  tenure jar use sess-4f3a --carry -- tenure stdio --store disk:   one that the same server gave at another address"
    )]
    Use(UseArgs),
    /// Begin a new session, which calls use from now on.
    #[command(
        override_usage = "tenure jar new [OPTIONS] <URL>\n       tenure jar new [OPTIONS] -- <COMMAND>...",
        after_help = "\
Example:
  tenure jar new http://127.0.0.1:8484/mcp"
    )]
    New(NewArgs),
    /// Stop using the sessions of a server. They stay in the jar, and live on at the server.
    #[command(
        override_usage = "tenure jar clear [OPTIONS] <URL>\n       tenure jar clear [OPTIONS] -- <COMMAND>...",
        after_help = "\
The next call begins a new session; `tenure jar use` brings an old one back.

Example:
  tenure jar clear http://127.0.0.1:8484/mcp"
    )]
    Clear(ClearArgs),
    /// Remove sessions from the jar: one, or all of a server.
    #[command(
        override_usage = "tenure jar forget [OPTIONS] <URL> [ID]\n       tenure jar forget [OPTIONS] [ID] -- <COMMAND>...",
        after_help = "\
Without `--delete` they live on at the server until they expire, and their ids are lost.

Examples:
  tenure jar forget http://127.0.0.1:8484/mcp sess-4f3a
  tenure jar forget http://127.0.0.1:8484/mcp --delete"
    )]
    Forget(ForgetArgs),
}

#[derive(Args, Debug)]
pub(super) struct ClearArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    jar: JarArgs,
}

pub(super) fn run(command: JarCommand) -> Result<(), Failure> {
    match command {
        JarCommand::List(args) => list::run(&args),
        JarCommand::Use(args) => choose::select(&args),
        JarCommand::New(args) => block_on(choose::make(&args)),
        JarCommand::Clear(args) => choose::clear(&args),
        JarCommand::Forget(args) => block_on(choose::forget(&args)),
    }
}

/// The server, and the word after it. More than `most` words after the server are refused.
fn split<'a>(
    words: &'a [String],
    command: &[String],
    most: usize,
) -> Result<(Target, Option<&'a str>), Failure> {
    let (target, rest) = Target::split(words, command)?;
    match rest.get(most) {
        Some(word) => Err(Failure::new(format!("`{word}` is one word too many"))
            .hint("a server is one URL, or a command after `--`")),
        None => Ok((target, rest.first().map(String::as_str))),
    }
}
