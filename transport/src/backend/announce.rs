//! How `host:port` becomes a route on backends whose routes are not socket addresses.
//!
//! A server over verbs or DPDK answers at its management address with its current route; a client that connects asks
//! there first. One datagram each way, both of the same length, so that a forged source gains nothing by asking. A
//! route is only a hint: the session handshake that follows over the real backend proves who is there.
//!
//! ```text
//! 0         4         5       6        7        8            16                       64
//! | "TRTE"  | version | kind  | family | length | nonce (8)  | route, zero padded (48) |
//! ```

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::BackendError;
use super::udp::bind_error;

const DATAGRAM_BYTES: usize = 64;
const ROUTE_AT: usize = 16;
const ROUTE_BYTES_MAX: usize = DATAGRAM_BYTES - ROUTE_AT;
const MAGIC: &[u8; 4] = b"TRTE";
const VERSION: u8 = 1;
const KIND_QUERY: u8 = 1;
const KIND_ANSWER: u8 = 2;

/// How often the threads check whether they should end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A query without an answer is repeated after this long.
const REPEAT_INTERVAL: Duration = Duration::from_millis(20);
/// A route older than this is asked for again, and still used meanwhile.
const FRESH: Duration = Duration::from_millis(200);
/// A route older than this is not used any more: a restarted peer has another queue pair.
const STALE: Duration = Duration::from_secs(2);
/// Addresses remembered at most.
const ADDRESSES_MAX: usize = 1024;

/// A route that can be announced.
pub trait Announce: Copy + Send + 'static {
    /// Tells the backends apart; the same on both sides.
    const FAMILY: u8;

    /// The route in at most 48 bytes.
    fn encode(&self) -> Vec<u8>;

    /// The route, or `None` if the bytes are not one.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Answers at a management address until it is dropped.
pub struct Announcer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    local: SocketAddr,
}

impl Announcer {
    /// Binds `address` and tells everybody who asks that `route` is how to reach this process.
    ///
    /// # Errors
    ///
    /// [`BackendError`] with cause and hint if the address cannot be bound.
    pub fn start<R: Announce>(address: SocketAddr, route: R) -> Result<Self, BackendError> {
        let socket = UdpSocket::bind(address).map_err(|error| bind_error(address, &error))?;
        let io_error = |error: io::Error| BackendError::from_io("management socket", &error);
        socket
            .set_read_timeout(Some(POLL_INTERVAL))
            .map_err(io_error)?;
        let local = socket.local_addr().map_err(io_error)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("announce".to_owned())
            .spawn(move || answer_queries(&socket, &route, &stopped))
            .map_err(io_error)?;
        Ok(Self {
            stop,
            thread: Some(thread),
            local,
        })
    }

    /// The address that the answers come from.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        end(&self.stop, self.thread.take());
    }
}

fn answer_queries<R: Announce>(socket: &UdpSocket, route: &R, stop: &AtomicBool) {
    let mut datagram = [0; DATAGRAM_BYTES + 1];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut datagram) else {
            continue;
        };
        if let Some((KIND_QUERY, nonce, _)) = parse::<R>(&datagram[..length]) {
            // Lost answers are asked for again.
            let _sent = socket.send_to(&build::<R>(KIND_ANSWER, nonce, &route.encode()), from);
        }
    }
}

/// Finds the routes behind management addresses. Clones share what they know.
pub struct Resolver<R> {
    shared: Arc<RouteTable<R>>,
    thread: Option<JoinHandle<()>>,
}

struct RouteTable<R> {
    known: Mutex<HashMap<SocketAddr, RouteEntry<R>>>,
    stop: AtomicBool,
}

struct RouteEntry<R> {
    route: Option<(R, Instant)>,
    asked_at: Option<Instant>,
    wanted: bool,
}

impl<R: Announce> Resolver<R> {
    /// Starts the thread that asks.
    ///
    /// # Errors
    ///
    /// [`BackendError`] if no socket can be opened.
    pub fn start() -> Result<Self, BackendError> {
        let io_error = |error: io::Error| BackendError::from_io("management socket", &error);
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let socket = UdpSocket::bind(any).map_err(|error| bind_error(any, &error))?;
        socket
            .set_read_timeout(Some(REPEAT_INTERVAL / 4))
            .map_err(io_error)?;
        let shared = Arc::new(RouteTable {
            known: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let asking = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("resolve".to_owned())
            .spawn(move || ask(&socket, &asking))
            .map_err(io_error)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The route behind `address` if it is known; asks for it otherwise, so that a later call finds
    /// it. Never waits. IPv4 only.
    #[must_use]
    pub fn lookup(&self, address: SocketAddr) -> Option<R> {
        let now = Instant::now();
        let mut known = self
            .shared
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(&address) && known.len() >= ADDRESSES_MAX {
            known.clear();
        }
        let entry = known.entry(address).or_insert(RouteEntry {
            route: None,
            asked_at: None,
            wanted: true,
        });
        let age = entry.route.map(|(_, at)| now.saturating_duration_since(at));
        entry.wanted = age.is_none_or(|age| age > FRESH);
        entry
            .route
            .filter(|_| age.is_some_and(|age| age < STALE))
            .map(|(route, _)| route)
    }

    /// As [`Resolver::lookup`], waiting up to `timeout` for an answer.
    #[must_use]
    pub fn resolve(&self, address: SocketAddr, timeout: Duration) -> Option<R> {
        let deadline = Instant::now() + timeout;
        loop {
            let found = self.lookup(address);
            if found.is_some() || Instant::now() >= deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl<R> Drop for Resolver<R> {
    fn drop(&mut self) {
        end(&self.shared.stop, self.thread.take());
    }
}

fn ask<R: Announce>(socket: &UdpSocket, shared: &RouteTable<R>) {
    let mut datagram = [0; DATAGRAM_BYTES + 1];
    // An answer counts only with the nonce of its query: routes cannot be planted from outside.
    let mut nonce = 0;
    let mut outstanding: HashMap<SocketAddr, u64> = HashMap::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if outstanding.len() > ADDRESSES_MAX {
            // Of addresses that never answered; the ones still looked up are asked again.
            outstanding.clear();
        }
        for address in take_due(shared, now) {
            nonce = fresh_nonce(nonce);
            outstanding.insert(address, nonce);
            let _sent = socket.send_to(&build::<R>(KIND_QUERY, nonce, &[]), address);
        }
        let Ok((length, from)) = socket.recv_from(&mut datagram) else {
            continue;
        };
        let Some((KIND_ANSWER, answered, Some(route))) = parse::<R>(&datagram[..length]) else {
            continue;
        };
        if outstanding.get(&from) == Some(&answered) {
            outstanding.remove(&from);
            let mut known = shared.known.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(entry) = known.get_mut(&from) {
                *entry = RouteEntry {
                    route: Some((route, Instant::now())),
                    asked_at: None,
                    wanted: false,
                };
            }
        }
    }
}

fn take_due<R: Copy>(shared: &RouteTable<R>, now: Instant) -> Vec<SocketAddr> {
    let mut known = shared.known.lock().unwrap_or_else(PoisonError::into_inner);
    let due = |entry: &RouteEntry<R>| {
        entry.wanted
            && entry
                .asked_at
                .is_none_or(|at| now.saturating_duration_since(at) >= REPEAT_INTERVAL)
    };
    let mut addresses = Vec::new();
    for (address, entry) in known.iter_mut().filter(|(_, entry)| due(entry)) {
        entry.asked_at = Some(now);
        // Asked again only if a caller still looks it up.
        entry.wanted = entry.route.is_none();
        addresses.push(*address);
    }
    addresses
}

/// Unpredictable enough that an answer cannot be forged blindly: the standard map's random keys.
fn fresh_nonce(previous: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(previous)
}

fn build<R: Announce>(kind: u8, nonce: u64, route: &[u8]) -> [u8; DATAGRAM_BYTES] {
    assert!(
        route.len() <= ROUTE_BYTES_MAX,
        "a route that fits into an announcement"
    );
    let mut datagram = [0; DATAGRAM_BYTES];
    datagram[..4].copy_from_slice(MAGIC);
    datagram[4..8].copy_from_slice(&[VERSION, kind, R::FAMILY, route.len() as u8]);
    datagram[8..16].copy_from_slice(&nonce.to_le_bytes());
    datagram[ROUTE_AT..ROUTE_AT + route.len()].copy_from_slice(route);
    datagram
}

/// Kind, nonce and, in an answer, the route.
fn parse<R: Announce>(datagram: &[u8]) -> Option<(u8, u64, Option<R>)> {
    let datagram: &[u8; DATAGRAM_BYTES] = datagram.try_into().ok()?;
    let [version, kind, family, length] = [datagram[4], datagram[5], datagram[6], datagram[7]];
    let for_us = datagram.starts_with(MAGIC) && version == VERSION && family == R::FAMILY;
    if !for_us || usize::from(length) > ROUTE_BYTES_MAX {
        return None;
    }
    let nonce = u64::from_le_bytes(datagram[8..16].try_into().ok()?);
    let route = R::decode(&datagram[ROUTE_AT..ROUTE_AT + usize::from(length)]);
    Some((kind, nonce, route))
}

/// For the fuzzer: the parsed part of a datagram is written so that the same is read again.
#[doc(hidden)]
pub fn fuzz_datagram<R: Announce + PartialEq + Debug>(datagram: &[u8]) {
    let Some((kind, nonce, route)) = parse::<R>(datagram) else {
        return;
    };
    // Bytes that are no route are written as none, as in a query.
    let bytes = route.map(|route| route.encode()).unwrap_or_default();
    let written = build::<R>(kind, nonce, &bytes);
    assert_eq!(parse::<R>(&written), Some((kind, nonce, route)));
}

fn end(stop: &AtomicBool, thread: Option<JoinHandle<()>>) {
    stop.store(true, Ordering::Relaxed);
    if let Some(thread) = thread {
        // A thread of this module cannot panic on input; if it did, its work is over all the same.
        let _ended = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Copy, Clone, PartialEq, Eq, Debug)]
    struct Place(u32);

    impl Announce for Place {
        const FAMILY: u8 = 250;

        fn encode(&self) -> Vec<u8> {
            self.0.to_le_bytes().to_vec()
        }

        fn decode(bytes: &[u8]) -> Option<Self> {
            Some(Self(u32::from_le_bytes(bytes.try_into().ok()?)))
        }
    }

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn a_route_is_found_behind_its_management_address() {
        let announcer = Announcer::start(ANY, Place(42)).unwrap();
        let resolver = Resolver::<Place>::start().unwrap();
        let found = resolver.resolve(announcer.local_addr(), Duration::from_secs(10));
        assert_eq!(found, Some(Place(42)));
    }

    #[test]
    fn a_restarted_peer_is_found_under_its_new_route() {
        let first = Announcer::start(ANY, Place(1)).unwrap();
        let address = first.local_addr();
        let resolver = Resolver::<Place>::start().unwrap();
        assert_eq!(
            resolver.resolve(address, Duration::from_secs(10)),
            Some(Place(1))
        );
        drop(first);
        let _second = Announcer::start(address, Place(2)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while resolver.lookup(address) != Some(Place(2)) {
            assert!(Instant::now() < deadline, "the old route stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn nobody_there_is_no_route() {
        let resolver = Resolver::<Place>::start().unwrap();
        let unused = UdpSocket::bind(ANY).unwrap().local_addr().unwrap();
        assert_eq!(resolver.resolve(unused, Duration::from_millis(50)), None);
    }

    #[test]
    fn foreign_datagrams_are_nothing() {
        let good = build::<Place>(KIND_ANSWER, 7, &Place(9).encode());
        assert_eq!(
            parse::<Place>(&good),
            Some((KIND_ANSWER, 7, Some(Place(9))))
        );
        for length in 0..good.len() {
            assert_eq!(parse::<Place>(&good[..length]), None);
        }
        for at in [0, 4, 6] {
            let mut bad = good;
            bad[at] ^= 1;
            assert_eq!(parse::<Place>(&bad), None);
        }
        let mut too_long = good;
        too_long[7] = 49;
        assert_eq!(parse::<Place>(&too_long), None);
    }

    #[test]
    fn an_answer_is_no_longer_than_its_query() {
        let query = build::<Place>(KIND_QUERY, 1, &[]);
        let answer = build::<Place>(KIND_ANSWER, 1, &Place(1).encode());
        assert!(answer.len() <= query.len());
    }
}
