//! Where the completion queues of an endpoint's queue pairs report that something has arrived.

use std::os::fd::BorrowedFd;
use std::ptr;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;

use super::VerbsError;
use super::device::Device;

/// A completion channel. The queues that report to it hold an `Arc` of it, so they go first.
pub(super) struct Channel {
    channel: NonNull<sys::ibv_comp_channel>,
    /// Keeps the context open.
    _device: Arc<Device>,
}

// SAFETY: a completion channel is a descriptor with a lock in libibverbs; its calls may be made from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    pub(super) fn new(device: &Arc<Device>) -> Result<Self, VerbsError> {
        // SAFETY: the context is open.
        let channel = unsafe { sys::ibv_create_comp_channel(device.context()) };
        let channel =
            NonNull::new(channel).ok_or_else(|| VerbsError::last("ibv_create_comp_channel"))?;
        let made = Self {
            channel,
            _device: Arc::clone(device),
        };
        made.set_nonblocking()?;
        Ok(made)
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ibv_comp_channel {
        self.channel.as_ptr()
    }

    /// Readable while an event waits.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive.
        let fd = unsafe { self.channel.as_ref() }.fd;
        // SAFETY: the descriptor is open as long as the channel, which `self` keeps.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Takes the events off the channel. Each is acknowledged at once, because destroying a queue waits for that; the
    /// lock it costs does not matter beside the sleep that went before.
    pub(super) fn take_events(&self) {
        let mut queue = ptr::null_mut();
        let mut context = ptr::null_mut();
        // SAFETY: the channel is alive and does not block; the pointers outlive the call.
        while unsafe { sys::ibv_get_cq_event(self.as_ptr(), &raw mut queue, &raw mut context) } == 0
        {
            // SAFETY: the event came from that queue, which lives as long as its queue pair: no code drops one while
            // its endpoint waits.
            unsafe { sys::ibv_ack_cq_events(queue, 1) };
        }
    }

    fn set_nonblocking(&self) -> Result<(), VerbsError> {
        // SAFETY: the channel is alive.
        let fd = unsafe { self.channel.as_ref() }.fd;
        // SAFETY: no pointers.
        let result = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
        if result < 0 {
            return Err(VerbsError::last("fcntl on a completion channel"));
        }
        Ok(())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once; every queue that used it held an `Arc` of this value, so it is gone.
        unsafe { sys::ibv_destroy_comp_channel(self.channel.as_ptr()) };
    }
}
