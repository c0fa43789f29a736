//! Replicas of an older release, in groups that are upgraded while they serve.
//!
//! A process that starts again is of the newer release. Where an operator switches the group, and no leader by itself, some go
//! back to the older one first: until the switch there is a way back. Nobody may be left behind by the switch.

use super::{Cluster, Seat};
use crate::checker::Verdict;
use crate::fault::Fault;
use std::collections::BTreeSet;
use trine_protocol::message::AdminCommand;
use trine_replica::Halt;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

/// From then on no replica goes back to the older release.
const BACK_UNTIL: Duration = Duration::from_secs(25);
/// How often an operator asks for the switch behind that. A leader has heard by then that a replica went back.
const ASKED_EVERY: Duration = Duration::from_secs(3);
/// How many of the replicas that start again go back.
const GO_BACK: Ratio = Ratio::percent(50);

/// Which replicas are of the older release.
pub(super) struct Upgrades {
    older: BTreeSet<Seat>,
    prng: Prng,
    /// When an operator asks for the switch.
    asked_at: Instant,
    left_behind: Option<String>,
}

impl Upgrades {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            older: BTreeSet::new(),
            prng: Prng::new(seed ^ 0x0bac_0bac_0bac_0bac),
            asked_at: Instant::ZERO + BACK_UNTIL + ASKED_EVERY,
            left_behind: None,
        }
    }
}

impl Cluster {
    /// The newest state version that a replica which starts now understands.
    pub(super) fn version_at_start(&mut self, seat: Seat, bootstrap: bool) -> u8 {
        let (older, newer) = (
            self.config.first_state_version,
            self.config.replica.state_version,
        );
        let may_go_back =
            self.is_switched_by_hand() && self.world.now() < Instant::ZERO + BACK_UNTIL;
        let is_older = bootstrap || (may_go_back && self.upgrades.prng.chance(GO_BACK));
        let was_older = match is_older {
            true => !self.upgrades.older.insert(seat),
            false => self.upgrades.older.remove(&seat),
        };
        if was_older != is_older && !bootstrap {
            self.world.network.stats.fire(Fault::Versions);
        }
        if is_older { older } else { newer }
    }

    fn is_switched_by_hand(&self) -> bool {
        self.config.mixes_versions() && self.config.replica.upgrade_after.is_none()
    }

    /// Lets the operator ask for the switch when it is time, and looks at who has stopped.
    pub(super) fn attend_upgrade(&mut self) {
        let halted = self.halted().into_iter();
        let mut too_old = halted.filter_map(|host| {
            let replica = self.world.program(host)?.replica()?.replica();
            match replica.halted()? {
                halt @ (Halt::TooOld | Halt::Entry(_)) => Some(format!("{host}: {halt}")),
                _ => None,
            }
        });
        let found = too_old.next();
        self.upgrades.left_behind = self.upgrades.left_behind.take().or(found);
        let now = self.world.now();
        if !self.is_switched_by_hand() || now < self.upgrades.asked_at {
            return;
        }
        self.upgrades.asked_at = now + ASKED_EVERY;
        let idle = |seat: &Seat| self.world.program(self.operator_of(*seat)).is_none();
        if let Some(seat) = self.replica_hosts().find(idle) {
            self.run_admin(seat, AdminCommand::FinishUpgrade);
        }
    }

    /// Nobody stops because the group has switched to what it does not understand.
    pub(crate) fn upgrade_verdict(&self) -> Verdict {
        match &self.upgrades.left_behind {
            Some(why) => Verdict::violation(format!("left behind by a switch: {why}")),
            None => Verdict::Pass,
        }
    }
}
