//! Endpoints of one process joined by bounded queues; for tests, benchmarks and shards that talk.
//!
//! A sender copies each packet into the receiver's inbox under a lock taken once a burst. The
//! receiver swaps a full inbox for an empty one, so its packets stay put while they are handled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::batch::{CopiedRun, PACKET_ROOM};
use super::{Backend, BackendError, BackendStats, Caps, RxBatch, RxSlot, TxBatch, Wake, Waker};
use crate::buf::{Pool, PoolConfig};
use crate::time::Duration;

/// Datagrams handed out by one `rx_burst` at most.
const RX_BURST_MAX: usize = 64;

/// An endpoint's number in its mesh.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RingRoute(pub u16);

/// How a mesh is made.
#[derive(Copy, Clone, Debug)]
pub struct RingConfig {
    /// Largest packet in bytes.
    pub mtu: usize,
    /// Packets that an inbox holds; more are lost and counted at the sender.
    pub queue_packets: usize,
    /// Limits of each endpoint's message pool.
    pub pool: PoolConfig,
}

/// One endpoint of a mesh.
#[derive(Debug)]
pub struct RingBackend {
    route: RingRoute,
    inboxes: Arc<[Arc<Inbox>]>,
    config: RingConfig,
    pool: Pool,
    /// The packets taken out of the inbox; handed out from `next` on.
    taken: RingQueue,
    next: usize,
    stats: BackendStats,
}

#[derive(Debug)]
struct Inbox {
    queue: Mutex<RingQueue>,
    /// Whether the queue holds packets; written under its lock, read without.
    ready: AtomicBool,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct RingQueue {
    memory: Vec<u8>,
    slots: Vec<RxSlot<RingRoute>>,
    /// A waker was used since the last wait.
    woken: bool,
    /// The owner sleeps and wants to be told.
    sleeping: bool,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            mtu: super::MTU_DEFAULT,
            queue_packets: 4096,
            pool: PoolConfig::default(),
        }
    }
}

impl RingBackend {
    /// `count` endpoints, each of which reaches all, itself included; the first has route 0.
    #[must_use]
    pub fn mesh(count: u16, config: RingConfig) -> Vec<Self> {
        let queue = || RingQueue {
            memory: Vec::with_capacity(config.queue_packets * config.mtu),
            slots: Vec::with_capacity(config.queue_packets),
            ..RingQueue::default()
        };
        let inbox = |_| {
            Arc::new(Inbox {
                queue: Mutex::new(queue()),
                ready: AtomicBool::new(false),
                arrived: Condvar::new(),
            })
        };
        let inboxes: Arc<[Arc<Inbox>]> = (0..count).map(inbox).collect();
        let endpoint = |index| Self {
            route: RingRoute(index),
            inboxes: Arc::clone(&inboxes),
            config,
            pool: Pool::new(config.pool),
            taken: queue(),
            next: 0,
            stats: BackendStats::default(),
        };
        (0..count).map(endpoint).collect()
    }

    /// Two endpoints.
    #[must_use]
    pub fn pair(config: RingConfig) -> (Self, Self) {
        let mut mesh = Self::mesh(2, config).into_iter();
        match (mesh.next(), mesh.next()) {
            (Some(first), Some(second)) => (first, second),
            _ => unreachable!("a mesh of two has two endpoints"),
        }
    }

    /// This endpoint's own route.
    #[must_use]
    pub fn route(&self) -> RingRoute {
        self.route
    }

    /// Copies the items from `first` on that go to the same route as it; the index after them.
    fn deliver_run(&mut self, tx: &TxBatch<RingRoute>, first: usize) -> usize {
        let route = tx.get(first).expect("a run starts inside the batch").route;
        if let Some(run) = tx.copied_run(first)
            && let Some(end) = self.deliver_copied(&run, route, first)
        {
            return end;
        }
        let run = (first..tx.len())
            .map_while(|index| tx.get(index))
            .take_while(|item| item.route == route);
        let Some(inbox) = self.inboxes.get(usize::from(route.0)) else {
            let lost = run.count();
            self.stats.tx_refused += lost as u64;
            return first + lost;
        };
        let mut queue = inbox.lock();
        // The queue's parts are read once, not once a packet.
        let RingQueue { memory, slots, .. } = &mut *queue;
        let (mut end, bytes_before, slots_before) = (first, memory.len(), slots.len());
        for item in run {
            end += 1;
            let (start, len) = (memory.len(), item.len());
            if slots.len() < self.config.queue_packets && len <= self.config.mtu {
                item.copy_to(memory);
                let (start, len) = (start as u32, len as u32);
                slots.push(RxSlot {
                    start,
                    len,
                    route: self.route,
                    ecn: false,
                });
            }
        }
        let delivered = slots.len() - slots_before;
        self.stats.tx_datagrams += delivered as u64;
        self.stats.tx_bytes += (memory.len() - bytes_before) as u64;
        self.stats.tx_refused += (end - first - delivered) as u64;
        if delivered > 0 {
            inbox.announce(&mut queue);
        }
        end
    }

    /// Copies small packets that lie side by side at once. `None`, and nothing done, if not all of
    /// them have room; the index after the run otherwise.
    fn deliver_copied(
        &mut self,
        run: &CopiedRun<'_, RingRoute>,
        route: RingRoute,
        first: usize,
    ) -> Option<usize> {
        let inbox = self.inboxes.get(usize::from(route.0))?;
        let mut queue = inbox.lock();
        let RingQueue { memory, slots, .. } = &mut *queue;
        let has_room = slots.len() + run.len() <= self.config.queue_packets;
        if !has_room || PACKET_ROOM > self.config.mtu {
            return None;
        }
        // The memory of an inbox is far below 4 GiB.
        let base = memory.len() as u32;
        memory.extend_from_slice(run.bytes);
        slots.extend(run.places().map(|(start, len)| RxSlot {
            start: base + start,
            len,
            route: self.route,
            ecn: false,
        }));
        self.stats.tx_datagrams += run.len() as u64;
        self.stats.tx_bytes += run.bytes.len() as u64;
        inbox.announce(&mut queue);
        Some(first + run.len())
    }

    fn inbox(&self) -> &Arc<Inbox> {
        &self.inboxes[usize::from(self.route.0)]
    }
}

impl Backend for RingBackend {
    type Route = RingRoute;

    fn caps(&self) -> Caps {
        Caps {
            mtu: self.config.mtu,
            rto_floor: Duration::from_micros(50),
            copies: true,
            rx_queue_packets: u32::try_from(self.config.queue_packets).unwrap_or(u32::MAX),
            packet_is_dear: false,
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn rx_burst(&mut self) -> Result<RxBatch<'_, RingRoute>, BackendError> {
        if self.next == self.taken.slots.len() {
            self.next = 0;
            self.taken.memory.clear();
            self.taken.slots.clear();
            let inbox = &self.inboxes[usize::from(self.route.0)];
            if inbox.ready.load(Ordering::Acquire) {
                let mut queue = inbox.lock();
                std::mem::swap(&mut queue.memory, &mut self.taken.memory);
                std::mem::swap(&mut queue.slots, &mut self.taken.slots);
                inbox.ready.store(false, Ordering::Relaxed);
            }
        }
        let end = self.taken.slots.len().min(self.next + RX_BURST_MAX);
        let burst = &self.taken.slots[self.next..end];
        self.next = end;
        self.stats.rx_datagrams += burst.len() as u64;
        // An inbox has no gaps.
        if let (Some(first), Some(last)) = (burst.first(), burst.last()) {
            self.stats.rx_bytes += u64::from(last.start + last.len - first.start);
        }
        Ok(RxBatch::from_slots(&self.taken.memory, burst))
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<RingRoute>) -> Result<(), BackendError> {
        self.stats.tx_packets += tx.len() as u64;
        let mut next = 0;
        while next < tx.len() {
            next = self.deliver_run(tx, next);
        }
        tx.clear();
        Ok(())
    }

    /// Everything is copied when `tx_burst` returns.
    fn flush(&mut self) {}

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BackendError> {
        if self.next < self.taken.slots.len() {
            return Ok(());
        }
        self.stats.waits += 1;
        let inbox = Arc::clone(self.inbox());
        let mut queue = inbox.lock();
        queue.sleeping = true;
        let idle = |queue: &mut RingQueue| queue.slots.is_empty() && !queue.woken;
        queue = match timeout {
            None => inbox
                .arrived
                .wait_while(queue, idle)
                .unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = inbox
                    .arrived
                    .wait_timeout_while(queue, timeout.into(), idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        queue.sleeping = false;
        queue.woken = false;
        Ok(())
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::clone(self.inbox()) as _)
    }

    fn stats(&self) -> BackendStats {
        self.stats
    }
}

impl Inbox {
    /// A queue is never left half changed, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, RingQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packets have come into the queue.
    fn announce(&self, queue: &mut RingQueue) {
        self.ready.store(true, Ordering::Release);
        // Only for packets that end the sleep: a sleeper that is woken in vain does not ask again.
        if std::mem::take(&mut queue.sleeping) {
            self.arrived.notify_one();
        }
    }
}

impl Wake for Inbox {
    fn wake(&self) {
        let mut queue = self.lock();
        queue.woken = true;
        let sleeps = std::mem::take(&mut queue.sleeping);
        drop(queue);
        // A system call, which a worker would make for each of its results.
        if sleeps {
            self.arrived.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Body;

    fn send(backend: &mut RingBackend, packets: &[(u16, &[u8])]) {
        let mut tx = TxBatch::with_capacity(packets.len());
        for (route, bytes) in packets {
            tx.push(RingRoute(*route), bytes, Body::None);
        }
        backend.tx_burst(&mut tx).unwrap();
        assert!(tx.is_empty());
    }

    fn receive(backend: &mut RingBackend) -> Vec<(u16, Vec<u8>)> {
        backend
            .rx_burst()
            .unwrap()
            .map(|packet| (packet.route.0, packet.bytes.to_vec()))
            .collect()
    }

    #[test]
    fn packets_arrive_in_order_and_name_their_sender() {
        let mut mesh = RingBackend::mesh(3, RingConfig::default());
        send(&mut mesh[0], &[(2, b"one"), (1, b"aside"), (2, b"two")]);
        send(&mut mesh[1], &[(2, b"three")]);
        let expected = [
            (0, b"one".to_vec()),
            (0, b"two".to_vec()),
            (1, b"three".to_vec()),
        ];
        assert_eq!(receive(&mut mesh[2]), expected);
        assert_eq!(receive(&mut mesh[1]), [(0, b"aside".to_vec())]);
        assert_eq!(receive(&mut mesh[2]), []);
    }

    #[test]
    fn a_full_queue_loses_packets_and_counts_them() {
        let (mut a, mut b) = RingBackend::pair(RingConfig {
            queue_packets: 2,
            ..RingConfig::default()
        });
        send(&mut a, &[(1, b"1"), (1, b"2"), (1, b"3")]);
        assert_eq!(a.stats().tx_refused, 1);
        assert_eq!(receive(&mut b).len(), 2);
        send(&mut a, &[(1, b"4")]);
        assert_eq!(receive(&mut b), [(0, b"4".to_vec())]);
        assert_eq!(a.stats().tx_refused, 1);
    }

    #[test]
    fn unknown_routes_and_oversized_packets_are_refused() {
        let (mut a, mut b) = RingBackend::pair(RingConfig {
            mtu: 600,
            ..RingConfig::default()
        });
        let message = a.pool().alloc(601).unwrap();
        let mut tx = TxBatch::new();
        tx.push(RingRoute(9), b"nobody", Body::None);
        tx.push(RingRoute(1), &[], Body::Message(&message, 0..601));
        tx.push(RingRoute(1), &[], Body::Message(&message, 0..600));
        a.tx_burst(&mut tx).unwrap();
        assert_eq!(a.stats().tx_refused, 2);
        assert_eq!(receive(&mut b)[0].1.len(), 600);
    }

    #[test]
    fn long_bursts_are_handed_out_in_pieces() {
        let (mut a, mut b) = RingBackend::pair(RingConfig::default());
        for index in 0..150u8 {
            send(&mut a, &[(1, &[index])]);
        }
        let mut received = Vec::new();
        for _ in 0..3 {
            let burst = receive(&mut b);
            assert!(burst.len() <= RX_BURST_MAX);
            received.extend(burst.into_iter().map(|(_, bytes)| bytes[0]));
        }
        assert_eq!(received, (0..150).collect::<Vec<u8>>());
    }

    #[test]
    fn a_sleeper_is_woken_by_a_packet_and_by_a_waker() {
        let (mut a, mut b) = RingBackend::pair(RingConfig::default());
        let thread = std::thread::spawn(move || {
            while b.rx_burst().unwrap().is_empty() {
                b.wait(None).unwrap();
            }
            b
        });
        send(&mut a, &[(1, b"wake up")]);
        let mut b = thread.join().unwrap();
        b.waker().wake();
        b.wait(None).unwrap();
        let start = std::time::Instant::now();
        b.wait(Some(Duration::from_millis(10))).unwrap();
        assert!(start.elapsed() >= std::time::Duration::from_millis(10));
    }

    /// A packet that was too long also cleared the sleeper's wish to be woken. The sleeper went on
    /// sleeping, and the next packet, which did fit, did not wake it.
    #[test]
    fn a_refused_packet_does_not_cost_a_sleeper_its_wakeup() {
        let (mut a, mut b) = RingBackend::pair(RingConfig::default());
        let inbox = Arc::clone(b.inbox());
        let thread = std::thread::spawn(move || {
            let start = std::time::Instant::now();
            b.wait(Some(Duration::from_secs(20))).unwrap();
            start.elapsed()
        });
        while !inbox.lock().sleeping {
            std::thread::yield_now();
        }
        let message = a.pool().alloc(2_000).unwrap();
        let mut tx = TxBatch::new();
        tx.push(RingRoute(1), &[], Body::Message(&message, 0..2_000));
        a.tx_burst(&mut tx).unwrap();
        assert_eq!(a.stats().tx_refused, 1);
        assert!(inbox.lock().sleeping, "the sleeper still asks to be told");
        send(&mut a, &[(1, b"fits")]);
        assert!(thread.join().unwrap() < std::time::Duration::from_secs(10));
    }

    #[test]
    fn many_senders_lose_nothing_that_fits() {
        const EACH: u32 = 5_000;
        let mut mesh = RingBackend::mesh(4, RingConfig::default());
        let mut receiver = mesh.remove(0);
        let senders: Vec<_> = mesh
            .into_iter()
            .map(|mut sender| {
                std::thread::spawn(move || {
                    let mut sent = 0u32;
                    while sent < EACH {
                        let before = sender.stats().tx_refused;
                        send(&mut sender, &[(0, &sent.to_le_bytes())]);
                        if sender.stats().tx_refused == before {
                            sent += 1;
                        }
                    }
                })
            })
            .collect();
        let mut next = [0u32; 4];
        while next.iter().sum::<u32>() < 3 * EACH {
            for (route, bytes) in receive(&mut receiver) {
                let number = u32::from_le_bytes(bytes.try_into().unwrap());
                assert_eq!(
                    number,
                    next[usize::from(route)],
                    "each sender's packets stay in order"
                );
                next[usize::from(route)] += 1;
            }
        }
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
    }
}
