//! The room in front of a message's data, where a backend writes a header that its device then reads together with the
//! data.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::HEADER_ROOM;
use super::blocks::{Block, DATA_OFFSET};

const WORDS: usize = HEADER_ROOM / 8;

const _: () = assert!(DATA_OFFSET == size_of::<Block>() + HEADER_ROOM);
const _: () = assert!(size_of::<Block>().is_multiple_of(align_of::<AtomicU64>()));

/// The room in front of a message, borrowed from a [`BodyRef`](super::BodyRef).
///
/// Its first word is a stamp, with which a backend remembers the last send that used the room. The rest takes a header,
/// which ends where the data begins. A device may still read a header that was written before, and a header that is
/// written over it would reach the wire in pieces of both. So a backend looks at the stamp first.
#[derive(Copy, Clone, Debug)]
pub struct HeaderRoom<'a> {
    words: &'a [AtomicU64; WORDS],
}

impl HeaderRoom<'_> {
    /// The longest header.
    pub const HEADER_MAX: usize = HEADER_ROOM - 8;

    /// The room of a block.
    ///
    /// # Safety
    ///
    /// The block is in use, and stays so for the lifetime that the caller chooses.
    #[inline]
    pub(super) unsafe fn of_block(block: NonNull<Block>) -> Self {
        // SAFETY: every block has `DATA_OFFSET` bytes and more, and its room is between its links and its data.
        let room = unsafe { block.add(1) }.cast::<[AtomicU64; WORDS]>();
        // SAFETY: the memory is initialized (regions start zeroed) and aligned, as asserted above: blocks are aligned to
        // cache lines. Nothing but a `HeaderRoom` touches it while the block is in use, so all accesses are atomic.
        let words = unsafe { room.as_ref() };
        Self { words }
    }

    /// What the last [`HeaderRoom::write`] left, or any earlier user of the memory; 0 if there was none.
    #[must_use]
    #[inline]
    pub fn stamp(&self) -> u64 {
        self.words[0].load(Ordering::Relaxed)
    }

    /// Writes `header` directly in front of the data, and the stamp; returns where the header begins. `None`, and nothing
    /// happens, if the header is longer than [`HeaderRoom::HEADER_MAX`] or is not made of words of eight bytes.
    #[must_use]
    #[inline]
    pub fn write(&self, header: &[u8], stamp: u64) -> Option<*const u8> {
        let (words, rest) = header.as_chunks::<8>();
        if header.len() > Self::HEADER_MAX || !rest.is_empty() {
            return None;
        }
        let first = WORDS - words.len();
        for (place, word) in self.words[first..].iter().zip(words) {
            place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        self.words[0].store(stamp, Ordering::Relaxed);
        Some(self.words[first..].as_ptr().cast())
    }
}
