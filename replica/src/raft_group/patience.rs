//! How long a leader's silence is no reason for an election.
//!
//! The group's election timeout is the least: leases rely on it. A machine or a network that stalls now and then makes
//! longer gaps between the messages of a leader that is well, and an election would interrupt its writes for nothing. So a
//! replica waits for twice the longest gap that it has seen lately.

/// Ticks of one of the two periods whose gaps count.
const PERIOD_TICKS: usize = 512;
/// The longest patience, in election timeouts.
const TIMEOUTS_MAX: usize = 4;

/// No draw is as long as this, where `least` is the group's election timeout.
pub(super) const fn ticks_beyond(least: usize) -> usize {
    let longest = least.saturating_mul(TIMEOUTS_MAX);
    longest.saturating_add(longest / 2 + 1)
}

/// The longest gaps between a leader's messages, in ticks of this replica.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Patience {
    /// In the period that is under way.
    now: usize,
    /// In the one before.
    before: usize,
    /// Ticks of the period that is under way.
    ticks: usize,
    /// The term of the leader that was heard last.
    term: u64,
}

impl Patience {
    /// Time passes.
    pub(super) fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks == PERIOD_TICKS {
            (self.before, self.now, self.ticks) = (self.now, 0, 0);
        }
    }

    /// The leader of `term` was heard, `gap` ticks after a leader's last message. The first message of a leader ends the
    /// silence of another one, which says nothing about how late a leader can be.
    pub(super) fn heard(&mut self, term: u64, gap: usize) {
        if term == self.term {
            self.now = self.now.max(gap);
        }
        self.term = term;
    }

    /// The silence after which a replica campaigns at the earliest.
    pub(super) fn least_ticks(&self, least: usize) -> usize {
        let gap = self.now.max(self.before);
        let most = least.saturating_mul(TIMEOUTS_MAX);
        gap.saturating_mul(2).clamp(least, most)
    }

    /// The silence after which a replica campaigns, where `least` is the group's election timeout. The `draw` spreads the
    /// replicas over half of that again, so that two of them seldom campaign at once.
    pub(super) fn ticks_to_campaign(&self, least: usize, draw: u64) -> usize {
        let base = self.least_ticks(least);
        base + (draw % (base as u64 / 2 + 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: usize = 15;

    fn range(patience: &Patience) -> (usize, usize) {
        let drawn = || (0..1_000).map(|draw| patience.ticks_to_campaign(LEAST, draw));
        (drawn().min().unwrap(), drawn().max().unwrap())
    }

    fn of_term_1() -> Patience {
        let mut patience = Patience::default();
        patience.heard(1, 0);
        patience
    }

    /// Followers once took the silence that ended with an election for a gap. After a leader had been stopped, the next
    /// silence was borne for twice as long, and so on.
    #[test]
    fn the_silence_of_a_leader_that_was_replaced_is_no_gap() {
        let mut patience = of_term_1();
        patience.heard(2, 22);
        assert_eq!(range(&patience), (15, 22));
        patience.heard(2, 4);
        assert_eq!(range(&patience), (15, 22));
    }

    #[test]
    fn a_calm_replica_waits_for_one_to_one_and_a_half_election_timeouts() {
        let mut patience = Patience::default();
        for _ in 0..10 {
            patience.heard(1, 4);
        }
        assert_eq!(range(&patience), (15, 22));
    }

    /// A leader whose machine stalls for two thirds of the timeout would soon be replaced for nothing.
    #[test]
    fn it_waits_for_twice_the_longest_gap_until_that_is_two_periods_old() {
        let mut patience = of_term_1();
        patience.heard(1, 10);
        patience.heard(1, 4);
        assert_eq!(range(&patience), (20, 30));
        for _ in 0..PERIOD_TICKS {
            patience.tick();
        }
        assert_eq!(range(&patience), (20, 30));
        for _ in 0..PERIOD_TICKS {
            patience.tick();
        }
        assert_eq!(range(&patience), (15, 22));
    }

    #[test]
    fn it_never_waits_for_less_than_leases_rely_on_nor_without_end() {
        let mut patience = of_term_1();
        for gap in [0, 1, 7, 8, 100, usize::MAX - 1] {
            patience.heard(1, gap);
            let (least, most) = range(&patience);
            assert!(
                least >= LEAST && most <= 6 * LEAST && most < ticks_beyond(LEAST),
                "{gap}: {least} to {most}"
            );
        }
    }
}
