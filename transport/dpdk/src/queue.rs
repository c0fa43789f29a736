//! One queue pair of a port as a backend: zero-copy receive, copying transmit, ARP on the side.
//!
//! Received packets are read where the port put them; their buffers go back with the next receive call. Packets to send
//! are copied. Two ways were measured (`DPDK.md`). The copy is the faster one up to the MTU, and the core then never
//! has to wait before it reuses a message buffer.
#![allow(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use super::arp::{ARP_FRAME, Arp};
use super::config::{BURST, DpdkConfig, POLLS_PER_CLOCK_READ, SLEEP_MAX, SLEEP_MIN};
use super::eal::Eal;
use super::error::DpdkError;
use super::frame::{Checked, HEADERS, Local, ReceivedFrame, Reject, parse};
use super::lease::Lease;
use super::mac::MacAddr;
use super::neighbours::ASK_EVERY;
use super::port::{Port, Queues};
use super::raw::{FRAME_MAX, RawQueue, RxFlags};
use super::template::Template;
use super::templates::Templates;
use trine_transport::backend::{
    Backend, BackendError, BackendStats, Caps, MonotonicClock, RxBatch, RxPacket, TxBatch, TxItem,
    Waker,
};
use trine_transport::backend_api::{WakeEvent, wait_readable};
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::time::{Clock, Duration, Instant};

/// Retransmitting sooner than this makes no sense.
const RTO_FLOOR: Duration = Duration::from_micros(50);
/// How long a memif client waits for a link before it connects again.
const RECONNECT_EVERY: Duration = Duration::from_secs(2);
/// Neighbours in use are looked up again this often, which keeps their ARP entries fresh.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(1);

/// A queue pair of a DPDK port. Its routes are socket addresses, IPv4 only.
pub struct DpdkBackend {
    queue: RawQueue,
    local: Local,
    caps: Caps,
    pool: Pool,
    templates: Templates,
    /// Packets of the current batch. They lie in the buffers of `queue.received`, which go back with the next
    /// `rx_burst`; `'static` stands for "as long as this batch borrows the backend".
    packets: Vec<RxPacket<'static, SocketAddr>>,
    /// The queue holds frames that `wait` took and `rx_burst` has not processed.
    fetched: bool,
    polls: u32,
    /// Receive calls that found nothing since the last packet: an idle endpoint sleeps longer and longer.
    sleep: Duration,
    next_tick: Instant,
    next_look_up: Instant,
    next_reconnect: Instant,
    /// Counts the times that all neighbours are looked up again.
    round: u64,
    wake: Arc<WakeEvent>,
    stats: BackendStats,
    own_stats: DpdkStats,
    /// Last, because the port is free for others only when the queue has given back its buffers.
    _lease: Option<Lease>,
}

/// The counters of this backend alone.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct DpdkStats {
    /// Frames refused, by reason, in the order of [`Reject::ALL`].
    pub rejected: [u64; Reject::COUNT],
    /// ARP packets received.
    pub arp_received: u64,
    /// ARP questions answered.
    pub arp_answered: u64,
    /// ARP questions asked.
    pub arp_asked: u64,
    /// Wire packets dropped because their receiver's Ethernet address is not known yet.
    pub tx_unresolved: u64,
    /// Wire packets dropped because there was no packet buffer.
    pub tx_no_buffer: u64,
}

impl DpdkStats {
    /// Frames refused for this reason.
    #[must_use]
    pub fn rejected(&self, reason: Reject) -> u64 {
        self.rejected[reason as usize]
    }
}

impl DpdkBackend {
    /// Opens the port for one endpoint on `udp_port`.
    ///
    /// # Errors
    ///
    /// [`DpdkError`] with cause and hint.
    pub fn open(
        eal: &Arc<Eal>,
        config: &DpdkConfig,
        udp_port: u16,
        pool: PoolConfig,
    ) -> Result<Self, DpdkError> {
        let mut backends = Self::open_several(eal, config, &[udp_port], pool)?;
        Ok(backends.pop().expect("one for the one port"))
    }

    /// Opens the port for several endpoints, each with a queue pair of its own, to which the port steers the
    /// datagrams for the endpoint's UDP port.
    ///
    /// # Errors
    ///
    /// [`DpdkError`] with cause and hint, also if the port cannot steer.
    pub fn open_several(
        eal: &Arc<Eal>,
        config: &DpdkConfig,
        udp_ports: &[u16],
        pool: PoolConfig,
    ) -> Result<Vec<Self>, DpdkError> {
        assert!(
            config.mtu + HEADERS <= FRAME_MAX,
            "packets of at most {} bytes",
            FRAME_MAX - HEADERS
        );
        let port = Port::open(eal, config, Queues::OfUdpPorts(udp_ports))?;
        let mut backends = Vec::new();
        for (index, udp_port) in (0..).zip(udp_ports) {
            backends.push(Self::new(&port, index, *udp_port, pool)?);
        }
        backends[0].announce();
        Ok(backends)
    }

    /// An endpoint on the only queue pair of a port that is lent to it.
    pub(super) fn over_lease(
        port: &Arc<Port>,
        udp_port: u16,
        pool: PoolConfig,
        lease: Lease,
    ) -> Result<Self, DpdkError> {
        let mut backend = Self::new(port, 0, udp_port, pool)?;
        backend._lease = Some(lease);
        backend.announce();
        Ok(backend)
    }

    /// Neighbours that knew another Ethernet address of this IP address learn the new one.
    fn announce(&mut self) {
        let Local { mac, ip, .. } = self.local;
        self.send_arp(&[Arp::ask(mac, ip, ip)]);
    }

    fn new(
        port: &Arc<Port>,
        index: u16,
        udp_port: u16,
        pool: PoolConfig,
    ) -> Result<Self, DpdkError> {
        let wake = WakeEvent::new().map_err(|error| DpdkError::System {
            call: "eventfd",
            os_error: error.raw_os_error().unwrap_or(0),
        })?;
        Ok(Self {
            queue: RawQueue::new(Arc::clone(port), index),
            local: Local {
                mac: port.mac,
                ip: port.config.ip,
                port: udp_port,
            },
            caps: Caps {
                mtu: port.config.mtu,
                rto_floor: RTO_FLOOR,
                copies: true,
                rx_queue_packets: u32::from(port.descriptors),
                packet_is_dear: false,
            },
            pool: Pool::new(pool),
            templates: Templates::new(),
            packets: Vec::with_capacity(BURST),
            fetched: false,
            polls: 0,
            sleep: SLEEP_MIN,
            next_tick: Instant::ZERO,
            next_look_up: Instant::ZERO,
            next_reconnect: Instant::ZERO,
            round: 0,
            wake: Arc::new(wake),
            stats: BackendStats::default(),
            own_stats: DpdkStats::default(),
            _lease: None,
        })
    }

    /// The address that the endpoint answers to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        SocketAddrV4::new(self.local.ip, self.local.port).into()
    }

    /// The port's Ethernet address.
    #[must_use]
    pub fn mac(&self) -> MacAddr {
        self.local.mac
    }

    /// DPDK's name of the port.
    #[must_use]
    pub fn port_name(&self) -> &str {
        &self.queue.port.name
    }

    /// Whether the port has a link just now. A memif port has one while its peer is connected.
    #[must_use]
    pub fn link_is_up(&self) -> bool {
        self.queue.port.link_is_up()
    }

    /// The counters of this backend alone.
    #[must_use]
    pub fn dpdk_stats(&self) -> DpdkStats {
        self.own_stats
    }

    /// Free packet buffers of the port.
    #[must_use]
    pub fn buffers_available(&self) -> u32 {
        self.queue.port.pool.available()
    }

    /// Sorts the frames that the port delivered into `packets`, answering ARP.
    fn sort(&mut self) {
        for index in 0..self.queue.held() {
            let frame: *const [u8] = self.queue.received(index);
            // SAFETY: the frame's buffer is held until the next `receive`. The packets made from it are handed out
            // only in batches that borrow `self`, and `packets` is emptied before that call.
            let frame: &'static [u8] = unsafe { &*frame };
            match read(frame, self.queue.verdict(index), &self.local) {
                Ok(ReceivedFrame::Udp(datagram)) => {
                    self.stats.rx_bytes += datagram.payload.len() as u64;
                    self.packets.push(RxPacket {
                        bytes: datagram.payload,
                        route: SocketAddr::V4(datagram.source),
                        ecn: datagram.ecn,
                    });
                }
                Ok(ReceivedFrame::Arp(arp)) => self.on_arp(&arp),
                Err(reason) => self.own_stats.rejected[reason as usize] += 1,
            }
        }
        self.stats.rx_datagrams += self.packets.len() as u64;
    }

    #[cold]
    fn on_arp(&mut self, arp: &Arp) {
        self.own_stats.arp_received += 1;
        let now = MonotonicClock.now();
        let is_question = self.queue.port.neighbours().on_arp(now, self.local.ip, arp);
        if is_question {
            self.own_stats.arp_answered += 1;
            self.send_arp(&[arp.answer(self.local.mac)]);
        }
    }

    fn send_arp(&mut self, packets: &[Arp]) {
        for some in packets.chunks(BURST) {
            if !self.queue.allocate(some.len()) {
                return;
            }
            for (index, arp) in some.iter().enumerate() {
                self.queue
                    .frame(index, ARP_FRAME)
                    .copy_from_slice(&arp.frame());
            }
            self.queue.send_as_they_are(some.len());
        }
    }

    /// ARP's timers: asks for addresses that are wanted or old.
    #[cold]
    fn tick(&mut self, now: Instant) {
        if now < self.next_tick {
            return;
        }
        self.next_tick = now.saturating_add(ASK_EVERY);
        if now >= self.next_look_up {
            self.next_look_up = now.saturating_add(LOOK_UP_AGAIN);
            self.round += 1;
        }
        if self.queue.port.connects_at_start {
            self.reconnect(now);
        }
        let mut questions = Vec::new();
        let (mac, ip) = (self.local.mac, self.local.ip);
        self.queue
            .port
            .neighbours()
            .tick(now, |wanted| questions.push(Arp::ask(mac, ip, wanted)));
        self.own_stats.arp_asked += questions.len() as u64;
        self.send_arp(&questions);
    }

    /// A memif client whose server went away tries to find it again.
    fn reconnect(&mut self, now: Instant) {
        if self.queue.link_is_up() {
            self.next_reconnect = now.saturating_add(RECONNECT_EVERY);
        } else if now >= self.next_reconnect {
            self.next_reconnect = now.saturating_add(RECONNECT_EVERY);
            self.queue.release();
            self.fetched = false;
            self.queue.port.restart();
        }
    }

    /// Sends up to a burst of packets.
    fn send_some<'a>(&mut self, items: impl ExactSizeIterator<Item = TxItem<'a, SocketAddr>>) {
        let count = items.len();
        if !self.queue.allocate(count) {
            self.own_stats.tx_no_buffer += count as u64;
            self.stats.tx_refused += count as u64;
            return;
        }
        let mut written = 0;
        let mut bytes = 0;
        for item in items {
            match self.write(written, &item) {
                Some(len) => {
                    written += 1;
                    bytes += len;
                }
                None => {
                    self.own_stats.tx_unresolved += 1;
                    self.stats.tx_refused += 1;
                }
            }
        }
        let sent = self.queue.send(written);
        self.stats.tx_packets += count as u64;
        self.stats.tx_datagrams += sent as u64;
        self.stats.tx_bytes += bytes as u64;
        self.stats.tx_refused += (written - sent) as u64;
    }

    /// Writes one packet into the frame at `index`; `None` if the way to its destination is
    /// unknown.
    #[inline]
    fn write(&mut self, index: usize, item: &TxItem<'_, SocketAddr>) -> Option<usize> {
        let SocketAddr::V4(peer) = item.route else {
            return None;
        };
        let (port, local) = (&self.queue.port, &self.local);
        let template = self
            .templates
            .get(peer, |peer| resolve(port, local, peer))?;
        let len = item.len();
        let head_end = HEADERS + item.head.len();
        let checksums = self.queue.port.checksums;
        let frame = self.queue.frame(index, HEADERS + len);
        frame[HEADERS..head_end].copy_from_slice(item.head);
        if let Some(body) = item.body {
            frame[head_end..].copy_from_slice(body);
        }
        template.complete(frame, checksums);
        Some(len)
    }
}

/// Reads a frame that the port delivered with its verdict.
#[inline]
fn read<'a>(frame: &'a [u8], verdict: RxFlags, local: &Local) -> Result<ReceivedFrame<'a>, Reject> {
    if verdict.is_bad() {
        return Err(Reject::UdpChecksum);
    }
    if verdict.is_chained() {
        return Err(Reject::Short);
    }
    parse(
        frame,
        local,
        Checked {
            ip: verdict.ip_is_good(),
            udp: verdict.udp_is_good(),
        },
    )
}

/// Headers for a peer whose next hop's address is known; otherwise ARP will ask for it.
#[cold]
fn resolve(port: &Port, local: &Local, peer: SocketAddrV4) -> Option<Template> {
    let hop: Ipv4Addr = port.config.next_hop(*peer.ip());
    let mac = port.neighbours().resolve(MonotonicClock.now(), hop)?;
    Some(Template::new(local, mac, peer))
}

impl Backend for DpdkBackend {
    type Route = SocketAddr;

    fn caps(&self) -> Caps {
        self.caps
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    fn rx_burst(&mut self) -> Result<RxBatch<'_, SocketAddr>, BackendError> {
        self.packets.clear();
        self.polls = self.polls.wrapping_add(1);
        if self.polls & (POLLS_PER_CLOCK_READ - 1) == 0 {
            self.tick(MonotonicClock.now());
        }
        if self.fetched {
            self.fetched = false;
        } else {
            self.queue.receive();
        }
        if self.queue.held() > 0 {
            self.sleep = SLEEP_MIN;
            self.sort();
        }
        Ok(RxBatch::from_packets(&self.packets))
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<SocketAddr>) -> Result<(), BackendError> {
        let unresolved = self.own_stats.tx_unresolved;
        // One version for both reasons to look a peer up again; each of the two numbers only grows.
        self.templates
            .set_version(self.queue.port.generation().wrapping_add(self.round << 32));
        let mut rest = 0..tx.len();
        while !rest.is_empty() {
            let some = rest.start..rest.end.min(rest.start + BURST);
            rest.start = some.end;
            let batch: &TxBatch<SocketAddr> = tx;
            self.send_some(some.map(|index| batch.get(index).expect("inside the batch")));
        }
        tx.clear();
        if self.own_stats.tx_unresolved != unresolved {
            self.tick(MonotonicClock.now());
        }
        Ok(())
    }

    /// The port has its own copy of everything.
    fn flush(&mut self) {}

    /// Polls the queue again and again, and sleeps longer and longer in between: a port cannot wake a process.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BackendError> {
        let begin = MonotonicClock.now();
        let deadline = timeout.map_or(Instant::FAR_FUTURE, |timeout| begin.saturating_add(timeout));
        self.stats.waits += 1;
        self.packets.clear();
        let mut now = begin;
        loop {
            if self.wake.is_pending() {
                self.wake.clear();
                return Ok(());
            }
            if !self.fetched {
                self.fetched = self.queue.receive() > 0;
            }
            if self.fetched || now >= deadline {
                return Ok(());
            }
            let pause = self.sleep.min(deadline.saturating_since(now));
            let event = self.wake.descriptor();
            wait_readable(event, event, None, Some(pause))
                .map_err(|error| BackendError::from_io("ppoll", &error))?;
            self.sleep = Duration::from_nanos(self.sleep.as_nanos() * 2).min(SLEEP_MAX);
            now = MonotonicClock.now();
            self.tick(now);
        }
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::clone(&self.wake) as _)
    }

    fn stats(&self) -> BackendStats {
        BackendStats {
            rx_overflows: self.queue.port.missed(),
            ..self.stats
        }
    }
}
