//! The server's end of a connection: memory that one client writes and this endpoint polls.
//!
//! Region and queue pair are in a protection domain of their own. So the region's key works on no other queue pair: a
//! client that knows another's key, or guesses it, cannot write there.
//!
//! No reference into the memory exists. It is read by volatile loads, eight bytes each, and what is loaded is judged.

use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;

use super::connected_pair::{CompletionQueue, ConnectedPair, OtherEnd, Shape};
use crate::backend::VerbsError;
use crate::backend::device::Device;
use crate::backend::memory::{Access, Registration, Registry, register};
use crate::backend::pages::Pages;
use crate::config::SLOTS;
use crate::herd::{Grant, HEAD_BYTES, SLOT_BYTES, Slots, Wish};
use crate::route::VerbsRoute;
use trine_transport::buf::Region;

const REGION_BYTES: usize = SLOTS * SLOT_BYTES;
const WORD: usize = size_of::<u64>();

const _: () = assert!(SLOT_BYTES.is_multiple_of(WORD) && HEAD_BYTES == WORD);

pub(super) struct RequestRegion {
    /// Reset before the memory is touched, and gone before the domain is.
    pair: Option<ConnectedPair>,
    /// Absent between two sessions if the device did not register the memory again.
    registration: Option<Registration>,
    region: Region,
    domain: NonNull<sys::ibv_pd>,
    device: Arc<Device>,
}

// SAFETY: the memory is reached through raw pointers only, by its one owner; libibverbs objects are bound to no thread.
unsafe impl Send for RequestRegion {}

impl RequestRegion {
    pub(super) fn new(
        device: &Arc<Device>,
        silent: &CompletionQueue,
        registry: &Registry,
    ) -> Result<Self, VerbsError> {
        // SAFETY: the context is open.
        let domain = unsafe { sys::ibv_alloc_pd(device.context()) };
        let domain = NonNull::new(domain).ok_or_else(|| VerbsError::last("ibv_alloc_pd"))?;
        let Some(region) = Pages::Small.allocate(REGION_BYTES) else {
            // SAFETY: allocated above, and nothing was made from it.
            unsafe { sys::ibv_dealloc_pd(domain.as_ptr()) };
            return Err(Pages::Small.refusal(REGION_BYTES));
        };
        // From here on `drop` cleans up.
        let mut made = Self {
            pair: None,
            registration: None,
            region,
            domain,
            device: Arc::clone(device),
        };
        let shape = Shape {
            domain: domain.as_ptr(),
            sends: 1,
            inline_bytes: 0,
        };
        made.pair = Some(ConnectedPair::new(device, silent, shape)?);
        made.register(registry)?;
        Ok(made)
    }

    fn register(&mut self, registry: &Registry) -> Result<(), VerbsError> {
        let registration = register(self.domain.as_ptr(), self.region, Access::RemoteWrite)?;
        self.registration = Some(registration);
        registry.count(self.region, Pages::Small);
        Ok(())
    }

    fn pair(&self) -> &ConnectedPair {
        let pair = self.pair.as_ref();
        pair.expect("a region that was made has its queue pair until it is dropped")
    }

    pub(super) fn grant(&self) -> Grant {
        let registration = self.registration.as_ref();
        Grant {
            queue_pair: self.pair().number(),
            address: self.region.base.as_ptr().expose_provenance() as u64,
            rkey: registration.map_or(0, Registration::remote_key),
        }
    }

    pub(super) fn listen(&self, route: &VerbsRoute, wish: &Wish) -> Result<(), VerbsError> {
        self.pair().receive_from(OtherEnd {
            route,
            queue_pair: wish.queue_pair,
            psn: wish.psn,
        })
    }

    /// RESET, deregistered, zero, registered again: the key of before means nothing any more.
    pub(super) fn renew(&mut self, registry: &Registry) -> Result<(), VerbsError> {
        self.pair().reset()?;
        self.deregister();
        // SAFETY: the memory has `len` bytes, the device has forgotten it, and no reference into it exists.
        unsafe { self.region.base.as_ptr().write_bytes(0, self.region.len) };
        self.register(registry)
    }

    fn deregister(&mut self) {
        if let Some(mut registration) = self.registration.take() {
            registration.deregister();
        }
    }

    #[inline]
    fn word(&self, at: usize) -> [u8; WORD] {
        assert!(at < REGION_BYTES / WORD, "a word beyond the region");
        // SAFETY: the offset lies inside of the region, which is aligned to a page.
        let word = unsafe { self.region.base.cast::<u64>().add(at) };
        // SAFETY: the memory is alive and aligned. The device may write it meanwhile: the load is volatile, any value is
        // a number, and nothing is concluded from it before the whole copy was judged.
        unsafe { word.read_volatile() }.to_ne_bytes()
    }
}

impl Slots for &RequestRegion {
    #[inline]
    fn head(&self, slot: usize) -> [u8; HEAD_BYTES] {
        self.word(slot * SLOT_BYTES / WORD)
    }

    #[inline]
    fn copy(&self, slot: usize, out: &mut [u8]) {
        let first = slot * SLOT_BYTES / WORD;
        for (at, part) in out.chunks_mut(WORD).enumerate() {
            part.copy_from_slice(&self.word(first + at)[..part.len()]);
        }
    }
}

impl Drop for RequestRegion {
    fn drop(&mut self) {
        drop(self.pair.take());
        self.deregister();
        // SAFETY: it came from these pages, and the device has forgotten it.
        unsafe { Pages::Small.release(self.region) };
        // SAFETY: allocated by `new`; its queue pair and its registration are gone.
        unsafe { sys::ibv_dealloc_pd(self.domain.as_ptr()) };
        let _open_until_here = &self.device;
    }
}
