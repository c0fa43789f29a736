//! The carriers of packets: one trait for kernel UDP, in-process queues, DPDK and InfiniBand UD.
//!
//! A backend moves datagrams and knows nothing of sessions. The core hands it wire packets in a
//! [`TxBatch`] and takes datagrams from an [`RxBatch`] that borrows the backend's receive memory.
//! Which of them copy, which need registered memory and which have 40 bytes in front of received
//! data stays inside.

pub mod announce;
mod batch;
mod clock;
mod error;
mod faulty;
mod pcap;
mod ring;
mod sizes;
mod udp;
pub(crate) mod wake;

pub(crate) use batch::likely_arrival;
pub use batch::{Body, RxBatch, RxPacket, RxSlot, TxBatch, TxItem};
pub use clock::MonotonicClock;
pub use error::{BackendError, OTHER_PROCESS};
pub use faulty::{
    Direction, FaultCounts, FaultHandle, Faults, Faulty, ParseFaultsError, REORDER_HOLD,
};
pub use pcap::{Capture, CaptureAddress, CaptureEnd, Pcap};
pub use ring::{RingBackend, RingConfig, RingRoute};
pub use sizes::{PACKET_EVERYWHERE, PacketSizes};
#[doc(hidden)]
pub use udp::Datagrams;
pub use udp::{MTU_DEFAULT, MTU_MAX, RxQueueShortfall, UdpBackend, UdpConfig, interface_carries};

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use crate::buf::Pool;
use crate::time::Duration;
use trine_origin::Origin;

/// How a backend names where a packet goes to or came from: a socket address, a queue number,
/// an address handle with its queue pair.
pub trait Route: Copy + Eq + Hash + Debug + Send + 'static {}

impl<T: Copy + Eq + Hash + Debug + Send + 'static> Route for T {}

/// The facts about a backend that the core must know.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Caps {
    /// Largest wire packet in bytes, headers of this protocol included.
    pub mtu: usize,
    /// Shortest retransmission timeout that makes sense here.
    pub rto_floor: Duration,
    /// True if `tx_burst` copies, so that `flush` is never needed.
    pub copies: bool,
    /// The paper's |RQ|: packets that can wait to be received before some are lost.
    pub rx_queue_packets: u32,
    /// True where each packet is expensive (a system call's work), so that acknowledging several
    /// at once pays.
    pub packet_is_dear: bool,
}

/// A device or socket that sends and receives datagrams for one endpoint thread.
pub trait Backend {
    /// Where packets go to and come from.
    type Route: Route;

    /// The facts that the core must know; constant over the backend's lifetime.
    fn caps(&self) -> Caps;

    /// The largest packet to wish for on each route, at most [`Caps::mtu`]. By default that is the size for all routes.
    fn packet_sizes(&self) -> PacketSizes<Self::Route> {
        // Sizes have 16 bits in handshakes, too.
        PacketSizes::of_device(self.caps().mtu.min(usize::from(u16::MAX)) as u16)
    }

    /// The pool whose memory this backend can send from.
    fn pool(&self) -> &Pool;

    /// Takes the packets that have arrived, without waiting. Packets of the previous batch are
    /// released.
    ///
    /// # Errors
    ///
    /// Only if the device or socket is unusable; trouble with single packets is counted.
    fn rx_burst(&mut self) -> Result<RxBatch<'_, Self::Route>, BackendError>;

    /// Sends all items and empties the batch. Items that the kernel or device refuses are lost, as
    /// on the wire, and counted.
    ///
    /// # Errors
    ///
    /// Only if the device or socket is unusable.
    fn tx_burst(&mut self, tx: &mut TxBatch<Self::Route>) -> Result<(), BackendError>;

    /// Waits, for a bounded time, until nothing posted refers to any message buffer any more.
    fn flush(&mut self);

    /// Sleeps until a packet has arrived, a [`Waker`] was used or `timeout` has passed; for ever
    /// without a timeout. May return early without a reason.
    ///
    /// # Errors
    ///
    /// Only if the device or socket is unusable.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BackendError>;

    /// From now on [`Backend::wait`] also ends when `descriptor` is readable, so that one thread can serve packets and
    /// something else. False: this backend cannot wait for anything but packets, and the caller has to poll the
    /// descriptor himself.
    fn watch(&mut self, descriptor: std::os::fd::OwnedFd) -> bool {
        drop(descriptor);
        false
    }

    /// From now on, or no longer, received packets say when they arrived ([`RxBatch::with_arrivals`]), if the backend can
    /// find out for less than it is worth. Called when that changes.
    fn note_arrivals(&mut self, on: bool) {
        let _ = on;
    }

    /// Called in a child of the process that opened it: gives up what the two share, without an effect on the parent. No
    /// other method is called afterwards. Sockets and eventfds are replaced by `/dev/null`, so that their numbers
    /// still have one owner.
    fn abandon(&mut self) {}

    /// A handle that ends [`Backend::wait`] from another thread.
    fn waker(&self) -> Waker;

    /// Counters since the backend was opened.
    fn stats(&self) -> BackendStats;
}

/// Ends a backend's `wait` from another thread. A wake that comes before the wait ends that one.
#[derive(Clone)]
pub struct Waker {
    target: Arc<dyn Wake>,
    origin: Origin,
}

/// The function that a [`Waker`] calls.
pub trait Wake: Send + Sync {
    /// Makes the current or the next `wait` return.
    fn wake(&self);

    /// See [`Backend::abandon`]. For a child in which no thread owns the backend.
    fn abandon(&self) {}
}

impl Waker {
    /// A waker that calls `target`.
    #[must_use]
    pub fn new(target: Arc<dyn Wake>) -> Self {
        let origin = Origin::here();
        Self { target, origin }
    }

    /// Makes the current or the next `wait` of the backend return. Does nothing in a child of the process that made this: the
    /// parent's loop is not the child's to wake.
    pub fn wake(&self) {
        if self.origin.is_here() {
            self.target.wake();
        }
    }

    /// Whether this is the process that made this, and not a child of it.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// In a child: gives up the descriptors that the backend shares with its parent. Otherwise does nothing.
    #[cold]
    pub fn abandon(&self) {
        if !self.origin.is_here() {
            self.target.abandon();
        }
    }
}

impl Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}

/// A backend's counters since it was opened.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct BackendStats {
    /// Datagrams received and handed to the core.
    pub rx_datagrams: u64,
    /// Bytes in them.
    pub rx_bytes: u64,
    /// Datagrams dropped here because they were longer than the receive buffer.
    pub rx_truncated: u64,
    /// Receive calls that failed and were survived.
    pub rx_errors: u64,
    /// Datagrams lost because the receive queue had no room: what more packets in flight than the queue holds cost,
    /// as with [`crate::Config::overcommit`]. Kernel UDP knows it; DPDK counts for the whole port, if its driver
    /// does; InfiniBand UD drops in silence, and only the device's own counters (`out_of_buffer`) may tell.
    pub rx_overflows: u64,
    /// Wire packets handed in by the core.
    pub tx_packets: u64,
    /// Datagrams that carried them.
    pub tx_datagrams: u64,
    /// Bytes in those.
    pub tx_bytes: u64,
    /// Wire packets lost because the kernel, the device or a full queue refused them.
    pub tx_refused: u64,
    /// Those of `rx_datagrams` that arrived by writes of the peer into this endpoint's memory (verbs, paths herd and rfp).
    pub rx_written: u64,
    /// Those of `rx_datagrams` that this endpoint fetched from the peer's memory (verbs, path rfp).
    pub rx_fetched: u64,
    /// Those of `tx_datagrams` that were left for the peer to fetch.
    pub tx_fetched: u64,
    /// Packets that left by a write into the peer's memory.
    pub tx_written: u64,
    /// Times the backend slept in `wait`.
    pub waits: u64,
    /// Times a send found the way blocked for a moment and was tried again.
    pub tx_retries: u64,
}
