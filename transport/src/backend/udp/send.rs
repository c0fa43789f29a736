//! Handing trains of datagrams to the kernel.
#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::address::RawAddress;
use super::coalesce::Plan;
use super::options::empty_header;
use crate::backend::TxBatch;

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

const _: () = assert!(size_of::<Segmentation>() == size_of::<libc::cmsghdr>() + 8);

impl Segmentation {
    fn of(segment_bytes: usize) -> Self {
        Self {
            len: size_of::<libc::cmsghdr>() + size_of::<u16>(),
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
                SEND_FLAGS as _,
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
            let mut header = empty_header();
            header.msg_hdr.msg_namelen = name_len;
            header.msg_hdr.msg_iovlen = (self.iovecs.len() - first_iovec) as _;
            header.msg_hdr.msg_controllen = control_len as _;
            self.headers.push(header);
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
            iovecs = unsafe { iovecs.add(header.msg_hdr.msg_iovlen as _) };
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

/// The reaction to a datagram that the kernel refused.
pub(super) enum Verdict {
    /// Try the same one again.
    Retry,
    /// Go on with the next one.
    Skip,
    /// Give up the rest.
    Stop,
}

const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
