//! One UD queue pair with its two completion queues, and its way through the states.

use std::ptr;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;
use sys::ibv_qp_attr_mask as mask;

use super::VerbsError;
use super::channel::Channel;
use super::device::Device;

/// A queue pair that is ready to send and receive.
pub(super) struct QueuePair {
    pair: NonNull<sys::ibv_qp>,
    send_completions: NonNull<sys::ibv_cq>,
    receive_completions: NonNull<sys::ibv_cq>,
    /// Where the receive queue reports; lives longer than the queue.
    _channel: Arc<Channel>,
    /// Bytes that fit into a work request itself.
    pub(super) inline_bytes: usize,
    device: Arc<Device>,
}

/// The parameters of a queue pair.
#[derive(Copy, Clone)]
pub(super) struct Capacity {
    pub(super) sends: u32,
    pub(super) receives: u32,
    pub(super) inline_bytes: u32,
    pub(super) qkey: u32,
    /// First packet sequence number of the send queue.
    pub(super) psn: u32,
}

// SAFETY: libibverbs objects are bound to no thread; `&mut self` orders the calls that need it.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// A queue pair in state RTS, with an empty receive queue.
    pub(super) fn new(
        device: &Arc<Device>,
        channel: &Arc<Channel>,
        capacity: Capacity,
    ) -> Result<Self, VerbsError> {
        let context = device.context();
        let receives = completion_queue(context, capacity.receives, channel.as_ptr())?;
        let sends = completion_queue(context, capacity.sends, ptr::null_mut())?;
        let mut attributes = sys::ibv_qp_init_attr {
            send_cq: sends.0.as_ptr(),
            recv_cq: receives.0.as_ptr(),
            qp_type: sys::ibv_qp_type::IBV_QPT_UD,
            cap: sys::ibv_qp_cap {
                max_send_wr: capacity.sends,
                max_recv_wr: capacity.receives,
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data: capacity.inline_bytes,
            },
            ..Default::default()
        };
        // SAFETY: domain and queues are alive, and the attributes outlive the call.
        let pair = unsafe { sys::ibv_create_qp(device.domain(), &raw mut attributes) };
        let pair = Guard::new(pair, "ibv_create_qp", sys::ibv_destroy_qp)?;
        let made = Self {
            pair: pair.keep(),
            send_completions: sends.keep(),
            receive_completions: receives.keep(),
            _channel: Arc::clone(channel),
            inline_bytes: attributes.cap.max_inline_data as usize,
            device: Arc::clone(device),
        };
        made.start(capacity)?;
        Ok(made)
    }

    /// INIT, RTR, RTS. The queue pair is in RESET.
    pub(super) fn start(&self, capacity: Capacity) -> Result<(), VerbsError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_INIT,
            port_num: self.device.port.number,
            qkey: capacity.qkey,
            sq_psn: capacity.psn,
            ..Default::default()
        };
        let init =
            mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY;
        self.modify(&mut attributes, init, "ibv_modify_qp to INIT")?;
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RTR;
        self.modify(&mut attributes, mask::IBV_QP_STATE, "ibv_modify_qp to RTR")?;
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RTS;
        self.modify(
            &mut attributes,
            mask::IBV_QP_STATE | mask::IBV_QP_SQ_PSN,
            "ibv_modify_qp to RTS",
        )
    }

    /// Any state to RESET: forgets everything posted, keeps the queue pair's number.
    pub(super) fn reset(&self) -> Result<(), VerbsError> {
        let state = sys::ibv_qp_state::IBV_QPS_RESET;
        self.modify(
            &mut in_state(state),
            mask::IBV_QP_STATE,
            "ibv_modify_qp to RESET",
        )
    }

    /// Any state to ERR, as a device's failure would; for tests of the recovery.
    pub(super) fn fail(&self) -> Result<(), VerbsError> {
        let state = sys::ibv_qp_state::IBV_QPS_ERR;
        self.modify(
            &mut in_state(state),
            mask::IBV_QP_STATE,
            "ibv_modify_qp to ERR",
        )
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

    /// The number that peers send to.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { self.pair.as_ref() }.qp_num
    }

    /// Hands a list of work requests to the device, with one doorbell; how many of them it took.
    ///
    /// # Safety
    ///
    /// `first` starts a list whose elements point to live entries of registered memory that stays
    /// until each request has completed (for inline requests: readable memory, during this call).
    #[inline]
    pub(super) unsafe fn post_sends(
        &mut self,
        first: &mut sys::ibv_send_wr,
        count: usize,
    ) -> usize {
        let mut refused = ptr::null_mut::<sys::ibv_send_wr>();
        let post = self
            .operations()
            .post_send
            .expect("every provider has post_send");
        // SAFETY: by the caller's promise, and the queue pair is alive.
        let result = unsafe { post(self.pair.as_ptr(), first, &raw mut refused) };
        if result == 0 {
            count
        } else {
            taken(ptr::from_ref(first), refused.cast_const(), count, |r| {
                r.next
            })
        }
    }

    /// As [`QueuePair::post_sends`], for receives.
    ///
    /// # Safety
    ///
    /// `first` starts a list whose elements point to live entries of registered memory. The device
    /// may write that memory, and no other code uses it, until each request has completed.
    #[inline]
    pub(super) unsafe fn post_receives(
        &mut self,
        first: &mut sys::ibv_recv_wr,
        count: usize,
    ) -> usize {
        let mut refused = ptr::null_mut::<sys::ibv_recv_wr>();
        let post = self
            .operations()
            .post_recv
            .expect("every provider has post_recv");
        // SAFETY: by the caller's promise, and the queue pair is alive.
        let result = unsafe { post(self.pair.as_ptr(), first, &raw mut refused) };
        if result == 0 {
            count
        } else {
            taken(ptr::from_ref(first), refused.cast_const(), count, |r| {
                r.next
            })
        }
    }

    /// Completed sends, into `out`; how many.
    #[inline]
    pub(super) fn poll_sends(&mut self, out: &mut [sys::ibv_wc]) -> usize {
        self.poll(self.send_completions, out)
    }

    /// Completed receives, into `out`; how many.
    #[inline]
    pub(super) fn poll_receives(&mut self, out: &mut [sys::ibv_wc]) -> usize {
        self.poll(self.receive_completions, out)
    }

    #[inline]
    fn poll(&self, queue: NonNull<sys::ibv_cq>, out: &mut [sys::ibv_wc]) -> usize {
        let poll = self
            .operations()
            .poll_cq
            .expect("every provider has poll_cq");
        // SAFETY: the queue is alive and `out` has room for as many completions as said.
        let count = unsafe { poll(queue.as_ptr(), out.len() as i32, out.as_mut_ptr()) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Makes the next receive raise an event on the channel.
    pub(super) fn arm(&mut self) -> Result<(), VerbsError> {
        let arm = self
            .operations()
            .req_notify_cq
            .expect("every provider has req_notify_cq");
        // SAFETY: the queue is alive.
        VerbsError::check(
            unsafe { arm(self.receive_completions.as_ptr(), 0) },
            "ibv_req_notify_cq",
        )
    }

    #[inline]
    fn operations(&self) -> &sys::ibv_context_ops {
        // SAFETY: the context is open as long as the device, which `self` keeps.
        unsafe { &(*self.device.context()).ops }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once, before the queues it uses.
        unsafe { sys::ibv_destroy_qp(self.pair.as_ptr()) };
        // SAFETY: as above; the queue pair is gone.
        unsafe { sys::ibv_destroy_cq(self.send_completions.as_ptr()) };
        // SAFETY: as above; the channel acknowledges every event that it takes.
        unsafe { sys::ibv_destroy_cq(self.receive_completions.as_ptr()) };
    }
}

fn in_state(qp_state: sys::ibv_qp_state::Type) -> sys::ibv_qp_attr {
    sys::ibv_qp_attr {
        qp_state,
        ..Default::default()
    }
}

/// How many requests of a list come before the refused one.
fn taken<W>(
    first: *const W,
    refused: *const W,
    count: usize,
    next: impl Fn(&W) -> *mut W,
) -> usize {
    let mut at = first;
    (0..count)
        .find(|_| {
            let found = at == refused;
            // SAFETY: `at` is within the list, which has `count` elements.
            at = next(unsafe { &*at }).cast_const();
            found
        })
        .unwrap_or(0)
}

fn completion_queue(
    context: *mut sys::ibv_context,
    entries: u32,
    channel: *mut sys::ibv_comp_channel,
) -> Result<Guard<sys::ibv_cq>, VerbsError> {
    let entries = i32::try_from(entries).unwrap_or(i32::MAX);
    // SAFETY: the context is open; the channel is alive or null.
    let queue = unsafe { sys::ibv_create_cq(context, entries, ptr::null_mut(), channel, 0) };
    Guard::new(queue, "ibv_create_cq", sys::ibv_destroy_cq)
}

/// Destroys its object unless that is kept: for the way out of a failed construction.
struct Guard<T>(NonNull<T>, unsafe extern "C" fn(*mut T) -> i32);

impl<T> Guard<T> {
    fn new(
        made: *mut T,
        call: &'static str,
        destroy: unsafe extern "C" fn(*mut T) -> i32,
    ) -> Result<Self, VerbsError> {
        NonNull::new(made)
            .map(|made| Self(made, destroy))
            .ok_or_else(|| VerbsError::last(call))
    }

    fn keep(self) -> NonNull<T> {
        let made = self.0;
        std::mem::forget(self);
        made
    }
}

impl<T> Drop for Guard<T> {
    fn drop(&mut self) {
        // SAFETY: the object was just made, and no other code has it.
        unsafe { (self.1)(self.0.as_ptr()) };
    }
}
