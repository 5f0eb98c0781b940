//! File descriptors: how many this process may have, and how many of them connections and children get.
//!
//! Most systems allow a process 1,024 descriptors at first, and more up to a hard limit if it asks. A server asks for
//! all. Descriptors are first reserved for the store, the log, operators and health checks. Connections and children
//! get the rest, even if more are configured. Otherwise clients could use up the descriptors, and the store fails
//! without one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tenure_transport::serve::RESERVED;

use crate::config::{Config, Lowered};

/// Table files that the store holds open, at most and at least, and its other files.
const STORE_MOST: u64 = 900;
const STORE_LEAST: u64 = 64;
const STORE_OTHERS: u64 = 32;

/// For listening sockets, the log, control connections and the runtime.
const OTHERS: u64 = 64;

/// A child needs three pipes and one more descriptor.
const PER_CHILD: u64 = 4;

/// Never admit fewer connections than this.
const FEWEST_CONNECTIONS: usize = 8;

/// Raises the limit of descriptors to the hard limit, and lowers the configured bounds to fit it.
pub(crate) fn fit(config: &mut Config) {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let most = match before.current != before.maximum && setrlimit(Resource::Nofile, raised).is_ok() {
        true => {
            config.descriptors.of_child = before.current;
            before.maximum
        }
        false => before.current,
    };
    config.descriptors.lowered = most.and_then(|most| fit_into(config, most));
}

/// The bounds that a server would lower with this configuration.
pub(crate) fn would_fit(config: &Config) -> Option<Lowered> {
    fit_into(&mut config.clone(), getrlimit(Resource::Nofile).maximum?)
}

fn fit_into(config: &mut Config, most: u64) -> Option<Lowered> {
    let store = (most / 4).clamp(STORE_LEAST, STORE_MOST);
    config.descriptors.store = usize::try_from(store).ok();
    let has_store = config.store != "memory:";
    let kept = OTHERS + RESERVED as u64 + if has_store { store + STORE_OTHERS } else { 0 };
    let left = most.saturating_sub(kept);

    let children = lower_children(config, left / 2);
    let left = left - (children.now as u64 * PER_CHILD).min(left);
    // Connections to upstream servers are not counted; as many are reserved for them as for clients.
    let has_upstream =
        config.upstream.url.is_some() || config.backends.iter().any(|behind| behind.upstream.url.is_some());
    let for_clients = usize::try_from(if has_upstream { left / 2 } else { left }).unwrap_or(usize::MAX);

    let bounds = &mut config.bounds;
    let before = bounds.max_connections;
    bounds.max_connections = before.min(for_clients.max(FEWEST_CONNECTIONS));
    let connections = bounds.max_connections;
    let children = (children.now < children.before).then_some(children.now);
    // Losing less than a quarter of the connections is not worth a warning.
    let is_news = children.is_some() || connections < before / 4 * 3;
    is_news.then_some(Lowered { most, connections, children })
}

struct Children {
    before: usize,
    now: usize,
}

/// Lowers the configured numbers of children until they fit into this many descriptors.
fn lower_children(config: &mut Config, descriptors: u64) -> Children {
    let named = config.backends.iter_mut().map(|behind| &mut behind.child);
    let mut children: Vec<_> =
        named.chain([&mut config.child]).filter(|child| !child.command.is_empty() && !child.share).collect();
    let before = children.iter().map(|child| child.max).fold(0, usize::saturating_add);
    let fit = usize::try_from(descriptors / PER_CHILD).unwrap_or(usize::MAX);
    if before > fit {
        for child in &mut children {
            // In proportion, and at least one.
            let share = child.max as u128 * fit as u128 / before as u128;
            child.max = usize::try_from(share).unwrap_or(child.max).max(1);
        }
    }
    Children { before, now: children.iter().map(|child| child.max).fold(0, usize::saturating_add) }
}

impl std::fmt::Display for Lowered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { most, connections, children } = self;
        write!(f, "this process may have {most} files open, which is enough for {connections} connections")?;
        match children {
            Some(children) => write!(f, " and {children} servers behind"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::config::Behind;

    fn config(commands: &[usize]) -> Config {
        let mut config = Config::default();
        for max in commands {
            let mut child =
                crate::config::ChildConfig { command: vec!["server".to_owned()], ..Default::default() };
            child.max = *max;
            let upstream = crate::config::UpstreamConfig::default();
            config.backends.push(Behind { name: String::new(), prefix: String::new(), child, upstream });
        }
        config
    }

    #[test]
    fn connections_and_children_get_what_is_left_over_a_reserve() {
        let mut told = String::new();
        for (most, children) in [
            (1 << 20, &[256][..]),
            (22_000, &[256]),
            (20_000, &[]),
            (4096, &[256]),
            (1024, &[]),
            (1024, &[256]),
            (1024, &[256, 100]),
            (256, &[256]),
        ] {
            let mut config = config(children);
            let lowered = fit_into(&mut config, most);
            let each: Vec<_> = config.backends.iter().map(|behind| behind.child.max).collect();
            let (connections, store) = (config.bounds.max_connections, config.descriptors.store.unwrap());
            told.push_str(&format!(
                "{most} {children:?}: {connections} connections, {each:?} children, {store} tables"
            ));
            told.push_str(&lowered.map_or_else(String::new, |lowered| format!("; {lowered}")));
            told.push('\n');
        }
        expect![[r#"
            1048576 [256]: 20000 connections, [256] children, 900 tables
            22000 [256]: 19916 connections, [256] children, 900 tables
            20000 []: 18940 connections, [] children, 900 tables
            4096 [256]: 2012 connections, [256] children, 900 tables; this process may have 4096 files open, which is enough for 2012 connections
            1024 []: 608 connections, [] children, 256 tables; this process may have 1024 files open, which is enough for 608 connections
            1024 [256]: 304 connections, [76] children, 256 tables; this process may have 1024 files open, which is enough for 304 connections and 76 servers behind
            1024 [256, 100]: 308 connections, [54, 21] children, 256 tables; this process may have 1024 files open, which is enough for 308 connections and 75 servers behind
            256 [256]: 16 connections, [4] children, 64 tables; this process may have 256 files open, which is enough for 16 connections and 4 servers behind
        "#]].assert_eq(&told);
    }

    #[test]
    fn what_is_kept_open_stays_below_the_limit() {
        for most in [512, 1024, 2000, 4096, 20_000, 100_000] {
            for children in [&[][..], &[256], &[1000, 1000]] {
                let mut config = config(children);
                fit_into(&mut config, most);
                let children: usize = config.backends.iter().map(|behind| behind.child.max).sum();
                let used = config.bounds.max_connections + children * 4 + config.descriptors.store.unwrap();
                assert!(used + RESERVED + 64 <= usize::try_from(most).unwrap(), "{used} of {most}");
            }
        }
    }
}
