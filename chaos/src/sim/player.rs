//! Plays a schedule of faults on a simulated world, whatever runs on its machines.

use super::network::Cut;
use super::world::World;
use super::{Host, Program};
use crate::fault::{Event, Fault, Schedule};
use std::collections::BTreeMap;
use trine_transport::time::{Duration, Instant};

/// What faults happen to.
pub(crate) trait FaultTarget: Sized {
    /// What runs on the machines.
    type Program: Program;
    /// How those faults end that are not faults of links.
    type End;

    fn world(&mut self) -> &mut World<Self::Program>;

    /// False if the run is to end before its time.
    fn goes_on(&mut self) -> bool;

    /// Runs again and again, at moments that the player chooses.
    fn attend(&mut self, _player: &mut Player<Self::End>) {}

    /// Lets an event happen.
    fn apply(&mut self, player: &mut Player<Self::End>, event: &Event);

    /// Ends a fault.
    fn end(&mut self, player: &mut Player<Self::End>, end: Self::End);
}

/// The end of a fault.
enum Ending<E> {
    Heal(u64),
    Own(E),
}

/// The faults that have begun, by the times of their ends.
pub(crate) struct Player<E> {
    endings: BTreeMap<(Instant, u64), Ending<E>>,
    number: u64,
    /// The longest time between two calls of [`Stage::attend`].
    step: Duration,
}

impl<E> Player<E> {
    pub(crate) fn new(step: Duration) -> Self {
        Self {
            endings: BTreeMap::new(),
            number: 0,
            step,
        }
    }

    /// Lets all events of the schedule happen, each at its time.
    pub(crate) fn play<S: FaultTarget<End = E>>(&mut self, stage: &mut S, schedule: &Schedule) {
        for (at, event) in &schedule.events {
            self.run_until(stage, *at);
            if !stage.goes_on() {
                return;
            }
            let trace = &mut stage.world().trace;
            trace.note(*at, || format!("fault: {event:?}"));
            stage.apply(self, event);
        }
    }

    /// Runs the world, and ends faults when they are due.
    pub(crate) fn run_until<S: FaultTarget<End = E>>(&mut self, stage: &mut S, until: Instant) {
        while stage.world().now() < until && stage.goes_on() {
            let due = self.next_end().unwrap_or(until);
            let next = due.min(until).min(stage.world().now() + self.step);
            stage.world().run_until(next);
            self.end_due(stage);
            stage.attend(self);
        }
    }

    /// Runs the world until the last fault has ended.
    pub(crate) fn run_to_the_last_end<S: FaultTarget<End = E>>(&mut self, stage: &mut S) {
        while let Some(due) = self.next_end().filter(|_| stage.goes_on()) {
            self.run_until(stage, due);
            self.end_due(stage);
        }
    }

    fn next_end(&self) -> Option<Instant> {
        self.endings.keys().next().map(|&(at, _)| at)
    }

    fn end_due<S: FaultTarget<End = E>>(&mut self, stage: &mut S) {
        let now = stage.world().now();
        while let Some(entry) = self
            .endings
            .first_entry()
            .filter(|next| next.key().0 <= now)
        {
            match entry.remove() {
                Ending::Heal(number) => stage.world().network.heal(number),
                Ending::Own(end) => stage.end(self, end),
            }
        }
    }

    /// Ends all faults at once, but for those that `forget` chooses: they never end.
    pub(crate) fn end_all<S: FaultTarget<End = E>>(
        &mut self,
        stage: &mut S,
        forget: fn(&E) -> bool,
    ) {
        for ending in std::mem::take(&mut self.endings).into_values() {
            match ending {
                Ending::Heal(number) => stage.world().network.heal(number),
                Ending::Own(end) if forget(&end) => {}
                Ending::Own(end) => stage.end(self, end),
            }
        }
    }

    /// Has a fault end after `span`.
    pub(crate) fn end_later(&mut self, now: Instant, span: Duration, end: E) {
        self.insert(now + span, Ending::Own(end));
    }

    fn insert(&mut self, at: Instant, ending: Ending<E>) {
        self.number += 1;
        self.endings.insert((at, self.number), ending);
    }

    /// The ends that are still to come, but for those of cuts.
    #[cfg(test)]
    pub(crate) fn ends(&self) -> Vec<&E> {
        let all = self.endings.values();
        all.filter_map(|ending| match ending {
            Ending::Own(end) => Some(end),
            Ending::Heal(_) => None,
        })
        .collect()
    }

    /// Cuts links for a while.
    pub(crate) fn cut<P: Program>(&mut self, world: &mut World<P>, span: Duration, cut: Cut) {
        let number = self.number + 1;
        self.insert(world.now() + span, Ending::Heal(number));
        world.network.cut(number, cut);
    }

    /// Lets an event of links happen. Other events do nothing.
    pub(crate) fn change_links<P: Program>(&mut self, world: &mut World<P>, event: &Event) {
        match event {
            Event::LinkFaults(link_faults) => world.network.set_link_faults(*link_faults),
            Event::Partition { side, span } => {
                let side = side.iter().map(|&machine| host(machine)).collect();
                self.cut(world, *span, Cut::Partition(side));
            }
            Event::OneWay { from, to, span } => {
                self.cut(world, *span, Cut::OneWay(host(*from), host(*to)));
            }
            Event::Clog { from, to, span } => {
                let until = world.now() + *span;
                world.network.clog(host(*from), host(*to), until);
            }
            _ => {}
        }
    }
}

/// Pauses a machine, and counts it if something runs there.
pub(crate) fn pause<P: Program>(world: &mut World<P>, host: Host, span: Duration) {
    if world.pause(host, span) {
        world.network.stats.fire(Fault::Pause);
    }
}

/// The machine with this number.
pub(crate) fn host(machine: usize) -> Host {
    Host(machine as u16)
}
