//! What is a packet application, and how does a batch of packets run through it?

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

/// Runs frames through an application, `N` at a time. `judged` gets each verdict with the frame's number, in no particular
/// order.
#[inline(always)]
pub fn handle_all<'a, const N: usize, A: Application>(
    application: &'a A,
    mut frames: impl ExactSizeIterator<Item = &'a mut [u8]>,
    judged: impl FnMut(usize, Verdict),
) {
    batch::<N, _>(
        frames.len(),
        |_| application.handle::<N>(frames.next().expect("as many as it says")),
        judged,
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
