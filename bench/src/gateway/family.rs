//! A gateway with all the processes it has started, some of which are the server's.
//!
//! Whatever is not the server belongs to the gateway: shells, wardens, workers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::{CpuTime, Memory};

/// Whose time and memory is counted.
#[derive(Debug)]
pub(super) struct Family {
    /// The gateway, if it runs.
    pub(super) gateway: Option<u32>,
    /// The server, if it is not the gateway that starts it.
    pub(super) upstream: Option<u32>,
    /// Descendants that run this program are the server.
    pub(super) server: PathBuf,
}

/// CPU times at one moment.
#[derive(Debug)]
pub(super) struct Reading {
    gateway: BTreeMap<u32, CpuTime>,
    server: BTreeMap<u32, CpuTime>,
}

/// CPU time between two moments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    pub(super) gateway: Duration,
    pub(super) server: Duration,
}

/// Process ids of a family.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) gateway: Vec<u32>,
    pub(super) server: Vec<u32>,
}

impl Family {
    pub(super) fn members(&self) -> Result<Members> {
        let own = std::process::id();
        let (mut gateway, mut server) = (Vec::new(), Vec::new());
        let parents = parents()?;
        for pid in descendants(self.gateway.unwrap_or(own), &parents) {
            match runs(pid, &self.server) {
                true => server.push(pid),
                false if self.gateway.is_some() => gateway.push(pid),
                false => {}
            }
        }
        // With nothing in front it is a child of ours, and was found already.
        if let Some(pid) = self.upstream.filter(|pid| !server.contains(pid)) {
            server.push(pid);
        }
        Ok(Members { gateway, server })
    }

    pub(super) fn read(&self) -> Result<Reading> {
        let Members { gateway, server } = self.members()?;
        // One may end while we look.
        let times = |pids: Vec<u32>| {
            pids.into_iter().filter_map(|pid| Some((pid, CpuTime::of(&pid.to_string()).ok()?))).collect()
        };
        Ok(Reading { gateway: times(gateway), server: times(server) })
    }

    /// Bytes that the gateway holds in RAM, without the server.
    pub(super) fn memory(&self) -> Result<u64> {
        let gateway = self.members()?.gateway;
        Ok(gateway.iter().filter_map(|pid| Memory::of(&pid.to_string()).ok()).map(|memory| memory.rss).sum())
    }

    /// The same when it stands still, or nearly: runtimes that collect garbage never quite do.
    pub(super) async fn settled_memory(&self) -> Result<u64> {
        const STEP: Duration = Duration::from_millis(200);
        const MAX_STEPS: u32 = 15;
        let mut before = self.memory()?;
        for _ in 0..MAX_STEPS {
            tokio::time::sleep(STEP).await;
            let now = self.memory()?;
            if now.abs_diff(before) <= (before / 1_000).max(64 * 1024) {
                return Ok(now);
            }
            before = now;
        }
        Ok(before)
    }
}

impl Reading {
    pub(super) fn since(&self, earlier: &Reading) -> Spent {
        let spent = |now: &BTreeMap<u32, CpuTime>, before: &BTreeMap<u32, CpuTime>| {
            now.iter().filter_map(|(pid, time)| Some(time.since(*before.get(pid)?))).sum()
        };
        Spent {
            gateway: spent(&self.gateway, &earlier.gateway),
            server: spent(&self.server, &earlier.server),
        }
    }
}

/// Whether a process runs this program.
pub(super) fn runs(pid: u32, program: &Path) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
}

/// Every process and its parent.
fn parents() -> Result<Vec<(u32, u32)>> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").context("list processes")? {
        let name = entry.context("list processes")?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name in brackets may hold spaces, so the fields are counted from its end.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let parent = fields.split_ascii_whitespace().nth(1).and_then(|text| text.parse().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    Ok(parents)
}

/// A process and all below it.
fn descendants(root: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Family, descendants};

    #[test]
    fn descendants_are_found_at_any_depth() {
        let mut found = descendants(1, &[(2, 1), (3, 2), (4, 9), (5, 1), (6, 3)]);
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3, 5, 6]);
    }

    #[test]
    fn a_server_is_told_from_the_gateway_by_its_program() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // It runs its program by now: starting one waits for that.
        let sleep = std::fs::read_link(format!("/proc/{}/exe", child.id())).unwrap();
        let own = std::process::id();
        let family = |server| Family { gateway: Some(own), upstream: None, server };
        let server = family(sleep).members().unwrap().server;
        let members = family("/no/such/program".into()).members().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(members.gateway.contains(&own) && members.gateway.contains(&child.id()), "{members:?}");
        assert_eq!((server, members.server), (vec![child.id()], Vec::new()));
    }
}
