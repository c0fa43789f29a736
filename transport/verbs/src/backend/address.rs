//! Address handles: made once per destination, because making one takes up to milliseconds.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;

use super::device::Device;
use super::{VerbsAddress, VerbsRoute};

/// Handles kept at most. A peer that forges sources could otherwise make them without end.
const HANDLES_MAX: usize = 1024;

/// No queue pair of this backend is made with this key.
pub(super) const REFUSED_QKEY: u32 = 0;

type Place = ([u8; 16], u16);

/// An address handle of libibverbs, alive until the owner throws all of them away.
pub(super) type Handle = NonNull<sys::ibv_ah>;

/// Places that are found without the map: a power of two.
const RECENT: usize = 64;

/// The address handles of one endpoint.
pub(super) struct AddressHandles {
    handles: HashMap<Place, Handle>,
    /// Handles of `handles` at the place that [`recent_index`] gives.
    recent: Box<[Option<(Place, Handle)>; RECENT]>,
    /// The way to the own port, made when a flush first needs it. Not among the others, because those are thrown away
    /// only after a flush.
    own: Option<Handle>,
    device: Arc<Device>,
}

// SAFETY: an address handle is bound to no thread; the owner's `&mut` orders the calls.
unsafe impl Send for AddressHandles {}

impl AddressHandles {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self {
            handles: HashMap::with_capacity(64),
            recent: Box::new([None; RECENT]),
            own: None,
            device,
        }
    }

    /// True if the next new destination throws all handles away, so that no posted send may refer
    /// to one any more.
    pub(super) fn is_full(&self) -> bool {
        self.handles.len() >= HANDLES_MAX
    }

    /// The handle for `route` if it was made before.
    #[inline]
    pub(super) fn known(&mut self, route: &VerbsRoute) -> Option<Handle> {
        let place = (route.gid, route.lid);
        let recent = &mut self.recent[recent_index(&place)];
        match recent {
            Some((known, handle)) if *known == place => Some(*handle),
            _ => {
                let handle = *self.handles.get(&place)?;
                *recent = Some((place, handle));
                Some(handle)
            }
        }
    }

    /// The handle for `route`; `None` if the device refuses to make one.
    pub(super) fn get(&mut self, route: &VerbsRoute) -> Option<Handle> {
        if let Some(handle) = self.known(route) {
            return Some(handle);
        }
        if self.is_full() {
            self.destroy_all();
        }
        let handle = make(&self.device, route)?;
        self.handles.insert((route.gid, route.lid), handle);
        Some(handle)
    }

    /// The way from this port to its own queue pair, under a key that the queue pair refuses.
    pub(super) fn own(&mut self, queue_pair: u32) -> Option<(VerbsRoute, Handle)> {
        let route =
            VerbsAddress::of_port(&self.device.port, &[queue_pair], REFUSED_QKEY).route(0, 1);
        if self.own.is_none() {
            self.own = make(&self.device, &route);
        }
        self.own.map(|handle| (route, handle))
    }

    fn destroy_all(&mut self) {
        self.recent.fill(None);
        for (_, handle) in self.handles.drain() {
            // SAFETY: made by `ibv_create_ah`, in the map once; the owner has flushed its sends.
            unsafe { sys::ibv_destroy_ah(handle.as_ptr()) };
        }
    }
}

impl Drop for AddressHandles {
    fn drop(&mut self) {
        self.destroy_all();
        if let Some(handle) = self.own.take() {
            // SAFETY: made by `ibv_create_ah`; the owner's queue pairs are gone.
            unsafe { sys::ibv_destroy_ah(handle.as_ptr()) };
        }
    }
}

/// Neighbours differ in the last bytes of their GID, or in their LID.
fn recent_index((gid, lid): &Place) -> usize {
    let low = u32::from_le_bytes([gid[12], gid[13], gid[14], gid[15]]) ^ u32::from(*lid);
    (low.wrapping_mul(0x9e37_79b1) >> (u32::BITS - RECENT.ilog2())) as usize
}

fn make(device: &Device, route: &VerbsRoute) -> Option<NonNull<sys::ibv_ah>> {
    let mut attributes = device.way_to(route);
    // SAFETY: the domain is alive, and the attributes outlive the call.
    NonNull::new(unsafe { sys::ibv_create_ah(device.domain(), &raw mut attributes) })
}
