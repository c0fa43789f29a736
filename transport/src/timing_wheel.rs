//! A hierarchical timing wheel: one entry per session, moved and removed in constant time.
//!
//! It runs the sessions' timers and, as Carousel's wheel, the departures of rate-limited sessions.
//! Entries are numbers; nothing in here refers to a buffer.
//!
//! ```text
//! level 0: 64 slots of 1 tick | level 1: 64 slots of 64 ticks | ... | level 5
//! ```
//! An entry sits at the level of the highest six bits in which its tick differs from the present
//! one. It moves down when its slot is reached, at most five times.

use crate::time::Instant;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 6;
const LISTS: usize = LEVELS * SLOTS + 1;
/// The list of entries that are due already.
const DUE: u16 = (LISTS - 1) as u16;
const NONE: u32 = u32::MAX;
const NO_LIST: u16 = u16::MAX;
/// Ticks ahead that the wheel can tell apart; later entries come early and are put back.
const HORIZON: u64 = (1 << (SLOT_BITS as usize * LEVELS)) - 1;
/// Entries of a slot that are scanned to tell when the first of them is due.
const SCANNED_MAX: usize = 8;

/// Entries `0..n`, each at most once in the wheel.
pub(crate) struct TimingWheel {
    /// The nanoseconds of a tick, as a power of two.
    tick_shift: u32,
    /// Every entry before this tick has been taken out.
    present: u64,
    /// A bit per non-empty slot.
    occupied: [u64; LEVELS],
    first: Box<[u32; LISTS]>,
    nodes: Vec<TimerNode>,
}

#[derive(Copy, Clone)]
struct TimerNode {
    at: Instant,
    next: u32,
    previous: u32,
    /// `NO_LIST` exactly when the entry is not in the wheel.
    list: u16,
}

const ABSENT: TimerNode = TimerNode {
    at: Instant::FAR_FUTURE,
    next: NONE,
    previous: NONE,
    list: NO_LIST,
};

impl TimingWheel {
    /// A wheel for up to `entries` entries whose tick is at most `precision_ns`.
    pub(crate) fn new(entries: usize, precision_ns: u64) -> Self {
        Self {
            tick_shift: precision_ns.max(1).ilog2(),
            present: 0,
            occupied: [0; LEVELS],
            first: Box::new([NONE; LISTS]),
            nodes: Vec::with_capacity(entries),
        }
    }

    /// When `entry` is due, `FAR_FUTURE` if it is not in the wheel.
    pub(crate) fn at(&self, entry: u32) -> Instant {
        self.nodes
            .get(entry as usize)
            .map_or(Instant::FAR_FUTURE, |node| node.at)
    }

    /// Puts `entry` in, or moves it.
    pub(crate) fn set(&mut self, entry: u32, at: Instant) {
        if self.nodes.len() <= entry as usize {
            self.nodes.resize(entry as usize + 1, ABSENT);
        }
        self.remove(entry);
        self.nodes[entry as usize].at = at;
        if at != Instant::FAR_FUTURE {
            let list = self.list_for(at);
            self.link(entry, list);
        }
    }

    /// Puts `entry` in, or moves it forward; a later time changes nothing.
    pub(crate) fn set_if_sooner(&mut self, entry: u32, at: Instant) {
        if at < self.at(entry) {
            self.set(entry, at);
        }
    }

    /// Takes `entry` out. False if it was not in.
    pub(crate) fn remove(&mut self, entry: u32) -> bool {
        let Some(&node) = self.nodes.get(entry as usize) else {
            return false;
        };
        if node.list == NO_LIST {
            return false;
        }
        match node.previous {
            NONE => self.first[usize::from(node.list)] = node.next,
            previous => self.nodes[previous as usize].next = node.next,
        }
        if node.next != NONE {
            self.nodes[node.next as usize].previous = node.previous;
        }
        if self.first[usize::from(node.list)] == NONE && node.list != DUE {
            self.occupied[usize::from(node.list) / SLOTS] &=
                !(1 << (usize::from(node.list) % SLOTS));
        }
        self.nodes[entry as usize] = ABSENT;
        true
    }

    /// Takes out an entry that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        loop {
            let due = self.first[usize::from(DUE)];
            if due != NONE {
                self.remove(due);
                return Some(due);
            }
            let tick = now.as_nanos() >> self.tick_shift;
            match self.next_slot() {
                Some((list, start)) if start <= tick => {
                    self.present = start;
                    self.empty_slot(list, now);
                }
                _ => {
                    self.present = self.present.max(tick);
                    return None;
                }
            }
        }
    }

    /// Nothing has to be done before this moment; `None` if there are no entries. Where many entries share the first slot,
    /// a far one may only move down then, so that the caller is woken at most five times too often.
    pub(crate) fn next(&self) -> Option<Instant> {
        if self.first[usize::from(DUE)] != NONE {
            return Some(Instant::ZERO);
        }
        let (list, start) = self.next_slot()?;
        // Not beyond the slot. An entry from beyond the horizon waits in a slot before its own, and others that are due
        // earlier than that may wait in the slots after it.
        let level = u32::from(list) / SLOTS as u32;
        let end = start + (1 << (SLOT_BITS * level));
        let tick = self
            .earliest(list)
            .map_or(start, |earliest| earliest.min(end));
        Some(Instant::from_nanos(
            tick.saturating_mul(1 << self.tick_shift),
        ))
    }

    /// The entry that [`TimingWheel::next`] waits for; `None` if there is none, or it is due already, or it shares its slot
    /// with many.
    pub(crate) fn first(&self) -> Option<u32> {
        if self.first[usize::from(DUE)] != NONE {
            return None;
        }
        let (list, _) = self.next_slot()?;
        self.earliest_of(list)
    }

    /// The tick at which the first entry of a slot is due, if the slot holds few.
    fn earliest(&self, list: u16) -> Option<u64> {
        let entry = self.earliest_of(list)?;
        Some(self.tick_of(self.at(entry)))
    }

    /// The entry of a slot that is due first, if the slot holds few.
    fn earliest_of(&self, list: u16) -> Option<u32> {
        let mut entry = self.first[usize::from(list)];
        let mut earliest = (Instant::FAR_FUTURE, entry);
        for _ in 0..SCANNED_MAX {
            let Some(node) = self.nodes.get(entry as usize) else {
                return Some(earliest.1);
            };
            earliest = earliest.min((node.at, entry));
            entry = node.next;
        }
        None
    }

    /// The tick that an entry waits for. It is reached when it is over, so that no entry comes early.
    fn tick_of(&self, at: Instant) -> u64 {
        (at.as_nanos() >> self.tick_shift).saturating_add(1)
    }

    /// The non-empty slot that comes first, and its first tick.
    fn next_slot(&self) -> Option<(u16, u64)> {
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let shift = SLOT_BITS * level as u32;
            let place = (self.present >> shift) % SLOTS as u64;
            let ahead = self.occupied[level]
                .rotate_right(place as u32)
                .trailing_zeros();
            let start = ((self.present >> shift) + u64::from(ahead)) << shift;
            let slot = (place as usize + ahead as usize) % SLOTS;
            return Some(((level * SLOTS + slot) as u16, start));
        }
        None
    }

    /// Moves a reached slot's entries to where they belong now.
    fn empty_slot(&mut self, list: u16, now: Instant) {
        let mut entry = self.first[usize::from(list)];
        while entry != NONE {
            let node = self.nodes[entry as usize];
            self.remove(entry);
            self.nodes[entry as usize].at = node.at;
            let list = if node.at <= now {
                DUE
            } else {
                self.list_for(node.at)
            };
            self.link(entry, list);
            entry = node.next;
        }
    }

    fn list_for(&self, at: Instant) -> u16 {
        let tick = self.tick_of(at);
        if tick <= self.present {
            return DUE;
        }
        let tick = tick.min(self.present + HORIZON);
        let differing = u64::BITS - 1 - (tick ^ self.present).leading_zeros();
        let level = ((differing / SLOT_BITS) as usize).min(LEVELS - 1);
        let slot = (tick >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        (level * SLOTS + slot) as u16
    }

    fn link(&mut self, entry: u32, list: u16) {
        let next = self.first[usize::from(list)];
        let node = &mut self.nodes[entry as usize];
        node.list = list;
        node.next = next;
        node.previous = NONE;
        if next != NONE {
            self.nodes[next as usize].previous = entry;
        }
        self.first[usize::from(list)] = entry;
        if list != DUE {
            self.occupied[usize::from(list) / SLOTS] |= 1 << (usize::from(list) % SLOTS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn an_entry_comes_at_its_time_and_once() {
        let mut wheel = TimingWheel::new(4, 1_000);
        wheel.set(2, at(5_000_000));
        assert_eq!(wheel.pop_due(at(4_999_999)), None);
        assert_eq!(wheel.pop_due(at(5_002_000)), Some(2));
        assert_eq!(wheel.pop_due(at(9_000_000_000)), None);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn a_past_time_is_due_at_once() {
        let mut wheel = TimingWheel::new(1, 1_000);
        assert_eq!(wheel.pop_due(at(1_000_000)), None);
        wheel.set(0, at(10));
        assert_eq!(wheel.next(), Some(Instant::ZERO));
        assert_eq!(wheel.pop_due(at(1_000_000)), Some(0));
    }

    #[test]
    fn sooner_moves_and_later_does_not() {
        let mut wheel = TimingWheel::new(1, 1_000);
        wheel.set_if_sooner(0, at(1_000_000));
        wheel.set_if_sooner(0, at(2_000_000));
        assert_eq!(wheel.at(0), at(1_000_000));
        wheel.set_if_sooner(0, at(500_000));
        assert_eq!(wheel.pop_due(at(502_000)), Some(0));
    }

    /// An idle endpoint woke up to five times for nothing before each keepalive.
    #[test]
    fn a_far_entry_wakes_nobody_before_its_time() {
        let mut wheel = TimingWheel::new(2, 1_000);
        for (entry, due) in [(0, at(5_000_000_000)), (1, at(300_000_000))] {
            wheel.set(entry, due);
        }
        for (entry, due) in [(1, at(300_000_000)), (0, at(5_000_000_000))] {
            let next = wheel.next().unwrap();
            assert!(next >= due && next.saturating_since(due).as_nanos() <= 1_000);
            assert_eq!(wheel.pop_due(next), Some(entry));
        }
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn an_entry_beyond_the_horizon_still_waits_for_its_time() {
        let mut wheel = TimingWheel::new(1, 1);
        let far = at(3 * HORIZON);
        wheel.set(0, far);
        let mut wakes = 0;
        while let Some(next) = wheel.next() {
            wakes += 1;
            assert!(wakes < 20, "a far entry wakes too often");
            if wheel.pop_due(next).is_some() {
                assert!(next >= far, "an entry came early");
                return;
            }
        }
        panic!("the entry was lost");
    }

    /// The wheel slept past an entry when the first slot held one from beyond the horizon. That one waits in the last
    /// slot that there is, and only its own time was considered.
    #[test]
    fn an_entry_beyond_the_horizon_hides_no_nearer_one() {
        let mut wheel = TimingWheel::new(2, 1);
        wheel.set(0, at(3 * HORIZON));
        assert_eq!(wheel.pop_due(at(10 << 30)), None);
        // Within the horizon now, a lap further on.
        let near = at(HORIZON + (5 << 30));
        wheel.set(1, near);
        let mut popped = None;
        for _ in 0..8 {
            let next = wheel.next().unwrap();
            assert!(next.as_nanos() <= near.as_nanos() + 1, "sleeps past it");
            popped = wheel.pop_due(next);
            if popped.is_some() {
                break;
            }
        }
        assert_eq!(popped, Some(1));
    }

    /// Against a plain list of deadlines: never early, never lost, late by a tick at most.
    #[test]
    fn random_operations_agree_with_a_list() {
        let mut prng = Prng::new(5);
        for round in 0..50 {
            let mut wheel = TimingWheel::new(64, 256);
            let mut model = [Instant::FAR_FUTURE; 64];
            let mut now = 0;
            for _ in 0..2_000 {
                let entry = prng.below(64) as usize;
                match prng.below(4) {
                    0 => {
                        wheel.remove(entry as u32);
                        model[entry] = Instant::FAR_FUTURE;
                    }
                    1 | 2 => {
                        let span = 1 << prng.below(40);
                        model[entry] = at(now + prng.below(span));
                        wheel.set(entry as u32, model[entry]);
                    }
                    _ => {
                        let span = 1 << prng.below(36);
                        now += prng.below(span);
                    }
                }
                while let Some(due) = wheel.pop_due(at(now)) {
                    assert!(model[due as usize] <= at(now), "round {round}: early");
                    model[due as usize] = Instant::FAR_FUTURE;
                }
                let late = model
                    .iter()
                    .filter(|t| t.as_nanos().saturating_add(256) <= now)
                    .count();
                assert_eq!(late, 0, "round {round}: late or lost");
                let first = model.iter().min().copied().unwrap_or(Instant::FAR_FUTURE);
                let next = wheel.next().unwrap_or(Instant::FAR_FUTURE);
                assert!(next.as_nanos() <= first.as_nanos().saturating_add(256));
                if let Some(entry) = wheel.first() {
                    assert_eq!(model[entry as usize], first, "round {round}");
                }
            }
        }
    }
}
