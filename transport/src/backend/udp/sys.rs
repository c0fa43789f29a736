//! The system calls: batched receive and send. The only `unsafe` of this backend.
#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use super::address::{RAW_BYTES, RawAddress};
use super::coalesce::Plan;
use crate::backend::{RxSlot, TxBatch};

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

/// Ancillary data of one datagram: room for the traffic class.
#[derive(Copy, Clone)]
#[repr(C, align(8))]
struct Control {
    bytes: [u8; CONTROL_BYTES],
}

const CONTROL_BYTES: usize = 64;
/// `struct cmsghdr`: length, level, type.
const CONTROL_HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
const _: () = assert!(CONTROL_HEADER_BYTES == 16);

/// ECN field of the traffic class: "congestion experienced".
const ECN_CE: u8 = 0b11;

/// A heap array that is only reached through its raw pointer, so that the kernel may write to it
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
        let controls = RawArray::new(vec![
            Control {
                bytes: [0; CONTROL_BYTES]
            };
            slots
        ]);
        let iovec = |slot| libc::iovec {
            iov_base: memory.ptr(slot * stride).cast(),
            iov_len: stride,
        };
        let iovecs = RawArray::new((0..slots).map(iovec).collect());
        let header = |slot| libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: names.ptr(slot).cast(),
                msg_namelen: RAW_BYTES as u32,
                msg_iov: iovecs.ptr(slot),
                msg_iovlen: 1,
                msg_control: controls.ptr(slot).cast(),
                msg_controllen: CONTROL_BYTES,
                msg_flags: 0,
            },
            msg_len: 0,
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

    /// Receives up to `count_max` datagrams without waiting and appends them to `slots`.
    /// Returns how many arrived and how many of those were dropped as too long.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        count_max: usize,
        slots: &mut Vec<RxSlot<SocketAddr>>,
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
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return Err(io::Error::last_os_error());
        };
        self.used = count;
        let before = slots.len();
        slots.extend((0..count).filter_map(|slot| self.slot(slot)));
        Ok((count, count - (slots.len() - before)))
    }

    /// Receives one datagram without waiting, as `receive` does, for less: no message header is
    /// copied in and out. Reads no congestion mark.
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

    fn slot(&self, slot: usize) -> Option<RxSlot<SocketAddr>> {
        let header = self.headers.get(slot);
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let route = self.names.get(slot).decode()?;
        let ecn = self
            .controls
            .get(slot)
            .congestion_experienced(header.msg_hdr.msg_controllen);
        Some(RxSlot {
            start: (slot * self.stride) as u32,
            len: header.msg_len,
            route,
            ecn,
        })
    }

    fn reset(&mut self) {
        for slot in 0..self.used {
            let mut header = self.headers.get(slot);
            header.msg_hdr.msg_namelen = RAW_BYTES as u32;
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
            // SAFETY: `ptr` checked the index; `&mut self` excludes other users.
            unsafe { self.headers.ptr(slot).write(header) };
        }
        self.used = 0;
    }
}

impl Control {
    /// Looks for a traffic class among `len` bytes of control messages.
    fn congestion_experienced(&self, len: usize) -> bool {
        let mut rest = &self.bytes[..len.min(CONTROL_BYTES)];
        while rest.len() > CONTROL_HEADER_BYTES {
            let length = usize::from_ne_bytes(rest[0..8].try_into().expect("eight bytes"));
            let level = i32::from_ne_bytes(rest[8..12].try_into().expect("four bytes"));
            let kind = i32::from_ne_bytes(rest[12..16].try_into().expect("four bytes"));
            let class = matches!(
                (level, kind),
                (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
            );
            if class {
                // One byte for IPv4, a native integer for IPv6: the low byte on little-endian
                // machines, the fourth on others.
                let wide = level == libc::IPPROTO_IPV6 && cfg!(target_endian = "big");
                let value = rest[CONTROL_HEADER_BYTES + if wide { 3 } else { 0 }];
                return value & ECN_CE == ECN_CE;
            }
            let step = length.next_multiple_of(8);
            if length < CONTROL_HEADER_BYTES || step >= rest.len() {
                return false;
            }
            rest = &rest[step..];
        }
        false
    }
}

/// Scratch for building send calls; reused from burst to burst.
pub(super) struct Sender {
    headers: Vec<libc::mmsghdr>,
    iovecs: Vec<libc::iovec>,
    names: Vec<RawAddress>,
    segmentations: Vec<Segmentation>,
    v6_socket: bool,
}

/// The control message that has the kernel cut a train into datagrams.
#[derive(Copy, Clone)]
#[repr(C, align(8))]
struct Segmentation {
    /// Length of the message without padding.
    len: usize,
    level: i32,
    kind: i32,
    segment_bytes: u16,
    _padding: [u8; 6],
}

const _: () = assert!(size_of::<Segmentation>() == CONTROL_HEADER_BYTES + 8);

impl Segmentation {
    fn of(segment_bytes: usize) -> Self {
        Self {
            len: CONTROL_HEADER_BYTES + size_of::<u16>(),
            level: libc::SOL_UDP,
            kind: libc::UDP_SEGMENT,
            // At most a datagram's 65,507 bytes.
            segment_bytes: segment_bytes as u16,
            _padding: [0; 6],
        }
    }
}

// SAFETY: the raw pointers inside are written and used within one call of `send` and mean nothing
// afterwards.
unsafe impl Send for Sender {}

impl Sender {
    pub(super) fn new(v6_socket: bool) -> Self {
        Self {
            headers: Vec::new(),
            iovecs: Vec::new(),
            names: Vec::new(),
            segmentations: Vec::new(),
            v6_socket,
        }
    }

    /// Hands the planned trains to the kernel. `refused` is told the index of each that the kernel
    /// did not take, with its error; it says whether to go on.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        tx: &TxBatch<SocketAddr>,
        plan: &Plan<SocketAddr>,
        mut refused: impl FnMut(usize, io::Error) -> Verdict,
    ) {
        self.describe(tx, plan);
        let mut sent = 0;
        while sent < self.headers.len() {
            let result = self.send_from(socket, sent);
            match result {
                Ok(count) => sent += count,
                Err(error) => match refused(sent, error) {
                    Verdict::Retry => {}
                    Verdict::Skip => sent += 1,
                    Verdict::Stop => return,
                },
            }
        }
    }

    fn send_from(&mut self, socket: BorrowedFd<'_>, first: usize) -> io::Result<usize> {
        let headers = &mut self.headers[first..];
        if let [only] = headers {
            return send_one(socket, &only.msg_hdr, &self.iovecs);
        }
        // SAFETY: `describe` filled the headers with pointers to the names, iovecs and bytes of the
        // batch, all of which outlive this call.
        let count = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as u32,
                SEND_FLAGS,
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Fills names, iovecs and headers for every train of the plan.
    fn describe(&mut self, tx: &TxBatch<SocketAddr>, plan: &Plan<SocketAddr>) {
        self.headers.clear();
        self.iovecs.clear();
        self.names.clear();
        self.segmentations.clear();
        for train in plan.trains() {
            let mut name = RawAddress::ZERO;
            let name_len = name.encode(&train.route, self.v6_socket);
            self.names.push(name);
            self.segmentations
                .push(Segmentation::of(train.segment_bytes));
            let first_iovec = self.iovecs.len();
            for index in plan.items(train) {
                let item = tx.get(index).expect("the plan was made from this batch");
                self.add_part(item.head, first_iovec);
                if let Some(body) = item.body {
                    self.add_part(body, first_iovec);
                }
            }
            let control_len = if train.datagrams > 1 {
                size_of::<Segmentation>()
            } else {
                0
            };
            self.headers.push(libc::mmsghdr {
                msg_hdr: libc::msghdr {
                    msg_name: ptr::null_mut(),
                    msg_namelen: name_len,
                    msg_iov: ptr::null_mut(),
                    msg_iovlen: self.iovecs.len() - first_iovec,
                    msg_control: ptr::null_mut(),
                    msg_controllen: control_len,
                    msg_flags: 0,
                },
                msg_len: 0,
            });
        }
        self.link();
    }

    /// Points every header to its name, control message and iovecs, now that these do not move any
    /// more.
    fn link(&mut self) {
        let mut iovecs = self.iovecs.as_mut_ptr();
        let controls = self.segmentations.iter_mut();
        for ((header, name), control) in self.headers.iter_mut().zip(&mut self.names).zip(controls)
        {
            header.msg_hdr.msg_name = ptr::from_mut(name).cast();
            if header.msg_hdr.msg_controllen > 0 {
                header.msg_hdr.msg_control = ptr::from_mut(control).cast();
            }
            header.msg_hdr.msg_iov = iovecs;
            // SAFETY: the headers' iovec counts add up to the length of `iovecs`.
            iovecs = unsafe { iovecs.add(header.msg_hdr.msg_iovlen) };
        }
    }

    /// Adds bytes to the datagram whose parts start at `first_iovec`, merging neighbours in memory.
    #[inline]
    fn add_part(&mut self, bytes: &[u8], first_iovec: usize) {
        if let Some(last) = self.iovecs[first_iovec..].last_mut() {
            // Heads of one batch lie side by side in one vector.
            if last.iov_base.addr() + last.iov_len == bytes.as_ptr().addr() {
                last.iov_len += bytes.len();
                return;
            }
        }
        self.iovecs.push(libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        });
    }
}

/// Sends a single datagram, with less bookkeeping in the kernel than a batch of one needs.
fn send_one(
    socket: BorrowedFd<'_>,
    header: &libc::msghdr,
    iovecs: &[libc::iovec],
) -> io::Result<usize> {
    let sent = match (header.msg_iovlen, iovecs.last()) {
        (1, Some(part)) if header.msg_controllen == 0 => {
            // SAFETY: the last header's only part is the last iovec; it describes bytes of the
            // batch, and the name is one of `describe`; both outlive this call.
            unsafe {
                libc::sendto(
                    socket.as_raw_fd(),
                    part.iov_base,
                    part.iov_len,
                    SEND_FLAGS,
                    header.msg_name.cast(),
                    header.msg_namelen,
                )
            }
        }
        // SAFETY: `describe` filled the header with pointers that outlive this call.
        _ => unsafe { libc::sendmsg(socket.as_raw_fd(), header, SEND_FLAGS) },
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(1)
    }
}

/// What to do after the kernel refused a datagram.
pub(super) enum Verdict {
    /// Try the same one again.
    Retry,
    /// Go on with the next one.
    Skip,
    /// Give up the rest.
    Stop,
}

const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Sets an integer socket option.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: i32,
) -> io::Result<()> {
    // SAFETY: the pointer and length describe a live integer that the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Reads an integer socket option.
pub(super) fn option(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as u32;
    // SAFETY: the pointers and the length describe live integers that the kernel may write.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}
