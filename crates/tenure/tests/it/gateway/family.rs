//! Processes that belong to one test, found in `/proc` by a variable in their environment.

use std::fs;

use tokio::process::Command;

/// The variable that a gateway and everything it starts has.
pub(crate) const FAMILY: &str = "GATEWAY_TEST";
/// The variable that its children have, and what they start.
pub(crate) const CHILD: &str = "GATEWAY_CHILD";

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: u32,
    pub(crate) parent: u32,
    pub(crate) command: String,
}

/// All with this variable, zombies aside: those have no environment.
pub(crate) fn having(name: &str, value: &str) -> Vec<Process> {
    let wanted = format!("{name}={value}").into_bytes();
    let has = |id: &u32| {
        fs::read(format!("/proc/{id}/environ"))
            .is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == wanted))
    };
    all().filter(has).filter_map(process).collect()
}

/// The children of a process that have ended and were not waited for.
pub(crate) fn zombies_of(parent: u32) -> Vec<u32> {
    let is_one = |id: &u32| stat(*id).is_some_and(|(state, of)| state == "Z" && of == parent);
    all().filter(is_one).collect()
}

/// How many pipes, sockets and the like a process has open. Files aside: how many of them a store keeps open is its own
/// affair.
pub(crate) fn open_ends(id: u32) -> usize {
    let all = fs::read_dir(format!("/proc/{id}/fd")).expect("it runs");
    let to = all.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    to.filter(|to| !to.is_absolute()).count()
}

/// How much memory a process has in use.
pub(crate) fn memory_bytes(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it uses memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// A limit of a process, as the kernel shows it: the soft and the hard one.
pub(crate) fn limit(id: u32, name: &str) -> (String, String) {
    let limits = fs::read_to_string(format!("/proc/{id}/limits")).expect("it runs");
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).expect("a limit of that name");
    let mut words = line.split_whitespace().map(str::to_owned);
    (words.next().expect("soft"), words.next().expect("hard"))
}

/// Sends a signal to this process and no other.
pub(crate) async fn signal(id: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &id.to_string()]).status().await.expect("kill");
    assert!(sent.success(), "{name} to {id}");
}

fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("a /proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn process(id: u32) -> Option<Process> {
    let (state, parent) = stat(id)?;
    let command = fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ").trim_end().to_owned();
    (state != "Z").then_some(Process { id, parent, command })
}

/// The state of a process, and its parent.
fn stat(id: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name stands in parentheses and may have some of its own.
    let mut rest = stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned);
    Some((rest.next()?, rest.next()?.parse().ok()?))
}
