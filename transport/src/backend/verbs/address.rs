//! Address handles: made once per destination, because making one takes up to milliseconds.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;

use super::device::Device;
use super::route::VerbsRoute;

/// Handles kept at most. A peer that forges sources could otherwise make them without end.
const HANDLES_MAX: usize = 1024;

/// No queue pair of this backend is made with this key.
pub(super) const REFUSED_QKEY: u32 = 0;

type Place = ([u8; 16], u16);

/// The address handles of one endpoint.
pub(super) struct AddressHandles {
    handles: HashMap<Place, NonNull<sys::ibv_ah>>,
    device: Arc<Device>,
}

// SAFETY: an address handle is bound to no thread; the owner's `&mut` orders the calls.
unsafe impl Send for AddressHandles {}

impl AddressHandles {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self {
            handles: HashMap::with_capacity(64),
            device,
        }
    }

    /// True if the next new destination throws all handles away, so that no posted send may refer
    /// to one any more.
    pub(super) fn is_full(&self) -> bool {
        self.handles.len() >= HANDLES_MAX
    }

    pub(super) fn has(&self, route: &VerbsRoute) -> bool {
        self.handles.contains_key(&(route.gid, route.lid))
    }

    /// The handle for `route`; `None` if the device refuses to make one.
    pub(super) fn get(&mut self, route: &VerbsRoute) -> Option<*mut sys::ibv_ah> {
        let place = (route.gid, route.lid);
        if let Some(handle) = self.handles.get(&place) {
            return Some(handle.as_ptr());
        }
        if self.is_full() {
            self.destroy_all();
        }
        let handle = make(&self.device, route)?;
        self.handles.insert(place, handle);
        Some(handle.as_ptr())
    }

    /// The way from this port to its own queue pair, under a key that the queue pair refuses.
    pub(super) fn own(&mut self, queue_pair: u32) -> Option<(VerbsRoute, *mut sys::ibv_ah)> {
        let route = VerbsRoute::of_port(&self.device.port, queue_pair, REFUSED_QKEY);
        self.get(&route).map(|handle| (route, handle))
    }

    fn destroy_all(&mut self) {
        for (_, handle) in self.handles.drain() {
            // SAFETY: made by `ibv_create_ah`, in the map once; the owner has flushed its sends.
            unsafe { sys::ibv_destroy_ah(handle.as_ptr()) };
        }
    }
}

impl Drop for AddressHandles {
    fn drop(&mut self) {
        self.destroy_all();
    }
}

fn make(device: &Device, route: &VerbsRoute) -> Option<NonNull<sys::ibv_ah>> {
    let mut attributes = sys::ibv_ah_attr {
        dlid: route.lid,
        port_num: device.port.number,
        is_global: u8::from(route.lid == 0),
        ..Default::default()
    };
    attributes.grh.dgid = sys::ibv_gid { raw: route.gid };
    attributes.grh.sgid_index = device.port.gid_index;
    attributes.grh.hop_limit = 64;
    // SAFETY: the domain is alive, and the attributes outlive the call.
    NonNull::new(unsafe { sys::ibv_create_ah(device.domain(), &raw mut attributes) })
}
