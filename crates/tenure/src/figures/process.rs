//! Figures of this process from the operating system. Only on Linux; elsewhere they are left out.

use tenure_session::port::clock::{Clock, SystemClock};

/// What the operating system says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Process {
    pub(super) rss_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) cpu_s: Option<f64>,
    pub(super) descriptors: Option<u64>,
    pub(super) max_descriptors: Option<u64>,
}

impl Process {
    /// Reads a few small files of `/proc`, which costs some ten microseconds.
    pub(super) fn read() -> Self {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let mut pages =
            statm.split_whitespace().map(|pages| pages.parse::<u64>().ok().map(|pages| pages * page));
        let (virtual_bytes, rss_bytes) = (pages.next().flatten(), pages.next().flatten());
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let descriptors = std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64);
        Self {
            rss_bytes,
            virtual_bytes,
            cpu_s: cpu_s(&stat),
            descriptors,
            max_descriptors: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
        }
    }
}

/// When the process began to count, in seconds since 1970.
#[expect(clippy::cast_precision_loss, reason = "seconds with a fraction")]
pub(super) fn now_s() -> f64 {
    SystemClock.now().0 as f64 / 1000.0
}

/// User and system time from `/proc/self/stat`. The name of the program is in parentheses and may have any characters.
fn cpu_s(stat: &str) -> Option<f64> {
    let after = stat.rsplit_once(')')?.1;
    let mut fields = after.split_whitespace().skip(11).map(|field| field.parse::<u64>().ok());
    let ticks = fields.next()?? + fields.next()??;
    #[expect(clippy::cast_precision_loss, reason = "seconds with a fraction")]
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read_behind_a_strange_name() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 5";
        let hertz = rustix::param::clock_ticks_per_second();
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let expected = 200.0 / hertz as f64;
        assert!((cpu_s(stat).unwrap() - expected).abs() < 1e-9);
        assert_eq!(cpu_s("nothing"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_knows_its_size() {
        let process = Process::read();
        assert!(process.rss_bytes.unwrap() > 1 << 20 && process.descriptors.unwrap() > 2, "{process:?}");
    }
}
