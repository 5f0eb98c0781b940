//! Where logs go: standard error, pretty for people and JSON for machines.
//!
//! Nobody who logs waits for whoever reads that: lines go into a `queue` with a writer of its own. Of lines that come from
//! the same place in the code only so many are written in a while (`limit`), because clients can cause some at will.

mod limit;
mod queue;

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::limit::Limit;
use self::queue::Queue;
use crate::config::{Log, LogFormat};
use crate::failure::Failure;

/// How long the end of the process waits for what is still to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// How long a thread that panics waits until its words are written: the process may end with it.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// What comes from the log itself; it is not limited.
const OWN: &str = "tenure::logs";

static LOG: OnceLock<Queue> = OnceLock::new();

/// Starts logging. `rmcp` tells of every session it starts, which we do ourselves, and the disk engine of every
/// file.
///
/// # Errors
/// When the filter cannot be read, or there is no standard error.
pub fn start(log: &Log) -> Result<(), Failure> {
    let filter =
        EnvFilter::try_new(format!("rmcp=warn,fjall=warn,lsm_tree=warn,{}", log.level)).map_err(|error| {
            Failure::new(format!("cannot read the log level `{}`", log.level)).caused_by(error).hint(
                "use error, warn, info, debug or trace, or a filter such as `info,tenure_session=debug`",
            )
        })?;
    // A second start is a test in the same process; the first one's settings stay.
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
    // A descriptor of its own: what else writes to standard error does not wait for the lock of this one.
    let out = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
    let queue = Queue::start(std::fs::File::from(out), limit.clone()).map_err(failed)?;
    let queue = LOG.get_or_init(|| queue);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(queue.clone());
    // What cannot be logged would be complained of on standard error, which panics when nobody reads that any more.
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

/// Waits until all lines are written, as long as the end of a process may wait for that.
pub fn finish() {
    if let Some(queue) = LOG.get() {
        queue.finish(LAST_LINES);
    }
}

/// Says something on standard error behind all lines of the log, and waits until it is written, but not for ever.
pub(crate) fn last_words(text: &str) {
    match LOG.get() {
        Some(queue) => {
            queue.push_anyway(text.as_bytes());
            queue.finish(LAST_LINES);
        }
        None => {
            // Nobody is left to tell if standard error is gone.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
        }
    }
}

/// What a panic says, in the form that the standard library gives it.
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
            start(&Log::default()).unwrap();
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
