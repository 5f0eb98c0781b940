//! Where logs go: standard error, pretty for people and JSON for machines.
//!
//! A thread that logs never waits for the reader of the log: lines go into a `queue`, which another thread writes out.
//! Lines from the same place in the code are limited per interval (`limit`), because clients can cause some at will. The
//! lines about requests (`access`) go past the subscriber and that limit.

mod access;
mod limit;
mod queue;

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::access::LineForm;
use self::limit::Limit;
use self::queue::Queue;
use crate::config::{LogConfig, LogFormat};
use crate::failure::Failure;

pub(crate) use access::access;

/// How long the end of the process waits for queued lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// How long a panicking thread waits until its message is written: the process may end with it.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The target of the log's own lines, which are not limited.
const OWN: &str = "tenure::logs";

static LOG: OnceLock<StartedLog> = OnceLock::new();

/// The log of this process.
#[derive(Debug)]
struct StartedLog {
    queue: Queue,
    form: LineForm,
}

/// Starts logging. `rmcp` and the disk engine are limited to warnings: they log every session, as we do, and every
/// file.
///
/// # Errors
/// When the filter cannot be read, or there is no standard error.
pub fn start(log: &LogConfig) -> Result<(), Failure> {
    let filter =
        EnvFilter::try_new(format!("rmcp=warn,fjall=warn,lsm_tree=warn,{}", log.level)).map_err(|error| {
            Failure::new(format!("cannot read the log level `{}`", log.level)).caused_by(error).hint(
                "use error, warn, info, debug or trace, or a filter such as `info,tenure_session=debug`",
            )
        })?;
    // Only tests start twice in a process; the first settings stay.
    if LOG.get().is_some() {
        return Ok(());
    }
    let terminal = std::io::stderr().is_terminal();
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !terminal,
    };
    let limit = Limit::default();
    let failed = |error: std::io::Error| Failure::new("cannot start the log").caused_by(error);
    // A separate descriptor, so that other writers to standard error do not wait for the lock of this one.
    let out = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
    let queue = Queue::start(std::fs::File::from(out), limit.clone()).map_err(failed)?;
    let form = if json { LineForm::Json } else { LineForm::Text };
    let queue = &LOG.get_or_init(|| StartedLog { queue, form }).queue;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(queue.clone());
    // An internal error would go to standard error with `eprintln!`, which panics when its reader is gone.
    let builder = builder.log_internal_errors(false);
    let color = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let started = if json {
        builder.json().flatten_event(true).finish().with(limit).try_init()
    } else {
        builder.with_ansi(color).with_target(false).finish().with(limit).try_init()
    };
    if started.is_ok() {
        std::panic::set_hook(Box::new(move |panic| tell(panic, queue)));
    }
    Ok(())
}

/// Waits until all lines are written, but not longer than the end of a process may take.
pub(crate) fn finish() {
    if let Some(log) = LOG.get() {
        log.queue.finish(LAST_LINES);
    }
}

/// Writes a text to standard error after all lines of the log, and waits a bounded time until it is written.
pub(crate) fn last_words(text: &str) {
    match LOG.get() {
        Some(log) => {
            log.queue.push_anyway(text.as_bytes());
            log.queue.finish(LAST_LINES);
        }
        None => {
            // If standard error is gone, there is no other place for the text.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
        }
    }
}

/// Logs a panic in the form that the standard library gives it.
fn tell(panic: &std::panic::PanicHookInfo<'_>, queue: &Queue) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = std::backtrace::Backtrace::capture();
    let backtrace = match backtrace.status() {
        std::backtrace::BacktraceStatus::Captured => format!("stack backtrace:\n{backtrace}"),
        _ => String::new(),
    };
    queue.push_anyway(format!("\nthread '{name}' {panic}\n{backtrace}").as_bytes());
    queue.flush(LAST_WORDS);
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "TENURE_TEST_PANIC_CHILD";

    #[test]
    fn the_words_of_a_panic_come_out_though_the_process_ends_with_it() {
        if std::env::var_os(CHILD).is_some() {
            start(&LogConfig::default()).unwrap();
            tracing::info!("before");
            drop(
                std::thread::Builder::new()
                    .name("some".to_owned())
                    .spawn(|| panic!("the words"))
                    .unwrap()
                    .join(),
            );
            std::process::abort();
        }
        let test = "logs::tests::the_words_of_a_panic_come_out_though_the_process_ends_with_it";
        let ran = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(said.contains("thread 'some' panicked at "), "{said}");
        assert!(said.contains("the words"), "{said}");
        assert!(said.contains("\"message\":\"before\""), "{said}");
    }
}
