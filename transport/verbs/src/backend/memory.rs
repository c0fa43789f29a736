//! Memory that the device may read and write.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ibverbs_sys as sys;

use super::VerbsError;
use super::device::Device;
use trine_transport::buf::{HeapRegions, Region, RegionAllocator};

/// A registered piece of heap memory, zeroed, aligned to a page.
pub(super) struct Registered {
    pub(super) region: Region,
    registration: Registration,
    /// Keeps the protection domain.
    _device: Arc<Device>,
}

/// A memory region of libibverbs; its owner deregisters it.
struct Registration(NonNull<sys::ibv_mr>);

/// Where the message pool takes its memory from: every region is registered as it is made.
pub(super) struct RegisteredRegions {
    device: Arc<Device>,
    /// By address of the first byte.
    registrations: Mutex<HashMap<usize, Registration>>,
    made: Arc<AtomicU64>,
}

// SAFETY: a registration is a handle for calls that may be made from any thread.
unsafe impl Send for Registration {}
// SAFETY: a `Registered`'s memory is reached through raw pointers only, by its one owner.
unsafe impl Send for Registered {}

impl Registered {
    pub(super) fn new(
        device: &Arc<Device>,
        bytes: usize,
        made: &AtomicU64,
    ) -> Result<Self, VerbsError> {
        let region = HeapRegions.allocate(bytes).ok_or(VerbsError::Call {
            call: "allocation of registered memory",
            os_error: libc::ENOMEM,
        })?;
        match register(device, region) {
            Ok(registration) => {
                made.fetch_add(1, Ordering::Relaxed);
                let region = Region {
                    key: registration.key(),
                    ..region
                };
                Ok(Self {
                    region,
                    registration,
                    _device: Arc::clone(device),
                })
            }
            Err(error) => {
                // SAFETY: allocated above, and no other code has seen it.
                unsafe { HeapRegions.release(region) };
                Err(error)
            }
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registration.deregister();
        // SAFETY: it came from `HeapRegions`, and the device has just forgotten it. The owner drops
        // the queue pair that used the memory first.
        unsafe { HeapRegions.release(self.region) };
    }
}

impl Registration {
    fn key(&self) -> u32 {
        // SAFETY: the region is registered, so the structure is alive.
        unsafe { self.0.as_ref() }.lkey
    }

    fn deregister(&mut self) {
        // SAFETY: called once, by the owner, before the protection domain goes.
        unsafe { sys::ibv_dereg_mr(self.0.as_ptr()) };
    }
}

impl RegisteredRegions {
    /// `made` counts registrations, so that a test can see that there are none after the start.
    pub(super) fn new(device: Arc<Device>, made: Arc<AtomicU64>) -> Self {
        Self {
            device,
            registrations: Mutex::default(),
            made,
        }
    }
}

// SAFETY: the memory is `HeapRegions`' and satisfies the contract as that does; registering it
// changes neither its contents nor who may use it.
unsafe impl RegionAllocator for RegisteredRegions {
    fn allocate(&self, bytes: usize) -> Option<Region> {
        let region = HeapRegions.allocate(bytes)?;
        let Ok(registration) = register(&self.device, region) else {
            // SAFETY: allocated above, and no other code has seen it.
            unsafe { HeapRegions.release(region) };
            return None;
        };
        self.made.fetch_add(1, Ordering::Relaxed);
        let key = registration.key();
        let mut registrations = self
            .registrations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        registrations.insert(region.base.as_ptr().addr(), registration);
        Some(Region { key, ..region })
    }

    unsafe fn release(&self, region: Region) {
        let address = region.base.as_ptr().addr();
        let mut registrations = self
            .registrations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let registration = registrations.remove(&address);
        registration
            .expect("release of a region that allocate made")
            .deregister();
        // SAFETY: by the caller's promise it came from `allocate`, so from `HeapRegions`, and
        // nothing refers to it.
        unsafe { HeapRegions.release(region) };
    }
}

fn register(device: &Device, region: Region) -> Result<Registration, VerbsError> {
    let access = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as i32;
    // SAFETY: the memory is `region.len` bytes long and stays until it is deregistered.
    let registered = unsafe {
        sys::ibv_reg_mr(
            device.domain(),
            region.base.as_ptr().cast(),
            region.len,
            access,
        )
    };
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
