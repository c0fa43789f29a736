//! Batches of independent lookups that hide the latency of memory from each other.
//!
//! A lookup is written once, in a straight line, as an `async` block. It awaits [`fetch`] before it
//! touches a cache line for the first time. That prefetches the line, and lets the other lookups
//! run until it is there. Nothing is allocated, nothing wakes anything: a fixed number of lanes is
//! polled round-robin. In the batch form all lanes start together. In the refill form a finished
//! lookup makes room for the next, which is better if lookups differ in length.
//!
//! Write a lookup as `fn name(..) -> impl Future { async move { .. } }`: an `async fn` would keep
//! its arguments twice.

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

/// Runs lookups `0..count`, at most `N` at a time: `N` start together, and the next `N` when all
/// of those are done. `done` gets each result with its number, in no particular order.
#[inline(always)]
pub fn batch<const N: usize, F: Future>(
    count: usize,
    mut start: impl FnMut(usize) -> F,
    mut done: impl FnMut(usize, F::Output),
) {
    let mut lanes = Lanes::<N, F>::new();
    let mut first = 0;
    while first < count {
        let started = N.min(count - first);
        lanes.begin_all(started, |lane| start(first + lane));
        while lanes.occupied != 0 {
            let mut waiting = lanes.occupied;
            while waiting != 0 {
                let lane = waiting.trailing_zeros() as usize;
                waiting &= waiting - 1;
                if let Some(result) = lanes.poll(lane) {
                    done(first + lane, result);
                }
            }
        }
        first += started;
    }
}

/// Runs lookups `0..count`, at most `N` at a time; a lookup that finishes makes room for the next.
#[inline(always)]
pub fn refill<const N: usize, F: Future>(
    count: usize,
    mut start: impl FnMut(usize) -> F,
    mut done: impl FnMut(usize, F::Output),
) {
    let mut lanes = Lanes::<N, F>::new();
    let mut numbers: [usize; N] = std::array::from_fn(|lane| lane);
    let mut next = N.min(count);
    lanes.begin_all(next, &mut start);
    while lanes.occupied != 0 {
        let mut waiting = lanes.occupied;
        while waiting != 0 {
            let lane = waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            let Some(result) = lanes.poll(lane) else {
                continue;
            };
            done(numbers[lane], result);
            if next < count {
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
    /// A bit for each lane that holds a future: initialized, and not moved from then on.
    occupied: u64,
}

impl<const N: usize, F: Future> Lanes<N, F> {
    #[inline(always)]
    fn new() -> Self {
        const { assert!(N > 0 && N <= 64) };
        Self {
            futures: [const { MaybeUninit::uninit() }; N],
            occupied: 0,
        }
    }

    /// Fills the first lanes; all of them are free. If `start` panics, the futures that it has
    /// made are forgotten, which is allowed: none was pinned by a poll yet.
    #[inline(always)]
    fn begin_all(&mut self, count: usize, mut start: impl FnMut(usize) -> F) {
        debug_assert_eq!(self.occupied, 0);
        for (lane, place) in self.futures.iter_mut().enumerate().take(count) {
            place.write(start(lane));
        }
        self.occupied = if count == 64 {
            u64::MAX
        } else {
            (1 << count) - 1
        };
    }

    /// Puts a future into a free lane. Its first poll comes with those of the others.
    #[inline(always)]
    fn begin(&mut self, lane: usize, future: F) {
        debug_assert_eq!(self.occupied >> lane & 1, 0);
        self.futures[lane].write(future);
        self.occupied |= 1 << lane;
    }

    /// Polls the future of an occupied lane and frees the lane when it is done.
    #[inline(always)]
    fn poll(&mut self, lane: usize) -> Option<F::Output> {
        debug_assert_eq!(self.occupied >> lane & 1, 1);
        // SAFETY: `batch` and `refill` poll only lanes whose bit in `occupied` they have just seen
        // set, and no bit at or above N is ever set, so the lane is inside the array.
        let future = unsafe { self.futures.get_unchecked_mut(lane) };
        // SAFETY: the bit says that the lane was filled and that its future was not dropped.
        let future = unsafe { future.assume_init_mut() };
        // SAFETY: the future stays at its place in `futures` until it is dropped there: `Lanes`
        // is a local of `batch` or `refill` that is never moved after the first `begin`, and
        // `begin` fills only lanes whose future was dropped.
        let future = unsafe { Pin::new_unchecked(future) };
        let Poll::Ready(result) = future.poll(&mut Context::from_waker(Waker::noop())) else {
            return None;
        };
        self.occupied &= !(1 << lane);
        // SAFETY: the lane was initialized (see above), and with its bit cleared neither `drop`
        // nor a further poll will touch the future again.
        unsafe { self.futures[lane].assume_init_drop() };
        Some(result)
    }
}

impl<const N: usize, F: Future> Drop for Lanes<N, F> {
    /// After a panic in the middle of a batch, the other futures are still pinned here.
    fn drop(&mut self) {
        let mut occupied = self.occupied;
        while occupied != 0 {
            let lane = occupied.trailing_zeros() as usize;
            occupied &= occupied - 1;
            // SAFETY: a set bit says that the lane holds an initialized future; each is dropped
            // once, in place, as pinning demands.
            unsafe { self.futures[lane].assume_init_drop() };
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

    type Form = fn(usize, &Cell<usize>, &mut dyn FnMut(usize, usize));

    fn check_form(form: Form) {
        for count in [0, 1, 3, 4, 5, 64, 103] {
            let dropped = Cell::new(0);
            let mut results = vec![0; count];
            form(count, &dropped, &mut |number, result| {
                assert_eq!(number, result);
                results[number] += 1;
            });
            assert!(results.iter().all(|&times| times == 1));
            assert_eq!(dropped.get(), count);
        }
    }

    #[test]
    fn every_lookup_is_done_once_in_both_forms() {
        check_form(|count, dropped, done| {
            batch::<4, _>(
                count,
                |number| countdown(number, number * 7 % 5, dropped),
                done,
            );
        });
        check_form(|count, dropped, done| {
            refill::<4, _>(
                count,
                |number| countdown(number, number * 7 % 5, dropped),
                done,
            );
        });
    }

    #[test]
    fn a_panic_drops_the_other_lanes() {
        let dropped = Cell::new(0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            refill::<8, _>(
                8,
                |number| countdown(number, if number == 5 { 30 } else { 40 }, &dropped),
                |_, _| {},
            );
        }));
        assert!(result.is_err());
        assert_eq!(dropped.get(), 8);
    }
}
