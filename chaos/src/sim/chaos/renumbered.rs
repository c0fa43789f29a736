//! The fault `addresses`: the machines of replicas get other addresses, and their names tell of that late, wrongly, or
//! only once.

use super::{Chaos, End, may_die, targets};
use crate::fault::{Fault, Name, Victim};
use crate::sim::Host;
use crate::sim::cluster::{Cluster, Settling};
use trine_transport::time::Duration;

/// A process that has asked for a name asks again after this.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether the group knows where a replica is.
const SETTLING_POLL: Duration = Duration::from_millis(200);
/// When in the quiet time a copy starts to which a name leads, and for how long it runs: the first question may go to a session
/// of who was there before, and the next follows after five seconds.
pub(super) const COPIED_AFTER: Duration = Duration::from_secs(3);
const COPIED_FOR: Duration = Duration::from_millis(6_500);

impl Chaos {
    pub(super) fn renumber(
        &mut self,
        cluster: &mut Cluster,
        victim: Victim,
        name: Name,
        (span, copied): (Duration, Option<Duration>),
    ) {
        let now = cluster.world.now();
        for host in targets(cluster, victim) {
            let seat = cluster.seat_of(host);
            if !may_die(cluster, host) || cluster.is_stopping(host) {
                continue;
            }
            let Some(to) = cluster.renumber(seat, name, copied.is_some()) else {
                continue;
            };
            cluster.world.network.stats.fire(Fault::Addresses);
            self.end_later(now, span, End::Restart(to));
            if let Some(copied) = copied.filter(|_| cluster.is_copied(seat)) {
                let copy = End::Copy(seat, Settling::Not, copied);
                self.end_later(now, SETTLING_POLL, copy);
            }
            match name {
                Name::Late(late) | Name::Lies(late) => {
                    self.end_later(now, span + late, End::NameIsRight(seat));
                    self.end_later(now, span + late, End::FreshClients);
                }
                Name::Vanishes => {
                    self.end_later(now, span, End::NameIsRight(seat));
                    self.end_later(now, span, End::FreshClients);
                    self.end_later(now, span + ASK_EVERY, End::NameFails(seat));
                }
            }
        }
    }

    /// Waits until the group knows where the replica of a node is. Then an old copy of it starts where it was.
    pub(super) fn copy_once_settled(
        &mut self,
        cluster: &mut Cluster,
        seat: Host,
        settling: Settling,
        span: Duration,
    ) {
        let now = cluster.world.now();
        match cluster.settle_further(seat, settling) {
            Settling::Settled if !cluster.is_copy_running() => {
                if cluster.start_old_copy(seat) {
                    self.end_later(now, span, End::CopyEnds(seat));
                }
            }
            further => self.end_later(now, SETTLING_POLL, End::Copy(seat, further, span)),
        }
    }

    /// Nothing else goes wrong any more, and the name of a node leads to a copy of its replica for a while.
    pub(super) fn copy_in_quiet(&mut self, cluster: &mut Cluster, seat: Host) {
        if cluster.is_whole(seat) && !cluster.is_copy_running() && cluster.start_copy_by_name(seat)
        {
            let now = cluster.world.now();
            self.end_later(now, COPIED_FOR, End::CopyEnds(seat));
        }
    }

    pub(super) fn fail_name(&mut self, cluster: &mut Cluster, seat: Host) {
        if cluster.fail_name(seat) {
            self.end_later(cluster.world.now(), ASK_EVERY, End::NameFails(seat));
        }
    }
}
