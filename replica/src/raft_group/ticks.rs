//! When raft ticks, and which ticks may be slept through.
//!
//! A tick moves raft's timers by one. Most ticks do nothing else, and waking up for them is what an idle replica would
//! spend its time on. So a replica sleeps until the tick that does something, and counts the ones before it when it wakes
//! up. Four rules keep the promises that a lease relies on, see [`crate::group`]'s lease:
//! - Only ticks are counted that were planned to be slept through. A pause of the process adds none.
//! - They are counted before a message is stepped. A message sets timers back, and ticks from before it must not move
//!   them forward again.
//! - A plan begins at a clock reading from behind the last message of a leader. A process may be stopped between reading
//!   the clock and its work. The time that passed meanwhile was no silence of the leader, but the turn's own reading does
//!   not tell.
//! - A follower plans no further than to when the next heartbeat is overdue.

use raft::StateRole;
use trine_transport::time::{Duration, Instant};

use super::RaftGroup;
use crate::log::Log;

/// Ticks by which a heartbeat may be late before a follower counts one by one again.
const HEARTBEAT_LATE_TICKS: usize = 2;

/// The times of ticks.
#[derive(Debug)]
pub(super) struct TickPlan {
    /// When the next tick is due.
    next: Instant,
    /// How many ticks, beginning with the next one, may be slept through.
    rests: usize,
    /// A leader was heard in this turn. Its clock was read before that, so that no plan may begin with this reading.
    heard: bool,
    /// It was heard in the turn before: the next turn can plan.
    wants_plan: bool,
    /// Ticks were counted, and the work that comes with a tick was not done since.
    owes_work: bool,
}

impl TickPlan {
    pub(super) fn starting_at(next: Instant) -> Self {
        Self {
            next,
            rests: 0,
            heard: false,
            wants_plan: false,
            owes_work: false,
        }
    }

    /// A leader was heard.
    pub(super) fn on_leader(&mut self) {
        self.rests = 0;
        self.heard = true;
    }

    /// Nothing is slept through before the next turn has planned it.
    pub(super) fn give_up(&mut self) {
        self.rests = 0;
    }
}

impl<L: Log> RaftGroup<L> {
    /// One tick if one is due. The next is due a whole period later. Ticks that were missed are never made up, because
    /// a burst of them after a pause would break the promises that a lease relies on. Ticks that were slept through as
    /// planned count. Returns whether the work of a tick is due.
    pub(crate) fn tick_if_due(&mut self, now: Instant) -> bool {
        self.catch_up(now);
        if now >= self.ticks.next {
            self.ticks.next = now + self.config.tick;
            self.ticks.rests = 0;
            self.ticks.owes_work = true;
            self.tick();
        }
        std::mem::take(&mut self.ticks.owes_work)
    }

    /// Counts the ticks that were slept through until now, ahead of a message.
    pub(super) fn catch_up(&mut self, now: Instant) {
        if now >= self.ticks.next {
            self.count_rests(now);
        }
    }

    /// Plans the ticks to come; the last step of a turn.
    pub(crate) fn plan_ticks(&mut self) {
        let heard = std::mem::take(&mut self.ticks.heard);
        self.ticks.wants_plan = heard;
        self.ticks.rests = if heard { 0 } else { self.ticks_at_rest() };
    }

    /// Whether one more turn, which reads the clock again, may plan to sleep through ticks.
    pub(crate) fn wants_to_plan(&self) -> bool {
        self.ticks.wants_plan
    }

    /// When the next tick is due.
    pub(crate) fn next_tick(&self) -> Instant {
        self.ticks.next
    }

    /// When the first tick is due that does something.
    pub(crate) fn next_working_tick(&self) -> Instant {
        let rest = self.config.tick.as_nanos() * self.ticks.rests as u64;
        self.ticks.next + Duration::from_nanos(rest)
    }

    /// How many ticks are due at `now`, which is no earlier than the next one.
    fn due(&self, now: Instant) -> usize {
        let since = now.saturating_since(self.ticks.next).as_nanos();
        usize::try_from(since / self.config.tick.as_nanos())
            .unwrap_or(usize::MAX - 1)
            .saturating_add(1)
    }

    /// Counts the ticks that are due and were planned to be slept through.
    fn count_rests(&mut self, now: Instant) {
        let due = self.due(now);
        let has_overslept = due > self.ticks.rests + 1;
        if has_overslept && !self.is_leader() {
            // It was paused, for an unknown time: it must not campaign before it has read what waits for it.
            self.ticks.rests = 0;
        }
        let count = due.min(self.ticks.rests).min(self.ticks_at_rest());
        for _ in 0..count {
            self.tick();
        }
        self.ticks.rests -= count;
        self.ticks.owes_work |= count > 0;
        let passed = self.config.tick.as_nanos() * count as u64;
        self.ticks.next += Duration::from_nanos(passed);
    }

    /// How many ticks from now on would only count.
    fn ticks_at_rest(&self) -> usize {
        let raft = &self.node.raft;
        let until_working = match raft.state {
            _ if !self.unwritten.is_empty() || self.is_transferring() => 0,
            StateRole::Leader => {
                let to_heartbeat = raft
                    .heartbeat_timeout()
                    .saturating_sub(raft.heartbeat_elapsed());
                let to_check = raft
                    .election_timeout()
                    .saturating_sub(raft.election_elapsed);
                to_heartbeat.min(to_check)
            }
            StateRole::Follower if self.leader() != raft::INVALID_ID => {
                let patience = self.config.heartbeat_ticks + HEARTBEAT_LATE_TICKS;
                let to_campaign = self
                    .drawn_election_timeout()
                    .saturating_sub(raft.election_elapsed);
                patience
                    .saturating_sub(self.ticks_since_leader)
                    .min(to_campaign)
            }
            _ => 0,
        };
        let until_working = match self.prompt_commit_ticks {
            0 => until_working,
            ticks => until_working.min(ticks),
        };
        until_working.saturating_sub(1)
    }

    /// One tick, unless raft must not campaign yet.
    fn tick(&mut self) {
        if self.must_not_campaign_yet() {
            return;
        }
        let draw = self.drawn_election_timeout();
        self.node.raft.set_randomized_election_timeout(draw);
        self.ticks_since_leader = self.ticks_since_leader.saturating_add(1);
        self.ticks_unled = match self.is_leader() {
            true => 0,
            false => self.ticks_unled.saturating_add(1),
        };
        self.patience.tick();
        if !self.must_keep_silent() {
            self.node.tick();
        }
        if self.prompt_commit_ticks > 0 {
            self.prompt_commit_ticks -= 1;
            self.node.skip_bcast_commit(self.prompt_commit_ticks == 0);
        }
    }

    /// The group's leaders were promised a longer silence than raft knows of yet.
    fn must_keep_silent(&self) -> bool {
        self.silence_ticks > self.config.election_ticks
            && self.ticks_since_leader < self.silence_ticks
            && !self.is_leader()
    }
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::MessageType;
    use trine_transport::prng::Prng;

    use super::super::tests::{follower, message, round_numbers};
    use super::*;
    use crate::log::MemoryLog;

    const TICK: Duration = Duration::from_millis(10);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn hear(group: &mut RaftGroup<MemoryLog>, now: Instant) {
        let heartbeat = message(MessageType::MsgHeartbeat, 2, 2);
        group.step(now, 2, heartbeat).unwrap();
    }

    /// One turn without messages.
    fn turn(group: &mut RaftGroup<MemoryLog>, now: Instant) -> bool {
        let works = group.tick_if_due(now);
        while group.poll_work().is_some() {}
        group.plan_ticks();
        works
    }

    /// A follower of replica 2 that was heard just now, with a plan.
    fn resting(now: Instant) -> RaftGroup<MemoryLog> {
        let mut group = follower(1);
        hear(&mut group, now);
        turn(&mut group, now);
        turn(&mut group, now);
        group
    }

    /// The leader of three.
    fn leader(now: Instant) -> RaftGroup<MemoryLog> {
        let mut group = follower(1);
        group.campaign();
        for kind in [
            MessageType::MsgRequestPreVoteResponse,
            MessageType::MsgRequestVoteResponse,
        ] {
            while group.poll_work().is_some() {}
            group.step(now, 2, message(kind, 2, 2)).unwrap();
        }
        turn(&mut group, now);
        assert!(group.is_leader());
        group
    }

    /// A process that was stopped for a second has missed a hundred ticks. Making them up would let its election
    /// timeout pass at once, although it may just have acknowledged a leader's heartbeat out of its queue.
    #[test]
    fn missed_ticks_are_dropped_and_the_next_is_a_whole_period_away() {
        let mut group = follower(1);
        let tick = round_numbers().tick;
        let woken = Instant::ZERO + Duration::from_secs(1);
        assert!(group.tick_if_due(woken));
        assert!(!group.tick_if_due(woken));
        assert_eq!(group.next_tick(), woken + tick);
        assert!(!group.tick_if_due(Instant::from_nanos((woken + tick).as_nanos() - 1)));
        assert!(group.tick_if_due(woken + tick));
        assert_eq!(group.role(), StateRole::Follower);
    }

    #[test]
    fn a_follower_sleeps_until_a_heartbeat_is_overdue_and_then_counts_one_by_one() {
        let mut group = resting(Instant::ZERO);
        assert_eq!(group.next_tick(), at(10));
        assert_eq!(group.next_working_tick(), at(50));
        assert!(turn(&mut group, at(50)));
        assert_eq!(group.ticks_since_leader, 5);
        assert_eq!(group.next_working_tick(), at(60));
        assert!(turn(&mut group, at(60)));
        assert_eq!(group.next_working_tick(), at(70));
    }

    /// The work of a tick is done at each heartbeat, though no tick is due in that turn.
    #[test]
    fn ticks_that_a_heartbeat_finds_slept_through_have_their_work_done() {
        let mut group = resting(Instant::ZERO);
        hear(&mut group, at(31));
        assert_eq!(group.next_tick(), at(40));
        assert!(turn(&mut group, at(31)), "ticks were counted");
        assert!(!turn(&mut group, at(31)), "and their work is done");
    }

    #[test]
    fn nobody_sleeps_through_ticks_without_a_leader() {
        let mut group = follower(1);
        turn(&mut group, Instant::ZERO);
        assert_eq!(group.next_working_tick(), at(10));
        for ms in (10..2_000).step_by(10) {
            turn(&mut group, at(ms));
            assert_eq!(group.next_working_tick(), at(ms + 10), "{:?}", group.role());
        }
        assert_ne!(group.role(), StateRole::Follower);
    }

    #[test]
    fn a_leader_wakes_up_for_each_heartbeat_alone() {
        let mut group = leader(Instant::ZERO);
        let mut now = Instant::ZERO;
        for _ in 0..4 {
            now = group.next_working_tick();
            assert!(group.tick_if_due(now));
            let sent = std::iter::from_fn(|| group.poll_work()).flat_map(|work| work.messages);
            let heartbeat =
                |m: &raft::eraftpb::Message| m.get_msg_type() == MessageType::MsgHeartbeat;
            assert_eq!(sent.filter(heartbeat).count(), 2);
            group.plan_ticks();
        }
        assert_eq!(now, at(120));
    }

    /// One member counts each tick when it is due, the other sleeps. Whatever they hear, they campaign in the same tick.
    #[test]
    fn a_sleeper_counts_as_one_that_is_awake() {
        for seed in 0..200 {
            let mut prng = Prng::new(seed);
            let (mut awake, mut sleeper) = (follower(seed), follower(seed));
            let silent_from = 200 + prng.below(200);
            let mut heard = 1;
            for ms in 1..1_000 {
                let now = at(ms);
                if ms == heard && ms < silent_from {
                    heard += 1 + prng.below(60);
                    hear(&mut awake, now);
                    hear(&mut sleeper, now);
                    turn(&mut sleeper, now);
                }
                turn(&mut awake, now);
                if now >= sleeper.next_working_tick() || prng.below(40) == 0 || ms == heard {
                    turn(&mut sleeper, now);
                }
                // As if one more turn had read the clock.
                sleeper.plan_ticks();
                if awake.role() != sleeper.role() {
                    panic!("seed {seed}, {ms} ms: {:?}", awake.role());
                }
            }
            assert_ne!(sleeper.role(), StateRole::Follower, "seed {seed}");
        }
    }

    /// It has read the clock, was stopped, and then acknowledges a heartbeat that has come meanwhile. The ticks of its
    /// pause passed before that heartbeat was sent, but by its clock they come behind it.
    #[test]
    fn a_pause_between_the_clock_and_a_heartbeat_adds_no_tick_to_the_silence() {
        for pause_ms in 1..400 {
            let mut group = resting(Instant::ZERO);
            let (read, resumed) = (at(5), at(5 + pause_ms));
            hear(&mut group, read);
            turn(&mut group, read);
            turn(&mut group, resumed);
            assert!(group.ticks_since_leader <= 1, "{pause_ms} ms");
            // By its next turns at least that much time has passed since the acknowledgement.
            for ms in [20, 40] {
                turn(&mut group, resumed + Duration::from_millis(ms));
                let most = 1 + ms / TICK.as_millis();
                assert!(group.ticks_since_leader as u64 <= most, "{pause_ms} ms");
            }
        }
    }

    /// It does not know when its pause began. It reads what waits for it first, and has time for that.
    #[test]
    fn a_follower_that_was_paused_does_not_campaign_early() {
        let config = round_numbers();
        for pause_ms in 1..1_000 {
            let mut group = resting(Instant::ZERO);
            let woken = at(pause_ms);
            turn(&mut group, woken);
            let counted = group.ticks_since_leader;
            assert!(counted <= config.heartbeat_ticks + HEARTBEAT_LATE_TICKS);
            assert_eq!(group.role(), StateRole::Follower);
            let mut now = woken;
            while group.ticks_since_leader + 1 < config.election_ticks {
                now = group.next_working_tick();
                turn(&mut group, now);
                assert_eq!(group.role(), StateRole::Follower, "{pause_ms} ms");
            }
            let left = config.election_ticks - counted - 1;
            assert!(now.saturating_since(woken) + TICK >= TICK * left as u64);
        }
    }

    /// With a leader's message in the queue the ticks of the pause mean nothing at all.
    #[test]
    fn a_heartbeat_in_the_queue_of_a_paused_follower_counts_behind_the_pause() {
        for pause_ms in 1..1_000 {
            let mut group = resting(Instant::ZERO);
            let woken = at(pause_ms);
            hear(&mut group, woken);
            turn(&mut group, woken);
            turn(&mut group, woken);
            assert!(group.ticks_since_leader <= 1, "{pause_ms} ms");
        }
    }

    #[test]
    fn other_settings_end_a_plan() {
        let mut group = resting(Instant::ZERO);
        group.adopt(&round_numbers());
        assert_eq!(group.next_working_tick(), group.next_tick());
    }
}
