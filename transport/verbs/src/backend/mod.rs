//! InfiniBand Unreliable Datagram through libibverbs: InfiniBand, RoCE and soft-RoCE.
//!
//! One queue pair an endpoint, or several if the configuration says so. `VERBS.md` says which advice of "Design
//! Guidelines for High Performance RDMA Systems" each choice follows.
#![allow(unsafe_code)]

mod address;
mod channel;
mod connections;
mod device;
mod error;
mod memory;
mod pages;
mod queue_pair;
mod queue_pair_state;
mod receive;
mod send;

use std::sync::Arc;

use self::address::{AddressHandles, Handle, REFUSED_QKEY};
use self::channel::Channel;
use self::connections::Connections;
use self::device::Device;
use self::memory::{RegisteredRegions, Registry};
use self::queue_pair_state::QueuePairState;
use self::send::Packet;
use crate::config::CONNECTIONS_MAX;
use crate::immediate::{Immediate, Immediates};
use crate::one_sided::{ANSWER_BYTES, NOTICE_BYTES, OneSided, PathFailure, PathSettings, Sending};
use crate::one_sided_path::OneSidedPath;
use crate::route::Port;
use trine_transport::backend::{
    Backend, BackendError, BackendStats, Caps, MonotonicClock, RxBatch, TxBatch, TxItem, Waker,
};
use trine_transport::backend_api::{WakeEvent, wait_readable};
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::config::{MTU_MAX, MTU_MIN};
use trine_transport::time::{Clock, Duration, Instant};

pub use self::connections::{CounterClient, CounterServer};
pub use self::error::{ConnectionFault, VerbsError};
use crate::route::{QUEUE_PAIRS_MAX, VerbsAddress, VerbsRoute};

/// How a queue pair is opened. The defaults are for latency.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// Device name (`rdma link` lists them); the first with an active port if absent.
    pub device: Option<String>,
    /// Port of the device, from 1.
    pub port: u8,
    /// Index into the port's GID table; the most routable one if absent.
    pub gid_index: Option<u32>,
    /// Key that receivers insist on; the same for all of a group, not zero, and below 2^31.
    pub qkey: u32,
    /// Queue pairs of the endpoint, 1 to [`QUEUE_PAIRS_MAX`]. One keeps the least state in the device; several let a
    /// device that works on them in parallel send and receive more for one thread.
    pub queue_pairs: u8,
    /// Packets that can wait to be received (|RQ|), for each queue pair.
    pub receive_queue: u32,
    /// Receives are given back to the device when so many are free, with one doorbell; 1 gives back each by itself. At
    /// most a quarter of the receive queue.
    pub receive_batch: u32,
    /// Sends that the device may have in hand, for each queue pair; at least 128.
    pub send_queue: u32,
    /// One send in so many asks for a completion; 1 signals every send. At most half the send queue.
    pub signal_interval: u32,
    /// Packets up to this length, and to the device's limit, travel inside the work request; 0 turns
    /// that off.
    pub inline_bytes: u32,
    /// One doorbell for a list of sends; off posts each by itself.
    pub doorbell_batching: bool,
    /// The header of a packet whose body the device fetches is written in front of that body, where there is room: the
    /// device then fetches one part. Off copies the header elsewhere, and the device fetches two.
    pub header_in_front: bool,
    /// A packet that needs a cache line less that way carries its first four bytes as an immediate; a packet of four
    /// bytes is then a header alone. Off sends all packets whole.
    pub immediates: bool,
    /// Memory of 1 MiB and more lies in huge pages. The system must have some free (`sysctl vm.nr_hugepages`).
    pub huge_pages: bool,
    /// Requests of one packet are written into the server's memory, the paths herd and rfp. `None` sends all packets as
    /// datagrams.
    pub one_sided: Option<OneSidedConfig>,
    /// Sessions may be sealed: whole packets are staged in registered memory, `mtu` bytes for each of `send_queue`.
    pub sealed: bool,
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
            queue_pairs: 1,
            receive_queue: 1024,
            receive_batch: 16,
            send_queue: 256,
            signal_interval: 16,
            inline_bytes: 256,
            doorbell_batching: true,
            header_in_front: true,
            immediates: true,
            huge_pages: false,
            one_sided: None,
            sealed: false,
            mtu: 4096,
            pool: PoolConfig::default(),
            reserved_buffers: 512,
        }
    }
}

/// Connections of the paths herd and rfp: all are made at the start. A session without one uses datagrams alone.
#[derive(Copy, Clone, Debug)]
pub struct OneSidedConfig {
    /// How answers travel. A session has a connection if both ends say the same.
    pub path: OneSidedPath,
    /// Sessions of this endpoint as a client that may have one; at most [`CONNECTIONS_MAX`].
    pub outgoing: u16,
    /// Sessions of this endpoint as a server that may have one; at most [`CONNECTIONS_MAX`].
    pub incoming: u16,
    /// One write in so many leaves its slot half-written, or is done in two halves; 0 never. For tests.
    pub tear_interval: u32,
    /// Path rfp: bytes of the READ with which a client fetches an answer; a longer answer takes a second READ. Found from
    /// the last 64 answers of the session if absent.
    pub fetch_bytes: Option<u16>,
    /// Is told of the first connection as a client that fails. Its session goes on with datagrams.
    pub on_failure: Option<fn(&VerbsError)>,
}

impl Default for OneSidedConfig {
    fn default() -> Self {
        Self {
            path: OneSidedPath::Herd,
            outgoing: 64,
            incoming: 256,
            tear_interval: 0,
            fetch_bytes: None,
            on_failure: None,
        }
    }
}

/// Counters of the queue pairs, besides [`BackendStats`].
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct VerbsStats {
    /// Send work requests that the device took.
    pub sends: u64,
    /// The sends that carried their bytes themselves.
    pub sends_inline: u64,
    /// The sends that asked for a completion.
    pub sends_signaled: u64,
    /// Parts of those that the device has to fetch from memory: heads that were not inline, and bodies.
    pub sends_gathered: u64,
    /// The sends whose first four bytes were an immediate.
    pub sends_shrunk: u64,
    /// Those of them that had no other byte.
    pub sends_header_only: u64,
    /// Cache lines of the sends' work requests, as ConnectX devices lay them out: 64 bytes, then either 4 and the inline
    /// bytes, or 16 for each part to be fetched.
    pub send_lines: u64,
    /// Calls that handed sends to the device.
    pub send_doorbells: u64,
    /// Packets that the device did not take, or that go to an address it cannot reach.
    pub sends_refused: u64,
    /// Sends that completed with an error.
    pub sends_failed: u64,
    /// Waits until the device had read everything.
    pub flushes: u64,
    /// Datagrams received.
    pub receives: u64,
    /// Bytes in them, route headers not counted.
    pub received_bytes: u64,
    /// The datagrams without payload, which an immediate carried: the device writes no byte of the packet to memory
    /// beside the completion.
    pub receives_header_only: u64,
    /// Receive work requests handed to the device.
    pub receives_posted: u64,
    /// Calls that handed receives to the device.
    pub receive_doorbells: u64,
    /// Receives that completed with an error.
    pub receives_failed: u64,
    /// Memory registrations, from the start on.
    pub registrations: u64,
    /// Pages in them: what the device's table of addresses holds.
    pub registered_pages: u64,
    /// Restarts of a queue pair after an error.
    pub restarts: u64,
    /// Connections of the paths herd and rfp that sessions have got, in both directions.
    pub connections: u64,
    /// Connections as a client that failed, or could not be made.
    pub connections_failed: u64,
    /// Path rfp: answers left in own memory for their clients to fetch. They take no work request.
    pub answers_left: u64,
    /// Answers fetched.
    pub answers_fetched: u64,
    /// READs for them, each a work request with a doorbell and a completion.
    pub reads: u64,
    /// Those of the READs that were for the rest of a longer answer.
    pub reads_of_rest: u64,
    /// READs that found no answer.
    pub reads_missed: u64,
    /// READs that were behind such a one, and were posted again.
    pub reads_forsaken: u64,
    /// Times that a session's answers were slow, and its client asked for datagrams.
    pub replies_asked: u64,
    /// Requests written into slots of servers, each with a doorbell of its own.
    pub slot_writes: u64,
    /// Writes that asked for a completion.
    pub slot_writes_signaled: u64,
    /// Requests read from own slots.
    pub slot_packets: u64,
    /// Cache lines of own slots looked at.
    pub slot_lines: u64,
    /// Looks at a slot that was not whole.
    pub slots_torn: u64,
    /// Times that all slots of a connection were looked at.
    pub slot_scans: u64,
    /// Notices of the paths herd and rfp sent: they are among `sends`.
    pub notices: u64,
}

/// Polls of slots that share a reading of the clock.
const POLLS_PER_CLOCK: u32 = 8;
/// A CONNECT or ACCEPT with terms behind it: as long as a head may be that is copied.
const TERMED_BYTES_MAX: usize = TxBatch::<VerbsRoute>::HEADER_MAX + TxBatch::<VerbsRoute>::COPY_MAX;

/// UD queue pairs as a backend.
pub struct VerbsBackend {
    // The queue pairs go first: the device then uses none of the memory below any more.
    queue_pairs: Vec<QueuePairState>,
    addresses: AddressHandles,
    pool: Pool,
    caps: Caps,
    address: VerbsAddress,
    /// See [`VerbsConfig::one_sided`].
    one_sided: Option<OneSided<Connections>>,
    /// The same as in the configuration.
    one_sided_config: OneSidedConfig,
    device: Arc<Device>,
    /// The last burst came from slots: the queue pairs are polled first.
    slots_had_last: bool,
    /// Polls of slots until the clock is read again.
    polls_left: u32,
    /// When it was read.
    now: Instant,
    /// The queue pair that `rx_burst` polls first: none may starve.
    next_queue_pair: usize,
    channel: Arc<Channel>,
    wake: Arc<WakeEvent>,
    registry: Arc<Registry>,
    immediates: Immediates,
    /// The counters that are not in `verbs`.
    stats: BackendStats,
    verbs: VerbsStats,
}

impl VerbsBackend {
    /// Opens a device and makes a queue pair that is ready to receive.
    ///
    /// # Errors
    ///
    /// [`VerbsError`] with cause and hint.
    ///
    /// # Panics
    ///
    /// If `config` breaks one of the bounds stated at its fields.
    pub fn open(config: &VerbsConfig) -> Result<Self, VerbsError> {
        config.check();
        let device = Arc::new(Device::open(config)?);
        let mtu = config.mtu.min(device.port.mtu).min(MTU_MAX);
        if mtu < MTU_MIN {
            return Err(VerbsError::MtuTooSmall { mtu });
        }
        let registry = Arc::new(Registry::new(config.huge_pages));
        let channel = Arc::new(Channel::new(&device)?);
        let queue_pair = |via| QueuePairState::new(&device, &channel, config, mtu, via, &registry);
        let mut queue_pairs: Vec<QueuePairState> = (0..config.queue_pairs)
            .map(queue_pair)
            .collect::<Result<_, _>>()?;
        let regions = RegisteredRegions::new(Arc::clone(&device), Arc::clone(&registry));
        let pool = Pool::with_region_allocator(config.pool, regions);
        pool.reserve(mtu, config.reserved_buffers);
        let one_sided = config
            .one_sided
            .map(|one_sided| Self::connections(&device, &registry, &one_sided))
            .transpose()?;
        let one_sided_config = config.one_sided.unwrap_or_default();
        let wake = WakeEvent::new().map_err(|_| VerbsError::last("eventfd"))?;
        let numbers: Vec<u32> = queue_pairs
            .iter()
            .map(|queue_pair| queue_pair.pair.number())
            .collect();
        let mut verbs = VerbsStats::default();
        queue_pairs
            .iter_mut()
            .for_each(|queue_pair| queue_pair.fill(&mut verbs));
        Ok(Self {
            queue_pairs,
            address: VerbsAddress::of_port(&device.port, &numbers, config.qkey),
            addresses: AddressHandles::new(Arc::clone(&device)),
            device,
            pool,
            caps: Caps {
                mtu,
                rto_floor: Duration::from_micros(50),
                copies: false,
                // All sessions may share one of the queue pairs.
                rx_queue_packets: config.receive_queue,
                packet_is_dear: false,
            },
            one_sided,
            one_sided_config,
            slots_had_last: false,
            polls_left: 0,
            now: Instant::ZERO,
            next_queue_pair: 0,
            channel,
            wake: Arc::new(wake),
            registry,
            immediates: Immediates::new(config.immediates),
            stats: BackendStats::default(),
            verbs,
        })
    }

    fn connections(
        device: &Arc<Device>,
        registry: &Arc<Registry>,
        config: &OneSidedConfig,
    ) -> Result<OneSided<Connections>, VerbsError> {
        let connections = Connections::new(device, registry, config)?;
        let settings = PathSettings {
            path: config.path,
            outgoing: config.outgoing.into(),
            incoming: config.incoming.into(),
            tear_interval: config.tear_interval,
            fetch_bytes: config.fetch_bytes,
        };
        Ok(OneSided::new(connections, settings))
    }

    /// Where peers reach this endpoint, all its queue pairs: what it announces.
    #[must_use]
    pub fn address(&self) -> VerbsAddress {
        self.address
    }

    /// The first queue pair, as a peer whose own first queue pair is meant to talk to it names it.
    #[must_use]
    pub fn route(&self) -> VerbsRoute {
        self.address.route(0, 1)
    }

    /// The way to `peer` for one session: one of its queue pairs and one of ours, both chosen by `choice`. A session
    /// stays with the two, because packets on different queue pairs overtake each other, and the protocol takes
    /// reordered packets for lost ones. Different sessions should choose differently.
    #[must_use]
    pub fn route_to(&self, peer: &VerbsAddress, choice: u32) -> VerbsRoute {
        peer.route(choice, self.queue_pairs.len() as u32)
    }

    /// Counters of the queue pairs.
    #[must_use]
    pub fn verbs_stats(&self) -> VerbsStats {
        let stats = VerbsStats {
            registrations: self.registry.regions(),
            registered_pages: self.registry.pages(),
            ..self.verbs
        };
        let Some(one_sided) = &self.one_sided else {
            return stats;
        };
        let counts = one_sided.counts();
        VerbsStats {
            connections: counts.opened,
            connections_failed: counts.failed,
            answers_left: counts.answers_left,
            answers_fetched: counts.fetches.answers,
            reads: counts.fetches.reads,
            reads_of_rest: counts.fetches.reads_of_rest,
            reads_missed: counts.fetches.misses,
            reads_forsaken: counts.fetches.forsaken,
            replies_asked: counts.fetches.replies_asked,
            slot_writes: counts.writes,
            slot_writes_signaled: one_sided.device.writes_signaled(),
            slot_packets: counts.slots.packets,
            slot_lines: counts.slots.lines,
            slots_torn: counts.slots.torn,
            slot_scans: counts.slots.scans,
            notices: counts.notices,
            ..stats
        }
    }

    /// Drives all queue pairs into the error state, as a failing device would; for tests.
    ///
    /// # Errors
    ///
    /// [`VerbsError`] if the device refuses.
    pub fn fail_queue_pair(&self) -> Result<(), VerbsError> {
        self.queue_pairs
            .iter()
            .try_for_each(|queue_pair| queue_pair.pair.fail())
    }

    /// Connections of the paths herd and rfp that sessions have now, as a client and as a server.
    #[must_use]
    pub fn connections_open(&self) -> (usize, usize) {
        self.one_sided.as_ref().map_or((0, 0), OneSided::open)
    }

    /// Drives the client's ends of all connections into the error state, as a failing device would; for tests.
    ///
    /// # Errors
    ///
    /// [`VerbsError`] if the device refuses.
    pub fn fail_connections(&self) -> Result<(), VerbsError> {
        self.one_sided
            .as_ref()
            .map_or(Ok(()), |one_sided| one_sided.device.fail())
    }

    /// The connections of this endpoint as a client write into each other's regions from now on, as an attacker would
    /// who knows their addresses and keys; for tests.
    pub fn exchange_grants(&mut self) {
        if let Some(one_sided) = &mut self.one_sided {
            one_sided.exchange_grants();
        }
    }

    /// The connections of this endpoint as a client use these keys from now on, and places so far away from those that
    /// they were given: what a wrong key, and a region that is too small, do; for tests.
    pub fn spoil_grants(&mut self, key: u32, bytes: u64) {
        if let Some(one_sided) = &mut self.one_sided {
            one_sided.spoil_grants(|grant| {
                for area in [&mut grant.requests, &mut grant.answers] {
                    area.rkey ^= key;
                    area.address = area.address.wrapping_add(bytes);
                }
            });
        }
    }

    /// Reads slots; how many packets came.
    #[inline]
    fn poll_slots(&mut self) -> usize {
        match self.one_sided.is_some() {
            true => self.poll_slots_of_connections(),
            false => 0,
        }
    }

    /// Not inlined: an endpoint that has datagrams alone would pay for its registers and its stack at each poll.
    #[inline(never)]
    fn poll_slots_of_connections(&mut self) -> usize {
        let Some(one_sided) = &mut self.one_sided else {
            return 0;
        };
        if self.polls_left == 0 {
            self.polls_left = POLLS_PER_CLOCK;
            self.now = MonotonicClock.now();
        }
        self.polls_left -= 1;
        let count = one_sided.poll(self.now);
        self.slots_had_last = count > 0;
        if one_sided.has_to_say() {
            self.send_notices();
        }
        count
    }

    /// The datagrams that have arrived at one queue pair, without those that are for connections alone; their number.
    #[inline]
    fn poll_queue_pair(&mut self, at: usize) -> Result<usize, BackendError> {
        let queue_pair = &mut self.queue_pairs[at];
        let count = queue_pair
            .receive(&mut self.immediates, &mut self.verbs)
            .map_err(|error| unusable(&error))?;
        match self.one_sided.is_some() && count > 0 {
            true => Ok(self.take_notices(at)),
            false => Ok(count),
        }
    }

    /// Removes what is for connections alone from the datagrams of a queue pair. How many are left.
    #[inline(never)]
    fn take_notices(&mut self, at: usize) -> usize {
        let (now, receive) = (self.now, &mut self.queue_pairs[at].receive);
        let Some(one_sided) = &mut self.one_sided else {
            return 0;
        };
        let left = receive.retain(|packet| one_sided.on_datagram(now, packet));
        self.send_notices();
        left
    }

    /// Whether an answer has to be polled for, which wakes nobody. Otherwise tells the other ends that this one sleeps.
    #[inline(never)]
    fn keeps_awake(&mut self) -> bool {
        self.now = MonotonicClock.now();
        let Some(one_sided) = &mut self.one_sided else {
            return false;
        };
        if one_sided.must_poll(self.now) {
            // The end that answers may need this processor.
            std::thread::yield_now();
            return true;
        }
        one_sided.on_sleep();
        self.send_notices();
        false
    }

    /// Whether something came into a slot before the other ends knew that this one sleeps.
    #[inline(never)]
    fn has_arrived_in_slots(&mut self) -> bool {
        // The next poll reads the clock, whenever this sleep ends.
        self.polls_left = 0;
        let now = self.now;
        let one_sided = self.one_sided.as_mut();
        one_sided.is_some_and(|one_sided| one_sided.has_arrived(now))
    }

    /// Sends what the paths herd and rfp have to say by themselves.
    #[inline(never)]
    fn send_notices(&mut self) {
        while let Some((route, notice)) = self.one_sided.as_mut().and_then(OneSided::poll_notice) {
            let notice: [u8; NOTICE_BYTES] = notice;
            self.send_now(&TxItem {
                route,
                head: &notice,
                body: None,
                datagram_max: 0,
            });
        }
        let mut answer = [0; ANSWER_BYTES];
        while let Some((route, packet)) = self
            .one_sided
            .as_mut()
            .and_then(|it| it.poll_unfetched(&mut answer))
        {
            self.send_now(&TxItem {
                route,
                head: &answer[packet],
                body: None,
                datagram_max: 0,
            });
        }
        let failure = self.one_sided.as_mut().and_then(OneSided::take_failure);
        if let Some(failure) = failure {
            self.tell(failure);
        }
    }

    /// Tells whoever opened this endpoint of a connection that failed, once.
    #[cold]
    fn tell(&mut self, failure: PathFailure) {
        let Some(on_failure) = self.one_sided_config.on_failure.take() else {
            return;
        };
        let fault = match failure {
            PathFailure::NotConnected => ConnectionFault::NotConnected,
            PathFailure::OtherLayout => ConnectionFault::OtherLayout,
            PathFailure::Broken(number) => {
                let one_sided = self.one_sided.as_ref();
                let fault = one_sided.and_then(|it| it.device.fault(number));
                fault.unwrap_or(ConnectionFault::InError)
            }
        };
        on_failure(&VerbsError::ConnectionFailed {
            device: self.device.name.clone(),
            path: self.one_sided_config.path,
            fault,
        });
    }

    /// Sends a packet whose bytes are gone after this call.
    fn send_now(&mut self, item: &TxItem<'_, VerbsRoute>) {
        let handle = self.handle_for(&item.route);
        let queue_pair = self.queue_pairs.get_mut(usize::from(item.route.via));
        let (Some(address), Some(queue_pair)) = (handle, queue_pair) else {
            self.verbs.sends_refused += 1;
            return;
        };
        let packet = Packet {
            address,
            item: *item,
            immediate: self.immediates.of_packet(&item.route, item.head),
        };
        let (pair, stats) = (&mut queue_pair.pair, &mut self.verbs);
        queue_pair.send.add(pair, &packet, stats);
        queue_pair.send.post(pair, stats);
    }

    /// Whether a connection has taken care of a packet: it was written or left, or sent with terms behind it.
    #[inline]
    fn is_sent_one_sided(&mut self, item: &TxItem<'_, VerbsRoute>) -> bool {
        self.one_sided.is_some() && self.is_taken_by_connection(item)
    }

    #[inline(never)]
    fn is_taken_by_connection(&mut self, item: &TxItem<'_, VerbsRoute>) -> bool {
        let Some(one_sided) = &mut self.one_sided else {
            return false;
        };
        match one_sided.on_send(self.now, item) {
            Sending::Datagram => false,
            Sending::Written | Sending::Left => true,
            Sending::WithTerms(terms) => {
                let mut bytes = [0; TERMED_BYTES_MAX];
                let (head, end) = (item.head.len(), item.head.len() + terms.len());
                let Some(room) = bytes.get_mut(..end).filter(|_| item.body.is_none()) else {
                    return false;
                };
                room[..head].copy_from_slice(item.head);
                room[head..].copy_from_slice(&terms);
                self.send_now(&TxItem {
                    route: item.route,
                    head: room,
                    body: None,
                    datagram_max: 0,
                });
                true
            }
        }
    }

    /// Makes sure of an address handle for `route`. `None`: the device cannot reach this address, as if the packet were
    /// lost.
    #[inline]
    fn handle_for(&mut self, route: &VerbsRoute) -> Option<Handle> {
        if let Some(handle) = self.addresses.known(route) {
            return Some(handle);
        }
        if self.addresses.is_full() {
            // All handles are thrown away: nothing posted may refer to one any more.
            self.flush();
        }
        self.addresses.get(route)
    }
}

impl VerbsConfig {
    fn check(&self) {
        assert!(
            self.qkey != REFUSED_QKEY && self.qkey < 1 << 31,
            "the key 0 is reserved, and those from 2^31 on need privileges"
        );
        assert!(
            (1..=QUEUE_PAIRS_MAX).contains(&usize::from(self.queue_pairs)),
            "an endpoint has 1 to {QUEUE_PAIRS_MAX} queue pairs"
        );
        let fits = |count: u16| usize::from(count) <= CONNECTIONS_MAX;
        assert!(
            self.one_sided
                .is_none_or(|one_sided| fits(one_sided.outgoing) && fits(one_sided.incoming)),
            "an endpoint has at most {CONNECTIONS_MAX} connections in each direction"
        );
        assert!(
            self.receive_batch >= 1 && self.receive_batch <= self.receive_queue / 4,
            "receives are given back long before the ring is empty"
        );
        assert!(
            self.send_queue >= 128,
            "a send queue holds two lists of sends"
        );
        assert!(
            self.signal_interval >= 1,
            "some sends have to ask for a completion"
        );
        assert!(
            self.signal_interval <= self.send_queue / 2,
            "completions come before the queue is full"
        );
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

    /// The first burst that slots or one of the queue pairs have, beginning after those that had the last.
    #[inline]
    fn rx_burst(&mut self) -> Result<RxBatch<'_, VerbsRoute>, BackendError> {
        let slots_first = !std::mem::take(&mut self.slots_had_last);
        if slots_first && self.poll_slots() > 0 {
            return Ok(self
                .one_sided
                .as_ref()
                .map_or(RxBatch::empty(), OneSided::burst));
        }
        for _ in 0..self.queue_pairs.len() {
            let at = self.next_queue_pair;
            self.next_queue_pair = if at + 1 == self.queue_pairs.len() {
                0
            } else {
                at + 1
            };
            if self.poll_queue_pair(at)? > 0 {
                return Ok(self.queue_pairs[at].receive.burst());
            }
        }
        if !slots_first && self.poll_slots() > 0 {
            return Ok(self
                .one_sided
                .as_ref()
                .map_or(RxBatch::empty(), OneSided::burst));
        }
        Ok(RxBatch::empty())
    }

    #[inline]
    fn tx_burst(&mut self, tx: &mut TxBatch<VerbsRoute>) -> Result<(), BackendError> {
        if self.one_sided.is_some() {
            self.now = MonotonicClock.now();
        }
        for item in tx.iter() {
            self.stats.tx_bytes += item.len() as u64;
            if self.is_sent_one_sided(&item) {
                continue;
            }
            let handle = self.handle_for(&item.route);
            let queue_pair = self.queue_pairs.get_mut(usize::from(item.route.via));
            let (Some(handle), Some(queue_pair)) = (handle, queue_pair) else {
                self.verbs.sends_refused += 1;
                continue;
            };
            let immediate = match item.body {
                None => self.immediates.of_packet(&item.route, item.head),
                Some(_) => Immediate::None,
            };
            let packet = Packet {
                address: handle,
                item,
                immediate,
            };
            queue_pair
                .send
                .add(&mut queue_pair.pair, &packet, &mut self.verbs);
        }
        for queue_pair in &mut self.queue_pairs {
            queue_pair.send.post(&mut queue_pair.pair, &mut self.verbs);
        }
        self.stats.tx_packets += tx.len() as u64;
        tx.clear();
        Ok(())
    }

    fn flush(&mut self) {
        for queue_pair in &mut self.queue_pairs {
            queue_pair.flush(&mut self.addresses, &mut self.verbs);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BackendError> {
        if self.wake.is_pending() {
            self.wake.clear();
            return Ok(());
        }
        if self.one_sided.is_some() && self.keeps_awake() {
            return Ok(());
        }
        for queue_pair in &mut self.queue_pairs {
            queue_pair.pair.arm().map_err(|error| unusable(&error))?;
        }
        // A datagram that came before its queue was armed raises no event.
        let mut queue_pairs = self.queue_pairs.iter_mut();
        if queue_pairs.any(|queue_pair| queue_pair.receive.peek(&mut queue_pair.pair)) {
            return Ok(());
        }
        if self.one_sided.is_some() && self.has_arrived_in_slots() {
            return Ok(());
        }
        self.stats.waits += 1;
        let (channel, wake) = (self.channel.descriptor(), self.wake.descriptor());
        let woken = wait_readable(channel, wake, None, timeout)
            .map_err(|error| BackendError::from_io("ppoll", &error))?;
        self.channel.take_events();
        if woken {
            self.wake.clear();
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::clone(&self.wake) as _)
    }

    fn stats(&self) -> BackendStats {
        let verbs = self.verbs_stats();
        BackendStats {
            rx_datagrams: verbs.receives + verbs.slot_packets + verbs.answers_fetched,
            rx_bytes: verbs.received_bytes,
            rx_written: verbs.slot_packets,
            rx_fetched: verbs.answers_fetched,
            tx_fetched: verbs.answers_left,
            rx_errors: verbs.receives_failed,
            tx_datagrams: self.stats.tx_packets,
            tx_written: verbs.slot_writes,
            tx_refused: verbs.sends_refused,
            ..self.stats
        }
    }
}

fn unusable(error: &VerbsError) -> BackendError {
    match error {
        VerbsError::Call { call, os_error } => BackendError::System {
            call,
            os_error: *os_error,
        },
        _ => BackendError::DeviceFailed {
            reason: error.to_string(),
        },
    }
}
