//! Linearizable reads that need not be done by the leader: which replica is given them.

use trine_transport::app::Cx;
use trine_transport::backend::Route;
use trine_transport::session::SessionId;
use trine_transport::time::Instant;

use super::core::Clients;
use super::operation::Lane;
use crate::slab::Key;

impl<R: Route> Clients<R> {
    /// Sends what is ready for followers, or for anybody.
    pub(super) fn dispatch_spread(&mut self, cx: &mut Cx<'_, R>) {
        for lane in [Lane::Follower, Lane::Anywhere] {
            if self.ready[lane as usize].is_empty() {
                continue;
            }
            if lane == Lane::Follower && self.awaits_leader(cx) {
                continue;
            }
            if let Some((index, session)) = self.next_spread(lane, cx.now()) {
                self.send_lane(cx, lane, index, session);
            }
        }
    }

    /// Whether it is worth to wait for word of who leads: without it nobody is known to follow.
    fn awaits_leader(&mut self, cx: &mut Cx<'_, R>) -> bool {
        let Some(patience_ends) = self.leader_awaited_until() else {
            return false;
        };
        if patience_ends <= cx.now() {
            return false;
        }
        if let Some(index) = self.peers.next_up(self.leader.last_guess)
            && !self.peers.get(index).asked
        {
            self.ask(cx, index);
        }
        true
    }

    /// Until when reads for followers wait for word of who leads; nothing if it is known or no such read waits.
    fn leader_awaited_until(&self) -> Option<Instant> {
        let &first = self.ready[Lane::Follower as usize].front()?;
        let pending = self.operations.get(first)?;
        match self.leader.target {
            Some(_) => None,
            None => Some(pending.started + self.config.suspect_after),
        }
    }

    /// The next replica for a read of `lane`: each in turn, those last that have refused one lately.
    fn next_spread(&mut self, lane: Lane, now: Instant) -> Option<(usize, SessionId)> {
        let count = self.peers.len();
        let spares = self.leader.target.filter(|_| lane == Lane::Follower);
        let in_turn = (1..=count).map(|step| (self.last_spread + step) % count);
        let fitness = |&index: &usize| {
            let peer = self.peers.get(index);
            (peer.avoid_until > now, Some(index) == spares)
        };
        let usable = |&index: &usize| {
            let peer = self.peers.get(index);
            peer.session().is_some() && !peer.is_foreign()
        };
        // The first of the fittest: `min_by_key` keeps the order among equals.
        let index = in_turn.filter(usable).min_by_key(fitness)?;
        let peer = self.peers.get(index);
        // All have refused: nobody is asked again before the first pause is over.
        if peer.avoid_until > now {
            return None;
        }
        let session = peer.session()?;
        self.last_spread = index;
        Some((index, session))
    }

    /// When reads that wait for a replica are to be looked at again.
    pub(super) fn spread_resumes_at(&self) -> Option<Instant> {
        let waits = |lane: Lane| !self.ready[lane as usize].is_empty();
        if !waits(Lane::Follower) && !waits(Lane::Anywhere) {
            return None;
        }
        let up = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.session().is_some() && !peer.is_foreign());
        // Without any to send to, a connection has to come first.
        let paused = up.map(|(_, peer)| peer.avoid_until).min()?;
        let awaited = self.leader_awaited_until();
        Some(awaited.map_or(paused, |until| until.max(paused)))
    }

    /// Whether an operation may be done by any replica that has a leader.
    pub(super) fn is_spread(&self, key: Key) -> bool {
        let pending = self.operations.get(key);
        pending.is_some_and(|pending| matches!(pending.lane, Lane::Follower | Lane::Anywhere))
    }

    /// A replica has refused such a read: the others come first for a while.
    pub(super) fn avoid(&mut self, now: Instant, peer: usize) {
        let until = now + self.config.pause_max;
        self.peers.get_mut(peer).avoid_until = until;
    }
}
