//! Clients that were open before a `fork`, against a group of real processes.
//!
//! A child of such a process used to go on with its parent's clients. Both sides sent the same sequences with different commands,
//! so that replicas answered one of two and both were told that it had been done. Of 300 increments on each side, 300 were
//! acknowledged and 299 counted. Both also sealed different packets with the same 30 counters.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use trine_base::network::{EndpointSettings, KeyChoice, Network, Opened, Udp};
use trine_child::{Side, fork, split};
use trine_client::{
    Answer, AsyncCall, AsyncClients, AsyncWatcher, BackupError, BackupReader, BlockingClient,
    CallError, ClientConfig, Mode, SubmitError, WatchConfig, WatchError, WatchFrom, WatchTarget,
    Watcher,
};
use trine_kvstore::{Command, Response};
use trine_protocol::message::ClusterId;
use trine_transport::backend::{
    self, Backend, BackendError, BackendStats, Caps, MonotonicClock, RxBatch, TxBatch, UdpBackend,
};
use trine_transport::buf::Pool;
use trine_transport::time::Duration as Nanos;

use crate::common::TempFile;
use crate::keys::{Keys, Replicas};

/// The most that a child may take.
const LIMIT: Duration = Duration::from_secs(60);
const INCREMENTS: i64 = 1_000;

type Client = BlockingClient<UdpBackend, MonotonicClock>;

/// A sealed group whose replicas write down all packets.
struct Group {
    addresses: Vec<SocketAddr>,
    network: Udp,
    captures: Vec<TempFile>,
    replicas: Replicas,
    _keys: Keys,
}

impl Group {
    fn start(name: &str) -> Self {
        let keys = Keys::new(name);
        let key = keys.text("ours");
        let mut replicas = Replicas::new(&keys.directory);
        let captures: Vec<_> = (0..3)
            .map(|index| TempFile::new(&format!("{name}-{index}")))
            .collect();
        for (index, capture) in captures.iter().enumerate() {
            let first: &[&str] = if index == 0 { &["--bootstrap"] } else { &[] };
            let options = ["--key", &key, "--capture", capture.path()];
            replicas.start(index, &[&options[..], first].concat());
        }
        replicas.works(Some(&key), "v");
        let addresses = replicas.peers.split(',').map(|peer| peer.parse());
        let addresses = addresses.collect::<Result<_, _>>().expect("addresses");
        let settings = EndpointSettings {
            key: KeyChoice::File(keys.path("ours")),
            ..EndpointSettings::default()
        };
        Self {
            addresses,
            network: Udp { settings },
            captures,
            replicas,
            _keys: keys,
        }
    }

    fn opened(&self) -> Opened<UdpBackend> {
        self.network.call(&self.addresses).expect("a socket")
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new(self.addresses.clone());
        // The machine may be busy with other tests.
        config.operation_timeout = Nanos::from_secs(30);
        config
    }

    fn client(&self) -> Client {
        let opened = self.opened();
        let (backend, endpoint, route_of) = (opened.backend, opened.endpoint, opened.route_of);
        BlockingClient::new(
            backend,
            MonotonicClock,
            self.config(),
            endpoint,
            route_of,
            seed(),
        )
        .expect("sound settings")
    }

    fn clients(&self) -> AsyncClients {
        let opened = self.opened();
        let (backend, endpoint, route_of) = (opened.backend, opened.endpoint, opened.route_of);
        AsyncClients::start(
            backend,
            MonotonicClock,
            self.config(),
            endpoint,
            route_of,
            seed(),
        )
        .expect("sound settings")
    }

    fn watched(&self) -> WatchConfig {
        WatchConfig {
            addresses: self.addresses.clone(),
            targets: vec![(1, WatchTarget::Prefix(b"watched/".to_vec()))],
            from: WatchFrom::Now,
            keys_only: false,
        }
    }

    /// The number that stands at a key; zero if there is none.
    fn number(&self, key: &str) -> i64 {
        let answer = self.client().get(key.as_bytes()).expect("an answer");
        match answer.response().expect("a response") {
            Response::Value { value, .. } => {
                let text = std::str::from_utf8(value).expect("digits");
                text.parse().expect("a number")
            }
            _ => 0,
        }
    }
}

fn seed() -> u64 {
    getrandom::u64().expect("random bytes")
}

fn increment(client: &mut Client, key: &str) -> Result<Answer, CallError> {
    let (key, delta) = (key.as_bytes(), 1);
    client.execute(Mode::Write, &Command::Increment { key, delta })
}

fn equal<T: PartialEq + Debug>(found: &T, wanted: &T) -> Result<(), String> {
    let is_equal = found == wanted;
    is_equal
        .then_some(())
        .ok_or_else(|| format!("{found:?} instead of {wanted:?}"))
}

/// A call of a client that belongs to the parent.
fn not_applied<T: Debug>(call: &Result<T, CallError>) -> Result<(), String> {
    match call {
        Err(error @ CallError::NotBegun(SubmitError::OtherProcess)) => {
            equal(&error.is_definitely_not_applied(), &true)?;
            let text = error.to_string();
            let is_clear = text.starts_with("not applied: this client belongs to another process");
            is_clear.then_some(()).ok_or(text)
        }
        other => Err(format!("{other:?}")),
    }
}

/// A call that was under way at the fork.
fn unknown<T: Debug>(call: &Result<T, CallError>) -> Result<(), String> {
    match call {
        Err(error @ CallError::Backend(BackendError::OtherProcess)) => {
            equal(&error.is_definitely_not_applied(), &false)?;
            let text = error.to_string();
            text.starts_with("outcome unknown")
                .then_some(())
                .ok_or(text)
        }
        other => Err(format!("{other:?}")),
    }
}

/// Increments `key`; how many were acknowledged.
fn acknowledged(client: &mut Client, key: &str) -> i64 {
    let calls = (0..INCREMENTS).map(|_| increment(client, key));
    calls.filter(Result::is_ok).count() as i64
}

/// Both sides of a fork do 1,000 increments with the client that was open, and the child 1,000 more with one of its own.
#[test]
fn what_both_sides_of_a_fork_were_told_is_what_was_counted() {
    let group = Group::start("forked-client");
    let mut client = group.client();
    let port = client.event_loop().backend().local_addr().port();
    increment(&mut client, "before").expect("done");
    let child = fork(|| {
        for _ in 0..INCREMENTS {
            not_applied(&increment(&mut client, "child"))?;
        }
        let mut own = group.client();
        equal(&acknowledged(&mut own, "own"), &INCREMENTS)
    });
    let parents = acknowledged(&mut client, "parent");
    assert_eq!(child.join(LIMIT), Ok(()));
    assert_eq!(parents, INCREMENTS);
    let keys = ["before", "parent", "child", "own"];
    let counted = keys.map(|key| group.number(key));
    assert_eq!(counted, [1, INCREMENTS, 0, INCREMENTS]);
    let captures = group.ended();
    let sealed = captures.iter().map(|capture| sealed_runs(capture, port));
    let sealed: usize = sealed.map(unique).sum();
    assert!(sealed >= INCREMENTS as usize, "only {sealed} sealed runs");
}

impl Group {
    /// Ends the replicas; what they captured.
    fn ended(mut self) -> Vec<Vec<u8>> {
        (0..3).for_each(|index| self.replicas.stop(index));
        let files = self.captures.iter();
        files
            .map(|file| std::fs::read(&file.0).expect("a capture"))
            .collect()
    }
}

/// A sealed run: how many handshakes were before it, the receiver's session, and the counter's low bits. A later session may
/// have the number of an earlier one, and counts from zero with keys of its own.
type Run = (usize, u16, u32);

/// Panics if a counter was used twice; how many there are.
fn unique(mut runs: Vec<Run>) -> usize {
    let count = runs.len();
    runs.sort_unstable();
    let twice: Vec<_> = runs.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "counters were used twice: {twice:?}");
    count
}

/// The sealed runs that came from `port`.
fn sealed_runs(capture: &[u8], port: u16) -> Vec<Run> {
    const PACKET_BLOCK: u32 = 6;
    const CONNECT: u8 = 8;
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let (mut runs, mut rest, mut handshakes) = (Vec::new(), capture, 0);
    while rest.len() >= 12 {
        let (kind, len) = (word(rest, 0), word(rest, 4) as usize);
        if kind == PACKET_BLOCK && rest.len() >= len {
            let packet = &rest[28..28 + word(rest, 20) as usize];
            let (udp, is_v4) = (&packet[20..], packet[0] >> 4 == 4);
            assert!(is_v4, "the group is on 127.0.0.1");
            if u16::from_be_bytes([udp[0], udp[1]]) == port {
                handshakes += usize::from(udp[8] & 0x0f == CONNECT);
                let of_datagram = runs_of(&udp[8..]).into_iter();
                runs.extend(of_datagram.map(|(session, counter)| (handshakes, session, counter)));
            }
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    runs
}

/// The sealed runs of a datagram. All headers of a run have its counter.
fn runs_of(datagram: &[u8]) -> Vec<(u16, u32)> {
    /// NOTICE, RESET, CONNECT, COOKIE, ACCEPT, REFUSE.
    const UNSEALED: [u8; 6] = [6, 7, 8, 9, 10, 11];
    const TRAILER: u8 = 4;
    const HEADER_BYTES: usize = 24;
    let (mut runs, mut rest) = (Vec::new(), datagram);
    while rest.len() >= HEADER_BYTES && !UNSEALED.contains(&(rest[0] & 0x0f)) {
        if rest[1] & TRAILER != 0 {
            let session = u16::from_le_bytes([rest[2], rest[3]]);
            let counter = [rest[20], rest[21], rest[22], rest[23]];
            runs.push((session, u32::from_le_bytes(counter)));
        }
        let len = usize::from(u16::from_le_bytes([rest[4], rest[5]]));
        rest = rest.get(len..).unwrap_or_default();
    }
    runs
}

/// A program opens its client and then becomes a daemon: the parent ends, and the grandchild goes on.
#[test]
fn a_client_that_was_opened_before_the_daemon_is_dead_in_it() {
    let group = Group::start("forked-daemon");
    let mut client = group.client();
    increment(&mut client, "before").expect("done");
    let child = fork(|| {
        not_applied(&increment(&mut client, "before"))?;
        let mut childs = group.client();
        increment(&mut childs, "before").map_err(|error| error.to_string())?;
        let daemon = fork(|| {
            not_applied(&increment(&mut client, "before"))?;
            not_applied(&increment(&mut childs, "before"))?;
            let done = increment(&mut group.client(), "before");
            done.map(drop).map_err(|error| error.to_string())
        });
        daemon.join(LIMIT)
    });
    assert_eq!(child.join(LIMIT), Ok(()));
    assert_eq!(group.number("before"), 3);
}

/// A process with many clients forks. Its child touches each of them, and lets go of its sockets.
#[test]
fn a_child_of_a_process_with_many_clients_keeps_none_of_their_sockets() {
    // Each has two descriptors, and 1,024 are what a process may have by default.
    const CLIENTS: usize = 400;
    let group = Group::start("forked-many");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| group.client()).collect();
    for client in clients.iter_mut().take(20) {
        increment(client, "parent").expect("done");
    }
    let child = fork(|| {
        let before = sockets().len();
        for client in &mut clients {
            not_applied(&increment(client, "child"))?;
        }
        equal(&(before - sockets().len()), &CLIENTS)?;
        // Half of them are dropped, as when the child's program ends in an orderly way.
        clients.truncate(CLIENTS / 2);
        Ok(())
    });
    assert_eq!(child.join(LIMIT), Ok(()));
    for client in clients.iter_mut().rev().take(20) {
        increment(client, "parent").expect("done");
    }
    assert_eq!((group.number("parent"), group.number("child")), (40, 0));
}

/// The sockets of this process.
fn sockets() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("proc");
    let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let links = links.map(|link| link.to_string_lossy().into_owned());
    links.filter(|link| link.starts_with("socket:")).collect()
}

/// Waits for a call of this process.
fn wait(call: &mut AsyncCall) -> Result<Answer, CallError> {
    let until = std::time::Instant::now() + LIMIT;
    loop {
        if let Poll::Ready(result) = poll(call) {
            return result;
        }
        assert!(std::time::Instant::now() < until, "no answer");
        std::thread::yield_now();
    }
}

fn poll(call: &mut AsyncCall) -> Poll<Result<Answer, CallError>> {
    Pin::new(call).poll(&mut Context::from_waker(Waker::noop()))
}

/// The thread that drives clients is the parent's alone, and may have held any lock at the moment of the fork. A child that
/// waited for that thread, or for such a lock, waited for ever.
#[test]
fn a_child_waits_for_no_thread_and_for_no_lock() {
    let group = Group::start("forked-thread");
    let clients = group.clients();
    let client = clients.client();
    let (stop, busy) = (AtomicBool::new(false), clients.client());
    let mut clients = Some(clients);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut done = 0;
            while !stop.load(Ordering::SeqCst) {
                let mut calls: Vec<_> = (0..32).map(|_| busy.put(b"busy", b"v")).collect();
                done += calls.iter_mut().map(wait).filter(Result::is_ok).count();
            }
            done
        });
        for _ in 0..30 {
            let mut under_way = client.put(b"parent", b"v");
            let mut done = client.put(b"parent", b"v");
            let before = wait(&mut done);
            let mut unread = client.get(b"parent");
            let child = fork(|| {
                let mut refused = client.put(b"child", b"v");
                match poll(&mut refused) {
                    Poll::Ready(result) => not_applied(&result)?,
                    Poll::Pending => return Err("it waits".to_owned()),
                }
                for call in [&mut under_way, &mut unread] {
                    match poll(call) {
                        Poll::Ready(result) => unknown(&result)?,
                        Poll::Pending => return Err("it waits".to_owned()),
                    }
                }
                drop(client.clone());
                drop(clients.take());
                Ok(())
            });
            assert_eq!(child.join(LIMIT), Ok(()));
            assert!(before.is_ok(), "{before:?}");
            assert!(wait(&mut under_way).is_ok());
            assert!(wait(&mut unread).is_ok());
        }
        stop.store(true, Ordering::SeqCst);
        assert!(load.join().expect("it ends") > 0);
    });
    assert_eq!(group.number("child"), 0);
    drop(clients);
}

/// Streams of changes and readers of backups are the parent's, too.
#[test]
fn watchers_and_backup_readers_are_dead_in_a_child() {
    let group = Group::start("forked-streams");
    let opened = || {
        let Opened {
            backend, endpoint, ..
        } = group.opened();
        (backend, endpoint)
    };
    let (backend, endpoint) = opened();
    let mut watcher = Watcher::new(
        backend,
        MonotonicClock,
        endpoint,
        group.watched(),
        Some,
        seed(),
    )
    .expect("sound settings");
    let (backend, endpoint) = opened();
    let stream = AsyncWatcher::start(
        backend,
        MonotonicClock,
        endpoint,
        group.watched(),
        Some,
        seed(),
    )
    .expect("sound settings");
    let (backend, endpoint) = opened();
    let (route, clock, cluster) = (group.addresses[0], MonotonicClock, ClusterId::NONE);
    let mut reader = BackupReader::new(backend, clock, endpoint, route, cluster, seed())
        .expect("sound settings");
    let patience = Nanos::from_secs(20);
    let begun = watcher.next(patience).expect("it goes on");
    assert!(begun.is_some(), "no batch");
    let mut stream = Some(stream);
    let child = fork(|| {
        let next = watcher.next(patience);
        equal(
            &next.err(),
            &Some(WatchError::Backend(BackendError::OtherProcess)),
        )?;
        let mut stream = stream.take().expect("once");
        let mut context = Context::from_waker(Waker::noop());
        let wanted = Poll::Ready(Err(WatchError::Backend(BackendError::OtherProcess)));
        equal(&stream.poll_next(&mut context), &wanted)?;
        equal(&stream.served_by(), &None)?;
        let begun = reader.begin(0, patience);
        equal(
            &begun.err(),
            &Some(BackupError::Backend(BackendError::OtherProcess)),
        )
    });
    assert_eq!(child.join(LIMIT), Ok(()));
    increment(&mut group.client(), "watched/1").expect("done");
    loop {
        let batch = watcher.next(patience).expect("it goes on");
        if !batch.expect("the change is told").events.is_empty() {
            break;
        }
    }
}

/// A backend during whose next receive the process forks, as a handler of a signal may do at any moment.
struct Forks {
    inner: UdpBackend,
    is_due: Rc<Cell<bool>>,
    side: Rc<RefCell<Option<Side>>>,
}

impl Backend for Forks {
    type Route = SocketAddr;

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn pool(&self) -> &Pool {
        self.inner.pool()
    }

    fn rx_burst(&mut self) -> Result<RxBatch<'_, SocketAddr>, BackendError> {
        if self.is_due.take() {
            self.side.replace(Some(split()));
        }
        self.inner.rx_burst()
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<SocketAddr>) -> Result<(), BackendError> {
        self.inner.tx_burst(tx)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), BackendError> {
        self.inner.wait(timeout)
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn waker(&self) -> backend::Waker {
        self.inner.waker()
    }

    fn stats(&self) -> BackendStats {
        self.inner.stats()
    }
}

/// Its child comes back into the middle of the call, which is its parent's.
#[test]
fn a_fork_in_the_middle_of_a_call_leaves_its_end_to_the_parent() {
    let group = Group::start("forked-call");
    let (is_due, side) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(None)));
    let opened = group.opened().around(|inner| Forks {
        inner,
        is_due: Rc::clone(&is_due),
        side: Rc::clone(&side),
    });
    let (backend, endpoint, route_of) = (opened.backend, opened.endpoint, opened.route_of);
    let (clock, config) = (MonotonicClock, group.config());
    let mut client = BlockingClient::new(backend, clock, config, endpoint, route_of, seed())
        .expect("sound settings");
    let call = |client: &mut BlockingClient<Forks, _>| {
        let (key, delta) = (&b"call"[..], 1);
        client.execute(Mode::Write, &Command::Increment { key, delta })
    };
    call(&mut client).expect("done");
    is_due.set(true);
    let result = call(&mut client);
    match side.take() {
        Some(Side::Child(report)) => {
            report.end(unknown(&result).and_then(|()| not_applied(&call(&mut client))))
        }
        Some(Side::Parent(child)) => assert_eq!(child.join(LIMIT), Ok(())),
        None => panic!("no fork"),
    }
    result.expect("the parent's call was done");
    call(&mut client).expect("done");
    assert_eq!(group.number("call"), 3);
}
