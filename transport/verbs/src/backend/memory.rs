//! Memory that the device may read and write.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ibverbs_sys as sys;

use super::VerbsError;
use super::device::Device;
use super::pages::{HUGE_FROM, Pages};
use trine_transport::buf::{Region, RegionAllocator};

/// A registered piece of memory, zeroed, aligned to a page.
pub(super) struct Registered {
    pub(super) region: Region,
    registration: Registration,
    pages: Pages,
    /// Keeps the protection domain.
    _device: Arc<Device>,
}

/// What one endpoint has registered, and from which pages it takes memory.
pub(super) struct Registry {
    huge: bool,
    regions: AtomicU64,
    pages: AtomicU64,
}

/// A memory region of libibverbs; its owner deregisters it.
pub(super) struct Registration(NonNull<sys::ibv_mr>);

/// Who may use a registered region.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// The own device.
    Local,
    /// The own device, and the other ends of the domain's queue pairs may write it.
    RemoteWrite,
    /// The own device, and the other ends may read it.
    RemoteRead,
    /// The own device, and the other ends may add to words of it.
    RemoteAtomic,
}

/// Where the message pool takes its memory from: every region is registered as it is made.
pub(super) struct RegisteredRegions {
    device: Arc<Device>,
    /// By address of the first byte.
    registrations: Mutex<HashMap<usize, (Registration, Pages)>>,
    registry: Arc<Registry>,
}

// SAFETY: a registration is a handle for calls that may be made from any thread.
unsafe impl Send for Registration {}
// SAFETY: a `Registered`'s memory is reached through raw pointers only, by its one owner.
unsafe impl Send for Registered {}

impl Registered {
    /// Memory of the endpoint's own: huge pages if they were asked for and the memory is large.
    pub(super) fn new(
        device: &Arc<Device>,
        bytes: usize,
        registry: &Registry,
    ) -> Result<Self, VerbsError> {
        let pages = registry.pages_for(bytes);
        let region = pages.allocate(bytes).ok_or_else(|| pages.refusal(bytes))?;
        match register(device.domain(), region, Access::Local) {
            Ok(registration) => {
                registry.count(region, pages);
                let region = Region {
                    key: registration.key(),
                    ..region
                };
                Ok(Self {
                    region,
                    registration,
                    pages,
                    _device: Arc::clone(device),
                })
            }
            Err(error) => {
                // SAFETY: allocated above, and no other code has seen it.
                unsafe { pages.release(region) };
                Err(error)
            }
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registration.deregister();
        // SAFETY: it came from these pages, and the device has just forgotten it. The owner drops
        // the queue pair that used the memory first.
        unsafe { self.pages.release(self.region) };
    }
}

impl Registration {
    pub(super) fn key(&self) -> u32 {
        // SAFETY: the region is registered, so the structure is alive.
        unsafe { self.0.as_ref() }.lkey
    }

    /// The key for the other ends.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: the region is registered, so the structure is alive.
        unsafe { self.0.as_ref() }.rkey
    }

    pub(super) fn deregister(&mut self) {
        // SAFETY: called once, by the owner, before the protection domain goes.
        unsafe { sys::ibv_dereg_mr(self.0.as_ptr()) };
    }
}

impl Registry {
    /// `huge`: large memory comes from huge pages.
    pub(super) fn new(huge: bool) -> Self {
        Self {
            huge,
            regions: AtomicU64::new(0),
            pages: AtomicU64::new(0),
        }
    }

    /// Registrations so far, so that a test can see that there are none after the start.
    pub(super) fn regions(&self) -> u64 {
        self.regions.load(Ordering::Relaxed)
    }

    /// Pages in them: entries of the device's table of addresses.
    pub(super) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    fn pages_for(&self, bytes: usize) -> Pages {
        if self.huge && bytes >= HUGE_FROM {
            Pages::Huge
        } else {
            Pages::Small
        }
    }

    pub(super) fn count(&self, region: Region, pages: Pages) {
        self.regions.fetch_add(1, Ordering::Relaxed);
        let count = region.len.div_ceil(pages.bytes());
        self.pages.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl RegisteredRegions {
    pub(super) fn new(device: Arc<Device>, registry: Arc<Registry>) -> Self {
        Self {
            device,
            registrations: Mutex::default(),
            registry,
        }
    }
}

// SAFETY: the memory is that of `Pages` and satisfies the contract as `HeapRegions` does; registering it
// changes neither its contents nor who may use it.
unsafe impl RegionAllocator for RegisteredRegions {
    fn allocate(&self, bytes: usize) -> Option<Region> {
        let wanted = self.registry.pages_for(bytes);
        // A pool that grows when no huge page is left takes small ones: it may not fail for that.
        let (region, pages) = match wanted.allocate(bytes) {
            Some(region) => (region, wanted),
            None => (Pages::Small.allocate(bytes)?, Pages::Small),
        };
        let Ok(registration) = register(self.device.domain(), region, Access::Local) else {
            // SAFETY: allocated above, and no other code has seen it.
            unsafe { pages.release(region) };
            return None;
        };
        self.registry.count(region, pages);
        let key = registration.key();
        let mut registrations = self
            .registrations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        registrations.insert(region.base.as_ptr().addr(), (registration, pages));
        Some(Region { key, ..region })
    }

    unsafe fn release(&self, region: Region) {
        let address = region.base.as_ptr().addr();
        let mut registrations = self
            .registrations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (mut registration, pages) = registrations
            .remove(&address)
            .expect("release of a region that allocate made");
        registration.deregister();
        // SAFETY: by the caller's promise it came from `allocate`, so from these pages, and
        // nothing refers to it.
        unsafe { pages.release(region) };
    }
}

pub(super) fn register(
    domain: *mut sys::ibv_pd,
    region: Region,
    access: Access,
) -> Result<Registration, VerbsError> {
    let mut flags = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as i32;
    flags |= match access {
        Access::Local => 0,
        Access::RemoteWrite => sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 as i32,
        Access::RemoteRead => sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 as i32,
        Access::RemoteAtomic => sys::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0 as i32,
    };
    // SAFETY: the memory is `region.len` bytes long and stays until it is deregistered.
    let registered =
        unsafe { sys::ibv_reg_mr(domain, region.base.as_ptr().cast(), region.len, flags) };
    NonNull::new(registered)
        .map(Registration)
        .ok_or_else(|| match VerbsError::last("ibv_reg_mr") {
            VerbsError::Call {
                os_error: libc::ENOMEM | libc::EPERM,
                ..
            } => VerbsError::MemoryLock {
                bytes: region.len,
                limit: lock_limit(),
            },
            other => other,
        })
}

fn lock_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    limit.rlim_cur
}
