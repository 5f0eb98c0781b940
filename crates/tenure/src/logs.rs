//! Where logs go: standard error, pretty for people and JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};
use crate::failure::Failure;

/// Starts logging. `rmcp` tells of every session it starts, which we do ourselves, and the disk engine of every
/// file.
///
/// # Errors
/// When the filter cannot be read.
pub fn start(log: &Log) -> Result<(), Failure> {
    let filter =
        EnvFilter::try_new(format!("rmcp=warn,fjall=warn,lsm_tree=warn,{}", log.level)).map_err(|error| {
            Failure::new(format!("cannot read the log level `{}`", log.level)).caused_by(error).hint(
                "use error, warn, info, debug or trace, or a filter such as `info,tenure_session=debug`",
            )
        })?;
    let terminal = std::io::stderr().is_terminal();
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !terminal,
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // What cannot be logged would be complained of on standard error, which panics when nobody reads that any more.
    let builder = builder.log_internal_errors(false);
    let color = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // A second start is a test in the same process; the first one's settings stay.
    if json {
        drop(builder.json().flatten_event(true).try_init());
    } else {
        drop(builder.with_ansi(color).with_target(false).try_init());
    }
    Ok(())
}
