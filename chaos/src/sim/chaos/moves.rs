//! The fault `move`: a live replica is replaced by one at another address, and the leader may be hit amid that.

use super::{Chaos, End, may_die};
use crate::fault::{Amid, Fault};
use crate::sim::Host;
use crate::sim::cluster::Cluster;
use crate::sim::network::Cut;
use std::collections::BTreeSet;
use trine_transport::time::{Duration, Instant};

/// How long a joint configuration is waited for, and how often it is looked for.
const JOINT_WITHIN: Duration = Duration::from_secs(3);
const JOINT_POLL: Duration = Duration::from_micros(200);

impl Chaos {
    pub(super) fn move_replica(&mut self, cluster: &mut Cluster, seat: Host, amid: Amid) {
        let place = cluster.place_of(seat);
        if !cluster.survives_without(place) || !cluster.begin_to_move(seat) {
            return;
        }
        cluster.world.network.stats.fire(Fault::Move);
        if amid != Amid::Peace {
            let until = cluster.world.now() + JOINT_WITHIN;
            self.end_later(cluster.world.now(), JOINT_POLL, End::Amid(until, amid));
        }
    }

    /// Hits the leader as soon as any replica has a joint configuration.
    pub(super) fn hit_amid(&mut self, cluster: &mut Cluster, until: Instant, amid: Amid) {
        if !cluster.is_joint() {
            if cluster.world.now() < until {
                self.end_later(cluster.world.now(), JOINT_POLL, End::Amid(until, amid));
            }
            return;
        }
        let Some((leader, _)) = cluster.leader() else {
            return;
        };
        match amid {
            Amid::Peace => {}
            Amid::Cut(span) => {
                let side = BTreeSet::from([leader]);
                self.cut(&mut cluster.world, span, Cut::Partition(side));
            }
            Amid::Death(span) if may_die(cluster, leader) => {
                cluster.kill_replica(leader, false);
                self.end_later(cluster.world.now(), span, End::Restart(leader));
            }
            Amid::Death(_) => {}
        }
    }
}
