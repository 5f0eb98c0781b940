//! `tenure sessions data create`: makes a data session and prints its id.

use std::io::Read;
use std::time::Duration;

use clap::Args;

use crate::cli::rows::{print_json, resolve};
use crate::cli::which_store::{Absent, StoreArgs};
use crate::cli::{Failure, note, say};
use crate::config::parse_duration;
use crate::operator::{DataRow, NamedData, NewData};

#[derive(Args, Debug)]
pub(in crate::cli) struct CreateArgs {
    /// Only this principal can use it. To a server without authentication all clients are anonymous.
    /// [default: anonymous]
    #[arg(long, value_name = "NAME", conflicts_with = "copy_of")]
    owner: Option<String>,
    /// Its kind, such as `workspace`. [default: the kind of the server's data sessions]
    #[arg(long, value_name = "KIND", conflicts_with = "copy_of")]
    kind: Option<String>,
    /// A name for people.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Its data: JSON, `@FILE` for the content of a file, or `@-` for standard input. [default: the initial data of
    /// one that a client makes]
    #[arg(long, value_name = "JSON", conflicts_with = "copy_of")]
    data: Option<String>,
    /// How long it lives without use, such as 30d. [default: as its kind, else `data_sessions.idle_ttl`]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "copy_of")]
    ttl: Option<Duration>,
    /// Another data session whose owner, kind and contents it has.
    #[arg(long, value_name = "NAME")]
    copy_of: Option<String>,
    /// Print JSON: the id, the handle, and the rest of what `list` shows.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn run(args: &CreateArgs) -> Result<(), Failure> {
    // Before the store is opened, so that mistyped data changes nothing.
    let data = args.data.as_deref().map(read).transpose()?;
    let store = args.store.open(Absent::Refuse).await?;
    let copy_of = match &args.copy_of {
        Some(name) => Some(resolve::<DataRow>(&store, name).await?.0.key),
        None => None,
    };
    let named = store
        .data_create(NewData {
            owner: args.owner.clone().filter(|owner| owner != "anonymous"),
            kind: args.kind.clone(),
            label: args.label.clone(),
            data,
            idle_ms: args.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            copy_of,
        })
        .await?;
    if args.json {
        print_json(&named)?
    } else {
        say(&format!("{}\n", named.id))?
    }
    note(&told(&named));
    Ok(())
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = parse_duration(text).filter(|time| !time.is_zero());
    parsed.ok_or_else(|| "a time has a unit, such as 30s, 5m or 30d".to_owned())
}

/// The value of `--data`, which has to be JSON.
fn read(said: &str) -> Result<String, Failure> {
    let text = match said.strip_prefix('@') {
        None => said.to_owned(),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Failure::new("cannot read standard input").caused_by(error))?;
            text
        }
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| Failure::new(format!("cannot read `{file}`")).caused_by(error))?,
    };
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => Ok(text.trim().to_owned()),
        Err(error) => Err(Failure::new("the value of `--data` is not JSON").caused_by(error).hint(
            "quote it for the shell, as in `--data '{\"notes\":[]}'`, or put it into a file: `--data @FILE`",
        )),
    }
}

/// The note that is printed with the id.
fn told(named: &NamedData) -> String {
    let row = &named.row;
    let kind = row.kind.as_deref().unwrap_or_default();
    let secret = match &row.owner {
        None => "its id is a secret that gives access to the data session; it is not shown again".to_owned(),
        Some(owner) => {
            format!("its id is a secret of `{owner}`, who alone can use it; `select` shows it again")
        }
    };
    let mut text = format!("made {}, a {kind}; {secret}", row.name);
    if !named.kinds.is_empty() {
        let known = named.kinds.iter().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(", ");
        text.push_str(&format!("\nwarning: no tool of the server works on a `{kind}`, only on {known}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::{Value, json};

    fn said(changes: &Value) -> String {
        let mut named = json!({
            "key": "0".repeat(32), "name": "d-00000000", "state": "active", "kind": "workspace",
            "id": "sess-0", "handle": "workspace_0", "argument": "workspace_id",
        });
        named.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        told(&serde_json::from_value(named).unwrap())
    }

    #[test]
    fn the_id_is_called_a_secret_and_an_odd_kind_is_warned_of() {
        expect!["made d-00000000, a workspace; its id is a secret that gives access to the data session; it is not shown again"]
            .assert_eq(&said(&json!({})));
        expect!["made d-00000000, a workspace; its id is a secret of `ann`, who alone can use it; `select` shows it again"]
            .assert_eq(&said(&json!({ "owner": "ann" })));
        expect![[r"
            made d-00000000, a basket; its id is a secret that gives access to the data session; it is not shown again
            warning: no tool of the server works on a `basket`, only on `workspace`, `list`"]]
        .assert_eq(&said(&json!({ "kind": "basket", "kinds": ["workspace", "list"] })));
    }

    #[test]
    fn data_has_to_be_json() {
        assert_eq!(read(" {\"a\": 1.50}\n").unwrap(), "{\"a\": 1.50}");
        expect![[r#"
            error: the value of `--data` is not JSON
              caused by: key must be a string at line 1 column 2

            hint: quote it for the shell, as in `--data '{"notes":[]}'`, or put it into a file: `--data @FILE`
        "#]]
        .assert_eq(&read("{notes:[]}").unwrap_err().to_string());
    }
}
