//! Handing trains of datagrams to the kernel.
#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::address::RawAddress;
use super::coalesce::{SendPlan, Train};
use super::control::Control;
use super::local_addresses::LocalAddresses;
use super::options::empty_header;
use crate::backend::TxBatch;

/// Scratch for building send calls; reused from burst to burst.
pub(super) struct Sender {
    headers: Vec<libc::mmsghdr>,
    iovecs: Vec<libc::iovec>,
    names: Vec<RawAddress>,
    controls: Vec<Control>,
    v6_socket: bool,
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
            controls: Vec::new(),
            v6_socket,
        }
    }

    /// Hands the planned trains to the kernel, each from the address that its peer has asked. `refused` is told the index of
    /// each that the kernel did not accept, with the error; it says whether to go on.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        tx: &TxBatch<SocketAddr>,
        plan: &SendPlan<SocketAddr>,
        mut local_addresses: Option<&mut LocalAddresses>,
        mut refused: impl FnMut(usize, io::Error) -> SendRecovery,
    ) {
        self.describe(tx, plan, local_addresses.as_deref());
        let mut sent = 0;
        // The train that lost its source because the kernel may have refused it for that.
        let mut without_source: Option<usize> = None;
        while sent < self.headers.len() {
            let error = match self.send_from(socket, sent) {
                Ok(count) => {
                    // The source was the reason.
                    if let (Some(index), Some(local_addresses)) =
                        (without_source.take(), &mut local_addresses)
                    {
                        local_addresses.forget(&plan.trains()[index].route);
                    }
                    sent += count;
                    continue;
                }
                Err(error) => error,
            };
            if may_be_the_source(&error) && self.drop_source(sent, &plan.trains()[sent]) {
                without_source = Some(sent);
                continue;
            }
            match refused(sent, error) {
                SendRecovery::Retry => {}
                SendRecovery::Skip => {
                    sent += 1;
                    without_source = None;
                }
                SendRecovery::Stop => return,
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

    /// Leaves the source of a train to the kernel. `false` if that was so already.
    fn drop_source(&mut self, index: usize, train: &Train<SocketAddr>) -> bool {
        let header = &mut self.headers[index].msg_hdr;
        // The source is the last message.
        let without = add_segmentation(&mut self.controls[index], train);
        let before: usize = header.msg_controllen as _;
        header.msg_controllen = without as _;
        before > without
    }

    /// Fills names, control messages, iovecs and headers for every train of the plan.
    fn describe(
        &mut self,
        tx: &TxBatch<SocketAddr>,
        plan: &SendPlan<SocketAddr>,
        local_addresses: Option<&LocalAddresses>,
    ) {
        self.headers.clear();
        self.iovecs.clear();
        self.names.clear();
        // Old messages may stay: whatever a header counts is written below.
        if self.controls.len() < plan.trains().len() {
            self.controls.resize(plan.trains().len(), Control::EMPTY);
        }
        for (index, train) in plan.trains().iter().enumerate() {
            let mut name = RawAddress::ZERO;
            let name_len = name.encode(&train.route, self.v6_socket);
            self.names.push(name);
            let control = &mut self.controls[index];
            let mut control_len = add_segmentation(control, train);
            // The source comes last, so that `drop_source` can cut it off.
            if let Some(source) =
                local_addresses.and_then(|local_addresses| local_addresses.by(&train.route))
            {
                control_len = control.add_source(control_len, source, self.v6_socket);
            }
            let first_iovec = self.iovecs.len();
            for index in plan.items(train) {
                let item = tx.get(index).expect("the plan was made from this batch");
                self.add_part(item.head, first_iovec);
                if let Some(body) = item.body {
                    self.add_part(body, first_iovec);
                }
            }
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
        let controls = self.controls.iter_mut();
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

/// Has the kernel cut a train of several datagrams. Returns the bytes of control messages.
fn add_segmentation(control: &mut Control, train: &Train<SocketAddr>) -> usize {
    if train.datagrams > 1 {
        control.add_segmentation(0, train.segment_bytes)
    } else {
        0
    }
}

/// Whether the kernel may have refused a send because the machine no longer has the source: `EINVAL` for IPv6, and for IPv4
/// before Linux 5.5; `ENETUNREACH` for IPv4 since then. Both have other meanings, too.
fn may_be_the_source(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENETUNREACH))
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
pub(super) enum SendRecovery {
    /// Try the same one again.
    Retry,
    /// Go on with the next one.
    Skip,
    /// Give up the rest.
    Stop,
}

const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
