//! The schedule of faults, drawn from the seed before the run begins.

use std::fmt;

use trine_chaos::fault::{Fault, Strike, Victim};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::Duration;

use crate::ChaosArguments;
use trine_base::arguments::replica_count;
use trine_base::failure::Failure;
use trine_base::units::show_ns;

/// A shorter period would be over before its effect could be observed.
const EVERY_LEAST: Duration = Duration::from_millis(500);
/// The most faults in one run.
const FAULTS_MAX: u64 = 100_000;

/// One fault of the schedule.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Planned {
    /// The start, from the beginning of the clients' work. It is later if the previous fault takes longer.
    pub(super) at: Duration,
    pub(super) kind: Fault,
    pub(super) victim: Victim,
    /// The duration, where the schedule decides it.
    pub(super) hold: Duration,
    /// What is done to the victim.
    pub(super) strike: Strike,
    /// Whether `--faults` asked for it. Then it has to fire for the run to count.
    pub(super) named: bool,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let victim = match self.victim {
            Victim::Leader => "the leader".to_owned(),
            Victim::Replica(index) => format!("replica {}", index + 1),
            Victim::All => "all replicas".to_owned(),
        };
        write!(f, "{} {victim}", self.kind.name())?;
        match self.kind.live() {
            Some(live) if live.lasts => write!(f, " for {}", show_ns(self.hold.as_nanos())),
            _ => Ok(()),
        }
    }
}

/// Draws the schedule for the arguments, or returns why there is none.
pub(super) fn draw(arguments: &ChaosArguments, kinds: &[Fault]) -> Result<Vec<Planned>, Failure> {
    let end = Duration::from(arguments.duration);
    let mut planned = Vec::new();
    if !kinds.is_empty() {
        let count = faults_in(arguments, kinds)?;
        planned = draw_named(arguments, kinds, count);
    }
    let periods = [
        (
            arguments.kill_leader_every,
            Victim::Leader,
            "--kill-leader-every",
        ),
        (arguments.kill_all_every, Victim::All, "--kill-all-every"),
    ];
    for (every, victim, option) in periods {
        let Some(every) = every.map(Duration::from) else {
            continue;
        };
        if every >= end {
            let (every, end) = (show_ns(every.as_nanos()), show_ns(end.as_nanos()));
            return Err(Failure::usage(
                format!("{option} {every} has no turn within --for {end}"),
                format!("--for longer than {every}, or a shorter period"),
            ));
        }
        let mut at = every;
        while at < end && (planned.len() as u64) < FAULTS_MAX {
            planned.push(Planned {
                at,
                kind: Fault::Kill,
                victim,
                hold: Duration::ZERO,
                strike: Strike::Kill,
                named: false,
            });
            at += every;
        }
    }
    planned.sort_by_key(|planned| planned.at);
    Ok(planned)
}

/// The number of faults that fit. It is an error if not every kind would get a turn.
fn faults_in(arguments: &ChaosArguments, kinds: &[Fault]) -> Result<u64, Failure> {
    let (end, every) = (
        Duration::from(arguments.duration),
        Duration::from(arguments.fault_every),
    );
    if every < EVERY_LEAST {
        return Err(Failure::usage(
            format!(
                "--fault-every {} leaves no time for a fault",
                show_ns(every.as_nanos())
            ),
            format!("at least {} are needed", show_ns(EVERY_LEAST.as_nanos())),
        ));
    }
    // The last one begins up to a quarter of a period late and lasts up to a third of one.
    let spare = every.as_nanos() * 7 / 12;
    let fit = end.as_nanos().saturating_sub(spare) / every.as_nanos();
    let wanted = kinds.len() as u64;
    if fit >= wanted {
        return Ok(fit.min(FAULTS_MAX));
    }
    let needed = Duration::from_nanos(every.as_nanos() * wanted + spare);
    Err(Failure::usage(
        format!(
            "{wanted} kinds of fault, one every {}, do not fit into --for {}: {fit} would have a turn",
            show_ns(every.as_nanos()),
            show_ns(end.as_nanos())
        ),
        format!(
            "--for {}s or more, a shorter --fault-every, or fewer --faults",
            needed.as_nanos().div_ceil(1_000_000_000)
        ),
    ))
}

/// Draws `count` faults, one in each period. Every kind appears once before any appears again.
fn draw_named(arguments: &ChaosArguments, kinds: &[Fault], count: u64) -> Vec<Planned> {
    let mut prng = Prng::new(arguments.seed);
    let every = Duration::from(arguments.fault_every).as_nanos();
    let replicas = replica_count(&arguments.replicas) as u64;
    let mut turn: Vec<Fault> = Vec::new();
    let mut planned = Vec::new();
    for number in 1..=count {
        if turn.is_empty() {
            turn = kinds.to_vec();
            prng.shuffle(&mut turn);
        }
        let kind = turn.pop().expect("a kind is named");
        let live = kind.live().expect("the options name only such kinds");
        let at = every * number + prng.below(every / 2) - every / 4;
        let hold = prng.in_range(every / 8..=every / 3);
        let node_id = prng.in_range(1..=replicas) as usize;
        // A hanging disk is hardest for who leads.
        let share = if kind == Fault::DiskHang { 60 } else { 50 };
        let victim = match prng.chance(Ratio::percent(share)) {
            true => Victim::Leader,
            false => Victim::Replica(node_id - 1),
        };
        planned.push(Planned {
            at: Duration::from_nanos(at),
            kind,
            victim,
            hold: Duration::from_nanos(hold),
            strike: (live.draw)(&mut prng, replicas),
            named: true,
        });
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse;
    use trine_transport::backend::Faults;

    fn arguments(line: &str) -> ChaosArguments {
        parse(line.split_whitespace()).expect("parses")
    }

    fn drawn(line: &str) -> Result<Vec<Planned>, Failure> {
        let arguments = arguments(line);
        draw(&arguments, &arguments.faults)
    }

    #[test]
    fn the_seed_fixes_the_schedule_and_each_kind_has_its_turn() {
        let line = "--faults pause,partition,one-way,lossy --fault-every 2s --for 20s --seed";
        let first = drawn(&format!("{line} 7")).expect("a schedule");
        assert_eq!(drawn(&format!("{line} 7")).expect("again"), first);
        assert_ne!(drawn(&format!("{line} 8")).expect("another"), first);
        assert_eq!(first.len(), 9);
        let mut kinds: Vec<Fault> = first[..4].iter().map(|planned| planned.kind).collect();
        kinds.sort_unstable();
        assert_eq!(
            kinds,
            [Fault::Partition, Fault::OneWay, Fault::Pause, Fault::Lossy]
        );
        for pair in first.windows(2) {
            assert!(
                pair[0].at + pair[0].hold < pair[1].at,
                "one at a time: {pair:?}"
            );
        }
        let last = first.last().expect("the last");
        assert!(last.at + last.hold <= Duration::from_secs(20));
    }

    /// A schedule is repeated by its seed, so a new release has to draw what an older one drew.
    #[test]
    fn a_seed_stands_for_the_same_faults_in_every_release() {
        let first = "kill,restart,pause,partition,one-way,lossy,disk-full";
        let line = format!("--faults {first} --fault-every 2s --for 20s --seed 7");
        let planned = drawn(&line).expect("a schedule");
        let lines = planned.iter().map(|planned| {
            let (at, hold) = (planned.at.as_nanos(), planned.hold.as_nanos());
            format!("{at} {} {:?} {hold}", planned.kind, planned.victim)
        });
        let expected = [
            "2223907095 kill Leader 387433095",
            "3614241237 restart Leader 321653392",
            "5994635161 partition Leader 290531768",
            "8289937613 lossy Replica(1) 531508245",
            "9884783734 pause Leader 369102410",
            "12007584757 disk-full Replica(1) 597102355",
            "13752994512 one-way Replica(2) 494640569",
            "15588699825 one-way Leader 373954418",
            "17719646478 kill Replica(1) 643609419",
        ];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
        assert_eq!(planned[2].strike, Strike::Part { clients: true });
        assert_eq!(planned[6].strike, Strike::CutOff { deaf: false });
        let faults: Faults = "loss=21%,dup=8%,delay=0s..126us".parse().expect("faults");
        let damage = Strike::Damage { further: 1, faults };
        assert_eq!(planned[3].strike, damage);
    }

    /// The kinds that came later have a fixed schedule, too.
    #[test]
    fn a_seed_stands_for_the_same_faults_of_the_ordinary_world() {
        let kinds = "mtu,disk-hang,addresses,resolver";
        let line = format!("--netns --faults {kinds} --fault-every 2s --for 12s --seed 7");
        let planned = drawn(&line).expect("a schedule");
        let expected = [
            "mtu replica 2 for 652 ms",
            "resolver replica 1 for 298 ms",
            "disk-hang the leader for 291 ms",
            "addresses the leader for 579 ms",
            "resolver replica 1 for 410 ms",
        ];
        let lines: Vec<String> = planned.iter().map(ToString::to_string).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn leaders_die_beside_the_named_faults() {
        let planned = drawn("--faults pause --fault-every 3s --kill-leader-every 4s --for 10s");
        let planned = planned.expect("a schedule");
        let kills = planned.iter().filter(|planned| !planned.named);
        let at: Vec<u64> = kills
            .map(|planned| planned.at.as_nanos() / 1_000_000_000)
            .collect();
        assert_eq!(at, [4, 8]);
        assert_eq!(planned.len(), 4, "{planned:?}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for (line, part) in [
            ("--faults pause,kill --fault-every 4s --for 5s", "--for 11s"),
            ("--faults pause --fault-every 10ms", "no time for a fault"),
            ("--kill-leader-every 30s --for 20s", "has no turn"),
        ] {
            let refused = drawn(line).expect_err(line);
            assert!(refused.to_string().contains(part), "{refused}");
        }
        let refused = parse(["--faults", "gremlins"]).expect_err("unknown");
        let text = refused.to_string();
        assert!(
            text.contains("gremlins") && text.contains("one-way"),
            "{text}"
        );
    }
}
