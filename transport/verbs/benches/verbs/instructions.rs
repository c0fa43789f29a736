//! User-space instructions of an RPC, for callgrind to count: over a queue pair, and over the in-process ring.
//!
//! Both ends live in one thread and take turns, on a clock of its own that no delay of the machine moves. Nothing is
//! retransmitted, and every turn does the same. An end waits for its datagram before its turn goes on; that waiting is
//! all that is not counted. Callgrind is told so by function names:
//!
//! `--collect-atstart=no --toggle-collect='*counted*' --toggle-collect='*until_datagrams_wait*'`
//!
//! The first of these switches counting on while it runs, the second, inside of it, off.

mod ends;

use std::cell::Cell;
use std::rc::Rc;

use trine_transport::backend::{
    Backend, BackendError, BackendStats, Caps, RingBackend, RingConfig, RxBatch, TxBatch, Waker,
};
use trine_transport::buf::Pool;
use trine_transport::time::{Clock, Duration, Instant};
use trine_verbs::{VerbsBackend, VerbsConfig};

use crate::ends::Ends;

const WARM_UP: u32 = 100;
/// From the first datagram of a list to the last, at most.
const REST_OF_A_LIST: std::time::Duration = std::time::Duration::from_millis(2);

/// `instructions ring|verbs LIST ROUNDS`: so many lists of so many RPCs, after some that are not counted. A program of its own, in which both
/// backends are used once and the compiler treats them alike.
fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let [backend, list, rounds] = &arguments[..] else {
        println!("to be run under callgrind, see transport/vm/instructions-test");
        return;
    };
    let list = list.parse().expect("a number of RPCs");
    let rounds = rounds.parse().expect("a number of round trips");
    match backend.as_str() {
        "ring" => {
            let (client, server) = RingBackend::pair(RingConfig::default());
            let route = server.route();
            count(client, server, route, (list, rounds));
        }
        "verbs" => {
            let open = || VerbsBackend::open(&VerbsConfig::default()).expect("an RDMA device");
            let (client, server) = Waiting::pair(open(), open(), list);
            let route = server.backend.route();
            count(client, server, route, (list, rounds));
        }
        other => panic!("no backend '{other}'"),
    }
    println!("{backend}: {} packets", 2 * list * rounds);
}

fn count<B: Backend>(client: B, server: B, route: B::Route, (list, rounds): (usize, usize)) {
    let mut ends = Ends::connect(client, server, route, Steps::default(), list);
    for _ in 0..WARM_UP {
        round_trip(&mut ends);
    }
    for _ in 0..rounds {
        counted_round_trip(&mut ends);
    }
    assert_eq!(ends.client.endpoint().stats().retransmissions, 0);
}

#[inline(never)]
fn counted_round_trip<B: Backend, C: Clock + Clone>(ends: &mut Ends<B, C>) {
    round_trip(ends);
}

fn round_trip<B: Backend, C: Clock + Clone>(ends: &mut Ends<B, C>) {
    ends.issue();
    ends.server.turn().expect("a working device");
    ends.client.turn().expect("a working device");
    assert!(
        ends.is_answered(),
        "every turn finds the packets it waited for"
    );
}

/// A device takes its time: where the other end has sent, `rx_burst` goes on once that is there. A turn may poll more
/// than once, and must not wait for a packet that was never sent.
struct Waiting {
    backend: VerbsBackend,
    /// Whether something is on its way here, and from here.
    inbound: Rc<Cell<bool>>,
    outbound: Rc<Cell<bool>>,
    /// Packets that are sent together.
    list: usize,
}

impl Waiting {
    fn pair(one: VerbsBackend, other: VerbsBackend, list: usize) -> (Self, Self) {
        let (there, back) = (Rc::default(), Rc::default());
        let end = |backend, inbound: &Rc<_>, outbound: &Rc<_>| Self {
            backend,
            inbound: Rc::clone(inbound),
            outbound: Rc::clone(outbound),
            list,
        };
        (end(one, &back, &there), end(other, &there, &back))
    }
}

#[inline(never)]
fn until_datagrams_wait(backend: &mut VerbsBackend, list: usize) {
    backend
        .wait(Some(Duration::from_secs(10)))
        .expect("a working device");
    if list > 1 {
        // The device does not say how many have come. It has the list by then, or the round trip fails.
        std::thread::sleep(REST_OF_A_LIST);
    }
}

impl Backend for Waiting {
    type Route = <VerbsBackend as Backend>::Route;

    fn caps(&self) -> Caps {
        self.backend.caps()
    }

    fn pool(&self) -> &Pool {
        self.backend.pool()
    }

    fn rx_burst(&mut self) -> Result<RxBatch<'_, Self::Route>, BackendError> {
        if self.inbound.take() {
            until_datagrams_wait(&mut self.backend, self.list);
        }
        self.backend.rx_burst()
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<Self::Route>) -> Result<(), BackendError> {
        self.outbound.set(true);
        self.backend.tx_burst(tx)
    }

    fn flush(&mut self) {
        self.backend.flush();
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BackendError> {
        self.backend.wait(timeout)
    }

    fn waker(&self) -> Waker {
        self.backend.waker()
    }

    fn stats(&self) -> BackendStats {
        self.backend.stats()
    }
}

/// A microsecond passes with each reading.
#[derive(Clone, Default)]
struct Steps(Cell<u64>);

impl Clock for Steps {
    fn now(&self) -> Instant {
        self.0.set(self.0.get() + 1_000);
        Instant::from_nanos(self.0.get())
    }
}
