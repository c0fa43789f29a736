//! Receiving datagrams in batches, or one for less.
#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use super::address::{RAW_BYTES, RawAddress};
use super::control::{CONTROL_BYTES, Control};
use super::local_addresses::LocalAddresses;
use super::options::empty_header;
use crate::backend::clock::wall_ns;
use crate::backend::{MonotonicClock, RxSlot};
use crate::time::Clock;

/// Receive memory and the message headers that point into it.
pub(super) struct Receiver {
    memory: RawArray<u8>,
    stride: usize,
    headers: RawArray<libc::mmsghdr>,
    names: RawArray<RawAddress>,
    controls: RawArray<Control>,
    _iovecs: RawArray<libc::iovec>,
    /// Headers that the kernel changed in the last call and that must be reset before the next.
    used: usize,
}

/// Both clocks at one moment, or the monotonic one a little later. Who loses its processor between the two takes a
/// packet to have come later than it has: a round trip that is too long is one of many, but one that is too short would
/// be the shortest of all for seconds.
struct Clocks {
    wall_ns: u64,
    monotonic_ns: u64,
}

impl Clocks {
    fn read() -> Self {
        Self {
            wall_ns: wall_ns(),
            monotonic_ns: MonotonicClock.now().as_nanos(),
        }
    }

    /// A moment of the wall clock, which is past, by the other clock; 0 if there was none. If the wall clock was set
    /// since, it is any moment, and who uses it has to see to that.
    fn monotonic_ns(&self, wall_ns: u64) -> u64 {
        let ago = self.wall_ns.saturating_sub(wall_ns);
        self.monotonic_ns.saturating_sub(ago)
    }
}

/// A heap array that is only reached through its raw pointer. The kernel may therefore write to it
/// between calls without a Rust reference being in the way.
struct RawArray<T: Copy> {
    start: NonNull<T>,
    len: usize,
}

impl<T: Copy> RawArray<T> {
    fn new(items: Vec<T>) -> Self {
        let len = items.len();
        let start = NonNull::from(Box::leak(items.into_boxed_slice())).cast();
        Self { start, len }
    }

    fn ptr(&self, index: usize) -> *mut T {
        assert!(index < self.len, "index beyond a kernel array");
        // SAFETY: the index lies inside the allocation.
        unsafe { self.start.as_ptr().add(index) }
    }

    fn get(&self, index: usize) -> T {
        // SAFETY: `ptr` checked the index; the element is initialized, and no call that could
        // write it runs, because calls borrow the owner mutably.
        unsafe { self.ptr(index).read() }
    }
}

impl<T: Copy> Drop for RawArray<T> {
    fn drop(&mut self) {
        let slice = ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
        // SAFETY: pointer and length came from the leaked box of `new`.
        drop(unsafe { Box::from_raw(slice) });
    }
}

// SAFETY: the arrays are owned and reached only through the owner's methods; raw pointers inside
// the headers point to other arrays of the same owner.
unsafe impl Send for Receiver {}

impl Receiver {
    /// Memory for `slots` datagrams of at most `stride` bytes.
    pub(super) fn new(slots: usize, stride: usize) -> Self {
        let memory = RawArray::new(vec![0u8; slots * stride]);
        let names = RawArray::new(vec![RawAddress::ZERO; slots]);
        let controls = RawArray::new(vec![Control::EMPTY; slots]);
        let iovec = |slot| libc::iovec {
            iov_base: memory.ptr(slot * stride).cast(),
            iov_len: stride,
        };
        let iovecs = RawArray::new((0..slots).map(iovec).collect());
        let header = |slot| {
            let mut header = empty_header();
            header.msg_hdr.msg_name = names.ptr(slot).cast();
            header.msg_hdr.msg_namelen = RAW_BYTES as u32;
            header.msg_hdr.msg_iov = iovecs.ptr(slot);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls.ptr(slot).cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
            header
        };
        let headers = RawArray::new((0..slots).map(header).collect());
        Self {
            memory,
            stride,
            headers,
            names,
            controls,
            _iovecs: iovecs,
            used: 0,
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.headers.len
    }

    pub(super) fn memory(&self) -> &[u8] {
        // SAFETY: the array is initialized, and `receive`, which lets the kernel write to it,
        // needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr(), self.memory.len) }
    }

    /// Receives up to `count_max` datagrams without waiting and appends them to `slots`. `asked` learns the addresses
    /// that they were sent to. Returns how many arrived and how many of those were dropped as too long.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        count_max: usize,
        slots: &mut Vec<RxSlot<SocketAddr>>,
        mut local_addresses: Option<&mut LocalAddresses>,
        arrivals: Option<&mut Vec<u64>>,
    ) -> io::Result<(usize, usize)> {
        self.reset();
        let count_max = count_max.min(self.slots()) as u32;
        let first = self.headers.start.as_ptr();
        // SAFETY: `first` starts `count_max` headers whose pointers and lengths describe arrays
        // that this value owns and that no reference covers during the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                first,
                count_max,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return Err(io::Error::last_os_error());
        };
        self.used = count;
        let before = slots.len();
        // Read right after the call, once for all.
        let mut noted = arrivals.map(|arrivals| (Clocks::read(), arrivals));
        slots.extend((0..count).filter_map(|index| {
            let slot = self.slot(index, local_addresses.as_deref_mut())?;
            if let Some((clocks, arrivals)) = &mut noted {
                let arrival = self.arrival(index);
                arrivals.push(arrival.map_or(0, |wall_ns| clocks.monotonic_ns(wall_ns)));
            }
            Some(slot)
        }));
        Ok((count, count - (slots.len() - before)))
    }

    /// Receives one datagram without waiting, as `receive` does, for less: no message header is
    /// copied in and out. Reads no control message.
    pub(super) fn receive_one(
        &mut self,
        socket: BorrowedFd<'_>,
        slots: &mut Vec<RxSlot<SocketAddr>>,
    ) -> io::Result<(usize, usize)> {
        let mut name_len = RAW_BYTES as u32;
        // SAFETY: the pointers and lengths describe the first slot's memory and name, which this
        // value owns and no reference covers, and a live integer.
        let len = unsafe {
            libc::recvfrom(
                socket.as_raw_fd(),
                self.memory.ptr(0).cast(),
                self.stride,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                self.names.ptr(0).cast(),
                &raw mut name_len,
            )
        };
        let Ok(len) = usize::try_from(len) else {
            return Err(io::Error::last_os_error());
        };
        // With `MSG_TRUNC` the kernel reports the datagram's own length.
        let route = self.names.get(0).decode().filter(|_| len <= self.stride);
        let dropped = usize::from(route.is_none());
        slots.extend(route.map(|route| RxSlot {
            start: 0,
            len: len as u32,
            route,
            ecn: false,
        }));
        Ok((1, dropped))
    }

    fn slot(
        &self,
        slot: usize,
        local_addresses: Option<&mut LocalAddresses>,
    ) -> Option<RxSlot<SocketAddr>> {
        let header = self.headers.get(slot);
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let route = self.names.get(slot).decode()?;
        let control = self.controls.get(slot);
        let control_len: usize = header.msg_hdr.msg_controllen as _;
        if let Some(local_addresses) = local_addresses
            && let Some(address) = control.local_address(control_len)
        {
            local_addresses.on_received(route, address);
        }
        Some(RxSlot {
            start: (slot * self.stride) as u32,
            len: header.msg_len,
            route,
            ecn: control.congestion_experienced(control_len),
        })
    }

    /// When the kernel took a slot's datagram from the network, by the wall clock.
    fn arrival(&self, slot: usize) -> Option<u64> {
        let control_len: usize = self.headers.get(slot).msg_hdr.msg_controllen as _;
        self.controls.get(slot).arrival(control_len)
    }

    fn reset(&mut self) {
        for slot in 0..self.used {
            let mut header = self.headers.get(slot);
            header.msg_hdr.msg_namelen = RAW_BYTES as u32;
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
            // SAFETY: `ptr` checked the index; `&mut self` excludes other users.
            unsafe { self.headers.ptr(slot).write(header) };
        }
        self.used = 0;
    }
}
