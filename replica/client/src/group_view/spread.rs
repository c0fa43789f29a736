//! Reads that do not need the leader, and the choice of their replica.

use trine_transport::app::Cx;
use trine_transport::backend::Route;
use trine_transport::session::SessionId;
use trine_transport::time::Instant;

use super::GroupView;
use crate::config::SUSPICIONS_MAX;
use crate::operation::OperationQueue;

/// Queues of reads that more than one replica can do.
pub(crate) const SPREAD: [OperationQueue; 3] = [
    OperationQueue::Stale,
    OperationQueue::Follower,
    OperationQueue::Anywhere,
];

impl<R: Route> GroupView<R> {
    /// Whether waiting for news of the leader is worthwhile: without a leader no replica is known to follow. The first read
    /// for a follower has waited `since` then.
    pub(crate) fn awaits_leader(&mut self, cx: &mut Cx<'_, R>, since: Option<Instant>) -> bool {
        let Some(patience_ends) = self.leader_awaited_until(since) else {
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

    /// Until when reads for followers wait for news of the leader; nothing if it is known or no such read waits.
    fn leader_awaited_until(&self, since: Option<Instant>) -> Option<Instant> {
        let patience = self.pauses.suspect_after.saturating_mul(SUSPICIONS_MAX);
        let since = since.filter(|_| self.leader.target.is_none())?;
        Some(since + patience)
    }

    /// The next replica for a read of `queue`, by rotation; those that have refused one lately come last. Stale reads
    /// stay with one replica as long as it answers, because otherwise their state would go back and forth. That replica
    /// is the leader, or else the one that would be asked first.
    pub(crate) fn next_spread(
        &mut self,
        queue: OperationQueue,
        now: Instant,
    ) -> Option<(usize, SessionId)> {
        let count = self.peers.len();
        let stays = queue == OperationQueue::Stale;
        let last = match stays {
            true => self.leader.last_guess,
            false => self.last_spread,
        };
        let in_turn = (1..=count).map(|step| (last + step) % count);
        let fitness = |&index: &usize| {
            let leads = Some(index) == self.leader.target;
            let is_second_choice = match queue {
                OperationQueue::Follower => leads,
                OperationQueue::Stale => !leads,
                OperationQueue::Write | OperationQueue::Read | OperationQueue::Anywhere => false,
            };
            (self.peers.get(index).avoid_until > now, is_second_choice)
        };
        let usable = |&index: &usize| {
            let peer = self.peers.get(index);
            peer.session().is_some() && !peer.is_foreign()
        };
        // The first of the fittest: `min_by_key` keeps the order among equals.
        let index = in_turn.filter(usable).min_by_key(fitness)?;
        let peer = self.peers.get(index);
        // All have refused: no replica is asked again before the first pause is over.
        if peer.avoid_until > now {
            return None;
        }
        let session = peer.session()?;
        if !stays {
            self.last_spread = index;
        }
        Some((index, session))
    }

    /// When the reads that wait for a replica are due again. The first one for a follower waits `since` then. `others_wait`:
    /// so do reads that are not for a follower.
    pub(crate) fn spread_resumes_at(
        &self,
        since: Option<Instant>,
        others_wait: bool,
    ) -> Option<Instant> {
        let up = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.session().is_some() && !peer.is_foreign());
        // Without a replica to send to, a connection has to come first.
        let paused = up.map(|(_, peer)| peer.avoid_until).min()?;
        // Only reads for followers wait for news of the leader.
        Some(match self.leader_awaited_until(since) {
            Some(until) if !others_wait => until.max(paused),
            _ => paused,
        })
    }

    /// A replica has refused such a read, or has not answered it in time: the others come first for a while.
    pub(crate) fn avoid(&mut self, now: Instant, peer: usize) {
        let until = now + self.pauses.pause_max;
        self.peers.get_mut(peer).avoid_until = until;
    }
}
