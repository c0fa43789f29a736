//! InfiniBand Unreliable Datagram through libibverbs: InfiniBand, RoCE and soft-RoCE.
//!
//! One queue pair an endpoint. What each choice follows from "Design Guidelines for High
//! Performance RDMA Systems" is told in `VERBS.md`.
#![allow(unsafe_code)]

mod address;
mod device;
mod error;
mod memory;
mod queue_pair;
mod receive;
mod route;
mod send;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::address::{AddressHandles, REFUSED_QKEY};
use self::device::Device;
use self::memory::RegisteredRegions;
use self::queue_pair::{Capacity, QueuePair};
use self::receive::ReceiveRing;
use self::send::SendQueue;
use super::wake::{WakeEvent, wait_readable};
use super::{Backend, BackendError, BackendStats, Caps, RxBatch, TxBatch, Waker};
use crate::buf::{Pool, PoolConfig};
use crate::config::{MTU_MAX, MTU_MIN};
use crate::time::Duration;

pub use self::error::VerbsError;
pub use self::route::VerbsRoute;

/// Times a broken queue pair is restarted without a datagram received in between.
const RESTARTS_MAX: u32 = 16;

/// How a queue pair is opened. The defaults are for latency.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// Device name (`rdma link` lists them); the first with an active port if absent.
    pub device: Option<String>,
    /// Port of the device, from 1.
    pub port: u8,
    /// Index into the port's GID table; the most routable one if absent.
    pub gid_index: Option<u32>,
    /// Key that receivers insist on; the same for all of a group, not zero.
    pub qkey: u32,
    /// Packets that can wait to be received (|RQ|).
    pub receive_queue: u32,
    /// Sends that the device may have in hand; at least 128.
    pub send_queue: u32,
    /// One send in so many asks for a completion; 1 signals every send. At most half the send queue.
    pub signal_interval: u32,
    /// Packets up to this length, and to the device's limit, travel inside the work request; 0 turns
    /// that off.
    pub inline_bytes: u32,
    /// One doorbell for a list of sends; off posts each by itself.
    pub doorbell_batching: bool,
    /// Largest packet in bytes; the port's active MTU bounds it.
    pub mtu: usize,
    /// Limits of the message pool, whose memory is registered as it grows.
    pub pool: PoolConfig,
    /// Single-packet message buffers that are registered at the start.
    pub reserved_buffers: usize,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        Self {
            device: None,
            port: 1,
            gid_index: None,
            qkey: 0x5472_696e,
            receive_queue: 1024,
            send_queue: 256,
            signal_interval: 16,
            inline_bytes: 256,
            doorbell_batching: true,
            mtu: 4096,
            pool: PoolConfig::default(),
            reserved_buffers: 512,
        }
    }
}

/// What the queue pair did, besides [`BackendStats`].
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct VerbsStats {
    /// Send work requests that the device took.
    pub sends: u64,
    /// Of those, requests that carried their bytes themselves.
    pub sends_inline: u64,
    /// Of those, requests that asked for a completion.
    pub sends_signaled: u64,
    /// Calls that handed sends to the device.
    pub send_doorbells: u64,
    /// Packets that the device did not take, or that go to a place it cannot reach.
    pub sends_refused: u64,
    /// Sends that completed with an error.
    pub sends_failed: u64,
    /// Waits until the device had read everything.
    pub flushes: u64,
    /// Datagrams received.
    pub receives: u64,
    /// Receive work requests handed to the device.
    pub receives_posted: u64,
    /// Calls that handed receives to the device.
    pub receive_doorbells: u64,
    /// Receives that completed with an error.
    pub receives_failed: u64,
    /// Memory registrations, from the start on.
    pub registrations: u64,
    /// Restarts of the queue pair after an error.
    pub restarts: u64,
}

/// A UD queue pair as a backend.
pub struct VerbsBackend {
    // The queue pair goes first: the device then uses none of the memory below any more.
    pair: QueuePair,
    send: SendQueue,
    receive: ReceiveRing,
    addresses: AddressHandles,
    pool: Pool,
    caps: Caps,
    capacity: Capacity,
    route: VerbsRoute,
    wake: Arc<WakeEvent>,
    registrations: Arc<AtomicU64>,
    /// Restarts since the last datagram.
    restarts_in_vain: u32,
    stats: BackendStats,
    verbs: VerbsStats,
}

impl VerbsBackend {
    /// Opens a device and makes a queue pair that is ready to receive.
    ///
    /// # Errors
    ///
    /// [`VerbsError`] with cause and cure.
    ///
    /// # Panics
    ///
    /// If `config` breaks one of the bounds stated at its fields.
    pub fn open(config: &VerbsConfig) -> Result<Self, VerbsError> {
        assert!(config.qkey != REFUSED_QKEY, "the key 0 is reserved");
        assert!(
            config.send_queue >= 128,
            "a send queue holds two lists of sends"
        );
        assert!(
            config.signal_interval >= 1,
            "some sends have to ask for a completion"
        );
        assert!(
            config.signal_interval <= config.send_queue / 2,
            "completions come before the queue is full"
        );
        let device = Arc::new(Device::open(config)?);
        let mtu = config.mtu.min(device.port.mtu).min(MTU_MAX);
        if mtu < MTU_MIN {
            return Err(VerbsError::MtuTooSmall { mtu });
        }
        let registrations = Arc::new(AtomicU64::new(0));
        let capacity = Capacity {
            sends: config.send_queue,
            receives: config.receive_queue,
            inline_bytes: config.inline_bytes,
            qkey: config.qkey,
            psn: 0,
        };
        let pair = QueuePair::new(&device, capacity)?;
        let send = SendQueue::new(&device, config, pair.inline_bytes, &registrations)?;
        let receive = ReceiveRing::new(&device, config, mtu, &registrations)?;
        let regions = RegisteredRegions::new(Arc::clone(&device), Arc::clone(&registrations));
        let pool = Pool::with_region_allocator(config.pool, regions);
        pool.reserve(mtu, config.reserved_buffers);
        let wake = WakeEvent::new().map_err(|_| VerbsError::last("eventfd"))?;
        let mut backend = Self {
            route: VerbsRoute::of_port(&device.port, pair.number(), config.qkey),
            pair,
            send,
            receive,
            addresses: AddressHandles::new(device),
            pool,
            caps: Caps {
                mtu,
                rto_floor: Duration::from_micros(50),
                copies: false,
                rx_queue_packets: config.receive_queue,
                packet_is_dear: false,
            },
            capacity,
            wake: Arc::new(wake),
            registrations,
            restarts_in_vain: 0,
            stats: BackendStats::default(),
            verbs: VerbsStats::default(),
        };
        backend
            .receive
            .post_free(&mut backend.pair, &mut backend.verbs);
        Ok(backend)
    }

    /// Where peers reach this queue pair.
    #[must_use]
    pub fn route(&self) -> VerbsRoute {
        self.route
    }

    /// Counters of the queue pair.
    #[must_use]
    pub fn verbs_stats(&self) -> VerbsStats {
        VerbsStats {
            registrations: self.registrations.load(Ordering::Relaxed),
            ..self.verbs
        }
    }

    /// Drives the queue pair into the error state, as a failing device would; for tests.
    ///
    /// # Errors
    ///
    /// [`VerbsError`] if the device refuses.
    pub fn fail_queue_pair(&self) -> Result<(), VerbsError> {
        self.pair.fail()
    }

    /// Brings a broken queue pair back to work under the same number. What was posted is lost, as
    /// on the wire; the sessions retransmit.
    fn restart(&mut self) -> Result<(), BackendError> {
        self.restarts_in_vain += 1;
        self.verbs.restarts += 1;
        if self.restarts_in_vain > RESTARTS_MAX {
            return Err(BackendError::System {
                call: "restart of the queue pair",
                os_error: libc::EIO,
            });
        }
        self.pair.reset().map_err(|error| unusable(&error))?;
        self.send.on_reset(&mut self.pair);
        self.receive.on_reset(&mut self.pair);
        self.pair
            .start(self.capacity)
            .map_err(|error| unusable(&error))?;
        self.receive.post_free(&mut self.pair, &mut self.verbs);
        Ok(())
    }
}

impl Backend for VerbsBackend {
    type Route = VerbsRoute;

    fn caps(&self) -> Caps {
        self.caps
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn rx_burst(&mut self) -> Result<RxBatch<'_, VerbsRoute>, BackendError> {
        let before = self.verbs.receives;
        self.receive.receive(&mut self.pair, &mut self.verbs);
        if self.receive.is_broken() || self.send.is_broken() {
            // The burst before the error is lost too: a restart is rare, and packets may be.
            self.restart()?;
            return Ok(RxBatch::empty());
        }
        let burst = self.receive.burst();
        self.stats.rx_datagrams += self.verbs.receives - before;
        if !burst.is_empty() {
            self.restarts_in_vain = 0;
        }
        Ok(burst)
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<VerbsRoute>) -> Result<(), BackendError> {
        let (refused, packets) = (self.verbs.sends_refused, tx.len() as u64);
        self.stats.tx_packets += packets;
        self.stats.tx_datagrams += packets;
        self.stats.tx_bytes += tx.iter().map(|item| item.len() as u64).sum::<u64>();
        self.send
            .send(&mut self.pair, &mut self.addresses, tx, &mut self.verbs);
        self.stats.tx_refused += self.verbs.sends_refused - refused;
        tx.clear();
        Ok(())
    }

    /// A broken queue pair is reset at once: only then has the device forgotten what was posted.
    fn flush(&mut self) {
        self.send
            .flush(&mut self.pair, &mut self.addresses, &mut self.verbs);
        if self.send.is_broken() {
            // Where that fails the queue pair stays broken, and the next receive says so.
            let _failed = self.restart();
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BackendError> {
        if self.wake.is_pending() {
            self.wake.clear();
            return Ok(());
        }
        self.pair.arm().map_err(|error| unusable(&error))?;
        // A datagram that came before the queue was armed raises no event.
        if self.receive.peek(&mut self.pair) {
            return Ok(());
        }
        self.stats.waits += 1;
        let woken = wait_readable(self.pair.channel_fd(), self.wake.descriptor(), timeout)
            .map_err(|error| BackendError::from_io("ppoll", &error))?;
        self.pair.take_events();
        if woken {
            self.wake.clear();
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::clone(&self.wake) as _)
    }

    fn stats(&self) -> BackendStats {
        self.stats
    }
}

fn unusable(error: &VerbsError) -> BackendError {
    match error {
        VerbsError::Call { call, os_error } => BackendError::System {
            call,
            os_error: *os_error,
        },
        _ => BackendError::System {
            call: "libibverbs",
            os_error: libc::EIO,
        },
    }
}
