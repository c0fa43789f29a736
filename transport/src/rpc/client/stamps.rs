//! When the packets of a request that are under way were sent, for RTT samples.

use std::ops::Range;

use crate::config::RTT_STAMPS;
use crate::time::Instant;

/// They mean something only for packets that are under way.
///
/// A session with more than [`RTT_STAMPS`] credits has one for each group of neighbours: when the first of those that
/// are under way was sent. They leave together or nearly so, and a sample never comes out below the round trip.
pub(super) struct Stamps {
    /// The low 32 bits of the nanoseconds: packets of one round are sent within less than four seconds, because each
    /// timeout begins another.
    times: [u32; RTT_STAMPS],
}

impl Stamps {
    pub(super) fn new() -> Self {
        Self {
            times: [0; RTT_STAMPS],
        }
    }

    /// Packets with these numbers leave now. `is_first`: none before them is under way.
    #[inline(always)]
    pub(super) fn note(&mut self, now: Instant, numbers: Range<u32>, is_first: bool, credits: u16) {
        let shift = group_shift(credits);
        let first = numbers.start;
        for number in numbers {
            let begins_group = number & ((1 << shift) - 1) == 0;
            if begins_group || (is_first && number == first) {
                self.times[place(number, shift)] = low(now);
            }
        }
    }

    /// The only packet of a request leaves now.
    #[inline(always)]
    pub(super) fn note_single(&mut self, now: Instant) {
        self.times[0] = low(now);
    }

    /// When packet `number` was sent, given when the last one of its request was.
    #[inline(always)]
    pub(super) fn of(&self, number: u32, credits: u16, last_sent_at: Instant) -> Instant {
        let time = self.times[place(number, group_shift(credits))];
        let before_last = low(last_sent_at).wrapping_sub(time);
        Instant::from_nanos(last_sent_at.as_nanos().saturating_sub(before_last.into()))
    }
}

fn low(at: Instant) -> u32 {
    at.as_nanos() as u32
}

fn place(number: u32, shift: u32) -> usize {
    (number >> shift) as usize % RTT_STAMPS
}

/// The logarithm of how many packets share a stamp.
#[inline(always)]
fn group_shift(credits: u16) -> u32 {
    if usize::from(credits) <= RTT_STAMPS {
        return 0;
    }
    // What is under way may begin and end in the middle of a group.
    let packets = usize::from(credits).div_ceil(RTT_STAMPS - 1);
    packets.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    /// With 32 stamps for 64 credits, a window that was full gave no sample at all: congestion control saw nothing
    /// exactly when it had something to do.
    #[test]
    fn each_packet_of_a_full_window_has_its_own() {
        let mut stamps = Stamps::new();
        for number in 0..200 {
            stamps.note(at(number.into()), number..number + 1, number == 0, 64);
        }
        for number in 136..200_u32 {
            assert_eq!(stamps.of(number, 64, at(199)), at(number.into()));
        }
    }

    #[test]
    fn with_more_credits_neighbours_share_the_first_ones() {
        let mut stamps = Stamps::new();
        for number in 0..3_000 {
            stamps.note(at(number.into()), number..number + 1, number == 0, 1_024);
        }
        for number in 1_976..3_000_u32 {
            let first = u64::from(number / 32 * 32);
            assert_eq!(stamps.of(number, 1_024, at(2_999)), at(first));
        }
    }

    /// After a rollback into the middle of a group its stamp is of a round that is over.
    #[test]
    fn a_round_that_begins_inside_of_a_group_has_a_stamp() {
        let mut stamps = Stamps::new();
        stamps.note(at(10), 0..16, true, 1_024);
        stamps.note(at(2_000), 5..16, true, 1_024);
        assert_eq!(stamps.of(9, 1_024, at(2_000)), at(2_000));
    }

    #[test]
    fn the_time_is_right_where_its_low_bits_wrap() {
        let mut stamps = Stamps::new();
        let wraps = 1_u64 << 32;
        let (early, late) = (
            Instant::from_nanos(7 * wraps - 50),
            Instant::from_nanos(7 * wraps + 60),
        );
        stamps.note(early, 0..1, true, 64);
        stamps.note(late, 1..2, false, 64);
        assert_eq!(stamps.of(0, 64, late), early);
        assert_eq!(stamps.of(1, 64, late), late);
    }
}
