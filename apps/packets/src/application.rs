//! A packet application, and the path of a batch of packets through it.

use crate::verdict::Verdict;
use std::future::Future;
use trine_kvstore::interleave::batch;

/// A handler of packets with the tables that it reads.
pub trait Application: Sync {
    /// Judges one frame and changes its bytes. It is written for one frame, in a straight line, and awaits each access to
    /// memory that may be far away.
    ///
    /// `N` is the batch size. It only gives each size a future of its own type, which the compiler can then inline.
    fn handle<'a, const N: usize>(
        &'a self,
        frame: &'a mut [u8],
    ) -> impl Future<Output = Verdict> + 'a;
}

/// Judges frames, `N` at a time. Each verdict goes to the place of its frame.
///
/// This is a function of its own. The compiler merges a handler into the loop over its lanes where there is only one such
/// loop, and checks, threads and benchmarks share this one.
#[inline(never)]
pub fn handle_all<const N: usize, A: Application>(
    application: &A,
    frames: &mut [&mut [u8]],
    verdicts: &mut [Verdict],
) {
    assert_eq!(frames.len(), verdicts.len(), "a verdict on each frame");
    let count = frames.len();
    let mut frames = frames.iter_mut();
    batch::<N, _>(
        count,
        |_| application.handle::<N>(frames.next().expect("as many as it says")),
        |index, verdict| verdicts[index] = verdict,
    );
}

/// Work on an application and a batch size that are known only when the program runs.
pub trait OnBatch {
    /// The result of the work.
    type Output;
    /// Does the work with batches of `N`.
    fn on<const N: usize>(self) -> Self::Output;
}

/// Does the work with one of the batch sizes that are compiled; `None` for another one.
pub fn on_batch<W: OnBatch>(size: usize, work: W) -> Option<W::Output> {
    match size {
        1 => Some(work.on::<1>()),
        4 => Some(work.on::<4>()),
        8 => Some(work.on::<8>()),
        16 => Some(work.on::<16>()),
        32 => Some(work.on::<32>()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BATCHES;

    struct Size;

    impl OnBatch for Size {
        type Output = usize;
        fn on<const N: usize>(self) -> usize {
            N
        }
    }

    #[test]
    fn every_listed_batch_size_is_compiled_and_no_other() {
        for size in 0..64 {
            let compiled = on_batch(size, Size);
            assert_eq!(compiled, BATCHES.contains(&size).then_some(size));
        }
    }
}
