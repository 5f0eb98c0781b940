//! What can be done to a cluster, and when.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use fastrand::Rng;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::engine::SERVERS;
use super::links::{Flow, LinkEnd};
use super::run::Cluster;
use crate::plan::{Outage, PlannedOutage};
use crate::world::World;

/// Which outages come, until the run is over.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Exactly these, if the command line gives numbers.
    left: Option<Vec<Outage>>,
    kinds: Vec<Outage>,
    most: Option<u64>,
    until: Option<Instant>,
    done: u64,
}

impl Schedule {
    pub(super) fn new(
        planned: &[PlannedOutage],
        most: Option<u64>,
        until: Option<Instant>,
        rng: &mut Rng,
    ) -> Schedule {
        let left = planned.iter().any(|planned| planned.times.is_some()).then(|| {
            let each = |planned: &PlannedOutage| vec![planned.outage; planned.times.unwrap_or(1)];
            let mut left: Vec<Outage> = planned.iter().flat_map(each).collect();
            rng.shuffle(&mut left);
            left
        });
        let kinds = match planned {
            [] => Outage::value_variants().to_vec(),
            planned => planned.iter().map(|planned| planned.outage).collect(),
        };
        Schedule { left, kinds, most, until, done: 0 }
    }

    /// The next outage; `None` when the run is over.
    pub(super) fn next(&mut self, rng: &mut Rng) -> Option<Outage> {
        let is_over = self.most.is_some_and(|most| self.done >= most)
            || self.until.is_some_and(|until| Instant::now() >= until);
        if is_over {
            return None;
        }
        self.done += 1;
        match &mut self.left {
            Some(left) => left.pop(),
            None => Some(self.kinds[rng.usize(..self.kinds.len())]),
        }
    }
}

impl Cluster {
    /// Does it and undoes it. Returns what was done, in words.
    pub(super) async fn suffer(&mut self, world: &World, outage: Outage, rng: &mut Rng) -> Result<String> {
        let node = rng.usize(..self.nodes.number());
        match outage {
            Outage::Kill => self.kill_node(world, node, rng).await,
            Outage::Term => self.replace_node(world, node, rng).await,
            Outage::Pause => {
                let pause = Duration::from_millis(rng.u64(6_000..12_000));
                let trouble = world.troubling(&[node]);
                self.nodes.signal(node, Signal::STOP)?;
                sleep(pause).await;
                self.nodes.signal(node, Signal::CONT)?;
                world.goes_on(node);
                world.relieved(trouble);
                Ok(format!("paused node {node} for {:.1} s", pause.as_secs_f32()))
            }
            Outage::EngineKill => self.kill_server(world, rng).await,
            Outage::CutEngine => {
                let server = LinkEnd::Engine(rng.usize(..SERVERS));
                let cut: Vec<_> = match rng.u8(0..3) {
                    0 => {
                        self.servers().filter(|other| *other != server).map(|other| (server, other)).collect()
                    }
                    1 => vec![(LinkEnd::Node(node), server)],
                    _ => self.servers().map(|server| (LinkEnd::Node(node), server)).collect(),
                };
                self.cut(world, &cut, rng).await
            }
            Outage::CutPeer => {
                let other = self.other_node(node, rng)?;
                self.cut(world, &[(LinkEnd::Node(node), LinkEnd::Node(other))], rng).await
            }
            Outage::CutOneWay => {
                let node_end = LinkEnd::Node(node);
                let (one, two) = match rng.u8(0..4) {
                    0 => (node_end, LinkEnd::Node(self.other_node(node, rng)?)),
                    1 => (node_end, LinkEnd::Engine(rng.usize(..SERVERS))),
                    2 => (LinkEnd::Engine(rng.usize(..SERVERS)), node_end),
                    _ => {
                        let server = rng.usize(..SERVERS);
                        let other = (server + rng.usize(1..SERVERS)) % SERVERS;
                        (LinkEnd::Engine(server), LinkEnd::Engine(other))
                    }
                };
                let time = cut_time(rng);
                self.hold(world, &[(one, two)], Flow::Held, time).await;
                Ok(format!("held what {one} sends to {two} for {:.1} s", time.as_secs_f32()))
            }
            Outage::Slow => {
                let (delay, time) = (Duration::from_millis(rng.u64(10..120)), cut_time(rng));
                let others = (0..self.nodes.number()).filter(|other| *other != node).map(LinkEnd::Node);
                let links: Vec<_> = others
                    .chain(self.servers())
                    .flat_map(|other| [(LinkEnd::Node(node), other), (other, LinkEnd::Node(node))])
                    .collect();
                self.hold(world, &links, Flow::Slow(delay), time).await;
                Ok(format!(
                    "made node {node} slow by {} ms for {:.1} s",
                    delay.as_millis(),
                    time.as_secs_f32()
                ))
            }
        }
    }

    fn servers(&self) -> impl Iterator<Item = LinkEnd> + use<> {
        (0..SERVERS).map(LinkEnd::Engine)
    }

    fn other_node(&self, node: usize, rng: &mut Rng) -> Result<usize> {
        let number = self.nodes.number();
        if number < 2 {
            bail!("a single node has no peers");
        }
        Ok((node + rng.usize(1..number)) % number)
    }

    /// Cuts links in both directions for some time.
    async fn cut(&mut self, world: &World, cut: &[(LinkEnd, LinkEnd)], rng: &mut Rng) -> Result<String> {
        let time = cut_time(rng);
        let both: Vec<_> = cut.iter().flat_map(|(one, two)| [(*one, *two), (*two, *one)]).collect();
        self.hold(world, &both, Flow::Held, time).await;
        let words: Vec<String> = cut.iter().map(|(one, two)| format!("{one} from {two}")).collect();
        Ok(format!("cut {} for {:.1} s", words.join(", "), time.as_secs_f32()))
    }

    async fn hold(&mut self, world: &World, links: &[(LinkEnd, LinkEnd)], flow: Flow, time: Duration) {
        let trouble = world.troubling(&[]);
        for (from, to) in links {
            self.links.set(*from, *to, flow);
        }
        sleep(time).await;
        self.links.heal();
        world.relieved(trouble);
    }
}

/// The shortest cut is too short for a node to notice; the longest outlasts leases and holds.
fn cut_time(rng: &mut Rng) -> Duration {
    Duration::from_millis(if rng.u8(0..3) == 0 { rng.u64(300..3_000) } else { rng.u64(3_000..15_000) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(text: &str) -> Vec<PlannedOutage> {
        text.split(',').map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_schedule_with_numbers_has_exactly_those() {
        let mut rng = Rng::with_seed(7);
        let mut schedule = Schedule::new(&planned("kill=2,pause,cut-engine=1"), None, None, &mut rng);
        let mut all = Vec::new();
        while let Some(outage) = schedule.next(&mut rng) {
            all.push(outage.to_string());
        }
        all.sort();
        assert_eq!(all, ["cut-engine", "kill", "kill", "pause"]);
    }

    #[test]
    fn a_schedule_without_numbers_ends_at_its_limit() {
        let mut rng = Rng::with_seed(7);
        let mut schedule = Schedule::new(&[], Some(50), None, &mut rng);
        let mut kinds = std::collections::HashSet::new();
        while let Some(outage) = schedule.next(&mut rng) {
            kinds.insert(outage);
        }
        assert_eq!((schedule.done, kinds.len()), (50, Outage::value_variants().len()), "every kind comes");
    }

    #[test]
    fn an_unknown_fault_is_refused_with_the_known_ones() {
        let error = "kil".parse::<PlannedOutage>().unwrap_err();
        assert!(error.contains("`kil`") && error.contains("cut-one-way"), "{error}");
        assert!("kill=x".parse::<PlannedOutage>().unwrap_err().contains("not a number"));
    }
}
