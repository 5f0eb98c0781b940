//! `tenure admin`: opens the page for operators in a browser.
//!
//! Asks the running server, on its control socket, for a link that is good once and for a minute.

use std::process::{Command, Stdio};

use clap::{Args, Subcommand};

use super::rows::print_json;
use super::which_store::{Absent, StoreArgs};
use super::{Failure, block_on, note, say};
use crate::admin::AdminRole;

#[derive(Subcommand, Debug)]
pub(super) enum AdminCommand {
    /// Print a link that logs you in, and open it in a browser.
    #[command(
        after_help = "The server has to serve the page: `tenure serve --admin`. The link is good once and for a minute; the login \
        that it becomes lasts eight hours. Where there is no browser, on a server that you reach by ssh, forward the port \
        (`ssh -L 8485:127.0.0.1:8485 HOST`) and open the link on your own machine.\n\n\
        Examples:\n  \
        tenure admin open\n  \
        tenure admin open --role viewer               for a screen that everybody sees\n  \
        tenure admin open --no-browser\n  \
        tenure admin open --json | jq -r .url"
    )]
    Open(OpenArgs),
}

#[derive(Args, Debug)]
pub(super) struct OpenArgs {
    /// What the login may do: viewer, payloads, operator or admin. [default: admin]
    #[arg(long, value_name = "ROLE", value_parser = AdminRole::ALL.map(AdminRole::as_str), hide_possible_values = true, default_value = "admin", hide_default_value = true)]
    role: String,
    /// Only print the link.
    #[arg(long)]
    no_browser: bool,
    /// Print JSON: `url`, `code`, and until when it is good.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn run(command: AdminCommand) -> Result<(), Failure> {
    let AdminCommand::Open(args) = command;
    let role = AdminRole::parse(&args.role).unwrap_or(AdminRole::Admin);
    let code = block_on(async { args.store.open(Absent::Refuse).await?.login_code(role).await })?;
    let code = code.ok_or_else(|| {
        Failure::new("no server has this store open").hint(
            "start one with its page: `tenure serve --admin`; `--store` or `--name` says which one is meant",
        )
    })?;
    if args.json {
        return print_json(&code);
    }
    say(&format!("{}\n", code.url))?;
    if !args.no_browser && !open(&code.url) {
        note("no browser was found here; open the link within a minute");
    }
    Ok(())
}

/// Opens a URL in the browser of this desktop; false if it has no browser.
fn open(url: &str) -> bool {
    let is_desktop = cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started = || {
        let mut command = Command::new(program);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    is_desktop && started().is_ok()
}
