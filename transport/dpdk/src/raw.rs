//! One queue pair of a port and the packet buffers that pass through it, without any protocol.
//!
//! The backend is built on it; measurements of what bare DPDK can do, and tests that need frames no backend would make,
//! use it directly.
//!
//! | buffer | from | until |
//! |---|---|---|
//! | received frame | [`RawQueue::receive`] | the next `receive`, [`RawQueue::send_back`], or [`RawQueue::forward`] |
//! | frame to send | [`RawQueue::allocate`] | [`RawQueue::send`], then it is the port's |
#![allow(unsafe_code)]

use std::sync::Arc;

use trine_dpdk_sys as sys;

use super::config::{BURST, DpdkConfig, QUEUES_MAX, TX_TRIES};
use super::eal::Eal;
use super::error::DpdkError;
use super::mac::MacAddr;
use super::port::{Port, Queues};
use super::template::Fill;

/// Bytes of a packet buffer after DPDK's headroom: the longest frame.
pub const FRAME_MAX: usize = (sys::RTE_MBUF_DEFAULT_BUF_SIZE - sys::RTE_PKTMBUF_HEADROOM) as usize;

/// A queue pair of a started port.
pub struct RawQueue {
    pub(super) port: Arc<Port>,
    index: u16,
    received: Box<[sys::trine_rx_frame; BURST]>,
    /// Frames of `received` whose buffers are ours.
    held: usize,
    sending: Box<[sys::trine_tx_frame; BURST]>,
    /// Frames of `sending` whose buffers are ours.
    allocated: usize,
    offload: u32,
    /// Its port sends buffers of others, and others may send its own.
    forwards: bool,
}

// SAFETY: a queue pair may be used by any thread, by one at a time; `&mut self` sees to that. The buffers that the
// raw pointers name belong to the queue.
unsafe impl Send for RawQueue {}

/// The port's verdict on a received frame.
#[derive(Copy, Clone, Debug)]
pub(super) struct RxFlags(u32);

impl RxFlags {
    pub(super) fn is_bad(self) -> bool {
        self.0 & sys::TRINE_RX_BAD != 0
    }

    pub(super) fn is_chained(self) -> bool {
        self.0 & sys::TRINE_RX_CHAINED != 0
    }

    pub(super) fn ip_is_good(self) -> bool {
        self.0 & sys::TRINE_RX_IP_GOOD != 0
    }

    pub(super) fn udp_is_good(self) -> bool {
        self.0 & sys::TRINE_RX_UDP_GOOD != 0
    }
}

impl RawQueue {
    /// Opens the port for one queue pair.
    ///
    /// # Errors
    ///
    /// [`DpdkError`] with cause and hint.
    pub fn open(eal: &Arc<Eal>, config: &DpdkConfig) -> Result<Self, DpdkError> {
        Ok(Self::new(
            Port::open(eal, config, Queues::OfUdpPorts(&[0]))?,
            0,
        ))
    }

    /// Opens the port with `count` queue pairs for frames of all kinds, which can be forwarded to other ports. The port
    /// distributes received frames by itself: memif by the queue that its peer sent on.
    ///
    /// # Errors
    ///
    /// [`DpdkError`] with cause and hint.
    pub fn open_for_forwarding(
        eal: &Arc<Eal>,
        config: &DpdkConfig,
        count: u16,
    ) -> Result<Vec<Self>, DpdkError> {
        let port = Port::open(eal, config, Queues::ForForwarding(count))?;
        let queue = |index| {
            let mut queue = Self::new(Arc::clone(&port), index);
            queue.forwards = true;
            queue
        };
        Ok((0..count.min(QUEUES_MAX as u16)).map(queue).collect())
    }

    pub(super) fn new(port: Arc<Port>, index: u16) -> Self {
        let bit = |fill, bit| if fill == Fill::Port { bit } else { 0 };
        let offload = bit(port.checksums.ip, sys::TRINE_TX_IP_CKSUM)
            | bit(port.checksums.udp, sys::TRINE_TX_UDP_CKSUM);
        Self {
            port,
            index,
            received: Box::default(),
            held: 0,
            sending: Box::default(),
            allocated: 0,
            offload,
            forwards: false,
        }
    }

    /// The port's Ethernet address.
    #[must_use]
    pub fn mac(&self) -> MacAddr {
        self.port.mac
    }

    /// Whether the port has a link just now. A memif port has one while its peer is connected.
    #[must_use]
    pub fn link_is_up(&self) -> bool {
        self.port.link_is_up()
    }

    /// Takes up to a burst of frames from the port, after giving back those of the previous call; how many came.
    #[inline]
    pub fn receive(&mut self) -> usize {
        self.release();
        // SAFETY: the port is started and has this queue, which only this value polls; the array has BURST places.
        let count = unsafe {
            sys::trine_rx_burst(
                self.port.id,
                self.index,
                self.received.as_mut_ptr(),
                BURST as u16,
            )
        };
        self.held = usize::from(count);
        self.held
    }

    /// Frames of the last [`RawQueue::receive`].
    #[inline]
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// A frame of the last [`RawQueue::receive`].
    ///
    /// # Panics
    ///
    /// If there were not so many.
    #[inline]
    #[must_use]
    pub fn received(&self, index: usize) -> &[u8] {
        assert!(index < self.held, "no such frame");
        let frame = &self.received[index];
        // SAFETY: the port filled in a buffer with that many bytes, which is held until `release`, and `release`
        // needs `&mut self`.
        unsafe { std::slice::from_raw_parts(frame.data, frame.len as usize) }
    }

    /// The frames of the last [`RawQueue::receive`], in their order, to be changed in place. A frame in more than one
    /// segment is only its first one, see [`RawQueue::is_whole`].
    #[inline]
    pub fn received_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.received[..self.held].iter_mut().map(|frame| {
            // SAFETY: as in `received`. The buffer is writable memory of DPDK that only this queue knows, each frame
            // has its own, and `&mut self` lasts as long as the slices.
            unsafe { std::slice::from_raw_parts_mut(frame.data.cast_mut(), frame.len as usize) }
        })
    }

    /// Whether all bytes of a frame of the last [`RawQueue::receive`] are in one segment.
    #[inline]
    #[must_use]
    pub fn is_whole(&self, index: usize) -> bool {
        index < self.held && !self.verdict(index).is_chained()
    }

    /// Sends each received frame on the queue that `to` names for its number, in their order, and drops the others; how
    /// many were sent.
    ///
    /// # Panics
    ///
    /// If a queue is not from [`RawQueue::open_for_forwarding`].
    #[inline]
    pub fn forward(&mut self, queues: &mut [Self], to: impl Fn(usize) -> Option<u8>) -> usize {
        let all_forward = self.forwards && queues.iter().all(|queue| queue.forwards);
        assert!(all_forward, "queues that were opened for forwarding");
        let held = std::mem::take(&mut self.held);
        let frames = &self.received[..held];
        let mut places = [usize::MAX; BURST];
        for (index, place) in places.iter_mut().enumerate().take(held) {
            *place = to(index).map_or(usize::MAX, usize::from);
        }
        let mut chosen = [sys::trine_rx_frame::default(); BURST];
        let (mut sent, mut left) = (0, held);
        for (number, queue) in queues.iter_mut().enumerate() {
            let count = choose(&mut chosen, frames, &places, |place| place == number);
            left -= usize::from(count);
            if count > 0 {
                // SAFETY: these frames are ours and are forgotten here: `held` is zero, and each has one place. The
                // assertion above says that both queues are for forwarding.
                sent += unsafe { queue.send_received(&chosen[..usize::from(count)]) };
            }
        }
        if left > 0 {
            let count = choose(&mut chosen, frames, &places, |place| place >= queues.len());
            // SAFETY: as above, and no queue took these.
            unsafe { sys::trine_rx_free(chosen.as_ptr(), count) };
        }
        sent
    }

    /// Sends all received frames on another queue, as they are; how many its port took.
    ///
    /// # Panics
    ///
    /// If a queue is not from [`RawQueue::open_for_forwarding`].
    #[inline]
    pub fn forward_all(&mut self, to: &mut Self) -> usize {
        let both_forward = self.forwards && to.forwards;
        assert!(both_forward, "queues that were opened for forwarding");
        let held = std::mem::take(&mut self.held);
        // SAFETY: these frames are ours and are forgotten here: `held` is zero. Both queues are for forwarding.
        unsafe { to.send_received(&self.received[..held]) }
    }

    #[inline]
    pub(super) fn verdict(&self, index: usize) -> RxFlags {
        RxFlags(self.received[index].verdict)
    }

    /// Sends the received frames back as they are; how many the port took.
    pub fn send_back(&mut self) -> usize {
        let held = std::mem::take(&mut self.held);
        // SAFETY: these frames are ours and are forgotten here: `held` is zero. It is the queue that received them.
        unsafe { self.send_received(&self.received[..held]) }
    }

    /// Sends received frames as they are, or frees them; how many the port took.
    ///
    /// # Safety
    ///
    /// The frames were filled by a port, and nobody uses them afterwards. If another queue has received them, both are
    /// from [`RawQueue::open_for_forwarding`]: then neither port frees buffers in the way that takes all of them for its
    /// own.
    #[inline]
    unsafe fn send_received(&self, frames: &[sys::trine_rx_frame]) -> usize {
        // SAFETY: as the caller promises; the call reads so many frames.
        let sent = unsafe {
            sys::trine_rx_send_back(
                self.port.id,
                self.index,
                frames.as_ptr(),
                frames.len() as u16,
                TX_TRIES,
            )
        };
        usize::from(sent)
    }

    /// Makes `count` frames to write, at most a burst; false if there are no packet buffers left.
    ///
    /// # Panics
    ///
    /// If more than a burst is asked for, or frames of an earlier call are not sent.
    #[must_use]
    #[inline]
    pub fn allocate(&mut self, count: usize) -> bool {
        assert!(count <= BURST, "more than a burst");
        assert_eq!(self.allocated, 0, "frames that are not sent");
        let pool = self.port.pool.as_ptr();
        // SAFETY: the pool lives as long as the port; the array has room for `count`.
        let result = unsafe { sys::trine_tx_alloc(pool, self.sending.as_mut_ptr(), count as u16) };
        if result == 0 {
            self.allocated = count;
        }
        result == 0
    }

    /// An allocated frame, `len` bytes long, with any contents.
    ///
    /// # Panics
    ///
    /// If it is not allocated, or longer than [`FRAME_MAX`].
    #[inline]
    pub fn frame(&mut self, index: usize, len: usize) -> &mut [u8] {
        assert!(len <= FRAME_MAX, "a frame longer than a packet buffer");
        assert!(index < self.allocated, "no such frame");
        let frame = &mut self.sending[index];
        frame.len = len as u32;
        // SAFETY: `allocate` put a buffer with FRAME_MAX initialized, writable bytes here, which no other code knows.
        unsafe { std::slice::from_raw_parts_mut(frame.data, len) }
    }

    /// Sends the first `written` allocated frames and drops the others; how many the port took. A full transmit queue
    /// is tried again a bounded number of times.
    ///
    /// # Panics
    ///
    /// If not so many frames are allocated.
    #[inline]
    pub fn send(&mut self, written: usize) -> usize {
        self.send_with(written, self.offload)
    }

    /// Like [`RawQueue::send`], for frames in whose checksums the port must not interfere.
    pub fn send_as_they_are(&mut self, written: usize) -> usize {
        self.send_with(written, 0)
    }

    fn send_with(&mut self, written: usize, offload: u32) -> usize {
        let allocated = std::mem::take(&mut self.allocated);
        let (send, drop) = self.sending[..allocated].split_at(written);
        if !drop.is_empty() {
            // SAFETY: these frames were allocated, are ours, and are forgotten here.
            unsafe { sys::trine_tx_free(drop.as_ptr(), drop.len() as u16) };
        }
        // SAFETY: these frames are allocated and complete; the port has this queue, which only this value sends on.
        // The call sends or frees them all.
        let sent = unsafe {
            sys::trine_tx_burst(
                self.port.id,
                self.index,
                send.as_ptr(),
                send.len() as u16,
                offload,
                TX_TRIES,
            )
        };
        usize::from(sent)
    }

    /// Sends `count` frames that consist of `head`, copied, and `body`, which the port reads where it is. This is the
    /// other way to transmit, kept to be measured beside the copy. Only for virtual devices.
    pub fn send_attached(&mut self, head: &[u8], body: &'static [u8], count: usize) -> usize {
        assert!(
            head.len() <= FRAME_MAX && count <= BURST,
            "a frame that fits, a burst"
        );
        let body_len = u16::try_from(body.len()).expect("a frame");
        // SAFETY: the head fits a packet buffer; the body lives for ever, and ports only read it; without a PCI
        // device EAL uses virtual addresses.
        let sent = unsafe {
            sys::trine_tx_attached(
                self.port.id,
                self.index,
                self.port.pool.as_ptr(),
                head.as_ptr(),
                head.len() as u32,
                body.as_ptr(),
                body_len,
                count as u16,
                TX_TRIES,
            )
        };
        usize::from(sent)
    }

    /// Gives back the buffers of the received frames.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.held > 0 {
            // SAFETY: the first `held` frames were filled by the port, are ours, and are forgotten here.
            unsafe { sys::trine_rx_free(self.received.as_ptr(), self.held as u16) };
            self.held = 0;
        }
    }
}

/// Copies the frames with a wanted place to the front of `chosen`; how many there are. What lies behind them means nothing.
///
/// No jump depends on a place: among ports that take turns at random, half of such jumps would be predicted wrongly.
#[inline]
fn choose(
    chosen: &mut [sys::trine_rx_frame; BURST],
    frames: &[sys::trine_rx_frame],
    places: &[usize; BURST],
    is_wanted: impl Fn(usize) -> bool,
) -> u16 {
    let mut count = 0;
    for (frame, place) in frames.iter().zip(places) {
        chosen[count % BURST] = *frame;
        count += usize::from(is_wanted(*place));
    }
    count as u16
}

impl Drop for RawQueue {
    fn drop(&mut self) {
        self.release();
        self.send_with(0, 0);
    }
}
