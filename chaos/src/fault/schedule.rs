//! The schedule of faults that a seed makes.

use super::draw::Draw;
use super::kind::{Event, Fault, Need, Simulated};
use super::{LinkFaults, Topology};
use std::collections::BTreeSet;
use trine_transport::backend::Faults;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

/// Draws a random subset of the faults of at least [`KINDS_MIN`]. Those of disks and of sealed
/// groups are drawn apart. Whether a group begins with an old version, and whether its paths carry little, follows from
/// its configuration.
pub fn draw_kinds(prng: &mut Prng) -> BTreeSet<Fault> {
    let apart = |fault: &Fault| {
        let drawn_apart = [
            Need::Disk,
            Need::OldVersion,
            Need::Sealed,
            Need::Spares,
            Need::SmallPaths,
        ];
        drawn_apart.iter().any(|need| fault.needs(*need))
    };
    let mut kinds: Vec<Fault> = Fault::simulated().filter(|f| !apart(f)).collect();
    prng.shuffle(&mut kinds);
    // Two more than must fire: an event may find no target.
    let count = prng.in_range(KINDS_MIN as u64 + 2..=kinds.len() as u64) as usize;
    kinds.into_iter().take(count).collect()
}

/// Draws a random subset of the faults of disks.
pub fn draw_disk_kinds(prng: &mut Prng) -> BTreeSet<Fault> {
    let apart = |fault: &Fault| fault.needs(Need::NewAddresses) || fault.needs(Need::SetBack);
    let of_disks = |fault: &Fault| fault.needs(Need::Disk) && !apart(fault);
    let mut kinds: Vec<Fault> = Fault::simulated().filter(of_disks).collect();
    prng.shuffle(&mut kinds);
    let count = prng.in_range(1..=kinds.len() as u64) as usize;
    kinds.into_iter().take(count).collect()
}

/// Draws the faults of sealed groups, each with a good chance.
pub fn draw_sealed_kinds(prng: &mut Prng) -> BTreeSet<Fault> {
    let kinds = Fault::simulated().filter(|fault| fault.needs(Need::Sealed));
    kinds.filter(|_| prng.chance(SEALED_KIND)).collect()
}

/// The faults of a run and their times, derived from a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The kinds that this seed enables. Each must fire, or the run proves nothing.
    pub enabled: BTreeSet<Fault>,
    /// The faults, in order of time.
    pub events: Vec<(Instant, Event)>,
    /// From here on no fault happens and everything is healed.
    pub quiet_from: Instant,
}

/// Fewest kinds of fault that a drawn schedule enables.
pub const KINDS_MIN: usize = 3;
/// How often a sealed group has each fault that only sealed groups have.
const SEALED_KIND: Ratio = Ratio::percent(75);
/// How often the link faults change.
const FAULTS_SPELL: Duration = Duration::from_secs(4);
/// The loss that link faults may reach, in percent; duplication reaches 50, the rest 20.
const LOSS_PERCENT_MAX: u64 = 30;
const DUPLICATION_PERCENT_MAX: u64 = 50;
const OTHER_PERCENT_MAX: u64 = 20;
const REPLAY_PERCENT_MAX: u64 = 6;
/// What happens before a disk hangs alone has ended by then: the longest fault, and the time to be whole again.
const BEFORE_ALONE: Duration = Duration::from_secs(5);
/// So long nothing happens behind the move of a replica whose old disk is started again: the group has to agree first.
const SETTLED_AFTER: Duration = Duration::from_secs(17);
/// So long nothing happens behind the start of a replica that was set back: it has to notice, and another one takes its place.
const SET_BACK_SETTLES: Duration = Duration::from_secs(6);
/// Shortest distance between two crashes: time to come back and be a voter again.
const EVENT_GAP: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));

impl Schedule {
    /// Nothing ever happens.
    pub fn calm() -> Self {
        Self {
            enabled: BTreeSet::new(),
            events: Vec::new(),
            quiet_from: Instant::ZERO,
        }
    }

    /// The faults of a script, by the time after `start`. The kinds it uses are enabled.
    pub fn scripted(script: &[(Duration, Event)], start: Instant, quiet_from: Instant) -> Self {
        let mut events: Vec<(Instant, Event)> = script
            .iter()
            .map(|(after, event)| (start + *after, event.clone()))
            .collect();
        events.sort_by_key(|&(at, _)| at);
        let enabled = events
            .iter()
            .filter_map(|(_, event)| event.kind())
            .collect();
        Self {
            enabled,
            events,
            quiet_from,
        }
    }

    /// Draws the events of these kinds of fault until `quiet_from`. The events of one kind are independent of which
    /// others are enabled, so that faults can be taken away from a failing run one by one.
    pub fn of(
        enabled: BTreeSet<Fault>,
        prng: &mut Prng,
        topology: Topology,
        start: Instant,
        quiet_from: Instant,
    ) -> Self {
        let mut drawer = Drawer {
            enabled: &enabled,
            draw: Draw::new(prng.fork(), topology),
            start,
            quiet_from,
            events: Vec::new(),
        };
        drawer.link_faults();
        // What came later leaves what others draw as it was.
        let mut apart = None;
        for fault in Fault::simulated() {
            let came_later = matches!(fault, Fault::DiskHang | Fault::Addresses | Fault::OlderCopy);
            let of_kind = match fault.needs(Need::Sealed) || came_later {
                true => apart.get_or_insert_with(|| prng.clone()).fork(),
                false => prng.fork(),
            };
            drawer.draw = Draw::new(of_kind, topology);
            if let Simulated::Event(draw) = fault.definition().simulated
                && enabled.contains(&fault)
            {
                drawer.repeat(draw);
            }
        }
        let mut events = drawer.events;
        events.sort_by_key(|&(at, _)| at);
        settle_before_copy(&mut events, quiet_from);
        leave_set_back_alone(&mut events, quiet_from);
        // Last: what happens beside that disk would be judged.
        leave_alone(&mut events, quiet_from);
        Self {
            enabled,
            events,
            quiet_from,
        }
    }
}

/// Takes away what would happen during the first disk that is to hang alone, and what would still go on then.
fn leave_alone(events: &mut Vec<(Instant, Event)>, quiet_from: Instant) {
    let alone = events.iter().find_map(|(at, event)| match event {
        Event::DiskHang {
            alone: true, span, ..
        } => Some((*at, *at + *span)),
        _ => None,
    });
    if let Some((begin, end)) = alone {
        let calm_from = Instant::ZERO + (begin - Instant::ZERO).saturating_sub(BEFORE_ALONE);
        calm(events, calm_from, begin, (end, quiet_from));
    }
}

/// Takes away what would happen while the first machine is set back, and every other one that would be: each costs the group a
/// replica, until another one has taken its place.
fn leave_set_back_alone(events: &mut Vec<(Instant, Event)>, quiet_from: Instant) {
    let first = events.iter().find_map(|(at, event)| match event {
        Event::SetBack { age, span, .. } => Some((*at, *at + *age + *span + SET_BACK_SETTLES)),
        _ => None,
    });
    let Some((begin, end)) = first else { return };
    events.retain(|(at, event)| *at == begin || !matches!(event, Event::SetBack { .. }));
    let calm_from = Instant::ZERO + (begin - Instant::ZERO).saturating_sub(BEFORE_ALONE);
    calm(events, calm_from, begin, (end, quiet_from));
}

/// Takes away what would happen until the group knows where the first replica is whose disk was copied.
fn settle_before_copy(events: &mut Vec<(Instant, Event)>, quiet_from: Instant) {
    let copied = events.iter().find_map(|(at, event)| match event {
        Event::Renumber {
            copied: Some(_), ..
        } => Some(*at),
        _ => None,
    });
    if let Some(at) = copied {
        calm(events, at, at, (at + SETTLED_AFTER, quiet_from));
    }
}

/// Leaves nothing from `from` to `end` but what happens at `kept`, on links without faults.
fn calm(
    events: &mut Vec<(Instant, Event)>,
    from: Instant,
    kept: Instant,
    (end, quiet_from): (Instant, Instant),
) {
    let is_of_links = |event: &Event| matches!(event, Event::LinkFaults(_));
    let last = events
        .iter()
        .rfind(|(at, event)| is_of_links(event) && *at < end)
        .cloned();
    events.retain(|(at, event)| {
        let is_within = *at >= from && *at < end;
        !is_within || *at == kept && !is_of_links(event)
    });
    events.push((from, Event::LinkFaults(LinkFaults::default())));
    let last = last.filter(|_| end < quiet_from);
    events.extend(last.map(|(_, event)| (end, event)));
    events.sort_by_key(|&(at, _)| at);
}

struct Drawer<'a> {
    enabled: &'a BTreeSet<Fault>,
    draw: Draw,
    start: Instant,
    quiet_from: Instant,
    events: Vec<(Instant, Event)>,
}

impl Drawer<'_> {
    fn link_faults(&mut self) {
        let mut at = self.start;
        while at < self.quiet_from {
            // Fields are drawn in the order in which they stand here.
            let mut link_faults = LinkFaults {
                usual: Faults {
                    loss: self.rate(Fault::Loss, LOSS_PERCENT_MAX),
                    duplicate: self.rate(Fault::Duplication, DUPLICATION_PERCENT_MAX),
                    reorder: self.rate(Fault::Reordering, OTHER_PERCENT_MAX),
                    ..Faults::NONE
                },
                delayed: self.rate(Fault::Delay, OTHER_PERCENT_MAX),
                replay: Ratio::ZERO,
                mtu: 0,
            };
            link_faults.usual.delay = Some((Duration::ZERO, self.delay_max()));
            link_faults.usual.corrupt = self.rate(Fault::Corruption, OTHER_PERCENT_MAX);
            link_faults.replay = self.rate(Fault::Replay, REPLAY_PERCENT_MAX);
            let mtu = self.draw.prng.in_range(150..=1_400) as usize;
            let drawn = self.draw.prng.chance(Ratio::percent(30));
            let small = drawn && self.enabled.contains(&Fault::Mtu);
            link_faults.mtu = if small { mtu } else { 0 };
            self.events.push((at, Event::LinkFaults(link_faults)));
            at += FAULTS_SPELL;
        }
    }

    /// Mostly within what a busy network does, sometimes beyond every timeout.
    fn delay_max(&mut self) -> Duration {
        let long = self.draw.prng.chance(Ratio::percent(10));
        let micros = self
            .draw
            .prng
            .in_range(200..=if long { 3_000_000 } else { 100_000 });
        Duration::from_micros(micros)
    }

    /// Mostly mild, sometimes up to the maximum, zero if the fault is not enabled.
    fn rate(&mut self, fault: Fault, percent_max: u64) -> Ratio {
        let mild = self.draw.prng.chance(Ratio::percent(70));
        let per_mille = self
            .draw
            .prng
            .in_range(1..=if mild { 50 } else { percent_max * 10 });
        if !self.enabled.contains(&fault) {
            return Ratio::ZERO;
        }
        let per_mille = u32::try_from(per_mille).expect("at most a thousand");
        Ratio::new(per_mille, 1_000).expect("at most one")
    }

    /// Puts events of one kind at random distances over the whole time.
    fn repeat(&mut self, draw: fn(&mut Draw) -> Event) {
        let mut at = self.start;
        loop {
            at += Duration::from_nanos(
                self.draw
                    .prng
                    .in_range(EVENT_GAP.0.as_nanos()..=EVENT_GAP.1.as_nanos()),
            );
            if at >= self.quiet_from {
                return;
            }
            let event = draw(&mut self.draw);
            self.events.push((at, event));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: Topology = Topology {
        replicas: 3,
        client_machines: 2,
    };

    fn draw(seed: u64) -> Schedule {
        let mut prng = Prng::new(seed);
        let kinds = draw_kinds(&mut prng);
        of(kinds, &mut prng)
    }

    fn of(kinds: BTreeSet<Fault>, prng: &mut Prng) -> Schedule {
        let quiet_from = Instant::ZERO + Duration::from_secs(60);
        Schedule::of(kinds, prng, TOPOLOGY, Instant::ZERO, quiet_from)
    }

    #[test]
    fn taking_one_fault_away_leaves_what_the_others_do() {
        // A disk that hangs alone is the exception, and so are those that are copied.
        let is_alone =
            |fault: &Fault| matches!(fault, Fault::DiskHang | Fault::Addresses | Fault::OlderCopy);
        let usual = Fault::simulated().filter(|fault| !is_alone(fault));
        let all = of(usual.collect(), &mut Prng::new(5));
        let some = of(
            BTreeSet::from([Fault::Crash, Fault::Clog]),
            &mut Prng::new(5),
        );
        let others = |event: &Event| matches!(event, Event::Crash { .. } | Event::Clog { .. });
        let kept = |schedule: &Schedule| -> Vec<(Instant, Event)> {
            let events = schedule.events.iter().cloned();
            events.filter(|(_, event)| others(event)).collect()
        };
        assert_eq!(kept(&all), kept(&some));
        assert!(!kept(&all).is_empty());
    }

    #[test]
    fn a_disk_that_hangs_alone_is_alone() {
        let mut seen = 0;
        for seed in 0..20 {
            let schedule = of(Fault::simulated().collect(), &mut Prng::new(seed));
            let alone = schedule.events.iter().find_map(|(at, event)| match event {
                Event::DiskHang {
                    alone: true, span, ..
                } => Some((*at, *at + *span)),
                _ => None,
            });
            let Some((begin, end)) = alone else { continue };
            let calm = Event::LinkFaults(LinkFaults::default());
            let meanwhile = |(at, event): &&(Instant, Event)| {
                *at + BEFORE_ALONE > begin && *at < end && *event != calm
            };
            let happens: Vec<_> = schedule.events.iter().filter(meanwhile).collect();
            assert!(happens.len() == 1, "{happens:?}");
            let links = schedule
                .events
                .iter()
                .rfind(|(at, event)| *at <= begin && matches!(event, Event::LinkFaults(_)));
            assert!(links.is_some_and(|(_, event)| *event == calm));
            assert!(
                schedule.events.iter().any(|(at, _)| *at > end),
                "then all goes on"
            );
            seen += 1;
        }
        assert!(seen > 10, "{seen}");
    }

    #[test]
    fn the_seed_fixes_the_schedule() {
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn every_seed_enables_some_faults_and_all_seeds_together_all_of_them() {
        let mut all = BTreeSet::new();
        for seed in 0..50 {
            let schedule = draw(seed);
            assert!(schedule.enabled.len() >= KINDS_MIN);
            all.extend(schedule.enabled);
            all.extend(draw_disk_kinds(&mut Prng::new(seed)));
            all.extend(draw_sealed_kinds(&mut Prng::new(seed)));
        }
        all.extend([
            Fault::Versions,
            Fault::Move,
            Fault::SmallPaths,
            Fault::Addresses,
            Fault::OlderCopy,
        ]);
        assert_eq!(all.len(), Fault::simulated().count());
    }

    #[test]
    fn events_are_in_order_and_end_before_the_quiet_time() {
        for seed in 0..50 {
            let schedule = draw(seed);
            assert!(
                schedule
                    .events
                    .windows(2)
                    .all(|pair| pair[0].0 <= pair[1].0)
            );
            assert!(
                schedule
                    .events
                    .iter()
                    .all(|&(at, _)| at < schedule.quiet_from)
            );
        }
    }

    #[test]
    fn what_is_not_enabled_does_not_happen() {
        let schedule = of(BTreeSet::from([Fault::Loss]), &mut Prng::new(3));
        for (_, event) in schedule.events {
            let Event::LinkFaults(link_faults) = event else {
                panic!("only loss was asked for: {event:?}")
            };
            let usual = link_faults.usual;
            assert!(!usual.loss.is_zero());
            assert!(usual.duplicate.is_zero() && usual.corrupt.is_zero() && link_faults.mtu == 0);
        }
    }
}
