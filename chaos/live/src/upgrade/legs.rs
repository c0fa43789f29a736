//! The order of an upgrade's replacements, and how each replica ends; drawn from the seed before the run.

use std::fmt;

use trine_chaos::fault::{Fault, Strike, Victim};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::Duration;

use crate::ChaosArguments;
use crate::schedule::Planned;
use trine_base::arguments::replica_count;

/// Makes the draws of an upgrade others than those that the same seed stands for elsewhere.
const SEED_OF_UPGRADES: u64 = 0x7570_6772_6164_6521;

/// A part of the run. In each of [`Leg::ALL`] every replica is replaced once.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Leg {
    /// From the old program to the new one.
    On,
    /// From the new program to the old one.
    Back,
    /// From the old program to the new one, which stays.
    OnAgain,
    /// The group uses the state version of the new program. There is no such part if both programs have the same.
    Switched,
}

impl Leg {
    pub(super) const ALL: [Self; 3] = [Self::On, Self::Back, Self::OnAgain];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Back => "back",
            Self::OnAgain => "on again",
            Self::Switched => "after the switch",
        }
    }

    /// Whether replicas become the new program.
    pub(super) fn is_to_new(self) -> bool {
        self != Self::Back
    }

    /// The leg of the step at `index` of the schedule of a group of so many replicas.
    pub(super) fn of(index: usize, replicas: usize) -> Self {
        Self::ALL[index / replicas]
    }
}

impl fmt::Display for Leg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Draws the schedule: each leg has an equal share of the time, and each step an equal share of its leg.
pub(super) fn draw(arguments: &ChaosArguments) -> Vec<Planned> {
    let mut prng = Prng::new(arguments.seed ^ SEED_OF_UPGRADES);
    let replicas = replica_count(&arguments.replicas);
    let steps = replicas * Leg::ALL.len();
    let share = Duration::from(arguments.duration).as_nanos() / steps as u64;
    let mut planned: Vec<Planned> = Vec::with_capacity(steps);
    for _ in Leg::ALL {
        let mut order: Vec<usize> = (0..replicas).collect();
        prng.shuffle(&mut order);
        for replica in order {
            let (kind, strike) = match prng.chance(Ratio::percent(50)) {
                true => (Fault::Kill, Strike::Kill),
                false => (Fault::Restart, Strike::Restart),
            };
            let late = share / 8 + prng.below(share / 4 + 1);
            planned.push(Planned {
                at: Duration::from_nanos(share * planned.len() as u64 + late),
                kind,
                victim: Victim::Replica(replica),
                hold: Duration::ZERO,
                strike,
                named: false,
            });
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse;

    fn drawn(line: &str) -> Vec<Planned> {
        draw(&parse(line.split_whitespace()).expect("parses"))
    }

    #[test]
    fn each_leg_replaces_every_replica_once_and_within_its_share() {
        for (seed, replicas) in [(1, 3), (2, 5), (3, 7)] {
            let planned = drawn(&format!("--for 21s --seed {seed} --replicas {replicas}"));
            assert_eq!(planned.len(), 3 * replicas);
            for (number, leg) in planned.chunks(replicas).enumerate() {
                let mut victims: Vec<usize> = leg
                    .iter()
                    .map(|step| match step.victim {
                        Victim::Replica(index) => index,
                        other => panic!("{other:?}"),
                    })
                    .collect();
                victims.sort_unstable();
                assert_eq!(victims, (0..replicas).collect::<Vec<_>>());
                let share = Duration::from_secs(7 * number as u64);
                assert!(
                    leg.iter().all(|step| {
                        step.at >= share && step.at < share + Duration::from_secs(7)
                    })
                );
            }
            assert!(planned.windows(2).all(|pair| pair[0].at < pair[1].at));
        }
    }

    #[test]
    fn the_seed_fixes_the_order_and_the_ends() {
        let first = drawn("--seed 7");
        assert_eq!(drawn("--seed 7"), first);
        assert_ne!(drawn("--seed 8"), first);
        let kinds = (1..20).flat_map(|seed| drawn(&format!("--seed {seed}")));
        let kills = kinds.filter(|step| step.strike == Strike::Kill).count();
        assert!((50..120).contains(&kills), "{kills} of 171");
    }

    #[test]
    fn a_step_belongs_to_the_leg_of_its_place() {
        let legs: Vec<Leg> = (0..9).map(|index| Leg::of(index, 3)).collect();
        assert_eq!(legs[..4], [Leg::On, Leg::On, Leg::On, Leg::Back]);
        assert_eq!(legs[8], Leg::OnAgain);
    }
}
