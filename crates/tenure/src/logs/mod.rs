//! Where logs go: standard error, pretty for people and JSON for machines.
//!
//! A thread that logs never waits for the reader of the log: lines go into a `queue`, which another thread writes out.
//! Lines from the same place in the code are limited per interval (`limit`), because clients can cause some at will. The
//! lines about requests (`access`) go past the subscriber and that limit. `level` changes what is logged while the process runs.

mod access;
mod level;
mod limit;
mod queue;

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::access::LineForm;
use self::limit::Limit;
use self::queue::Queue;
use crate::config::{LogConfig, LogFormat};
use crate::failure::Failure;

pub(crate) use access::access;
pub(crate) use level::{level, restore_level, set_level};

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

/// Libraries that log no more than warnings, unless the filter names them: they log every session and connection, as we
/// do, and every file.
const QUIET: [&str; 3] = ["rmcp", "fjall", "lsm_tree"];

/// Libraries that log nothing, unless the filter names them: the crate that uses one logs each of its errors where it is
/// handled, and a line from a task of the library would come before or after that one by chance.
const SILENT: [&str; 1] = ["async_nats"];

/// Starts logging.
///
/// # Errors
/// When the filter cannot be read, or there is no standard error.
pub fn start(log: &LogConfig) -> Result<(), Failure> {
    let filter = filter(&log.level)?;
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
    // The filter alone decides, since an operator may raise it for a while.
    let builder = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(queue.clone());
    // An internal error would go to standard error with `eprintln!`, which panics when its reader is gone.
    let builder = builder.log_internal_errors(false);
    let color = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let started = if json {
        let filter = level::changeable(filter, &log.level);
        builder.json().flatten_event(true).finish().with(filter).with(limit).try_init()
    } else {
        let filter = level::changeable(filter, &log.level);
        builder.with_ansi(color).with_target(false).finish().with(filter).with(limit).try_init()
    };
    if started.is_ok() {
        std::panic::set_hook(Box::new(move |panic| tell(panic, queue)));
    }
    Ok(())
}

fn filter(levels: &str) -> Result<Targets, Failure> {
    let wanted: Targets = levels.parse().map_err(|error| {
        Failure::new(format!("cannot read the log level `{levels}`"))
            .caused_by(error)
            .hint("use error, warn, info, debug or trace, or a filter such as `info,tenure_session=debug`")
    })?;
    // A filter without a level for everything means none; and where even errors are off, those of libraries are too.
    let highest = wanted.default_level().unwrap_or(LevelFilter::OFF).min(LevelFilter::WARN);
    Ok(Targets::new()
        .with_targets(QUIET.map(|library| (library, highest)))
        .with_targets(SILENT.map(|library| (library, LevelFilter::OFF)))
        .with_default(wanted.default_level().unwrap_or(LevelFilter::OFF))
        .with_targets(wanted.iter()))
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
    fn libraries_log_no_more_than_warnings_and_no_more_than_everything_else() {
        use tracing::Level;
        for (levels, [of_ours, of_a_quiet_one, of_a_silent_one]) in [
            ("debug", [Some(Level::DEBUG), Some(Level::WARN), None]),
            ("error", [Some(Level::ERROR), Some(Level::ERROR), None]),
            ("off", [None, None, None]),
            ("tenure=info", [Some(Level::INFO), None, None]),
            ("info,rmcp=debug", [Some(Level::INFO), Some(Level::DEBUG), None]),
            ("info,async_nats=trace", [Some(Level::INFO), Some(Level::WARN), Some(Level::TRACE)]),
            ("off,async_nats=info", [None, None, Some(Level::INFO)]),
        ] {
            let filter = filter(levels).unwrap();
            let highest = |target| {
                let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
                levels.into_iter().rfind(|level| filter.would_enable(target, level))
            };
            assert_eq!(highest("tenure"), of_ours, "{levels}");
            assert_eq!(highest("rmcp::service"), of_a_quiet_one, "{levels}");
            assert_eq!(highest("async_nats::connector"), of_a_silent_one, "{levels}");
        }
    }

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
