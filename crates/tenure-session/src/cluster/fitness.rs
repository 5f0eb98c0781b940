//! Whether this node may act in its cluster at all: the rules about keys, servers, versions and clocks that nodes have to share.
//!
//! Pure. A node that is not fit keeps its record renewed, so that people see it and why, and is not confirmed: it takes no
//! session, and answers no client. Of two nodes that do not fit together, the one that acts least yields: one that is not yet
//! confirmed, then the one with the smaller name.

use super::node_info::NodeInfo;
use crate::id::NodeId;

/// How far a clock may be off. Deadlines and tokens are judged by it.
const MOST_OFF_MS: u64 = 2000;

/// How often in a row the clock of a node that acts has to be found wrong: a single sample may be from a moment in which the process
/// did not run.
const WRONG_IN_A_ROW: u32 = 3;

/// The versions of records between nodes that this program reads, and the one that it writes.
pub(super) const READS_FROM: u32 = 1;
pub(super) const WRITES: u32 = 1;

/// The reason in the record of a node that has not looked at the others yet.
pub(super) const JOINING: &str = "it has not looked at the other nodes yet";

/// Another node, with the time of the engine's clock when its record was written.
pub(super) struct Other<'a> {
    pub(super) node: NodeId,
    pub(super) info: &'a NodeInfo,
    /// How far its clock was ahead of the engine's; negative if behind.
    pub(super) clock_ms: Option<i64>,
}

/// How far the own clock is ahead of the engine's, and how exactly that is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockSample {
    pub(super) ahead_ms: i64,
    pub(super) within_ms: u64,
}

/// The state of this node.
#[derive(Default, Debug)]
pub(super) struct Fitness {
    /// It was found fit, and may act.
    pub(super) may_act: bool,
    /// It was judged at all.
    pub(super) is_judged: bool,
    wrong_clock: u32,
}

impl Fitness {
    /// Judges this node among the others. Out: why it must not act, in words.
    pub(super) fn judge(
        &mut self,
        (node, info): (NodeId, &NodeInfo),
        clock: Option<ClockSample>,
        others: &[Other<'_>],
    ) -> Option<String> {
        self.is_judged = true;
        let yields = |other: &&Other<'_>| match (self.may_act, other.info.unfit.is_none()) {
            (false, true) => true,
            (true, false) => false,
            _ => node < other.node,
        };
        // Nodes that act come first, because this node has to match them.
        let (acting, idle): (Vec<_>, Vec<_>) =
            others.iter().filter(yields).partition(|other| other.info.unfit.is_none());
        let apart = acting.into_iter().chain(idle).find_map(|other| {
            apart(info, other.info).map(|what| format!("{what} than the node {:?}{}", other.node, hint(what)))
        });
        if apart.is_some() {
            return apart;
        }
        let wrong = clock.and_then(|clock| wrong_clock(clock, others));
        match (&wrong, clock) {
            (Some(_), _) => self.wrong_clock += 1,
            (None, Some(_)) => self.wrong_clock = 0,
            // The offset at this moment is unknown.
            (None, None) => return info.unfit.clone().filter(|_| self.wrong_clock > 0),
        }
        wrong.filter(|_| !self.may_act || self.wrong_clock >= WRONG_IN_A_ROW)
    }
}

const OTHER_SERVERS: &str = "it stands in front of other servers";

/// The properties in which two nodes of one cluster must not differ.
fn apart(own: &NodeInfo, other: &NodeInfo) -> Option<&'static str> {
    if other.writes < own.reads_from || own.writes < other.reads_from {
        return Some("it speaks another version");
    }
    for (what, own) in &own.keys {
        let Some(other) = other.keys.get(what) else { continue };
        let opens = |keys: &[String], seals: Option<&String>| seals.is_none_or(|key| keys.contains(key));
        if !opens(own, other.first()) || !opens(other, own.first()) {
            return Some(match what.as_str() {
                "store" => "it has another key for the store (`store_key_file`)",
                "request_state" => "it has another key for request states (`exchanges.state_key_file`)",
                "carry" => "it has another key for carried data sessions (`data_sessions.carry_key_file`)",
                _ => "it has other keys",
            });
        }
    }
    let (ours, theirs) = (&own.servers, &other.servers);
    let is_shared = ours.is_empty() || theirs.is_empty() || ours.iter().any(|one| theirs.contains(one));
    (!is_shared).then_some(OTHER_SERVERS)
}

fn hint(what: &str) -> &'static str {
    if what == OTHER_SERVERS { "; two clusters on one engine need two names (`nats.cluster`)" } else { "" }
}

/// Whether most clocks have another time: the engine's, and that of each node that acts.
fn wrong_clock(own: ClockSample, others: &[Other<'_>]) -> Option<String> {
    let acting = others.iter().filter(|other| other.info.unfit.is_none());
    let clocks: Vec<i64> = acting.filter_map(|other| other.clock_ms).chain(std::iter::once(0)).collect();
    // The records of others are up to a second late by their own account.
    let is_off = |clock: &&i64| own.ahead_ms.abs_diff(**clock) > MOST_OFF_MS + own.within_ms;
    let off = clocks.iter().filter(is_off).count();
    if off * 2 <= clocks.len() {
        return None;
    }
    let (amount, way) = match own.ahead_ms {
        ahead @ ..0 => (ahead.unsigned_abs(), "behind"),
        ahead => (ahead.unsigned_abs(), "ahead of"),
    };
    // No fractions: the text is the same from look to look.
    let seconds = (amount + 500) / 1000;
    Some(format!("its clock is {seconds} s {way} that of the store; let it be set by NTP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: NodeId = NodeId::from_bytes([1; 8]);
    const HIGH: NodeId = NodeId::from_bytes([9; 8]);

    fn info(change: impl FnOnce(&mut NodeInfo)) -> NodeInfo {
        let mut info = NodeInfo { reads_from: READS_FROM, writes: WRITES, ..NodeInfo::default() };
        change(&mut info);
        info
    }

    fn key(what: &str, keys: &[&str]) -> impl FnOnce(&mut NodeInfo) {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let what = what.to_owned();
        move |info| drop(info.keys.insert(what, keys))
    }

    fn other(node: NodeId, info: &NodeInfo) -> Other<'_> {
        Other { node, info, clock_ms: Some(0) }
    }

    fn exact(ahead_ms: i64) -> Option<ClockSample> {
        Some(ClockSample { ahead_ms, within_ms: 5 })
    }

    #[test]
    fn nodes_that_differ_do_not_both_act() {
        let table = [
            (info(key("store", &["a"])), info(key("store", &["b"])), "another key for the store"),
            (info(key("request_state", &["a"])), info(key("request_state", &["b"])), "request states"),
            (info(key("carry", &["a"])), info(key("carry", &["b", "c"])), "carried data sessions"),
            (
                info(|it| it.servers = vec!["a".into()]),
                info(|it| it.servers = vec!["b".into()]),
                "nats.cluster",
            ),
            (info(|it| (it.reads_from, it.writes) = (2, 2)), info(|_| {}), "another version"),
        ];
        for (one, two, words) in table {
            // The node that was there first goes on, and the new node is told why it does not act.
            let mut there = Fitness { may_act: true, ..Fitness::default() };
            let mut coming = Fitness::default();
            let unfit = info(|it| it.unfit = Some("it has just come".to_owned()));
            for (low, high) in [(LOW, HIGH), (HIGH, LOW)] {
                let said = coming.judge((low, &two), exact(0), &[other(high, &one)]).expect(words);
                assert!(said.contains(words), "{said}");
                let two = NodeInfo { unfit: unfit.unfit.clone(), ..two.clone() };
                assert_eq!(there.judge((high, &one), exact(0), &[other(low, &two)]), None);
            }
            // Two that come at once, or found each other too late: one of them acts.
            for may_act in [false, true] {
                let mut fitness = Fitness { may_act, ..Fitness::default() };
                let state = if may_act { None } else { unfit.unfit.clone() };
                let (one, two) = (
                    NodeInfo { unfit: state.clone(), ..one.clone() },
                    NodeInfo { unfit: state, ..two.clone() },
                );
                assert!(fitness.judge((LOW, &one), exact(0), &[other(HIGH, &two)]).is_some());
                assert_eq!(fitness.judge((HIGH, &two), exact(0), &[other(LOW, &one)]), None);
            }
        }
    }

    #[test]
    fn nodes_that_change_their_keys_one_after_the_other_fit_together() {
        let steps: [&[&str]; 4] = [&["old"], &["old", "new"], &["new", "old"], &["new"]];
        for pair in steps.windows(2) {
            let (one, two) = (info(key("store", pair[0])), info(key("store", pair[1])));
            assert_eq!(apart(&one, &two), None, "{pair:?}");
            assert_eq!(apart(&two, &one), None, "{pair:?}");
        }
        assert!(apart(&info(key("store", steps[0])), &info(key("store", steps[2]))).is_some());
        // A node without such a key has no entry for it.
        assert_eq!(apart(&info(key("carry", &["a"])), &info(|_| {})), None);
        let some = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            info(move |it| it.servers = names)
        };
        assert_eq!(
            apart(&some(&["a", "b"]), &some(&["b", "c"])),
            None,
            "a server was added, another removed"
        );
    }

    #[test]
    fn a_clock_is_wrong_if_most_say_so() {
        let others = |clocks: &[i64]| -> Vec<(NodeInfo, i64)> {
            clocks.iter().map(|clock| (NodeInfo::default(), *clock)).collect()
        };
        let table: [(i64, &[i64], bool); 9] = [
            (1900, &[], false),
            (2100, &[], true),
            (-7_200_000, &[], true),
            (7_200_000, &[0, 0], true),
            (7_200_000, &[0], true),
            // The other one is wrong, and the store agrees with this one.
            (0, &[7_200_000], false),
            // The clock of the store is wrong.
            (7_200_000, &[7_200_100], false),
            (7_200_000, &[7_200_100, 7_199_900], false),
            (0, &[7_200_100, 7_199_900], true),
        ];
        for (own, clocks, is_wrong) in table {
            let known = others(clocks);
            let listed: Vec<Other<'_>> = known
                .iter()
                .map(|(info, clock)| Other { node: HIGH, info, clock_ms: Some(*clock) })
                .collect();
            let own_info = NodeInfo::default();
            let joining = Fitness::default().judge((LOW, &own_info), exact(own), &listed);
            assert_eq!(joining.is_some(), is_wrong, "{own} among {clocks:?}");
            // A node that acts is not stopped by a single sample.
            let mut acting = Fitness { may_act: true, ..Fitness::default() };
            let said: Vec<bool> =
                (0..3).map(|_| acting.judge((LOW, &own_info), exact(own), &listed).is_some()).collect();
            assert_eq!(said, [false, false, is_wrong], "{own} among {clocks:?}");
        }
        let said = Fitness::default().judge((LOW, &NodeInfo::default()), exact(-7_200_000), &[]);
        expect_test::expect!["its clock is 7200 s behind that of the store; let it be set by NTP"]
            .assert_eq(&said.unwrap());
    }
}
