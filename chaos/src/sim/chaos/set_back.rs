//! The fault `older-copy`: a machine is set back, and its replica starts on an older copy of its own disk.

use super::{Chaos, End};
use crate::fault::Fault;
use crate::sim::Host;
use crate::sim::cluster::Cluster;
use trine_transport::time::Duration;

/// An acknowledgement has arrived by then, where the network is calm.
const HEARD_WITHIN: Duration = Duration::from_millis(500);

impl Chaos {
    /// The disk is copied now. The replica goes on for a time, and is down for the span.
    pub(super) fn set_back(
        &mut self,
        cluster: &mut Cluster,
        seat: Host,
        (age, span): (Duration, Duration),
        hands_over: bool,
    ) {
        if cluster.keeps_memory()
            && let Some(seat) = cluster.copy_to_set_back(seat)
        {
            let end = End::NoteHeardOf(seat, span, hands_over);
            self.end_later(cluster.world.now(), age, end);
        }
    }

    pub(super) fn note_heard_of(
        &mut self,
        cluster: &mut Cluster,
        seat: Host,
        (span, hands_over): (Duration, bool),
    ) {
        cluster.note_heard_of();
        let end = End::DieToBeSetBack(seat, span, hands_over);
        self.end_later(cluster.world.now(), HEARD_WITHIN, end);
    }

    pub(super) fn die_to_be_set_back(
        &mut self,
        cluster: &mut Cluster,
        seat: Host,
        (span, hands_over): (Duration, bool),
    ) {
        if cluster.die_to_be_set_back(hands_over) {
            self.end_later(cluster.world.now(), span, End::StartSetBack(seat));
        }
    }

    pub(super) fn start_set_back(&mut self, cluster: &mut Cluster, seat: Host) {
        match cluster.start_set_back(seat) {
            true => cluster.world.network.stats.fire(Fault::OlderCopy),
            false => {
                let host = cluster.place_of(seat);
                self.end_later(cluster.world.now(), Duration::ZERO, End::Restart(host));
            }
        }
    }
}
