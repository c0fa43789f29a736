//! Writes while others watch: many watches on distinct keys, and many watchers of one prefix.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use trine_client::{WatchConfig, WatchFrom, WatchTarget, WatchedChange, Watcher};
use trine_protocol::endpoint_config;
use trine_transport::backend::{MonotonicClock, UdpBackend};
use trine_transport::time::Duration;

use crate::udp::{Cluster, bind, written_key};

/// Endpoints that watch distinct keys, and the keys of each.
const WATCHERS: u64 = 100;
const KEYS_EACH: u64 = 100;
/// Endpoints that watch all keys. A replica takes 256 from one address.
const WATCHERS_OF_ALL: u64 = 240;
/// Between two rounds over all watchers.
const ROUND_WITHOUT_EVENTS: std::time::Duration = std::time::Duration::from_millis(1);
/// Nothing happens for so long at most until all watch.
const BEGIN_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// Watchers in one thread.
pub(crate) struct Watching {
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

/// What they have seen.
#[derive(Default)]
struct Seen {
    stopping: AtomicBool,
    begun: AtomicU64,
    events: AtomicU64,
    bytes: AtomicU64,
}

impl Watching {
    /// 10,000 watches, each on a key of its own.
    pub(crate) fn of_keys(cluster: &Cluster) -> Self {
        let targets = |watcher: u64| {
            let keys = watcher * KEYS_EACH..(watcher + 1) * KEYS_EACH;
            keys.map(|number| {
                (
                    number as u32,
                    WatchTarget::Key(written_key(number).to_vec()),
                )
            })
            .collect()
        };
        Self::start(cluster, (0..WATCHERS).map(targets).collect())
    }

    /// Watchers that all see every key.
    pub(crate) fn of_all(cluster: &Cluster) -> Self {
        let all = || vec![(0, WatchTarget::Prefix(Vec::new()))];
        Self::start(cluster, (0..WATCHERS_OF_ALL).map(|_| all()).collect())
    }

    fn start(cluster: &Cluster, targets: Vec<Vec<(u32, WatchTarget)>>) -> Self {
        let (addresses, seen) = (cluster.addresses().to_vec(), Arc::new(Seen::default()));
        let count = targets.len() as u64;
        let thread = std::thread::spawn({
            let seen = Arc::clone(&seen);
            move || {
                let watchers = targets.into_iter().enumerate().map(|(number, targets)| {
                    let mut addresses = addresses.clone();
                    let first = number % addresses.len();
                    addresses.rotate_left(first);
                    watcher(addresses, targets, number as u64 + 1_000)
                });
                watch(watchers.collect(), &seen);
            }
        });
        let begun = Instant::now();
        while seen.begun.load(Ordering::Relaxed) < count {
            assert!(begun.elapsed() < BEGIN_MAX, "not all watchers were served");
            std::thread::yield_now();
        }
        let thread = Some(thread);
        Self { seen, thread }
    }

    /// Events so far, and the bytes of their keys and values.
    pub(crate) fn seen(&self) -> (u64, u64) {
        let Seen { events, bytes, .. } = &*self.seen;
        (
            events.load(Ordering::Relaxed),
            bytes.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.seen.stopping.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

type Client = Watcher<UdpBackend, MonotonicClock>;

fn watcher(
    addresses: Vec<std::net::SocketAddr>,
    targets: Vec<(u32, WatchTarget)>,
    seed: u64,
) -> Client {
    let config = WatchConfig {
        addresses,
        targets,
        from: WatchFrom::Now,
        keys_only: false,
    };
    Watcher::new(
        bind(),
        MonotonicClock,
        endpoint_config(),
        config,
        Some,
        seed,
    )
    .expect("a sound configuration")
}

/// Each watcher has its turn until the end.
fn watch(mut watchers: Vec<Client>, seen: &Seen) {
    let mut has_begun = vec![false; watchers.len()];
    while !seen.stopping.load(Ordering::Relaxed) {
        let before = seen.events.load(Ordering::Relaxed);
        for (watcher, has_begun) in watchers.iter_mut().zip(&mut has_begun) {
            if !*has_begun && watcher.began().is_some() && watcher.served_by().is_some() {
                *has_begun = true;
                seen.begun.fetch_add(1, Ordering::Relaxed);
            }
            let batch = watcher.next(Duration::from_nanos(0));
            let Some(batch) = batch.expect("the watch goes on") else {
                continue;
            };
            let bytes: usize = batch
                .events
                .iter()
                .map(|event| match &event.change {
                    WatchedChange::Written { key, value, .. } => {
                        key.len() + value.as_ref().map_or(0, Vec::len)
                    }
                    other => panic!("{other:?}"),
                })
                .sum();
            seen.events
                .fetch_add(batch.events.len() as u64, Ordering::Relaxed);
            seen.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        // As many processes would sleep. A thread that always polls them all would take a core from the group.
        if seen.events.load(Ordering::Relaxed) == before {
            std::thread::sleep(ROUND_WITHOUT_EVENTS);
        }
    }
}
