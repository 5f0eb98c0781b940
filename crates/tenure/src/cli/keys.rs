//! `tenure keys`: static keys for clients that cannot log in.
//!
//! The file keeps hashes, so a key is shown once, when it is made. A server that runs reads the file again by itself.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure_auth::UnixSeconds;
use tenure_auth::keys::{ApiKeyFile, ApiKeyFileError, KeyInfo, NewKey};
use tenure_auth::outgoing::ClientKey;
use tenure_auth::scope::ScopeSet;
use tenure_session::port::clock::Time;

use super::paint::Tone;
use super::rows::print_rows;
use super::table::{Cell, Column, known, left};
use super::{Failure, load, note, say, sources};
use crate::config::parse_duration;
use crate::operator::now;
use crate::time_text::{ago, until};

#[derive(Subcommand, Debug)]
pub(super) enum KeysCommand {
    /// Make a key, and print it once.
    #[command(
        after_help = "The key goes into `Authorization: Bearer KEY` or `X-API-Key: KEY`. Two keys may have the same \
        name, so that a new one can be given out before the old one is revoked.\n\n\
        Examples:\n  \
        tenure keys new ci --file keys.toml\n  \
        tenure keys new alice --scope files:read --scope files:write --expires 90d\n  \
        TENURE_KEY=$(tenure keys new agent --file keys.toml)"
    )]
    New(NewKeyArgs),
    /// List the keys, without their secrets.
    List(ListKeysArgs),
    /// Revoke a key, or all keys of a name. A server that runs refuses it within two seconds.
    #[command(after_help = "Examples:\n  \
        tenure keys revoke ci          all keys of this name\n  \
        tenure keys revoke 3f9c01ab    the one with this id")]
    Revoke(RevokeKeyArgs),
    /// Print the public half of the key that signs who is calling (`upstream.identity_key`), as a key set.
    #[command(
        after_help = "Servers behind verify `X-Tenure-Principal` with it: a JWT that names the caller and is good for a \
        minute.\n\n\
        Examples:\n  \
        tenure keys identity identity.pem --new    make the key first\n  \
        tenure keys identity identity.pem > jwks.json"
    )]
    Identity(IdentityKeyArgs),
}

#[derive(Args, Debug)]
pub(super) struct NewKeyArgs {
    /// Who uses it. The principal of its calls is `key:NAME`.
    name: String,
    /// A scope that it grants. May be given several times.
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// How long it is good, such as 90d. [default: until it is revoked]
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
    /// A note for people.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    #[command(flatten)]
    file: KeyFileArgs,
}

#[derive(Args, Debug)]
pub(super) struct ListKeysArgs {
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    file: KeyFileArgs,
}

#[derive(Args, Debug)]
pub(super) struct RevokeKeyArgs {
    /// The name, or the id of one key.
    name: String,
    #[command(flatten)]
    file: KeyFileArgs,
}

#[derive(Args, Debug)]
pub(super) struct IdentityKeyArgs {
    /// The file of the key: PEM, PKCS#8.
    file: PathBuf,
    /// Make the file, with a new key of Ed25519. A file that is there is left alone.
    #[arg(long)]
    new: bool,
}

/// Which file.
#[derive(Args, Debug)]
struct KeyFileArgs {
    /// The file of keys. [default: `auth.keys_file` of the configuration]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A configuration file.
    #[arg(long, value_name = "FILE", env = "TENURE_CONFIG")]
    config: Option<PathBuf>,
}

impl KeyFileArgs {
    fn open(&self) -> Result<ApiKeyFile, Failure> {
        if let Some(file) = &self.file {
            return Ok(ApiKeyFile::at(file));
        }
        let config = load(&sources(self.config.as_deref(), Vec::new())?)?;
        config.auth.keys_file.map(ApiKeyFile::at).ok_or_else(|| {
            Failure::new("the configuration names no file of keys")
                .hint("name one with `--file keys.toml`, and give it to the server as `--set auth.keys_file=keys.toml`")
        })
    }
}

pub(super) fn run(command: KeysCommand) -> Result<(), Failure> {
    match command {
        KeysCommand::New(args) => new(args),
        KeysCommand::List(args) => list(&args),
        KeysCommand::Revoke(args) => revoke(&args),
        KeysCommand::Identity(args) => identity(&args),
    }
}

fn identity(args: &IdentityKeyArgs) -> Result<(), Failure> {
    if args.new {
        use std::io::Write as _;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let made = options.open(&args.file);
        let written = made.and_then(|mut file| file.write_all(ClientKey::generate_pem().as_bytes()));
        written.map_err(|error| {
            let failure =
                Failure::new(format!("cannot make the key file `{}`", args.file.display())).caused_by(error);
            match args.file.exists() {
                true => {
                    failure.hint("there is a file of this name: leave `--new` out to print its public half")
                }
                false => failure,
            }
        })?;
    }
    let key = ClientKey::read(&args.file, None)
        .map_err(|error| Failure::new("cannot use the key").caused_by(error).hint("`--new` makes one"))?;
    say(&format!("{:#}\n", key.public_set()))
}

fn new(args: NewKeyArgs) -> Result<(), Failure> {
    let file = args.file.open()?;
    let scopes = ScopeSet::of(args.scope.iter().map(String::as_str)).ok_or_else(|| {
        Failure::new("a scope cannot be used")
            .hint("a scope is printable ASCII without spaces, quotes and backslashes")
    })?;
    let expires = match &args.expires {
        None => None,
        Some(text) => {
            let span = parse_duration(text).ok_or_else(|| {
                Failure::new(format!("`--expires {text}` is not a duration")).hint("write it as 12h or 90d")
            })?;
            Some(seconds(now().after(span)))
        }
    };
    let key = NewKey { name: args.name, scopes, expires, note: args.note };
    let secret = file.add(key, seconds(now())).map_err(|error| failed(&file, error))?;
    say(&format!("{}\n", secret.expose()))?;
    note("this is the only time that the key is shown");
    Ok(())
}

/// A key, as `--json` prints it.
#[derive(Serialize)]
struct KeyRow {
    name: String,
    id: String,
    scopes: Vec<String>,
    /// Milliseconds since 1970.
    created: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    /// To the minute, as servers have noted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

impl KeyRow {
    fn new(info: KeyInfo, used: Option<UnixSeconds>) -> Self {
        let milliseconds = |time: UnixSeconds| time.0.saturating_mul(1000);
        Self {
            id: info.label(),
            scopes: info.scopes.iter().map(str::to_owned).collect(),
            created: milliseconds(info.created),
            expires: (info.expires != UnixSeconds::NEVER).then(|| milliseconds(info.expires)),
            last_used: used.map(milliseconds),
            name: info.name,
            note: info.note,
        }
    }
}

fn list(args: &ListKeysArgs) -> Result<(), Failure> {
    let file = args.file.open()?;
    let mut infos = file.list().map_err(|error| failed(&file, error))?;
    infos.sort_by(|one, other| (&one.name, one.created).cmp(&(&other.name, other.created)));
    let uses = file.last_uses(&infos);
    let rows: Vec<KeyRow> = infos.into_iter().zip(uses).map(|(info, used)| KeyRow::new(info, used)).collect();
    print_rows(&rows, args.json, &columns(now()), "there are no keys")
}

fn columns(now: Time) -> [Column<'static, KeyRow>; 7] {
    let expires = move |row: &KeyRow| match row.expires {
        None => Cell::new("-"),
        Some(at) if at <= now.0 => Cell::new("expired").tone(Tone::Bad),
        Some(at) => Cell::new(until(at, now)),
    };
    [
        left("NAME", |row: &KeyRow| Cell::new(&row.name).tone(Tone::Title)),
        left("ID", |row: &KeyRow| row.id.clone()),
        left("SCOPES", |row: &KeyRow| known((!row.scopes.is_empty()).then(|| row.scopes.join(" ")))),
        left("MADE", move |row: &KeyRow| ago(row.created, now)),
        left("LAST USED", move |row: &KeyRow| known(row.last_used.map(|at| ago(at, now)))),
        left("EXPIRES", expires),
        left("NOTE", |row: &KeyRow| known((!row.note.is_empty()).then_some(&row.note))).if_known(),
    ]
}

fn revoke(args: &RevokeKeyArgs) -> Result<(), Failure> {
    let file = args.file.open()?;
    let revoked = file.revoke(&args.name).map_err(|error| failed(&file, error))?;
    for key in revoked {
        say(&format!("revoked {} ({})\n", key.name, key.label()))?;
    }
    Ok(())
}

fn seconds(time: Time) -> UnixSeconds {
    UnixSeconds(time.0 / 1000)
}

fn failed(file: &ApiKeyFile, error: ApiKeyFileError) -> Failure {
    let is_unknown = matches!(error, ApiKeyFileError::NotFound(_));
    let failure =
        Failure::new(format!("cannot use the file of keys `{}`", file.path().display())).caused_by(error);
    if is_unknown { failure.hint("`tenure keys list` shows the keys with their ids") } else { failure }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::cli::paint::Paint;
    use crate::cli::table::table;

    #[test]
    fn a_table_shows_who_has_a_key_and_how_long() {
        let row = |name: &str, scopes: &[&str], (last_used, expires), note: &str| KeyRow {
            name: name.to_owned(),
            id: "3f9c01ab".to_owned(),
            scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
            created: 1000,
            expires,
            last_used,
            note: note.to_owned(),
        };
        let rows = [
            row("alice", &["files:read", "files:write"], (Some(3_541_000), Some(90_000_000)), ""),
            row("ci", &[], (None, None), "the build server"),
            row("old", &[], (Some(1000), Some(2000)), ""),
        ];
        expect![[r#"
            NAME   ID        SCOPES                  MADE    LAST USED  EXPIRES  NOTE
            alice  3f9c01ab  files:read files:write  1h ago  1m ago     in 23h   -
            ci     3f9c01ab  -                       1h ago  -          -        the build server
            old    3f9c01ab  -                       1h ago  1h ago     expired  -
        "#]]
        .assert_eq(&table(&columns(Time(3_601_000)), &rows, Paint::of(false)));
    }
}
