//! Finds out which process holds one end of a connection on this machine, as Linux tells it in `/proc`.

use std::fs;

/// Which of the processes holds the end at port `here` of a connection to port `there`.
pub(super) fn holder(here: u16, there: u16, processes: &[Option<u32>]) -> Option<usize> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = inode(&table, here, there)?;
    let link = format!("socket:[{inode}]");
    processes.iter().position(|process| process.is_some_and(|process| holds(process, &link)))
}

fn holds(process: u32, link: &str) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == link))
}

/// The inode of the socket at port `here` that is connected to port `there`.
fn inode(table: &str, here: u16, there: u16) -> Option<&str> {
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_it = port(words.next()?)? == here && port(words.next()?)? == there;
        is_it.then(|| words.nth(6)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::inode;

    #[test]
    fn the_table_of_the_system_is_read() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0
   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0 20 4 30 10 -1
";
        assert_eq!(inode(table, 50000, 8080), Some("222"));
        assert_eq!(inode(table, 50001, 8080), None);
    }
}
