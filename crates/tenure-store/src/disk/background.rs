//! Threads that give way to those that serve clients.
//!
//! The engine writes and merges tables in threads of its own. Under a flood of events they take all processor time they
//! can get, and calls that write nothing would wait for them. So they get a lower priority: the writer then waits for
//! them, and with it the clients whose events they are.

/// Nineteen is the lowest priority, zero the usual one. This is about a third of the usual share of a processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Runs this in a thread of low priority, and waits for it. Threads that it starts have the same priority.
pub(super) fn in_background<T: Send>(run: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let lowered = || {
            lower_priority();
            run()
        };
        let thread =
            std::thread::Builder::new().name("tenure-open".to_owned()).spawn_scoped(scope, lowered)?;
        thread.join().or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Lowers the priority of the calling thread, and of the threads that it starts from now on.
#[cfg(target_os = "linux")]
pub(super) fn lower_priority() {
    // Relative to the process, whose own priority an operator may have lowered.
    let lowered = rustix::process::getpriority_process(None)
        .and_then(|now| rustix::process::setpriority_process(None, (now + NICE).min(19)));
    if let Err(error) = lowered {
        tracing::debug!(%error, "threads of the store run with the usual priority");
    }
}

/// Elsewhere the priority belongs to the whole process.
#[cfg(not(target_os = "linux"))]
pub(super) fn lower_priority() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_started_in_the_background_have_a_low_priority_and_others_do_not() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let inside = in_background(|| std::thread::spawn(priority).join().unwrap()).unwrap();
        assert_eq!((inside, priority()), ((before + NICE).min(19), before));
    }
}
