//! `tenure resources` and `tenure read`: the resources of a server, and the contents of one.

use std::io::{IsTerminal, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use rmcp::model::{ReadResourceRequest, ReadResourceRequestParams};
use serde_json::{Value, json};
use tenure_client::Create;

use super::connect::{
    ClientArgs, ConnectArgs, ServerConnection, as_json, block_on, close, offers, unanswered,
};
use super::paint::Tone;
use super::rows::print_rows;
use super::table::{Cell, Column, known, left};
use super::target::{ServerArgs, Target};
use super::words::about;
use super::{Failure, note, say};
use crate::escape::plain;

/// Letters of a description that are shown.
const DESCRIPTION: usize = 70;

#[derive(Args, Debug)]
pub(super) struct ResourcesArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print JSON, one resource or template a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Args, Debug)]
pub(super) struct ReadArgs {
    /// The server's URL (left out if a command follows `--`), and the URI of the resource.
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
    /// Print the list of contents as JSON, each with its URI and its type.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub(super) fn list(args: &ResourcesArgs) -> Result<(), Failure> {
    let target = Target::alone(&args.server)?;
    block_on(list_from(args, &target))
}

pub(super) fn read(args: &ReadArgs) -> Result<(), Failure> {
    let (target, rest) = args.client.split(&args.words)?;
    match rest {
        [uri] => block_on(read_from(args, &target, uri)),
        [] => {
            let list = target.typed("tenure resources", "");
            Err(Failure::new("no resource to read").hint(format!("`{list}` lists the resources")))
        }
        [_, word, ..] => {
            Err(Failure::new(format!("`{word}` is one word too many")).hint("read one resource at a time"))
        }
    }
}

async fn list_from(args: &ResourcesArgs, target: &Target) -> Result<(), Failure> {
    let connection = args.connect.look_at(target).await?;
    let listed = listed(args, target, &connection).await;
    let said = listed.and_then(|rows| print_rows(&rows, args.json, &columns(), "no resources"));
    close(connection).await;
    said
}

/// The resources, then the templates.
async fn listed(
    args: &ResourcesArgs,
    target: &Target,
    connection: &ServerConnection,
) -> Result<Vec<Value>, Failure> {
    if !offers(connection, |offered| offered.resources.is_some()) {
        return Ok(Vec::new());
    }
    let connect = &args.connect;
    let resources = connect.within("`resources/list`", target, connection.list_all_resources()).await?;
    let templates = connection.list_all_resource_templates();
    // Many servers with resources do not support templates.
    let templates = match connect.within("`resources/templates/list`", target, templates).await {
        Ok(templates) => templates,
        Err(failure) => {
            tracing::debug!(%failure, "no templates");
            Vec::new()
        }
    };
    Ok([as_json(&resources), as_json(&templates)].concat())
}

fn columns() -> [Column<'static, Value>; 3] {
    let text = |resource: &Value, member: &str| {
        resource[member].as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned)
    };
    let uri = move |row: &Value| text(row, "uri").or_else(|| text(row, "uriTemplate")).unwrap_or_default();
    [
        left("URI", move |row: &Value| Cell::new(uri(row)).tone(Tone::Title)),
        left("TYPE", move |row: &Value| Cell::new(known(text(row, "mimeType"))).tone(Tone::Quiet)),
        left("DESCRIPTION", |row: &Value| about(row, &["description", "title", "name"], DESCRIPTION)),
    ]
}

async fn read_from(args: &ReadArgs, target: &Target, uri: &str) -> Result<(), Failure> {
    let connect = &args.client.connect;
    let listener = connect.listener();
    // The contents may depend on the session in use. A new session is begun only if the server requires one.
    let connection = args.client.open(target, listener.clone(), Create::WhenRequired).await?;
    let request = ReadResourceRequest::new(ReadResourceRequestParams::new(uri));
    let answer = connection.request(request, &connect.call_options(&listener)).await;
    listener.finish();
    let printed = match answer {
        Ok(result) => print(&json!(result), args.json),
        Err(error) => Err(unanswered(&error, &format!("`{}`", plain(uri)), target, connect)),
    };
    close(connection).await;
    printed
}

fn print(result: &Value, is_json: bool) -> Result<(), Failure> {
    let contents = result["contents"].as_array().cloned().unwrap_or_default();
    if is_json {
        return say(&format!("{:#}\n", Value::Array(contents)));
    }
    for content in &contents {
        if let Some(text) = content["text"].as_str() {
            say(&super::call::for_stdout(text))?;
            if !text.ends_with('\n') && std::io::stdout().is_terminal() {
                say("\n")?;
            }
        } else if let Some(blob) = content["blob"].as_str() {
            print_bytes(blob, content)?;
        }
    }
    Ok(())
}

fn print_bytes(blob: &str, content: &Value) -> Result<(), Failure> {
    let bytes = STANDARD.decode(blob).map_err(|error| {
        Failure::new("the server sent bytes that cannot be read").because(error.to_string())
    })?;
    if std::io::stdout().is_terminal() {
        let kind = plain(content["mimeType"].as_str().unwrap_or("bytes"));
        note(&format!("[{kind}, {} bytes; send them to a file with `>`]", bytes.len()));
        return Ok(());
    }
    match std::io::stdout().write_all(&bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new("cannot write to standard output").caused_by(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::paint::Paint;
    use crate::cli::table::table;

    #[test]
    fn resources_and_templates_are_one_table() {
        let resources = [
            json!({ "uri": "demo://a", "name": "a", "mimeType": "text/plain", "description": "The first\nof two" }),
            json!({ "uri": "demo://b", "name": "b", "title": "The second" }),
            json!({ "uriTemplate": "demo://{id}", "name": "any" }),
        ];
        expect_test::expect![[r"
            URI          TYPE        DESCRIPTION
            demo://a     text/plain  The first
            demo://b     -           The second
            demo://{id}  -           any
        "]]
        .assert_eq(&table(&columns(), &resources, Paint::of(false)));
    }
}
