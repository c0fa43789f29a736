//! Batches of independent lookups that hide the latency of memory from each other.
//!
//! A lookup is written once, in a straight line, as an `async` block. It awaits [`fetch`] before it
//! touches a cache line for the first time. That prefetches the line, and lets the other lookups
//! run until it is there. Nothing is allocated, nothing wakes anything: a fixed number of lanes is
//! polled round-robin, and a lane whose lookup is done takes the next one at once. So memory always
//! has as many requests as there are lanes, also if lookups differ in length.
//!
//! Write a lookup as `fn name(..) -> impl Future { async move { .. } }`: an `async fn` would keep
//! its arguments twice. Its first poll does not wait for the other lanes, so what it prefetched
//! before its `async` block is not there yet.

#![allow(unsafe_code)]

pub use crate::machine::prefetch;
use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The number of lanes that hides DRAM latency well: 8 are too few, more than 32 no better.
pub const LANES: usize = 16;

/// Waits until the first cache line of `value` is (most likely) in the cache.
#[inline(always)]
pub fn fetch<T: ?Sized>(value: &T) -> Fetch {
    prefetch(value);
    Fetch { waited: false }
}

/// The future of [`fetch`]: pending once.
#[derive(Debug)]
pub struct Fetch {
    waited: bool,
}

impl Future for Fetch {
    type Output = ();

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.waited {
            return Poll::Ready(());
        }
        self.waited = true;
        Poll::Pending
    }
}

/// Runs lookups `0..count`, at most `N` at a time: a lookup that finishes makes room for the next,
/// which starts at once. `done` gets each result with its number, in no particular order.
///
/// There is one place where lanes are polled, so that the compiler merges the lookup's code into
/// this loop. A second call with the same type of future would keep it a function.
#[inline(always)]
pub fn batch<const N: usize, F: Future>(
    count: usize,
    mut start: impl FnMut(usize) -> F,
    mut done: impl FnMut(usize, F::Output),
) {
    let mut lanes = Lanes::<N, F>::new();
    let mut numbers: [usize; N] = std::array::from_fn(|lane| lane);
    let mut next = N.min(count);
    for lane in 0..next {
        lanes.begin_first(lane, start(lane));
    }
    while lanes.taken != 0 {
        let mut waiting = lanes.taken;
        while waiting != 0 {
            let lane = waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            while let Some(result) = lanes.poll(lane) {
                done(numbers[lane], result);
                if next == count {
                    lanes.leave(lane);
                    break;
                }
                lanes.begin(lane, start(next));
                numbers[lane] = next;
                next += 1;
            }
        }
    }
}

/// Futures that are polled in place.
struct Lanes<const N: usize, F: Future> {
    futures: [MaybeUninit<F>; N],
    /// A bit for each lane that is in use. But for the vacant one, each holds a future: initialized,
    /// and not moved from then on.
    taken: u64,
    /// The lane in use, if there is one, whose future is done and dropped; any other value if not.
    /// A lookup then follows the other without a change to `taken`, which each poll depends on.
    vacant: usize,
}

impl<const N: usize, F: Future> Lanes<N, F> {
    #[inline(always)]
    fn new() -> Self {
        const { assert!(N > 0 && N <= 64) };
        Self {
            futures: [const { MaybeUninit::uninit() }; N],
            taken: 0,
            vacant: N,
        }
    }

    /// Takes a lane that is not in use, for its first future.
    #[inline(always)]
    fn begin_first(&mut self, lane: usize, future: F) {
        debug_assert_eq!(self.taken >> lane & 1, 0);
        self.futures[lane].write(future);
        self.taken |= 1 << lane;
    }

    /// Puts a further future into the vacant lane.
    #[inline(always)]
    fn begin(&mut self, lane: usize, future: F) {
        debug_assert_eq!(lane, self.vacant);
        self.futures[lane].write(future);
        self.vacant = N;
    }

    /// Gives up the vacant lane. Out of line: the compiler would make the bit ready in each poll.
    #[cold]
    #[inline(never)]
    fn leave(&mut self, lane: usize) {
        debug_assert_eq!(lane, self.vacant);
        self.taken &= !(1 << lane);
    }

    /// Polls the future of a lane in use that is not vacant. When the future is done, the lane is.
    #[inline(always)]
    fn poll(&mut self, lane: usize) -> Option<F::Output> {
        debug_assert!(self.taken >> lane & 1 == 1 && lane != self.vacant);
        // SAFETY: `batch` polls only lanes whose bit in `taken` is set, which `begin_first` did
        // after it had checked that the lane is inside the array.
        let future = unsafe { self.futures.get_unchecked_mut(lane) };
        // SAFETY: the lane was filled by `begin_first` or `begin`, and its future was not dropped:
        // when that happens below, `batch` fills the lane anew or gives it up before it polls again.
        let future = unsafe { future.assume_init_mut() };
        // SAFETY: the future stays at its place in `futures` until it is dropped there: `Lanes`
        // is a local of `batch` that is never moved after the first `begin_first`, and lanes are
        // filled only before their first future and after a future was dropped.
        let future = unsafe { Pin::new_unchecked(future) };
        let Poll::Ready(result) = future.poll(&mut Context::from_waker(Waker::noop())) else {
            return None;
        };
        self.vacant = lane;
        // SAFETY: the lane was initialized (see above). As it is vacant now, neither `drop` nor a
        // further poll will touch the future again.
        unsafe { self.futures[lane].assume_init_drop() };
        Some(result)
    }
}

impl<const N: usize, F: Future> Drop for Lanes<N, F> {
    /// After a panic in the middle of a batch, the other futures are still pinned here.
    fn drop(&mut self) {
        let mut taken = self.taken;
        while taken != 0 {
            let lane = taken.trailing_zeros() as usize;
            taken &= taken - 1;
            if lane != self.vacant {
                // SAFETY: the lane is in use and not vacant, so it holds an initialized future.
                // Each is dropped once, in place, as pinning demands.
                unsafe { self.futures[lane].assume_init_drop() };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Takes `steps` fetches, then returns its number.
    fn countdown(
        number: usize,
        steps: usize,
        dropped: &Cell<usize>,
    ) -> impl Future<Output = usize> {
        struct OnDrop<'a>(&'a Cell<usize>);
        impl Drop for OnDrop<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        async move {
            let _counted = OnDrop(dropped);
            let here = number;
            for step in 0..steps {
                fetch(&here).await;
                assert!(step < 20, "planted");
            }
            here
        }
    }

    #[test]
    fn every_lookup_is_done_once() {
        for count in [0, 1, 3, 4, 5, 64, 103] {
            let dropped = Cell::new(0);
            let mut results = vec![0; count];
            batch::<4, _>(
                count,
                |number| countdown(number, number * 7 % 5, &dropped),
                |number, result| {
                    assert_eq!(number, result);
                    results[number] += 1;
                },
            );
            assert!(results.iter().all(|&times| times == 1));
            assert_eq!(dropped.get(), count);
        }
    }

    #[test]
    fn all_64_lanes_can_be_taken() {
        let dropped = Cell::new(0);
        let mut sum = 0;
        batch::<64, _>(200, |n| countdown(n, n % 3, &dropped), |_, n| sum += n);
        assert_eq!((sum, dropped.get()), (199 * 100, 200));
    }

    /// Each lookup goes on only after every other lane had its turn, and a new one starts at once
    /// where one has ended.
    #[test]
    fn a_fetch_lets_every_other_lane_run() {
        let turns = Cell::new(0_usize);
        let turn = || turns.replace(turns.get() + 1);
        let lookup = |_| async {
            let first = turn();
            fetch(&0).await;
            (first, turn())
        };
        let mut seen = Vec::new();
        batch::<4, _>(6, lookup, |number, turns| seen.push((number, turns)));
        // The first four, then lane 0: the end of lookup 0 and the start of lookup 4, and so on.
        let expected = [(0, 4), (1, 6), (2, 8), (3, 9), (5, 10), (7, 11)];
        assert_eq!(seen, expected.into_iter().enumerate().collect::<Vec<_>>());
    }

    #[test]
    fn a_panic_of_done_drops_each_future_once() {
        let (begun, dropped) = (Cell::new(0), Cell::new(0));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let start = |number| {
                begun.set(begun.get() + 1);
                countdown(number, 1 + number % 2, &dropped)
            };
            batch::<4, _>(9, start, |number, _| assert!(number < 4, "planted"));
        }));
        assert!(result.is_err());
        assert!(begun.get() > 4);
        assert_eq!(dropped.get(), begun.get());
    }

    #[test]
    fn a_panic_of_a_start_drops_what_runs() {
        let dropped = Cell::new(0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let start = |number| {
                assert!(number < 6, "planted");
                countdown(number, 1, &dropped)
            };
            batch::<4, _>(8, start, |_, _| {});
        }));
        assert!(result.is_err());
        assert_eq!(dropped.get(), 6);
    }

    #[test]
    fn a_panic_drops_the_other_lanes() {
        let dropped = Cell::new(0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            batch::<8, _>(
                8,
                |number| countdown(number, if number == 5 { 30 } else { 40 }, &dropped),
                |_, _| {},
            );
        }));
        assert!(result.is_err());
        assert_eq!(dropped.get(), 8);
    }
}
