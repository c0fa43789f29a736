//! A connected queue pair, its way through the states, and the completion queue that it reports to.
//!
//! It is unreliable (UC) for the path herd, and reliable (RC) for the path rfp, which needs READs, and for counters.

use std::ptr;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;
use sys::ibv_qp_attr_mask as mask;

use crate::backend::VerbsError;
use crate::backend::device::Device;
use crate::config::SLOTS;
use crate::one_sided_path::OneSidedPath;
use crate::route::VerbsRoute;

/// READs that an end may have under way: one of each slot. A device that cannot have so many refuses the connection, and
/// its sessions use datagrams.
const READS: u8 = SLOTS as u8;
/// An acknowledgement that is late: 4.096 us times two to this power, some 67 ms ..
const ACK_TIMEOUT: u8 = 14;
/// .. so many times, and the queue pair fails. Seven means for ever on some devices.
const RETRIES: u8 = 6;
/// How long an end waits that the other has no receive for: never the case here, and 0.01 ms.
const NO_RECEIVE_TIMER: u8 = 1;

/// Completions of queue pairs that raise no event.
pub(super) struct CompletionQueue {
    queue: NonNull<sys::ibv_cq>,
    device: Arc<Device>,
}

/// What a connected queue pair is for.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum PairPurpose {
    /// The connections of a path.
    Path(OneSidedPath),
    /// A counter that the other end adds to.
    Counter,
}

impl PairPurpose {
    fn is_reliable(self) -> bool {
        self != Self::Path(OneSidedPath::Herd)
    }

    /// What the other end may do with registered memory.
    fn access(self) -> u32 {
        let flags = match self {
            Self::Path(OneSidedPath::Herd) => sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE,
            Self::Path(OneSidedPath::Rfp) => {
                sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
                    | sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ
            }
            Self::Counter => sys::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC,
        };
        flags.0
    }

    /// The device made no such queue pair, and errno says why.
    fn refusal(self, device: &Device) -> VerbsError {
        match self {
            Self::Path(path) => VerbsError::no_connections(&device.name, path),
            Self::Counter => VerbsError::no_counters(&device.name),
        }
    }
}

/// A queue pair in RESET, or connected with one other.
pub(super) struct ConnectedPair {
    purpose: PairPurpose,
    pair: NonNull<sys::ibv_qp>,
    device: Arc<Device>,
}

/// How a queue pair is made.
#[derive(Copy, Clone)]
pub(super) struct PairConfig {
    pub(super) purpose: PairPurpose,
    /// The protection domain of the memory that the other end may use.
    pub(super) domain: *mut sys::ibv_pd,
    pub(super) sends: u32,
    pub(super) inline_bytes: u32,
}

/// The other end.
#[derive(Copy, Clone)]
pub(super) struct OtherEnd<'a> {
    pub(super) route: &'a VerbsRoute,
    pub(super) queue_pair: u32,
    /// Of its first packet.
    pub(super) psn: u32,
}

// SAFETY: libibverbs objects are bound to no thread; the owner's `&mut` orders the calls that need it.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Send for ConnectedPair {}

impl CompletionQueue {
    pub(super) fn new(device: &Arc<Device>, entries: usize) -> Result<Self, VerbsError> {
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        let none = ptr::null_mut();
        // SAFETY: the context is open; there is no channel.
        let queue =
            unsafe { sys::ibv_create_cq(device.context(), entries, none, ptr::null_mut(), 0) };
        let queue = NonNull::new(queue).ok_or_else(|| VerbsError::last("ibv_create_cq"))?;
        Ok(Self {
            queue,
            device: Arc::clone(device),
        })
    }

    /// Completions, into `out`; how many.
    pub(super) fn poll(&self, out: &mut [sys::ibv_wc]) -> usize {
        let poll = operations(&self.device).poll_cq;
        let poll = poll.expect("every provider has poll_cq");
        // SAFETY: the queue is alive and `out` has room for as many completions as said.
        let count = unsafe { poll(self.queue.as_ptr(), out.len() as i32, out.as_mut_ptr()) };
        usize::try_from(count).unwrap_or(0)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once; its owner has dropped the queue pairs that report to it.
        unsafe { sys::ibv_destroy_cq(self.queue.as_ptr()) };
    }
}

impl ConnectedPair {
    /// In state RESET.
    pub(super) fn new(
        device: &Arc<Device>,
        completions: &CompletionQueue,
        shape: PairConfig,
    ) -> Result<Self, VerbsError> {
        let mut attributes = sys::ibv_qp_init_attr {
            send_cq: completions.queue.as_ptr(),
            recv_cq: completions.queue.as_ptr(),
            qp_type: match shape.purpose.is_reliable() {
                false => sys::ibv_qp_type::IBV_QPT_UC,
                true => sys::ibv_qp_type::IBV_QPT_RC,
            },
            cap: sys::ibv_qp_cap {
                max_send_wr: shape.sends,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: shape.inline_bytes,
            },
            ..Default::default()
        };
        // SAFETY: domain and queue are alive, and the attributes outlive the call.
        let pair = unsafe { sys::ibv_create_qp(shape.domain, &raw mut attributes) };
        let pair = NonNull::new(pair);
        let made = Self {
            purpose: shape.purpose,
            pair: pair.ok_or_else(|| shape.purpose.refusal(device))?,
            device: Arc::clone(device),
        };
        if let PairPurpose::Path(path) = shape.purpose
            && attributes.cap.max_inline_data < shape.inline_bytes
        {
            return Err(VerbsError::InlineTooSmall {
                device: device.name.clone(),
                path,
                needed: shape.inline_bytes,
                granted: attributes.cap.max_inline_data,
            });
        }
        Ok(made)
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { self.pair.as_ref() }.qp_num
    }

    /// INIT, RTR: the other end can write, and read, from now on.
    pub(super) fn receive_from(&self, other: OtherEnd<'_>) -> Result<(), VerbsError> {
        let port = &self.device.port;
        let mut attributes = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_INIT,
            port_num: port.number,
            qp_access_flags: self.purpose.access(),
            path_mtu: (port.mtu / 128).ilog2(),
            dest_qp_num: other.queue_pair,
            rq_psn: other.psn,
            max_dest_rd_atomic: READS,
            min_rnr_timer: NO_RECEIVE_TIMER,
            ..Default::default()
        };
        let init = mask::IBV_QP_STATE
            | mask::IBV_QP_PKEY_INDEX
            | mask::IBV_QP_PORT
            | mask::IBV_QP_ACCESS_FLAGS;
        self.modify(
            &mut attributes,
            init,
            "ibv_modify_qp of a connected queue pair to INIT",
        )?;
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RTR;
        attributes.ah_attr = self.device.way_to(other.route);
        let mut connected = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN;
        if self.purpose.is_reliable() {
            connected = connected | mask::IBV_QP_MAX_DEST_RD_ATOMIC | mask::IBV_QP_MIN_RNR_TIMER;
        }
        self.modify(
            &mut attributes,
            connected,
            "ibv_modify_qp of a connected queue pair to RTR",
        )
    }

    /// RTR to RTS: this end can write and read. Its first packet has this number.
    pub(super) fn send_from(&self, psn: u32) -> Result<(), VerbsError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_RTS,
            sq_psn: psn,
            max_rd_atomic: READS,
            timeout: ACK_TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RETRIES,
            ..Default::default()
        };
        let mut which = mask::IBV_QP_STATE | mask::IBV_QP_SQ_PSN;
        if self.purpose.is_reliable() {
            which = which
                | mask::IBV_QP_MAX_QP_RD_ATOMIC
                | mask::IBV_QP_TIMEOUT
                | mask::IBV_QP_RETRY_CNT
                | mask::IBV_QP_RNR_RETRY;
        }
        self.modify(
            &mut attributes,
            which,
            "ibv_modify_qp of a connected queue pair to RTS",
        )
    }

    /// Any state to RESET: the other end neither writes nor reads any more.
    pub(super) fn reset(&self) -> Result<(), VerbsError> {
        self.go_to(sys::ibv_qp_state::IBV_QPS_RESET)
    }

    /// Any state to ERR; for tests.
    pub(super) fn fail(&self) -> Result<(), VerbsError> {
        self.go_to(sys::ibv_qp_state::IBV_QPS_ERR)
    }

    fn go_to(&self, qp_state: sys::ibv_qp_state::Type) -> Result<(), VerbsError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state,
            ..Default::default()
        };
        let call = "ibv_modify_qp of a connected queue pair";
        self.modify(&mut attributes, mask::IBV_QP_STATE, call)
    }

    fn modify(
        &self,
        attributes: &mut sys::ibv_qp_attr,
        which: sys::ibv_qp_attr_mask,
        call: &'static str,
    ) -> Result<(), VerbsError> {
        // SAFETY: the queue pair is alive, and the attributes outlive the call.
        let result = unsafe { sys::ibv_modify_qp(self.pair.as_ptr(), attributes, which.0 as i32) };
        VerbsError::check(result, call)
    }

    /// Hands one write, READ or FETCH_ADD to the device. False if it does not take it.
    ///
    /// # Safety
    ///
    /// The request has one element. If it is inline, the element points to bytes that are readable during this call. If it
    /// is a READ or FETCH_ADD, the element is registered memory. That memory stays, and no reference into it lives, until the request
    /// has completed or the queue pair was reset.
    #[inline]
    pub(super) unsafe fn post(&mut self, request: &mut sys::ibv_send_wr) -> bool {
        let mut refused = ptr::null_mut::<sys::ibv_send_wr>();
        let post = operations(&self.device).post_send;
        let post = post.expect("every provider has post_send");
        // SAFETY: by the caller's promise, and the queue pair is alive.
        unsafe { post(self.pair.as_ptr(), request, &raw mut refused) == 0 }
    }
}

impl Drop for ConnectedPair {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once, before its completion queue and its domain.
        unsafe { sys::ibv_destroy_qp(self.pair.as_ptr()) };
    }
}

#[inline]
fn operations(device: &Device) -> &sys::ibv_context_ops {
    // SAFETY: the context is open as long as the device.
    unsafe { &(*device.context()).ops }
}
