//! Random damage anywhere never leads to a panic, a wrong entry, or a silent loss.

use std::time::{SystemTime, UNIX_EPOCH};

use tenure_store::disk::{Disk, Sync, check, repair};

use super::sample::{Left, Sample};
use super::tools::files;

/// Set this to the number that a failed run printed, to repeat the run.
const SEED: &str = "TENURE_TEST_SEED";

/// Random numbers.
struct Chance(u64);

impl Chance {
    fn new() -> Self {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
        let seed = std::env::var(SEED).map_or_else(|_| u64::from(now()), |seed| seed.parse().unwrap());
        println!("{SEED}={seed}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }
}

/// Damages a random file, and says how.
fn hurt(sample: &Sample, chance: &mut Chance) -> String {
    let mut found = files(sample.path(), |path| std::fs::metadata(path).unwrap().len() > 0);
    found.sort();
    let file = &found[chance.below(found.len())];
    let mut bytes = std::fs::read(file).unwrap();
    let at = chance.below(bytes.len());
    let what = match chance.below(5) {
        0 | 1 => {
            bytes[at] ^= 1 << chance.below(8);
            "a bit"
        }
        2 => {
            let end = bytes.len().min(at + 4096);
            bytes[at..end].fill(0);
            "a page"
        }
        3 => {
            bytes.truncate(at);
            "the end"
        }
        _ => {
            std::fs::remove_file(file).unwrap();
            return format!("all of {}", file.display());
        }
    };
    std::fs::write(file, bytes).unwrap();
    format!("{what} at {at} of {}", file.display())
}

#[tokio::test]
async fn any_damage_is_survived_and_told() {
    let mut chance = Chance::new();
    let both = Sample::write().await;
    both.flush();
    let whole = [Sample::write().await, Sample::write_tables().await, both];
    for _ in 0..6 {
        let sample = whole[chance.below(whole.len())].copy();
        let mut hurts = vec![hurt(&sample, &mut chance)];
        if chance.below(2) == 0 {
            hurts.push(hurt(&sample, &mut chance));
        }
        println!("{hurts:?}");
        let opened = Disk::open(sample.path(), Sync::Os).map(drop);
        let found = check(sample.path(), |_| {}).unwrap();
        assert!(opened.is_ok() || !found.is_sound(), "refused, but found to be sound: {opened:?}");
        let report = repair(sample.path(), |_| {}).unwrap();
        let now = check(sample.path(), |_| {}).unwrap();
        assert!(now.is_sound(), "not sound after repair: {now:?}");
        // Reading checks that everything left is right.
        let left = sample.left().await;
        assert!(left == Left::all() || report.has_lost(), "lost, and not told: {left:?} {report:?}");
        assert_eq!(left.expired, left.records);
    }
}
