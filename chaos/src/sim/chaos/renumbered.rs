//! The fault `addresses`: the machines of replicas get other addresses, and their names tell of that late, wrongly, or
//! only once.

use super::{Chaos, End, may_die, targets};
use crate::fault::{Fault, Name, Victim};
use crate::sim::Host;
use crate::sim::cluster::Cluster;
use trine_transport::time::Duration;

/// A process that has asked for a name asks again after this.
const ASK_EVERY: Duration = Duration::from_secs(1);

impl Chaos {
    pub(super) fn renumber(
        &mut self,
        cluster: &mut Cluster,
        victim: Victim,
        name: Name,
        span: Duration,
    ) {
        let now = cluster.world.now();
        for host in targets(cluster, victim) {
            let seat = cluster.seat_of(host);
            if !may_die(cluster, host) || cluster.is_stopping(host) {
                continue;
            }
            let Some(to) = cluster.renumber(seat, name) else {
                continue;
            };
            cluster.world.network.stats.fire(Fault::Addresses);
            self.end_later(now, span, End::Restart(to));
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

    pub(super) fn fail_name(&mut self, cluster: &mut Cluster, seat: Host) {
        if cluster.fail_name(seat) {
            self.end_later(cluster.world.now(), ASK_EVERY, End::NameFails(seat));
        }
    }
}
