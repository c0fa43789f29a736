//! Kernel UDP: batched system calls, several wire packets to one peer in one datagram.

mod address;
mod coalesce;
mod control;
mod local_addresses;
mod options;
mod own_address;
mod receive;
mod send;
mod socket;
mod trains;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

pub use self::coalesce::Datagrams;
use self::coalesce::{CoalesceLimits, SendPlan};
use self::local_addresses::LocalAddresses;
pub use self::own_address::interface_carries;
use self::own_address::is_own_address;
use self::receive::Receiver;
use self::send::{SendRecovery, Sender};
pub(super) use self::socket::bind_error;
use self::socket::{
    ask_for_rx_queue, set_busy_poll, set_path_options, takes_rx_offload, tell_asked_addresses,
};
use self::trains::Trains;
use super::wake::{WakeEvent, wait_readable};
use super::{
    Backend, BackendError, BackendStats, Caps, PACKET_EVERYWHERE, PacketSizes, RxBatch, RxSlot,
    TxBatch, Wake, Waker,
};
use crate::buf::{Pool, PoolConfig};
use crate::time::Duration;

/// Largest packet within this machine: as much as an Ethernet frame of 1,500 bytes holds.
pub const MTU_DEFAULT: usize = 1472;
/// Largest UDP payload over IPv4.
pub const MTU_MAX: usize = 65_507;

/// Datagrams taken in one receive call at most.
const RX_BURST_MAX: usize = 32;
/// Receive queue memory that one full packet uses up: payload plus the kernel's own bookkeeping,
/// as charged on loopback for 1472 bytes.
const RX_PACKET_CHARGE: usize = 2304;
/// Receive buffer of one datagram with receive offload: the kernel puts up to 64 KiB of datagrams
/// of one peer together. The odd number of cache lines spreads the buffers' first lines over the
/// cache's sets.
const RX_OFFLOAD_BYTES: usize = 65_536 + 1_600;
/// Datagrams that the kernel segments in one send.
const TRAIN_DATAGRAMS_MAX: u32 = 64;
/// How often a send that finds the socket's queue full is tried again before its packets are lost.
const SEND_RETRIES_MAX: u32 = 64;

/// How a UDP backend is opened.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// Bytes that each path to another machine carries in a datagram, at most [`MTU_MAX`]. Packets within this machine
    /// have [`MTU_DEFAULT`], whatever is said here.
    pub mtu: usize,
    /// Receive queue to ask the kernel for, in bytes.
    pub rx_queue_bytes: usize,
    /// Whether packets of one burst to one peer share a datagram. Off only to measure its gain.
    pub coalesce: bool,
    /// Whether the kernel may take and deliver several datagrams of one peer as one (GSO, GRO). If
    /// it cannot, the backend notices and goes on without.
    pub offload: bool,
    /// Whether received packets tell if the network marked congestion. Costs about a tenth of a
    /// microsecond for a packet that comes alone, so only for who uses it.
    pub congestion_marks: bool,
    /// Whether a socket at `0.0.0.0` or `[::]` answers each peer from the address that the peer has asked, as a socket at one
    /// address does anyway. Costs about 0.2 microseconds for a packet that comes alone and its answer, and 200 KiB. A
    /// client can turn it off, because nobody asks it.
    pub answers_where_asked: bool,
    /// Microseconds for which a receive call polls the network card itself, where its driver can
    /// (`SO_BUSY_POLL`). Helps a polling endpoint with a core of its own on a physical network,
    /// does nothing on loopback. Raising it takes CAP_NET_ADMIN.
    pub busy_poll_us: u32,
    /// Limits of the message pool.
    pub pool: PoolConfig,
}

/// The kernel gave a smaller receive queue than was asked for: bursts may be lost.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RxQueueShortfall {
    /// Bytes asked for.
    pub asked: usize,
    /// Bytes given.
    pub granted: usize,
}

/// A UDP socket as a backend. Its routes are socket addresses.
pub struct UdpBackend {
    socket: UdpSocket,
    local: SocketAddr,
    caps: Caps,
    shortfall: Option<RxQueueShortfall>,
    limits: CoalesceLimits,
    trains: Trains,
    congestion_marks: bool,
    notes_arrivals: bool,
    /// Of the slots, while they are noted.
    arrivals: Vec<u64>,
    /// `Some` exactly if the socket has several addresses and [`UdpConfig::answers_where_asked`] is set.
    local_addresses: Option<LocalAddresses>,
    /// See [`UdpConfig::mtu`].
    mtu: u16,
    pool: Pool,
    receiver: Receiver,
    slots: Vec<RxSlot<SocketAddr>>,
    /// Datagrams to ask for in the next receive call: grows while calls come back full. One
    /// attempt more than there are datagrams costs time that a lone packet should not pay.
    rx_burst: usize,
    sender: Sender,
    plan: SendPlan<SocketAddr>,
    wake: Arc<WakeEvent>,
    /// Ends `wait`, too.
    watched: Option<OwnedFd>,
    stats: BackendStats,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            mtu: PACKET_EVERYWHERE,
            rx_queue_bytes: 8 << 20,
            coalesce: true,
            offload: true,
            congestion_marks: false,
            answers_where_asked: true,
            busy_poll_us: 0,
            pool: PoolConfig::default(),
        }
    }
}

impl UdpBackend {
    /// Binds a socket to `address`; port 0 takes any free one, see [`UdpBackend::local_addr`].
    ///
    /// # Errors
    ///
    /// [`BackendError`] with cause and hint if the address is taken, not this machine's, or
    /// forbidden.
    ///
    /// # Panics
    ///
    /// If the MTU of `config` exceeds [`MTU_MAX`].
    pub fn bind(address: SocketAddr, config: &UdpConfig) -> Result<Self, BackendError> {
        assert!(
            config.mtu <= MTU_MAX,
            "a UDP datagram has at most {MTU_MAX} bytes"
        );
        let socket = UdpSocket::bind(address).map_err(|error| bind_error(address, &error))?;
        let local = socket
            .local_addr()
            .map_err(|error| BackendError::from_io("getsockname", &error))?;
        socket
            .set_nonblocking(true)
            .map_err(|error| BackendError::from_io("fcntl", &error))?;
        set_busy_poll(&socket, config.busy_poll_us)?;
        set_path_options(&socket, local, config.congestion_marks)?;
        // `::ffff:0.0.0.0` is every address, too.
        let is_every = local.ip().to_canonical().is_unspecified();
        let local_addresses = if config.answers_where_asked && is_every {
            tell_asked_addresses(&socket, local)?;
            Some(LocalAddresses::new())
        } else {
            None
        };
        let granted = ask_for_rx_queue(socket.as_fd(), config.rx_queue_bytes)?;
        let shortfall = (granted < config.rx_queue_bytes).then_some(RxQueueShortfall {
            asked: config.rx_queue_bytes,
            granted,
        });
        let offload = config.offload && takes_rx_offload(&socket);
        let wake =
            WakeEvent::beside(&socket).map_err(|error| BackendError::from_io("eventfd", &error))?;
        let largest = config.mtu.max(MTU_DEFAULT);
        Ok(Self {
            socket,
            local,
            caps: Caps {
                mtu: largest,
                rto_floor: Duration::from_millis(1),
                copies: true,
                rx_queue_packets: u32::try_from(granted / RX_PACKET_CHARGE).unwrap_or(u32::MAX),
                packet_is_dear: true,
            },
            shortfall,
            limits: CoalesceLimits {
                // With no room every packet has a datagram of its own.
                datagram_bytes: if config.coalesce { largest } else { 0 },
                train_datagrams: 1,
            },
            trains: Trains::new(config.offload),
            congestion_marks: config.congestion_marks,
            notes_arrivals: false,
            arrivals: Vec::new(),
            local_addresses,
            pool: Pool::new(config.pool),
            receiver: Receiver::new(
                RX_BURST_MAX,
                if offload { RX_OFFLOAD_BYTES } else { largest },
            ),
            // At most MTU_MAX.
            mtu: config.mtu as u16,
            slots: Vec::with_capacity(RX_BURST_MAX),
            rx_burst: 1,
            sender: Sender::new(local.is_ipv6()),
            plan: SendPlan::with_capacity(TxBatch::<SocketAddr>::ITEMS_DEFAULT),
            wake: Arc::new(wake),
            watched: None,
            stats: BackendStats::default(),
        })
    }

    /// The address that the socket is bound to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Something to warn the user about if the kernel limits the receive queue.
    #[must_use]
    pub fn rx_queue_shortfall(&self) -> Option<RxQueueShortfall> {
        self.shortfall
    }

    /// Hands the plan to the kernel, up to the first train that it refuses: the index of that one.
    fn send_planned(&mut self, tx: &TxBatch<SocketAddr>) -> Result<Option<usize>, BackendError> {
        let (plan, stats, trains) = (&self.plan, &mut self.stats, &mut self.trains);
        let (mut fatal, mut refused) = (None, None);
        let mut retries = 0;
        let socket = self.socket.as_fd();
        let local_addresses = self.local_addresses.as_mut();
        self.sender
            .send(socket, tx, plan, local_addresses, |index, error| {
                let train = &plan.trains()[index];
                let verdict = judge_send_error(&error, retries);
                match verdict {
                    SendRecovery::Retry => {
                        retries += 1;
                        stats.tx_retries += 1;
                    }
                    SendRecovery::Skip if train.datagrams > 1 => {
                        refused = Some(index);
                        trains.on_refused(&error);
                        return SendRecovery::Stop;
                    }
                    SendRecovery::Skip => stats.tx_refused += u64::from(train.packets),
                    SendRecovery::Stop => fatal = Some(BackendError::from_io("sendmmsg", &error)),
                }
                verdict
            });
        fatal.map_or(Ok(refused), Err)
    }

    fn count_sent(&mut self) {
        for train in self.plan.trains() {
            self.stats.tx_datagrams += u64::from(train.datagrams);
            self.stats.tx_packets += u64::from(train.packets);
            self.stats.tx_bytes += train.bytes as u64;
        }
    }
}

impl Backend for UdpBackend {
    type Route = SocketAddr;

    fn caps(&self) -> Caps {
        self.caps
    }

    fn packet_sizes(&self) -> PacketSizes<SocketAddr> {
        PacketSizes::by_route(MTU_DEFAULT as u16, self.mtu, is_own_address)
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn rx_burst(&mut self) -> Result<RxBatch<'_, SocketAddr>, BackendError> {
        self.slots.clear();
        self.arrivals.clear();
        let socket = self.socket.as_fd();
        let reads_control =
            self.congestion_marks || self.notes_arrivals || self.local_addresses.is_some();
        let received = if self.rx_burst == 1 && !reads_control {
            self.receiver.receive_one(socket, &mut self.slots)
        } else {
            let local_addresses = self.local_addresses.as_mut();
            self.receiver.receive(
                socket,
                self.rx_burst,
                &mut self.slots,
                local_addresses,
                self.notes_arrivals.then_some(&mut self.arrivals),
            )
        };
        match received {
            Ok((arrived, dropped)) => {
                self.stats.rx_truncated += dropped as u64;
                self.stats.rx_datagrams += self.slots.len() as u64;
                self.stats.rx_bytes += self
                    .slots
                    .iter()
                    .map(|slot| u64::from(slot.len))
                    .sum::<u64>();
                let full = arrived == self.rx_burst;
                self.rx_burst = if full {
                    (arrived * 2).min(RX_BURST_MAX)
                } else {
                    arrived.max(1)
                };
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => self.rx_burst = 1,
                Some(fatal @ (libc::EBADF | libc::ENOTSOCK | libc::EFAULT)) => {
                    return Err(BackendError::System {
                        call: "recvmmsg",
                        os_error: fatal,
                    });
                }
                // An interrupted call, an ICMP error of an earlier send, or no memory right now.
                _ => self.stats.rx_errors += 1,
            },
        }
        Ok(RxBatch::with_arrivals(
            self.receiver.memory(),
            &self.slots,
            &self.arrivals,
        ))
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<SocketAddr>) -> Result<(), BackendError> {
        if tx.is_empty() {
            return Ok(());
        }
        self.limits.train_datagrams = self.trains.datagrams_max();
        self.plan.make(tx, self.limits);
        self.count_sent();
        let has_trains = self.plan.trains().iter().any(|train| train.datagrams > 1);
        let sent = match self.send_planned(tx) {
            Ok(Some(refused)) => {
                // The same datagrams without the kernel's segmentation, which this device or path may not take.
                self.plan.take_apart(refused, tx);
                self.send_planned(tx).map(drop)
            }
            Ok(None) if has_trains => {
                self.trains.on_taken();
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        tx.clear();
        sent
    }

    /// The kernel has copied everything already.
    fn flush(&mut self) {}

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BackendError> {
        if self.wake.is_pending() {
            self.wake.clear();
            return Ok(());
        }
        self.stats.waits += 1;
        let watched = self.watched.as_ref().map(AsFd::as_fd);
        let (socket, wake) = (self.socket.as_fd(), self.wake.descriptor());
        let woken = wait_readable(socket, wake, watched, timeout)
            .map_err(|error| BackendError::from_io("ppoll", &error))?;
        if woken {
            self.wake.clear();
        }
        Ok(())
    }

    fn watch(&mut self, descriptor: OwnedFd) -> bool {
        self.watched = Some(descriptor);
        true
    }

    /// A kernel that cannot tell leaves all as it is.
    fn note_arrivals(&mut self, on: bool) {
        let socket = self.socket.as_fd();
        let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
        let is_set = options::set_option(socket, level, name, on.into()).is_ok();
        self.notes_arrivals = on && is_set;
    }

    fn abandon(&mut self) {
        self.wake.abandon();
        self.watched = None;
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::clone(&self.wake) as _)
    }

    fn stats(&self) -> BackendStats {
        BackendStats {
            rx_overflows: options::drops(self.socket.as_fd()).unwrap_or(0),
            ..self.stats
        }
    }
}

impl std::fmt::Debug for UdpBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdpBackend({})", self.local)
    }
}

impl std::fmt::Display for RxQueueShortfall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the kernel limits the UDP receive queue to {} bytes where {} were asked for, so bursts may be lost; \
             hint: sysctl -w net.core.rmem_max={}",
            self.granted, self.asked, self.asked
        )
    }
}

/// The meaning of a failed send. A full queue is worth another try, and a broken socket ends
/// everything. The rest (unreachable, too long, filtered, no memory) is a packet lost on its way.
fn judge_send_error(error: &io::Error, retries: u32) -> SendRecovery {
    match error.raw_os_error() {
        Some(libc::EINTR | libc::EAGAIN | libc::ECONNREFUSED) if retries < SEND_RETRIES_MAX => {
            SendRecovery::Retry
        }
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) => SendRecovery::Stop,
        _ => SendRecovery::Skip,
    }
}

#[cfg(test)]
mod tests;
