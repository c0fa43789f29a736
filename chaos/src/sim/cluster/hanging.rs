//! Disks that hang, and the times in which the group has to go on although one does.

use super::{Cluster, View};
use crate::sim::Host;
use crate::sim::member::Member;
use std::collections::BTreeSet;
use trine_protocol::message::Incarnation;
use trine_replica::Node;

/// The times in which a disk hung, a majority was sound, and nothing else was wrong.
#[derive(Default)]
pub(crate) struct Hangs {
    /// Beginning and end, in nanoseconds.
    spans: Vec<(u64, u64)>,
    /// The last span goes on.
    open: bool,
}

impl Hangs {
    /// Something happens to the group: a span ends, and the next may begin.
    pub(crate) fn disturb(&mut self) {
        self.open = false;
    }

    pub(crate) fn spans(&self) -> &[(u64, u64)] {
        &self.spans
    }

    fn note(&mut self, now_ns: u64, judged: bool) {
        match self.spans.last_mut().filter(|_| self.open && judged) {
            Some((_, end)) => *end = now_ns,
            None if judged => self.spans.push((now_ns, now_ns)),
            None => {}
        }
        self.open = judged;
    }
}

impl Cluster {
    /// A disk hangs from now on, or does no longer.
    pub(crate) fn hang_disk(&mut self, host: Host, hangs: bool) {
        if let Some(mut device) = self.device(host) {
            device.hangs = hangs;
        }
        self.world.poke(host);
    }

    pub(super) fn attend_hangs(&mut self) {
        if self.disks.is_empty() {
            return;
        }
        let judged = self.disks.values().any(|disk| disk.device().hangs) && self.has_to_go_on();
        self.hangs.note(self.world.now().as_nanos(), judged);
    }

    /// Whether nothing is wrong but the disks of a minority.
    fn has_to_go_on(&self) -> bool {
        let now = self.world.now();
        let busy = !self.leaving.is_empty() || self.moves.are_under_way() || self.are_names_news();
        let paused = |host: Host| self.world.is_paused(host);
        let machines = self.world.machines();
        if busy || !self.world.network.is_calm(now) || machines.map(|(host, _)| host).any(paused) {
            return false;
        }
        let views = self.views();
        let serves = |view: &&View| {
            let node = self.world.program(view.host).and_then(Member::replica);
            let halted = node.map(Node::replica).and_then(|replica| replica.halted());
            halted.is_none() && view.knows_group() && !self.is_stopping(view.host)
        };
        let serving: BTreeSet<Incarnation> = views
            .iter()
            .filter(serves)
            .map(|view| view.discovery.incarnation)
            .collect();
        let is_sound = |view: &&View| self.device(view.host).is_some_and(|disk| disk.is_sound());
        let sound: BTreeSet<Incarnation> = views
            .iter()
            .filter(is_sound)
            .map(|view| view.discovery.incarnation)
            .collect();
        // A joint change may be held up, and what a replica knows of the members may be old.
        let settled = |view: &View| {
            let [voters, before] = &view.sides;
            let there = voters.iter().all(|voter| serving.contains(voter));
            let in_order = voters.iter().filter(|voter| sound.contains(voter)).count();
            before.is_empty() && there && 2 * in_order > voters.len()
        };
        !views.is_empty() && views.iter().all(settled)
    }
}
