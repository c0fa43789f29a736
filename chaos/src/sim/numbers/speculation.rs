//! Numbers by datagrams of four bytes: the real values of clients and server, on a network without sessions.
//!
//! There is one server with a file. Each of its lives begins an epoch, often in front of the wrap of the low half. Datagrams
//! are lost, late and overtaken, and client and server stand still. No datagram comes twice: that is asked of the network.

use crate::checker::Verdict;
use crate::checker::numbers::{Growth, Taking, check};
use crate::fault::Fault;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;
use trine_sequencer::config::EPOCH_BITS;
use trine_sequencer::speculative::{Answerer, Asker, Told};
use trine_sequencer::{Grant, Supply};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

use super::clients::hash_of;
use super::server::LastReading;

const CLIENTS: usize = 4;
/// Requests of a client under way, at most.
const WINDOW_MAX: u64 = 8;
/// Turns of each client.
const TURNS: u64 = 400;
/// Numbers between the beginning of an epoch and the wrap.
const BEFORE_WRAP: u64 = 400;
/// What happens in a run, at most: some ten times as much as in the longest.
const HAPPENINGS_MAX: usize = 300_000;

/// What a run has shown.
pub(super) struct Speculation {
    pub(super) verdict: Verdict,
    /// Requests that got numbers.
    pub(super) answered: u64,
    /// Ways that were given up.
    pub(super) ways: u64,
    /// Requests whose guess was wrong.
    pub(super) corrected: u64,
    pub(super) hash: u64,
}

/// Where a client's way is: its number and that of the way.
type Name = (usize, u64);

enum Happening {
    /// A request arrives at the server, if this life of it still goes on.
    Request(u64, Name, [u8; 4]),
    /// An answer arrives at a way.
    Answer(Name, Vec<u8>),
    /// A client looks at its time, and asks.
    Turn(usize),
    /// The server answers what has come.
    Serve,
    /// The server dies and is there again.
    Restart,
}

struct Client {
    asker: Asker,
    window: usize,
    turns_left: u64,
    paused_until: Instant,
}

struct Stage<'a> {
    now: Instant,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    happenings: Vec<Option<Happening>>,
    prng: Prng,
    faults: &'a BTreeSet<Fault>,
    clients: Vec<Client>,
    server: Answerer<Name, LastReading>,
    clock: LastReading,
    /// Lives of the server so far.
    lives: u64,
    served_until: Instant,
    corrected: u64,
    takings: Vec<Taking>,
}

/// Plays a seed under these faults.
pub(super) fn run(seed: u64, faults: &BTreeSet<Fault>) -> Speculation {
    let mut prng = Prng::new(seed ^ 0x5350_4543);
    let client = |_| Client {
        asker: Asker::new(0, Duration::from_micros(prng.in_range(300..=3_000))),
        window: prng.in_range(1..=WINDOW_MAX) as usize,
        turns_left: TURNS,
        paused_until: Instant::ZERO,
    };
    let clients = (0..CLIENTS).map(client).collect();
    let clock = LastReading::default();
    let (server, prng) = (server_of(0, &clock, &mut prng), prng.fork());
    let mut stage = Stage {
        now: Instant::from_nanos(1),
        queue: BinaryHeap::new(),
        happenings: Vec::new(),
        prng,
        faults,
        clients,
        server,
        clock,
        lives: 0,
        served_until: Instant::ZERO,
        corrected: 0,
        takings: Vec::new(),
    };
    for client in 0..CLIENTS {
        stage.plan(Duration::ZERO, Happening::Turn(client));
    }
    if faults.contains(&Fault::Crash) {
        stage.plan(Duration::from_millis(5), Happening::Restart);
    }
    stage.play();
    stage.report()
}

/// A server that begins the epoch of this life.
fn server_of(life: u64, clock: &LastReading, prng: &mut Prng) -> Answerer<Name, LastReading> {
    let supply = Arc::new(Supply::new(0));
    let offset = match prng.chance(Ratio::percent(60)) {
        true => (1 << 32) - prng.below(BEFORE_WRAP),
        false => 0,
    };
    supply.add(&Grant {
        start: (life << EPOCH_BITS) + offset,
        end: (life + 1) << EPOCH_BITS,
        until: Instant::FAR_FUTURE,
    });
    Answerer::new(supply, clock.clone())
}

impl Stage<'_> {
    fn plan(&mut self, after: Duration, happening: Happening) {
        let number = self.happenings.len() as u64;
        self.happenings.push(Some(happening));
        self.queue.push(Reverse((self.now + after, number)));
    }

    fn play(&mut self) {
        while let Some(Reverse((at, number))) = self.queue.pop() {
            if self.happenings.len() > HAPPENINGS_MAX {
                return;
            }
            self.now = at;
            self.clock.0.set(at);
            let happening = self.happenings[number as usize].take();
            match happening.expect("each happens once") {
                Happening::Request(life, from, bytes) if life == self.lives => {
                    self.server.on_datagram(from, &bytes);
                    let pause = self.pause_of(Fault::Pause, 3_000);
                    self.served_until = self.served_until.max(self.now + pause);
                    let after = self.served_until.saturating_since(self.now);
                    self.plan(after, Happening::Serve);
                }
                Happening::Request(..) => {}
                Happening::Answer(name, bytes) => self.on_answer(name, &bytes),
                Happening::Turn(client) => self.turn(client),
                Happening::Serve => self.serve(),
                Happening::Restart => self.restart(),
            }
        }
    }

    /// How long somebody stands still now, if that fault strikes.
    fn pause_of(&mut self, fault: Fault, microseconds: u64) -> Duration {
        match self.faults.contains(&fault) && self.prng.chance(Ratio::percent(1)) {
            true => Duration::from_micros(self.prng.in_range(1..=microseconds)),
            false => Duration::ZERO,
        }
    }

    /// Sends a datagram, which arrives later or never.
    fn send(&mut self, datagram: Happening) {
        let strikes = |prng: &mut Prng, percent| prng.chance(Ratio::percent(percent));
        if self.faults.contains(&Fault::Loss) && strikes(&mut self.prng, 4) {
            return;
        }
        let mut after = Duration::from_nanos(self.prng.in_range(8_000..=25_000));
        if self.faults.contains(&Fault::Reordering) && strikes(&mut self.prng, 10) {
            after = after + Duration::from_micros(self.prng.below(400));
        }
        if self.faults.contains(&Fault::Delay) && strikes(&mut self.prng, 2) {
            after = after + Duration::from_micros(self.prng.below(20_000));
        }
        self.plan(after, datagram);
    }

    fn serve(&mut self) {
        let mut sent = Vec::new();
        self.server
            .turn(self.now, |to, bytes| sent.push((to, bytes.to_vec())));
        for (to, bytes) in sent {
            self.send(Happening::Answer(to, bytes));
        }
    }

    fn restart(&mut self) {
        self.corrected += self.server.counters().corrected;
        self.lives += 1;
        self.server = server_of(self.lives, &self.clock, &mut self.prng);
        if self.clients.iter().any(|client| client.turns_left > 0) {
            let after = Duration::from_micros(self.prng.in_range(500..=30_000));
            self.plan(after, Happening::Restart);
        }
    }

    fn on_answer(&mut self, (index, way): Name, bytes: &[u8]) {
        let client = &mut self.clients[index];
        if way != client.asker.way() {
            return;
        }
        if let Told::Number(first, invoked) = client.asker.on_datagram(bytes) {
            self.takings.push(Taking {
                client: index as u64,
                server: 0,
                invoked,
                returned: self.now,
                first,
                count: 1,
            });
        }
    }

    fn turn(&mut self, index: usize) {
        let (now, pause) = (self.now, self.pause_of(Fault::Pause, 8_000));
        let client = &mut self.clients[index];
        client.paused_until = client.paused_until.max(now + pause);
        if client.paused_until > now {
            let after = client.paused_until.saturating_since(now);
            self.plan(after, Happening::Turn(index));
            return;
        }
        let mut requests = Vec::new();
        if client.asker.needs_fresh_way(now) {
            requests.extend(client.asker.move_to_fresh_way(now));
        }
        if client.turns_left > 0 {
            client.turns_left -= 1;
            while client.asker.under_way() < client.window {
                let request = client.asker.ask(now);
                requests.push(request.expect("the way is not over"));
            }
        }
        let name = (index, client.asker.way());
        let goes_on = client.turns_left > 0 || client.asker.under_way() > 0;
        for request in requests {
            self.send(Happening::Request(self.lives, name, request));
        }
        if goes_on {
            let after = Duration::from_micros(self.prng.in_range(5..=120));
            self.plan(after, Happening::Turn(index));
        }
    }

    fn report(self) -> Speculation {
        let waiting = self
            .clients
            .iter()
            .any(|client| client.asker.under_way() > 0);
        let ended = match waiting {
            false => Verdict::Pass,
            true => Verdict::violation("requests of four bytes stay without a number".to_owned()),
        };
        Speculation {
            verdict: check(&self.takings, Growth::RealTime).and(ended),
            answered: self.takings.len() as u64,
            ways: self.clients.iter().map(|client| client.asker.way()).sum(),
            corrected: self.corrected + self.server.counters().corrected,
            hash: hash_of(&self.takings),
        }
    }
}
