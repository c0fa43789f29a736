//! Draws the next key: uniformly, by YCSB's zipfian distributions, or preferring the latest keys.
//!
//! The zipfian generator comes from "Quickly Generating Billion-Record Synthetic Databases" (Gray, Sundaresan, Englert,
//! Baclawski, Weinberger, SIGMOD 1994). It is used as in YCSB 0.17: its constant is 0.99. An FNV-1a hash scrambles a
//! rank among ten thousand million, so that popular keys lie anywhere.

use clap::ValueEnum;
use trine_transport::prng::Prng;

/// YCSB's constant.
const THETA: f64 = 0.99;
/// The number of ranks before scrambling.
const SCRAMBLED_RANKS: u64 = 10_000_000_001;
/// The sum over those ranks. It is a constant because computing it at each start takes too long; YCSB has the same
/// number.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Distribution of the keys.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// All keys equally often.
    Uniform,
    /// YCSB's scrambled zipfian with constant 0.99: a few keys, spread over the key space, get most requests.
    Zipf,
    /// YCSB's latest: recently written keys get most requests.
    Latest,
}

impl Distribution {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf 0.99",
            Self::Latest => "latest",
        }
    }
}

/// Draws keys.
#[derive(Clone, Debug)]
pub(super) enum Chooser {
    Uniform,
    Scrambled(Zipf),
    Latest(Zipf),
}

impl Chooser {
    pub(super) fn new(distribution: Distribution, keys: u64) -> Self {
        match distribution {
            Distribution::Uniform => Self::Uniform,
            Distribution::Zipf => Self::Scrambled(Zipf::with_zeta(SCRAMBLED_RANKS, SCRAMBLED_ZETA)),
            Distribution::Latest => Self::Latest(Zipf::new(keys)),
        }
    }

    /// Draws one of `keys` keys, from 0. The number of keys never shrinks.
    pub(super) fn draw(&mut self, keys: u64, prng: &mut Prng) -> u64 {
        match self {
            Self::Uniform => prng.below(keys),
            Self::Scrambled(zipf) => scramble(zipf.rank(unit(prng))) % keys,
            Self::Latest(zipf) => {
                zipf.grow(keys);
                keys - 1 - zipf.rank(unit(prng)).min(keys - 1)
            }
        }
    }
}

/// In [0, 1).
fn unit(prng: &mut Prng) -> f64 {
    (prng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Ranks from 0; lower ranks are more frequent.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    items: u64,
    /// The sum of 1 / i^THETA for i up to `items`.
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(items: u64) -> Self {
        Self::with_zeta(items, zeta(0, items, 0.0))
    }

    fn with_zeta(items: u64, sum: f64) -> Self {
        let of_two = zeta(0, 2, 0.0);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - of_two / sum);
        Self {
            items,
            zeta: sum,
            eta,
        }
    }

    /// Extends the sum for more items than before.
    fn grow(&mut self, items: u64) {
        if items > self.items {
            *self = Self::with_zeta(items, zeta(self.items, items, self.zeta));
        }
    }

    /// The rank that belongs to `unit` in [0, 1).
    fn rank(&self, unit: f64) -> u64 {
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        let alpha = 1.0 / (1.0 - THETA);
        let rank = self.items as f64 * (self.eta * unit - self.eta + 1.0).powf(alpha);
        (rank as u64).min(self.items - 1)
    }
}

fn zeta(from: u64, to: u64, sum: f64) -> f64 {
    (from..to).fold(sum, |sum, index| {
        sum + 1.0 / ((index + 1) as f64).powf(THETA)
    })
}

/// FNV-1a over the eight bytes of `rank`, without the sign that YCSB's Java would give it.
fn scramble(rank: u64) -> u64 {
    let hash = rank
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
        });
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts each of the first ranks in a million draws.
    fn counts(mut draw: impl FnMut(&mut Prng) -> u64, keys: usize) -> Vec<u64> {
        let mut prng = Prng::new(1);
        let mut counts = vec![0; keys];
        for _ in 0..1_000_000 {
            counts[usize::try_from(draw(&mut prng)).expect("small")] += 1;
        }
        counts
    }

    #[test]
    fn ranks_are_as_frequent_as_the_law_says() {
        let zipf = Zipf::new(1_000);
        let counts = counts(|prng| zipf.rank(unit(prng)), 1_000);
        // The method is exact for the first two ranks. From the third on it approximates a sum by an integral.
        for (rank, tolerance) in [(0, 0.01), (1, 0.01), (2, 0.2), (9, 0.1), (99, 0.15)] {
            let expected = 1e6 / ((rank + 1) as f64).powf(THETA) / zipf.zeta;
            let ratio = counts[rank] as f64 / expected;
            assert!((ratio - 1.0).abs() < tolerance, "rank {rank}: {ratio}");
        }
        let top: u64 = counts[..100].iter().sum();
        assert!(
            (680_000..720_000).contains(&top),
            "the first tenth has {top}"
        );
    }

    #[test]
    fn the_sum_of_the_scrambled_ranks_is_the_one_that_adding_gives() {
        // Euler-Maclaurin from a million terms on: the rest is an integral and half of the last term.
        let (n, all) = (1_000_000_u64, SCRAMBLED_RANKS - 1);
        let integral = |x: f64| x.powf(1.0 - THETA) / (1.0 - THETA);
        let half = |x: u64| 0.5 / (x as f64).powf(THETA);
        let sum = zeta(0, n, 0.0) + integral(all as f64) - integral(n as f64) + half(all) - half(n);
        assert!((sum - SCRAMBLED_ZETA).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn the_draws_of_a_seed_are_always_the_same() {
        let mut prng = Prng::new(7);
        let mut chooser = Chooser::new(Distribution::Zipf, 1_000);
        let drawn: Vec<u64> = (0..8).map(|_| chooser.draw(1_000, &mut prng)).collect();
        assert_eq!(drawn, [620, 179, 593, 788, 795, 137, 407, 185]);
        // FNV-1a of eight zero bytes, and its absolute value in Java.
        assert_eq!(scramble(0), 6284781860667377211);
        assert_eq!(scramble(12_345_678_901), 5686546334140306951);
    }

    #[test]
    fn ranks_are_those_of_ycsbs_formula() {
        // Another program computed these from the formula as YCSB states it.
        let zipf = Zipf::with_zeta(SCRAMBLED_RANKS, SCRAMBLED_ZETA);
        for (unit, expected) in [
            (0.0, 0),
            (0.03, 0),
            (0.05, 1),
            (0.1, 6),
            (0.25, 296),
            (0.5, 134552),
            (0.75, 42924421),
            (0.9, 1170869537),
        ] {
            let rank: u64 = zipf.rank(unit);
            // The power functions of two libraries may differ in the last bits.
            let tolerance = expected / 1_000_000;
            assert!(rank.abs_diff(expected) <= tolerance, "{unit}: {rank}");
        }
    }

    #[test]
    fn the_same_few_keys_are_popular_wherever_they_lie() {
        let mut chooser = Chooser::new(Distribution::Zipf, 1_000);
        let mut found = counts(|prng| chooser.draw(1_000, prng), 1_000);
        let hottest = found.iter().enumerate().max_by_key(|(_, count)| **count);
        assert_eq!(
            hottest.map(|(key, _)| key as u64),
            Some(scramble(0) % 1_000)
        );
        found.sort_unstable_by(|a, b| b.cmp(a));
        let share = found[0] as f64 / 1e6;
        assert!(
            (share - 1.0 / SCRAMBLED_ZETA).abs() < 0.002,
            "the first has {share}"
        );
    }

    #[test]
    fn the_latest_keys_come_first_also_when_there_are_more() {
        let mut chooser = Chooser::new(Distribution::Latest, 10);
        let mut prng = Prng::new(3);
        let hits = (0..1_000)
            .filter(|_| chooser.draw(500, &mut prng) >= 450)
            .count();
        assert!(hits > 550, "{hits} of 1000 in the last tenth");
    }
}
