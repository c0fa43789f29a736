//! The zone test (Gibbons and Korach, "Testing shared memories", 1997), O(n log n).
//!
//! A cluster is a write and the reads of its value. In every linearization the operations of a cluster are contiguous,
//! except for reads and writes that change nothing. Let `finish` be the earliest return and `start` the latest call in
//! a cluster. One cluster has an operation that must come before another cluster's exactly if `finish` of the one is
//! before `start` of the other. Two clusters of which each must come first contradict each other. For registers whose
//! values are written once the absence of such pairs is also sufficient.

use super::Evidence;
use crate::checker::model::{AppliedOperation, Content, KeyEffect, Version};
use rustc_hash::FxHashMap;

pub(super) enum Finding {
    Linearizable,
    Violation(Evidence),
    /// The test does not decide this history.
    Open,
}

/// A cluster's extent, with the steps that set it.
#[derive(Copy, Clone, Debug)]
struct Zone {
    /// The earliest return, and its step. Zero for the initial state, which precedes everything.
    finish_ns: u64,
    finish_step: Option<usize>,
    /// Latest call, and whose.
    start_ns: u64,
    start_step: Option<usize>,
}

impl Zone {
    const EMPTY: Zone = Zone {
        finish_ns: u64::MAX,
        finish_step: None,
        start_ns: 0,
        start_step: None,
    };

    fn add(&mut self, index: usize, step: &AppliedOperation) {
        if step.return_ns < self.finish_ns {
            self.finish_ns = step.return_ns;
            self.finish_step = Some(index);
        }
        if self.start_step.is_none() || step.call_ns > self.start_ns {
            self.start_ns = step.call_ns;
            self.start_step = Some(index);
        }
    }

    fn is_forward(&self) -> bool {
        self.finish_ns < self.start_ns
    }

    fn steps(&self) -> impl Iterator<Item = usize> {
        self.finish_step.into_iter().chain(self.start_step)
    }
}

pub(super) fn check(steps: &[AppliedOperation]) -> Finding {
    let Some(clusters) = Clusters::of(steps) else {
        return Finding::Open;
    };
    let exact = clusters.exact;
    match clusters.contradiction(steps) {
        Some(evidence) => Finding::Violation(evidence),
        None if exact => Finding::Linearizable,
        None => Finding::Open,
    }
}

struct Clusters {
    zones: FxHashMap<Content, (Zone, Option<usize>)>,
    /// Zones without a value: the initial state, and in histories with deletions or expiries each read of
    /// absence by itself, because it is not known which deletion it saw.
    absent: Vec<Zone>,
    /// Whether the test is sufficient, not only necessary.
    exact: bool,
}

impl Clusters {
    /// `None` if a value is written twice or can arise by counting: clusters then mean nothing.
    fn of(steps: &[AppliedOperation]) -> Option<Self> {
        let mut clusters = Self {
            zones: FxHashMap::default(),
            absent: Vec::new(),
            exact: true,
        };
        for (index, step) in steps.iter().enumerate() {
            let content = match step.kind {
                KeyEffect::Put {
                    content, mortal, ..
                } => {
                    clusters.exact &= mortal.is_none();
                    content
                }
                KeyEffect::Cas { content, .. } => {
                    clusters.exact = false;
                    content
                }
                KeyEffect::Incr { .. } => return None,
                KeyEffect::Delete { .. }
                | KeyEffect::Expiry { .. }
                | KeyEffect::CasMismatch { .. } => {
                    clusters.exact = false;
                    continue;
                }
                KeyEffect::Read { .. } | KeyEffect::Nothing | KeyEffect::Impossible => continue,
            };
            let entry = clusters.zones.entry(content).or_insert((Zone::EMPTY, None));
            if entry.1.replace(index).is_some() {
                return None;
            }
            entry.0.add(index, step);
        }
        clusters.add_reads(steps);
        clusters.drop_what_nobody_saw(steps);
        Some(clusters)
    }

    fn add_reads(&mut self, steps: &[AppliedOperation]) {
        let deletions = steps.iter().any(|step| {
            matches!(
                step.kind,
                KeyEffect::Delete { .. } | KeyEffect::Expiry { .. }
            )
        });
        let mut initial = Zone {
            finish_ns: 0,
            finish_step: None,
            start_ns: 0,
            start_step: None,
        };
        for (index, step) in steps.iter().enumerate() {
            match step.kind {
                KeyEffect::Read {
                    found: Some((content, _)),
                } => {
                    self.zones
                        .entry(content)
                        .or_insert((Zone::EMPTY, None))
                        .0
                        .add(index, step);
                }
                KeyEffect::Read { found: None } | KeyEffect::Delete { existed: Some(_) }
                    if deletions =>
                {
                    let mut zone = Zone::EMPTY;
                    zone.add(index, step);
                    self.absent.push(zone);
                }
                KeyEffect::Read { found: None } => initial.add(index, step),
                _ => {}
            }
        }
        if !deletions {
            self.absent.push(initial);
        }
    }

    /// A write of unknown outcome that no read saw may be taken as never done.
    fn drop_what_nobody_saw(&mut self, steps: &[AppliedOperation]) {
        self.zones.retain(|_, (zone, writer)| {
            zone.finish_ns != u64::MAX || writer.is_none_or(|writer| !steps[writer].is_unknown())
        });
    }

    fn contradiction(&self, steps: &[AppliedOperation]) -> Option<Evidence> {
        self.read_before_write(steps)
            .or_else(|| self.zones_in_conflict())
    }

    /// A value that was read and never written, or read before its write began.
    fn read_before_write(&self, steps: &[AppliedOperation]) -> Option<Evidence> {
        for (index, step) in steps.iter().enumerate() {
            let KeyEffect::Read {
                found: Some((content, version)),
            } = step.kind
            else {
                continue;
            };
            match self.zones[&content].1 {
                None => {
                    return Some(Evidence {
                        explanation:
                            "a value was read that nobody wrote, or whose write certainly failed"
                                .into(),
                        steps: vec![index],
                    });
                }
                Some(writer) if step.precedes(&steps[writer]) => {
                    return Some(Evidence {
                        explanation: "a value was read before its write was called".into(),
                        steps: vec![index, writer],
                    });
                }
                Some(writer) if contradicts(&steps[writer], version) => {
                    return Some(Evidence {
                        explanation:
                            "a value was read under another version than its write was told".into(),
                        steps: vec![index, writer],
                    });
                }
                Some(_) => {}
            }
        }
        None
    }

    fn zones_in_conflict(&self) -> Option<Evidence> {
        let all = || {
            self.zones
                .values()
                .map(|(zone, _)| *zone)
                .chain(self.absent.iter().copied())
        };
        let mut forward: Vec<Zone> = all().filter(Zone::is_forward).collect();
        forward.sort_unstable_by_key(|zone| (zone.finish_ns, zone.start_ns, zone.finish_step));
        for pair in forward.windows(2) {
            if pair[1].finish_ns < pair[0].start_ns {
                return Some(conflict(&pair[0], &pair[1]));
            }
        }
        let mut backward: Vec<Zone> = all().filter(|zone| !zone.is_forward()).collect();
        backward.sort_unstable_by_key(|zone| (zone.start_ns, zone.finish_ns, zone.start_step));
        for zone in backward {
            let before = forward.partition_point(|other| other.finish_ns < zone.start_ns);
            let Some(around) = before.checked_sub(1).map(|index| forward[index]) else {
                continue;
            };
            if zone.finish_ns < around.start_ns {
                return Some(conflict(&around, &zone));
            }
        }
        None
    }
}

fn contradicts(writer: &AppliedOperation, told: Version) -> bool {
    let (KeyEffect::Put { version, .. } | KeyEffect::Cas { version, .. }) = writer.kind else {
        unreachable!("only PUT and CAS are writers of clusters");
    };
    version.is_some() && told.is_some() && version != told
}

fn conflict(one: &Zone, two: &Zone) -> Evidence {
    Evidence {
        explanation:
            "two values each must have come before the other (a stale read or a lost write)".into(),
        steps: one.steps().chain(two.steps()).collect(),
    }
}
