//! How long an idle worker thread polls for its next job before it sleeps.
//!
//! A thread that sleeps is woken by the event loop, with a system call that takes as long as a short handler. Every
//! request behind it waits. So where jobs come often, a thread polls for longer than its settings say: until the next
//! job is well overdue. Where they are rare it does not, for it would burn a processor for nothing.

use std::time::Duration;

/// A job is overdue after so many times the mean pause. Of pauses that are drawn at random, one in 3,000 is longer.
const PAUSES: u32 = 8;
/// A thread polls for at most so many times what its settings say.
const SPINS_MAX: u32 = 20;
/// The weight of earlier pauses in the mean is this minus one, to one.
const WEIGHT: u32 = 8;

/// What a thread knows of its pauses.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// The mean of the pauses so far, of which the last ones count most. None before the first.
    mean: Option<Duration>,
}

impl Patience {
    /// For how long to poll, if the settings say `spin`.
    pub(super) fn poll_for(&self, spin: Duration) -> Duration {
        let most = spin.saturating_mul(SPINS_MAX);
        match self.mean {
            Some(mean) if mean <= most => mean.saturating_mul(PAUSES).clamp(spin, most),
            _ => spin,
        }
    }

    /// A pause has ended with a job. It may have been slept through.
    pub(super) fn note(&mut self, pause: Duration) {
        self.mean = Some(match self.mean {
            None => pause,
            Some(mean) => mean - mean / WEIGHT + pause / WEIGHT,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Duration = Duration::from_micros(50);

    fn after(pauses: impl IntoIterator<Item = u64>) -> Duration {
        let mut patience = Patience::default();
        let pauses = pauses.into_iter().map(Duration::from_micros);
        pauses.for_each(|pause| patience.note(pause));
        patience.poll_for(SPIN)
    }

    #[test]
    fn who_gets_jobs_often_polls_until_the_next_is_overdue() {
        assert_eq!(after([]), SPIN);
        assert_eq!(after([57; 20]), Duration::from_micros(456));
        assert_eq!(after([2; 20]), SPIN, "never less than was asked for");
        assert_eq!(after([500; 20]), 20 * SPIN, "and not for ever");
    }

    #[test]
    fn who_gets_jobs_rarely_polls_no_longer_than_it_was_told() {
        assert_eq!(after([1_001; 20]), SPIN);
        assert_eq!(after([1_000_000, 10]), SPIN, "one early job is no habit");
        assert_eq!(Patience::default().poll_for(Duration::ZERO), Duration::ZERO);
        // It learns both ways.
        let busy = [20; 100];
        let idle = [100_000];
        assert_eq!(after(busy.into_iter().chain(idle)), SPIN);
        let again = after(idle.into_iter().chain(busy));
        assert!(again >= SPIN && again < 4 * SPIN, "{again:?}");
    }

    #[test]
    fn a_thread_that_was_told_not_to_poll_does_not() {
        let mut patience = Patience::default();
        patience.note(Duration::from_micros(1));
        assert_eq!(patience.poll_for(Duration::ZERO), Duration::ZERO);
    }
}
