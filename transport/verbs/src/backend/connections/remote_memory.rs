//! Memory that the other end of a connection may write or read.
//!
//! No reference into it exists. It is read and written by volatile accesses, eight bytes each, and what is read is judged.

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use ibverbs_sys as sys;

use crate::backend::VerbsError;
use crate::backend::memory::{Access, Registration, Registry, register};
use crate::backend::pages::Pages;
use crate::one_sided::{Area, HEAD_BYTES, Slots};
use trine_transport::buf::Region;

const WORD: usize = size_of::<u64>();

const _: () = assert!(HEAD_BYTES == WORD);

/// Slots one after the other. The owner keeps the protection domain, and the queue pairs that use the memory are gone
/// before it.
pub(super) struct RemoteMemory {
    region: Region,
    /// Absent if the device did not register the memory again.
    registration: Option<Registration>,
    access: Access,
}

// SAFETY: the memory is reached through raw pointers only, by its one owner; a registration is bound to no thread.
unsafe impl Send for RemoteMemory {}

impl RemoteMemory {
    /// Zero.
    pub(super) fn new(
        domain: NonNull<sys::ibv_pd>,
        bytes: usize,
        access: Access,
        registry: &Registry,
    ) -> Result<Self, VerbsError> {
        let region = Pages::Small.allocate(bytes);
        // From here on `drop` cleans up.
        let mut made = Self {
            region: region.ok_or_else(|| Pages::Small.refusal(bytes))?,
            registration: None,
            access,
        };
        made.register(domain, registry)?;
        Ok(made)
    }

    fn register(
        &mut self,
        domain: NonNull<sys::ibv_pd>,
        registry: &Registry,
    ) -> Result<(), VerbsError> {
        self.registration = Some(register(domain.as_ptr(), self.region, self.access)?);
        registry.count(self.region, Pages::Small);
        Ok(())
    }

    /// Deregistered, zero, registered again: the key of before means nothing any more. No queue pair uses the memory.
    pub(super) fn renew(
        &mut self,
        domain: NonNull<sys::ibv_pd>,
        registry: &Registry,
    ) -> Result<(), VerbsError> {
        self.deregister();
        // SAFETY: the memory has `len` bytes, the device has forgotten it, and no reference into it exists.
        unsafe { self.region.base.as_ptr().write_bytes(0, self.region.len) };
        self.register(domain, registry)
    }

    fn deregister(&mut self) {
        if let Some(mut registration) = self.registration.take() {
            registration.deregister();
        }
    }

    /// What the other end needs.
    pub(super) fn area(&self) -> Area {
        let registration = self.registration.as_ref();
        Area {
            address: self.address(0),
            rkey: registration.map_or(0, Registration::remote_key),
        }
    }

    /// The address of a byte, for the own device.
    pub(super) fn address(&self, offset: usize) -> u64 {
        self.region.base.as_ptr().expose_provenance() as u64 + offset as u64
    }

    /// The key for the own device.
    pub(super) fn local_key(&self) -> u32 {
        self.registration.as_ref().map_or(0, Registration::key)
    }

    #[inline]
    fn word(&self, at: usize) -> NonNull<u64> {
        assert!(at < self.region.len / WORD, "a word beyond the region");
        // SAFETY: the offset lies inside of the region, which is aligned to a page.
        unsafe { self.region.base.cast::<u64>().add(at) }
    }

    /// A word, by its number.
    #[inline]
    pub(super) fn read(&self, at: usize) -> [u8; WORD] {
        // SAFETY: the memory is alive and aligned. The device may write it meanwhile: the load is volatile, any value is
        // a number, and nothing is concluded from it before the whole copy was judged.
        unsafe { self.word(at).read_volatile() }.to_ne_bytes()
    }

    /// Writes whole words, the last one filled up with zeros, behind everything that was written before.
    #[inline]
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(
            offset.is_multiple_of(WORD),
            "slots and their parts begin with a word"
        );
        fence(Ordering::Release);
        for (at, part) in bytes.chunks(WORD).enumerate() {
            let mut word = [0; WORD];
            word[..part.len()].copy_from_slice(part);
            let target = self.word(offset / WORD + at);
            // SAFETY: the memory is alive and aligned, and this end alone writes it. The other end's device may read it
            // meanwhile: the store is volatile, and the other end judges what it has read.
            unsafe { target.write_volatile(u64::from_ne_bytes(word)) };
        }
    }
}

/// The slots of a memory, so many bytes apart.
#[derive(Copy, Clone)]
pub(super) struct SlotsOf<'a> {
    pub(super) memory: &'a RemoteMemory,
    pub(super) slot_bytes: usize,
}

impl Slots for SlotsOf<'_> {
    #[inline]
    fn head(&self, slot: usize) -> [u8; HEAD_BYTES] {
        self.memory.read(slot * self.slot_bytes / WORD)
    }

    #[inline]
    fn copy(&self, slot: usize, out: &mut [u8]) {
        let first = slot * self.slot_bytes / WORD;
        for (at, part) in out.chunks_mut(WORD).enumerate() {
            part.copy_from_slice(&self.memory.read(first + at)[..part.len()]);
        }
    }
}

impl Drop for RemoteMemory {
    fn drop(&mut self) {
        self.deregister();
        // SAFETY: it came from these pages, and the device has forgotten it.
        unsafe { Pages::Small.release(self.region) };
    }
}
