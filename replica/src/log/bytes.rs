//! A queue of bytes: they go in at the back, leave at the front, and can be taken back from the back.
//!
//! It holds them in pieces of one size, whatever entry they belong to. Its memory is that of its bytes, of less than
//! two pieces at its ends, and of the spare ones. If each log entry had its own allocation, the allocator would round
//! its size up, by a fifth for entries of a kilobyte. It could give a page back only when the last entry on it has
//! gone. A full log of 64 MiB took 95 to 115 MiB, and how much depended on what had been written before.

use std::collections::VecDeque;

use crate::config::LOG_SPARE_PIECES_MAX;

/// Bytes at positions that count up from the first one that was ever pushed.
#[derive(Debug, Default)]
pub(crate) struct ByteQueue<const PIECE: usize> {
    /// Piece `i` holds the positions from `(first + i) * PIECE` on. Invariant: they reach from the front to the back, and
    /// no piece lies wholly in front of the one or after the other.
    pieces: VecDeque<Box<[u8]>>,
    /// Number of the first piece.
    first: u64,
    front: u64,
    back: u64,
    /// Pieces for the bytes that come next: a full log takes in as much as it lets go.
    spare: Vec<Box<[u8]>>,
}

impl<const PIECE: usize> ByteQueue<PIECE> {
    /// The position after the last byte, where the next one will be.
    pub(crate) const fn back(&self) -> u64 {
        self.back
    }

    /// Puts `bytes` in at the back.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (piece, offset) = self.place(self.back);
            if piece == self.pieces.len() {
                let spare = self.spare.pop();
                self.pieces
                    .push_back(spare.unwrap_or_else(|| vec![0; PIECE].into_boxed_slice()));
            }
            let room = &mut self.pieces[piece][offset..];
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.back += now.len() as u64;
            bytes = later;
        }
    }

    /// A copy of the `length` bytes at position `at`.
    ///
    /// # Panics
    /// When the queue does not hold all of them.
    pub(crate) fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let end = at + length as u64;
        assert!(
            self.front <= at && end <= self.back,
            "bytes {at} to {end} of a queue that holds {} to {}",
            self.front,
            self.back
        );
        let mut out = Vec::with_capacity(length);
        while out.len() < length {
            let (piece, offset) = self.place(at + out.len() as u64);
            let held = &self.pieces[piece][offset..];
            out.extend_from_slice(&held[..held.len().min(length - out.len())]);
        }
        out
    }

    /// Takes the bytes from position `back` on back.
    pub(crate) fn truncate(&mut self, back: u64) {
        assert!(
            self.front <= back && back <= self.back,
            "what has left does not come back"
        );
        self.back = back;
        let needed = (back.div_ceil(PIECE as u64) - self.first) as usize;
        while self.pieces.len() > needed {
            let piece = self.pieces.pop_back();
            self.keep(piece);
        }
    }

    /// Lets the bytes in front of position `front` go.
    pub(crate) fn forget_below(&mut self, front: u64) {
        assert!(
            self.front <= front && front <= self.back,
            "only what is held can be let go"
        );
        self.front = front;
        while self.first < front / PIECE as u64 {
            let piece = self.pieces.pop_front();
            self.keep(piece);
            self.first += 1;
        }
    }

    /// Which piece holds `position`, and where in it.
    const fn place(&self, position: u64) -> (usize, usize) {
        let piece = (position / PIECE as u64 - self.first) as usize;
        (piece, (position % PIECE as u64) as usize)
    }

    fn keep(&mut self, piece: Option<Box<[u8]>>) {
        if self.spare.len() < LOG_SPARE_PIECES_MAX {
            self.spare.extend(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(Vec<u8>),
        Truncate(usize),
        Forget(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Push),
            1 => (0..60_usize).prop_map(Step::Truncate),
            2 => (0..60_usize).prop_map(Step::Forget),
        ];
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        /// Against a plain queue: the same bytes at the same positions, in the pieces that they touch.
        #[test]
        fn it_holds_what_a_plain_queue_holds(steps in steps()) {
            let mut queue = ByteQueue::<8>::default();
            let (mut model, mut front) = (VecDeque::new(), 0_u64);
            for step in steps {
                match step {
                    Step::Push(bytes) => {
                        queue.push(&bytes);
                        model.extend(bytes);
                    }
                    Step::Truncate(count) => {
                        model.truncate(model.len() - count.min(model.len()));
                        queue.truncate(front + model.len() as u64);
                    }
                    Step::Forget(count) => {
                        let count = count.min(model.len());
                        model.drain(..count);
                        front += count as u64;
                        queue.forget_below(front);
                    }
                }
                prop_assert_eq!(queue.back(), front + model.len() as u64);
                for at in 0..model.len() {
                    let expected: Vec<u8> = model.range(at..).copied().collect();
                    prop_assert_eq!(queue.read(front + at as u64, model.len() - at), expected);
                }
                let touched = queue.back().div_ceil(8) - front / 8;
                prop_assert_eq!(queue.pieces.len() as u64, touched);
                prop_assert!(queue.spare.len() <= LOG_SPARE_PIECES_MAX);
            }
        }
    }

    #[test]
    #[should_panic(expected = "of a queue that holds 3 to 20")]
    fn bytes_that_have_left_are_not_read() {
        let mut queue = ByteQueue::<8>::default();
        queue.push(&[1; 20]);
        queue.forget_below(3);
        queue.read(2, 4);
    }

    #[test]
    fn a_full_log_goes_round_in_the_memory_that_it_has() {
        let mut queue = ByteQueue::<8>::default();
        queue.push(&[1; 64]);
        let first = queue.pieces[0].as_ptr();
        queue.forget_below(8);
        queue.push(&[2; 8]);
        assert_eq!(queue.pieces[7].as_ptr(), first);
    }
}
