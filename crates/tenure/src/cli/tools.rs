//! `tenure tools`: the tools of a server, or one tool with its arguments.

mod one;

use clap::Args;
use rmcp::model::Tool;
use serde_json::{Value, json};

use super::connect::{ConnectArgs, block_on, close};
use super::paint::{Paint, Tone};
use super::rows::print_rows;
use super::table::{Cell, Column, left};
use super::target::Target;
use super::words::about;
use super::{Failure, say};
use crate::escape::plain;

/// Letters of a description that are shown.
const DESCRIPTION: usize = 90;

#[derive(Args, Debug)]
pub(super) struct ToolsArgs {
    /// The server's URL (left out if a command follows `--`), and a tool to show.
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// The command that starts the server, with its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Print JSON, one tool a line; of one tool all of it.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(super) fn run(args: &ToolsArgs) -> Result<(), Failure> {
    let (target, rest) = Target::split(&args.words, &args.command)?;
    if let Some(word) = rest.get(1) {
        return Err(Failure::new(format!("`{word}` is one word too many"))
            .hint("name one server, and at most one of its tools"));
    }
    block_on(list(args, &target, rest.first().map(String::as_str)))
}

async fn list(args: &ToolsArgs, target: &Target, wanted: Option<&str>) -> Result<(), Failure> {
    let connection = args.connect.look_at(target).await?;
    let listed = args.connect.within("`tools/list`", target, connection.list_all_tools()).await;
    let said = listed.and_then(|tools| {
        let Some(name) = wanted else {
            return print_rows(&tools, args.json, &columns(), "no tools");
        };
        let tool =
            tools.iter().find(|tool| tool.name == name).ok_or_else(|| missing(name, &tools, target))?;
        let tool = json!(tool);
        say(&if args.json { format!("{tool:#}\n") } else { one::render(&tool, Paint::stdout()) })
    });
    close(connection).await;
    said
}

/// The failure for an unknown tool, with the tool whose name is closest.
fn missing(name: &str, tools: &[Tool], target: &Target) -> Failure {
    let close = |tool: &&Tool| strsim::jaro_winkler(&tool.name, name);
    let closest = tools.iter().max_by(|a, b| close(a).total_cmp(&close(b))).filter(|tool| close(tool) > 0.8);
    let failure = Failure::new(format!("the server has no tool `{}`", plain(name)));
    match closest {
        Some(tool) => failure.hint(format!("did you mean `{}`?", plain(&tool.name))),
        None => failure.hint(format!("`{}` lists the tools", target.typed("tenure tools", ""))),
    }
}

fn columns() -> [Column<'static, Tool>; 3] {
    let session = |tool: &Tool| match needs_session(tool) {
        true => Cell::new("required"),
        false => Cell::new("-").tone(Tone::Quiet),
    };
    [
        left("TOOL", |tool: &Tool| Cell::new(&tool.name).tone(Tone::Title)),
        left("SESSION", session),
        left("DESCRIPTION", |tool: &Tool| about(&json!(tool), &["description", "title"], DESCRIPTION)),
    ]
}

fn needs_session(tool: &Tool) -> bool {
    tool.meta.as_ref().and_then(|meta| meta.0.get("sessionRequired")) == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::table::table;

    #[test]
    fn a_table_says_what_needs_a_session() {
        let tools: Vec<Tool> = serde_json::from_value(json!([
            { "name": "notebook_read", "description": "\nReads.\nMore of it.", "inputSchema": {},
              "_meta": { "sessionRequired": true } },
            { "name": "echo", "title": "Echo", "inputSchema": {} },
            { "name": "odd\u{1b}[31m", "description": "x".repeat(200), "inputSchema": {} },
        ]))
        .unwrap();
        expect_test::expect![[r#"
            TOOL           SESSION   DESCRIPTION
            notebook_read  required  Reads.
            echo           -         Echo
            odd\u001b[31m  -         xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        "#]].assert_eq(&table(&columns(), &tools, Paint::of(false)));
    }
}
