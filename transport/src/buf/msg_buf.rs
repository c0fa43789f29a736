//! The owning handle on a message, and the shared one that transmit batches hold.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use super::Region;
use super::blocks::{Block, DATA_OFFSET, region_of, release};
use super::header_room::HeaderRoom;

/// A message buffer: contiguous bytes in a pool's memory, owned, returned to the pool on drop.
///
/// Read and written as a slice of `len` bytes; `len` may be changed up to `capacity`. Contents
/// after allocation or growth are unspecified but initialized.
pub struct MsgBuf {
    /// A block whose `refs` counts this handle.
    block: NonNull<Block>,
    len: u32,
    capacity: u32,
}

/// A read-only part of a [`MsgBuf`] that keeps the memory alive until a backend has sent it.
pub struct BodyRef {
    /// A block whose `refs` counts this handle.
    block: NonNull<Block>,
    offset: u32,
    len: u32,
}

/// More bytes were to be written than the buffer can hold.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CapacityExceeded {
    /// Bytes that were needed.
    pub needed: usize,
    /// Bytes that there are.
    pub capacity: usize,
}

// SAFETY: a `MsgBuf` owns its block's data exclusively but for `BodyRef`s, which only read; the
// count is atomic and the pool's lists accept blocks from any thread.
unsafe impl Send for MsgBuf {}
// SAFETY: `&MsgBuf` allows reading and `share`, which is an atomic increment.
unsafe impl Sync for MsgBuf {}
// SAFETY: a `BodyRef` only reads memory that no code writes while it exists (see `DerefMut`).
unsafe impl Send for BodyRef {}
// SAFETY: as for `Send`.
unsafe impl Sync for BodyRef {}

impl MsgBuf {
    /// Takes over a block whose `refs` is one.
    pub(super) fn from_block(block: NonNull<Block>, len: usize, capacity: usize) -> Self {
        debug_assert!(len <= capacity, "length beyond capacity");
        Self {
            block,
            len: len as u32,
            capacity: capacity as u32,
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if no byte is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the buffer can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Sets the length. Bytes that come into use have unspecified contents.
    ///
    /// # Panics
    ///
    /// If `len` exceeds the capacity.
    #[inline(always)]
    pub fn resize(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "a buffer of {} bytes cannot become {len} long",
            self.capacity
        );
        self.len = len as u32;
    }

    /// Sets the length to zero.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends `bytes`, or changes nothing if they do not fit.
    ///
    /// # Errors
    ///
    /// [`CapacityExceeded`] if the buffer is too small.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> Result<(), CapacityExceeded> {
        let start = self.len();
        let needed = start + bytes.len();
        if needed > self.capacity() {
            return Err(CapacityExceeded {
                needed,
                capacity: self.capacity(),
            });
        }
        self.resize(needed);
        self[start..].copy_from_slice(bytes);
        Ok(())
    }

    /// A read-only handle on `range` for a transmit batch.
    ///
    /// # Panics
    ///
    /// If the range is not inside the buffer's length.
    #[must_use]
    pub fn share(&self, range: Range<usize>) -> BodyRef {
        assert!(range.start <= range.end, "a range that runs backwards");
        assert!(range.end <= self.len(), "a range beyond the message");
        // Relaxed suffices as in `Arc::clone`: the caller's own reference keeps the block.
        self.header().refs.fetch_add(1, Ordering::Relaxed);
        BodyRef {
            block: self.block,
            offset: range.start as u32,
            len: range.len() as u32,
        }
    }

    /// True while a transmit batch still refers to the buffer, so that it must not be written.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.header().refs.load(Ordering::Acquire) != 1
    }

    fn header(&self) -> &Block {
        // SAFETY: this handle is counted in `refs`, so the block is initialized and stays alive.
        unsafe { self.block.as_ref() }
    }

    fn data(&self) -> NonNull<u8> {
        // SAFETY: every block has `DATA_OFFSET + capacity` bytes or more.
        unsafe { self.block.cast::<u8>().add(DATA_OFFSET) }
    }
}

impl Deref for MsgBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` bytes of initialized memory (regions start zeroed) that only
        // `deref_mut` of this same handle writes.
        unsafe { std::slice::from_raw_parts(self.data().as_ptr(), self.len as usize) }
    }
}

impl DerefMut for MsgBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(
            !self.is_shared(),
            "a message was written while a transmit batch still refers to it"
        );
        // SAFETY: as in `deref`; `&mut self` excludes other users of this handle, the assert
        // excludes `BodyRef`s, and new ones need `&self`. The acquire load in `is_shared` orders
        // this write after the reads of a `BodyRef` dropped on another thread.
        unsafe { std::slice::from_raw_parts_mut(self.data().as_ptr(), self.len as usize) }
    }
}

impl Drop for MsgBuf {
    #[inline]
    fn drop(&mut self) {
        // The fast path saves the atomic decrement: no other handle can raise a count of one.
        if !self.is_shared() {
            // SAFETY: this is the last reference.
            unsafe { release(self.block) };
            return;
        }
        // SAFETY: this handle is counted in `refs` and not used afterwards.
        unsafe { drop_reference(self.block) };
    }
}

impl fmt::Debug for MsgBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MsgBuf({} of {} bytes)", self.len, self.capacity)
    }
}

impl BodyRef {
    /// Bytes referred to.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True for an empty part.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The room in front of the bytes, for a header that then goes to the wire with them as one piece. `None` unless the
    /// part begins where its message begins: only the first packet has its room there.
    #[must_use]
    #[inline]
    pub fn header_room(&self) -> Option<HeaderRoom<'_>> {
        if self.offset > 0 {
            return None;
        }
        // SAFETY: this handle is counted in `refs`, so the block stays while the room is borrowed.
        Some(unsafe { HeaderRoom::of_block(self.block) })
    }

    /// The registered region that holds the bytes, for backends whose device reads them itself.
    #[must_use]
    pub fn region(&self) -> Region {
        // SAFETY: this handle is counted in `refs`.
        unsafe { region_of(self.block) }
    }
}

impl Deref for BodyRef {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `share` checked that the range lies inside the block's data.
        let start = unsafe {
            self.block
                .cast::<u8>()
                .add(DATA_OFFSET + self.offset as usize)
        };
        // SAFETY: `start..start + len` is initialized block data; the count keeps it alive and
        // makes `MsgBuf::deref_mut` refuse to write.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len as usize) }
    }
}

impl Clone for BodyRef {
    fn clone(&self) -> Self {
        // SAFETY: this handle is counted in `refs`.
        unsafe { self.block.as_ref() }
            .refs
            .fetch_add(1, Ordering::Relaxed);
        Self { ..*self }
    }
}

impl Drop for BodyRef {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle is counted in `refs` and not used afterwards.
        unsafe { drop_reference(self.block) };
    }
}

impl fmt::Debug for BodyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BodyRef({}..{})", self.offset, self.offset + self.len)
    }
}

impl fmt::Display for CapacityExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes do not fit into a message buffer of {}",
            self.needed, self.capacity
        )
    }
}

impl std::error::Error for CapacityExceeded {}

/// Gives up one reference and returns the block if it was the last.
///
/// # Safety
///
/// The caller's handle is counted in `refs` and is not used afterwards.
unsafe fn drop_reference(block: NonNull<Block>) {
    // SAFETY: the caller's reference keeps the block alive up to this decrement.
    let before = unsafe { block.as_ref() }
        .refs
        .fetch_sub(1, Ordering::Release);
    if before == 1 {
        // As in `Arc`: all uses through other handles happen before the block is given away.
        fence(Ordering::Acquire);
        // SAFETY: the count reached zero, so this was the last reference.
        unsafe { release(block) };
    }
}
