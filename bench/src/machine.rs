//! The machine a figure was taken on, and how much of it others used meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// What stands above the tables.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    cores: usize,
    cpu: String,
    memory_gib: f64,
    kernel: String,
    versions: BTreeMap<&'static str, &'static str>,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal");
        let kibibytes = memory.and_then(|text| text.trim_end_matches(" kB").parse::<f64>().ok());
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: value(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown CPU".to_owned()),
            memory_gib: kibibytes.unwrap_or(0.0) / 1024.0 / 1024.0,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            versions: ["tenure", "rmcp", "axum", "hyper", "tokio", "fjall"]
                .into_iter()
                .filter_map(|name| Some((name, locked_version(name)?)))
                .collect(),
        }
    }

    pub(crate) fn markdown(&self) -> String {
        let versions: Vec<_> =
            self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        format!(
            "Machine: {} cores ({}), {:.1} GiB, Linux {}. Versions: {}. Client and server share the cores.\n",
            self.cores,
            self.cpu,
            self.memory_gib,
            self.kernel,
            versions.join(", ")
        )
    }
}

/// The version in the workspace's lock file, as of this build.
fn locked_version(name: &str) -> Option<&'static str> {
    let lock = include_str!("../../Cargo.lock");
    let (_, rest) = lock.split_once(&format!("\nname = \"{name}\"\nversion = \""))?;
    Some(rest.split_once('"')?.0)
}

/// The time all cores together were busy since boot, with anything, the hypervisor's theft included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BusyTime(Duration);

impl BusyTime {
    pub(crate) fn read() -> Result<BusyTime> {
        let stat = std::fs::read_to_string("/proc/stat").context("read /proc/stat")?;
        let line = stat.lines().next().context("find the first line of /proc/stat")?;
        // user nice system idle iowait irq softirq steal; guest time is already part of user.
        let ticks = line
            .split_ascii_whitespace()
            .skip(1)
            .take(8)
            .enumerate()
            .filter(|(place, _)| *place != 3 && *place != 4)
            .map(|(_, text)| text.parse::<u64>())
            .sum::<Result<u64, _>>()
            .context("read the times in /proc/stat")?;
        Ok(BusyTime(Duration::from_millis(ticks * 10)))
    }

    pub(crate) fn since(self, earlier: BusyTime) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::locked_version;

    #[test]
    fn the_version_of_the_rival_is_the_one_in_the_lock_file() {
        assert_eq!(locked_version("rmcp"), Some("3.8.0"));
        assert_eq!(locked_version("no-such-crate"), None);
    }
}
