//! Observations of ends of processes: notices, and who led meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use trine_protocol::message::Incarnation;

/// The notices, and their effects.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DeathCounts {
    /// Notices that were sent for the first time.
    pub told: u64,
    /// Notices of strangers who knew no secret.
    pub forged: u64,
    /// Elections that began with one.
    pub elections: u64,
}

impl DeathCounts {
    /// Whether there was any notice.
    pub(crate) fn are_any(&self) -> bool {
        self.told + self.forged > 0
    }
}

impl AddAssign for DeathCounts {
    fn add_assign(&mut self, more: Self) {
        self.told += more.told;
        self.forged += more.forged;
        self.elections += more.elections;
    }
}

impl fmt::Display for DeathCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            told,
            forged,
            elections,
        } = self;
        write!(
            f,
            "death notices: {told} sent, {forged} forged, {elections} elections begun by them"
        )
    }
}

/// Who leads, and whether a leader was replaced that had not ended.
#[derive(Default)]
pub(crate) struct DeathLedger {
    /// The terms of the incarnations that lead, as they see it themselves.
    leading: BTreeMap<Incarnation, u64>,
    pub(crate) finding: Option<String>,
}

impl DeathLedger {
    /// A replica begins or ceases to lead.
    pub(crate) fn note_role(&mut self, replica: Incarnation, leads_in: Option<u64>) {
        match leads_in {
            Some(term) => self.leading.insert(replica, term),
            None => self.leading.remove(&replica),
        };
    }

    /// A replica campaigns, because it takes the leader of this term for ended.
    pub(crate) fn note_death(&mut self, by: Incarnation, leader: Incarnation, term: u64) {
        if self.leading.get(&leader) == Some(&term) {
            let (by, leader) = (by.0, leader.0);
            self.finding = Some(format!(
                "death notice: replica {by:x} took {leader:x} for ended, which runs and leads term {term}"
            ));
        }
    }
}
