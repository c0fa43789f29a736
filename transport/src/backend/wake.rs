//! Sleeping until a descriptor is readable, a waker is used or time has passed; the eventfd behind wakers.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Wake;
use crate::time::Duration;
use trine_origin::DescriptorRef;

/// Sleeps until one of the descriptors is readable or `timeout` has passed. Says whether the
/// second one is.
pub fn wait_readable(
    socket: BorrowedFd<'_>,
    wake: BorrowedFd<'_>,
    watched: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let readable = |fd: libc::c_int| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // The system passes over a negative descriptor.
    let watched = watched.map_or(-1, |watched| watched.as_raw_fd());
    let mut descriptors = [socket.as_raw_fd(), wake.as_raw_fd(), watched].map(readable);
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as _,
        tv_nsec: (timeout.as_nanos() % 1_000_000_000) as libc::c_long,
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the array has three elements; the timeout is null or points to a live value.
    let result = unsafe { libc::ppoll(descriptors.as_mut_ptr(), 3, timeout, ptr::null()) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted {
            Ok(false)
        } else {
            Err(error)
        };
    }
    Ok(descriptors[1].revents != 0)
}

/// An eventfd that ends a poll, written only if it is not raised already.
pub struct WakeEvent {
    event: File,
    /// What a child gives up together with the event.
    beside: Option<DescriptorRef>,
    shared: DescriptorRef,
    pending: AtomicBool,
}

impl WakeEvent {
    /// An event that is not raised.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            shared: DescriptorRef::of(&fd)?,
            beside: None,
            event: File::from(fd),
            pending: AtomicBool::new(false),
        })
    }

    /// The same; a child gives up `socket` together with it.
    pub fn beside(socket: &impl AsFd) -> io::Result<Self> {
        let beside = Some(DescriptorRef::of(socket)?);
        Self::new().map(|event| Self { beside, ..event })
    }

    /// True if a wake came since the last [`WakeEvent::clear`].
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Forgets wakes so far. A waker that was just about to write makes the next poll return once
    /// more, without a reason.
    pub fn clear(&self) {
        // Drain first: a wake between the two statements finds `pending` set and is covered by this
        // one; the caller checks for work after `clear`.
        let mut count = [0u8; 8];
        let _drained = io::Read::read(&mut &self.event, &mut count);
        self.pending.store(false, Ordering::Release);
    }

    /// The descriptor to poll for it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Wake for WakeEvent {
    fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            // Cannot fail: the counter is at most one, and a full one would wake as well.
            let _written = (&self.event).write(&1u64.to_ne_bytes());
        }
    }

    fn abandon(&self) {
        self.shared.give_up();
        self.beside.iter().for_each(DescriptorRef::give_up);
    }
}
