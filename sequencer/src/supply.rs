//! The numbers that the threads of a server may give out, and until when.
//!
//! All threads share one supply: the next number, the end of what is reserved, and the moment at which the lease ends. A
//! thread takes the numbers of all requests of a turn by one atomic operation. It is a compare-and-exchange and no
//! fetch-and-add: one that goes beyond the end changes nothing, so nothing has to be taken back.
//!
//! **No number is taken twice.** `next` only grows. Taking moves it from `first` to `first + count`, if that is not beyond
//! the `limit` that was read. One caller alone adds numbers ([`Supply::add`]). Everything below `limit` is reserved for this
//! server, but for the gap between an old limit and a new block that does not follow it. So `add` moves
//! `next` to the new block first, and raises `limit` after that. In between nothing can be taken. A taker that read the old
//! `next` and the new `limit` fails, because `next` has moved.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trine_transport::time::Instant;

use crate::tenure::Grant;

/// Why a server gives out no number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Another server does, or this one does not know that none does.
    Elsewhere,
    /// What is reserved is used up, and no more could be reserved.
    NotReserved,
}

impl Why {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Elsewhere => 1,
            Self::NotReserved => 2,
        }
    }

    pub(crate) fn of_number(number: u8) -> Option<Self> {
        [Self::Elsewhere, Self::NotReserved]
            .into_iter()
            .find(|why| why.number() == number)
    }
}

/// The numbers of a server.
#[derive(Debug)]
pub struct Supply {
    next: AtomicU64,
    /// Everything from `next` to here may be given out.
    limit: AtomicU64,
    /// The end of the lease in nanoseconds; the largest number if there is no lease, and 0 before there is one.
    until: AtomicU64,
    /// More are asked for when fewer than this are left.
    low: u64,
    /// The most numbers that a thread has waited for since more came.
    wanted: AtomicU64,
    /// The last try to reserve more has failed.
    failing: AtomicBool,
}

impl Supply {
    /// Without a number. It asks for more when fewer than `low` are left.
    pub fn new(low: u64) -> Self {
        Self {
            next: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            until: AtomicU64::new(0),
            low,
            wanted: AtomicU64::new(0),
            failing: AtomicBool::new(false),
        }
    }

    /// Takes `count` numbers that follow each other and returns the first; `None` if fewer are left.
    #[inline]
    pub fn take(&self, count: u64) -> Option<u64> {
        let mut next = self.next.load(Ordering::Acquire);
        loop {
            let limit = self.limit.load(Ordering::Acquire);
            let end = next.checked_add(count).filter(|&end| end <= limit)?;
            match self
                .next
                .compare_exchange_weak(next, end, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(first) => return Some(first),
                Err(moved) => next = moved,
            }
        }
    }

    /// When numbers may no longer be given out; `None` if that never happens.
    #[inline]
    pub fn until(&self) -> Option<Instant> {
        let until = Instant::from_nanos(self.until.load(Ordering::Acquire));
        (until != Instant::FAR_FUTURE).then_some(until)
    }

    /// Adds what was reserved. What is left of an earlier block that does not reach to this one is dropped: those numbers
    /// would be smaller than some that another server may have given out. One caller at a time.
    pub fn add(&self, grant: &Grant) {
        if grant.start < grant.end {
            if self.limit.load(Ordering::Acquire) != grant.start {
                self.next.store(grant.start, Ordering::Release);
            }
            self.limit.store(grant.end, Ordering::Release);
            self.wanted.store(0, Ordering::Release);
        }
        // Behind the numbers: those of before a gap in the tenure must not be given out under the new lease.
        self.until
            .fetch_max(grant.until.as_nanos(), Ordering::AcqRel);
        self.failing.store(false, Ordering::Release);
    }

    /// More numbers could not be reserved.
    pub fn set_failing(&self) {
        self.failing.store(true, Ordering::Release);
    }

    /// Whether the last try to reserve more has failed.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    /// A thread needs `count` numbers and there are not as many.
    pub fn want(&self, count: u64) {
        self.wanted.fetch_max(count, Ordering::AcqRel);
    }

    /// How many numbers have to be reserved now, at least.
    #[inline]
    pub fn missing(&self) -> Option<u64> {
        let left = self.left();
        let wanted = self.wanted.load(Ordering::Acquire).max(self.low);
        wanted.checked_sub(left).filter(|&missing| missing > 0)
    }

    /// The numbers that are left.
    #[inline]
    pub fn left(&self) -> u64 {
        let next = self.next.load(Ordering::Acquire);
        self.limit.load(Ordering::Acquire).saturating_sub(next)
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn block(start: u64, end: u64) -> Grant {
        Grant {
            start,
            end,
            until: Instant::FAR_FUTURE,
        }
    }

    #[test]
    fn what_is_left_of_a_block_counts_only_if_the_next_follows() {
        let supply = Supply::new(4);
        assert_eq!(supply.take(1), None);
        supply.add(&block(10, 20));
        assert_eq!((supply.take(4), supply.missing()), (Some(10), None));
        assert_eq!((supply.take(3), supply.missing()), (Some(14), Some(1)));
        supply.add(&block(20, 30));
        assert_eq!(supply.take(6), Some(17));
        supply.add(&block(50, 60));
        assert_eq!((supply.take(10), supply.take(1)), (Some(50), None));
        supply.want(100);
        assert_eq!(supply.missing(), Some(100));
    }

    #[test]
    fn the_last_numbers_of_all_are_given_out_and_none_after_them() {
        let supply = Supply::new(0);
        supply.add(&block(u64::MAX - 3, u64::MAX));
        assert_eq!((supply.take(4), supply.take(3)), (None, Some(u64::MAX - 3)));
        assert_eq!((supply.take(1), supply.take(u64::MAX)), (None, None));
    }

    #[test]
    fn the_low_half_wraps_and_the_number_does_not() {
        let supply = Supply::new(0);
        let wrap = 1_u64 << 32;
        supply.add(&block(wrap - 3, wrap + 10));
        let taken: Vec<u64> = (0..3).filter_map(|_| supply.take(2)).collect();
        assert_eq!(taken, [wrap - 3, wrap - 1, wrap + 1]);
    }

    #[test]
    fn a_lease_is_never_shortened() {
        let supply = Supply::new(0);
        assert_eq!(supply.until(), Some(Instant::ZERO));
        let lease = |until| Grant {
            start: 0,
            end: 0,
            until: Instant::from_nanos(until),
        };
        supply.add(&lease(9));
        supply.add(&lease(7));
        assert_eq!(supply.until(), Some(Instant::from_nanos(9)));
        supply.add(&block(0, 0));
        assert_eq!(supply.until(), None);
    }

    /// Blocks with gaps come while four threads take: nothing comes twice, and nothing out of a gap.
    #[test]
    fn threads_share_blocks_with_gaps() {
        let supply = Supply::new(0);
        let begin = Barrier::new(5);
        let (blocks, size) = (2_000_u64, 64_u64);
        let take = || {
            begin.wait();
            let mut taken = Vec::new();
            let last = 2 * size * blocks;
            while supply.next() < last {
                taken.extend(supply.take(3));
                if supply.left() < 3 && supply.next() + 2 * size > last {
                    break;
                }
            }
            taken
        };
        let mut all = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            begin.wait();
            for number in 0..blocks {
                let start = 2 * size * number + size;
                supply.add(&block(start, start + size));
                while number + 1 < blocks && supply.left() > size / 2 {
                    std::hint::spin_loop();
                }
            }
            let joined = takers
                .into_iter()
                .map(|taker| taker.join().expect("no panic"));
            joined.flatten().collect::<Vec<u64>>()
        });
        all.sort_unstable();
        assert!(all.len() as u64 > blocks, "{} takings", all.len());
        for pair in all.windows(2) {
            assert!(pair[0] + 3 <= pair[1], "{pair:?}");
        }
        for first in all {
            assert!(
                first % (2 * size) >= size && (first + 2) % (2 * size) >= size,
                "{first} is in a gap"
            );
        }
    }
}
