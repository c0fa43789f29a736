//! How many sessions Redis clients may open in a while. The group has 65,536 entries for sessions, and an idle one gives way
//! when there is no room. Who opened them as fast as it can would take the entries of all others.

use trine_transport::time::{Duration, Instant};

/// Sessions that this replica opens in a second, for all of its Redis clients. Seven replicas need 36 s for all entries.
const PER_SECOND: u64 = 256;
/// Sessions that it opens at once, if it has opened none for a while.
const AT_ONCE: u64 = 1_024;

const BETWEEN: Duration = Duration::from_nanos(1_000_000_000 / PER_SECOND);

/// Counts them.
pub(super) struct Openings {
    left: u64,
    /// When `left` last grew.
    grown_at: Instant,
}

impl Default for Openings {
    fn default() -> Self {
        Self {
            left: AT_ONCE,
            grown_at: Instant::ZERO,
        }
    }
}

impl Openings {
    /// Whether a session may be opened now. If so, it counts.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let steps = now.saturating_since(self.grown_at).as_nanos() / BETWEEN.as_nanos();
        if self.left + steps >= AT_ONCE {
            (self.left, self.grown_at) = (AT_ONCE, now);
        } else {
            self.left += steps;
            self.grown_at += Duration::from_nanos(steps * BETWEEN.as_nanos());
        }
        let may = self.left > 0;
        self.left -= u64::from(may);
        may
    }

    /// Why not, and what to do.
    pub(super) fn refusal() -> String {
        format!(
            "clients of this replica open {PER_SECOND} sessions a second at most: try again in a second, and give a session \
             many commands"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_at_once_and_then_so_many_a_second() {
        let mut openings = Openings::default();
        let begin = Instant::ZERO + Duration::from_secs(5);
        let mut takes = |at| (0..2 * AT_ONCE).take_while(|_| openings.take(at)).count() as u64;
        assert_eq!(takes(begin), AT_ONCE);
        assert_eq!(takes(begin), 0);
        // Pauses that are shorter than a step add up.
        let mut sum = 0;
        for millisecond in 1..=1_000 {
            sum += takes(begin + Duration::from_millis(millisecond));
        }
        assert!((PER_SECOND - 1..=PER_SECOND).contains(&sum), "{sum}");
        assert_eq!(
            takes(begin + Duration::from_secs(3_600)),
            AT_ONCE,
            "no more"
        );
    }
}
