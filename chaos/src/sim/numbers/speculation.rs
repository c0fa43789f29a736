//! Numbers by datagrams of four bytes: the real values of clients and servers, on a network without sessions.
//!
//! Servers follow each other. A server reserves small blocks, so that requests wait for numbers, and begins in front of the
//! wrap of the low half in most of its lives. Some seeds have leases: a server takes over when the lease of the one before has
//! ended, and that one still answers. In the others it has died. Datagrams are lost, late and overtaken, and clients and
//! servers stand still. No datagram comes twice: that is asked of the network.

use crate::checker::Verdict;
use crate::checker::numbers::{Growth, Taking, check};
use crate::fault::Fault;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;
use trine_sequencer::speculative::{AnswerEffect, Answerer, Asker};
use trine_sequencer::{Grant, Supply};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

use super::clients::hash_of;
use super::server::LastReading;

const CLIENTS: usize = 4;
/// Requests of a client under way, at most.
const WINDOW_MAX: u64 = 8;
/// Turns of each client that send requests.
const TURNS: u64 = 400;
/// Numbers between the beginning of a server and the wrap, at most.
const BEFORE_WRAP: u64 = 400;
/// Numbers that a server reserves at a time, at most.
const BLOCK_MAX: u64 = 120;
/// What happens in a run, at most: some ten times as much as in the longest.
const HAPPENINGS_MAX: usize = 400_000;

/// What a run has shown.
pub(super) struct Speculation {
    pub(super) verdict: Verdict,
    /// Requests that got numbers.
    pub(super) answered: u64,
    /// Ways that were given up.
    pub(super) ways: u64,
    /// Requests whose guess was wrong.
    pub(super) corrected: u64,
    /// Requests that were told that there are no numbers.
    pub(super) without: u64,
    pub(super) hash: u64,
}

/// Where a client's way is: its number and that of the way.
type Name = (usize, u64);

enum Happening {
    /// A request arrives at a server.
    Request(usize, Name, [u8; 4]),
    /// An answer arrives at a way.
    Answer(Name, Vec<u8>),
    /// A client takes its answers, and asks.
    Turn(usize),
    /// A server answers what has come.
    Serve(usize),
    /// A server reserves numbers, or fails to.
    Reserve(usize),
    /// The next server begins.
    TakeOver,
}

struct Client {
    asker: Asker,
    window: usize,
    turns_left: u64,
    paused_until: Instant,
    /// The server that it asks.
    server: usize,
    /// Answers that have arrived at its way.
    inbox: Vec<Vec<u8>>,
}

struct Server {
    answerer: Answerer<Name, LastReading>,
    supply: Arc<Supply>,
    paused_until: Instant,
    is_dead: bool,
}

struct Stage<'a> {
    now: Instant,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    happenings: Vec<Option<Happening>>,
    prng: Prng,
    faults: &'a BTreeSet<Fault>,
    clients: Vec<Client>,
    /// In the order in which they began. The last one gives out numbers.
    servers: Vec<Server>,
    clock: LastReading,
    /// Of the last server; zero if servers have none.
    lease: Duration,
    /// When the lease of the last server ends.
    held_until: Instant,
    /// All numbers before this one are reserved.
    reserved: u64,
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
        server: 0,
        inbox: Vec::new(),
    };
    let clients = (0..CLIENTS).map(client).collect();
    let lease = match prng.chance(Ratio::percent(50)) {
        true => Duration::from_micros(prng.in_range(800..=5_000)),
        false => Duration::ZERO,
    };
    let mut stage = Stage {
        now: Instant::from_nanos(1),
        queue: BinaryHeap::new(),
        happenings: Vec::new(),
        prng: prng.fork(),
        faults,
        clients,
        servers: Vec::new(),
        clock: LastReading::default(),
        lease,
        held_until: Instant::ZERO,
        reserved: 0,
        takings: Vec::new(),
    };
    stage.take_over();
    for client in 0..CLIENTS {
        stage.plan(Duration::ZERO, Happening::Turn(client));
    }
    stage.play();
    stage.report()
}

impl Stage<'_> {
    fn plan(&mut self, after: Duration, happening: Happening) {
        let number = self.happenings.len() as u64;
        self.happenings.push(Some(happening));
        self.queue.push(Reverse((self.now + after, number)));
    }

    fn microseconds(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.prng.in_range(least..=most))
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
                Happening::Request(server, from, bytes) => self.on_request(server, from, &bytes),
                // The device drops what comes for a way that was given up.
                Happening::Answer((client, way), bytes) => {
                    if way == self.clients[client].asker.way() {
                        self.clients[client].inbox.push(bytes);
                    }
                }
                Happening::Turn(client) => self.turn(client),
                Happening::Serve(server) => self.serve(server),
                Happening::Reserve(server) => self.reserve(server),
                Happening::TakeOver => self.take_over(),
            }
        }
    }

    fn is_busy(&self) -> bool {
        let is_busy = |client: &Client| client.turns_left > 0 || client.asker.under_way() > 0;
        self.clients.iter().any(is_busy)
    }

    /// How long somebody stands still now, if the fault strikes.
    fn pause(&mut self, microseconds: u64) -> Duration {
        match self.faults.contains(&Fault::Pause) && self.prng.chance(Ratio::percent(1)) {
            true => self.microseconds(1, microseconds),
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
            after += self.microseconds(0, 400);
        }
        if self.faults.contains(&Fault::Delay) && strikes(&mut self.prng, 2) {
            after += self.microseconds(0, 20_000);
        }
        self.plan(after, datagram);
    }

    /// The next server begins behind all numbers of those before, and behind the lease of the last.
    fn take_over(&mut self) {
        if self.now < self.held_until {
            let after = self.held_until.saturating_since(self.now);
            self.plan(after, Happening::TakeOver);
            return;
        }
        if self.lease.is_zero()
            && let Some(last) = self.servers.last_mut()
        {
            last.is_dead = true;
        }
        if self.prng.chance(Ratio::percent(60)) {
            let wrap = (self.reserved >> 32) + 1;
            let before = self.prng.below(BEFORE_WRAP);
            self.reserved = self.reserved.max((wrap << 32) - before);
        }
        let supply = Arc::new(Supply::new(BLOCK_MAX / 2));
        let server = self.servers.len();
        self.servers.push(Server {
            answerer: Answerer::new(Arc::clone(&supply), self.clock.clone()),
            supply,
            paused_until: Instant::ZERO,
            is_dead: false,
        });
        self.reserve(server);
        if self.faults.contains(&Fault::Crash) && self.is_busy() {
            let after = self.microseconds(500, 30_000);
            self.plan(after, Happening::TakeOver);
        }
    }

    /// The last server gets a block, and its lease goes on.
    fn reserve(&mut self, server: usize) {
        if server + 1 != self.servers.len() || !self.is_busy() {
            return;
        }
        let fails = self.prng.chance(Ratio::percent(5));
        let block = self.prng.in_range(1..=BLOCK_MAX);
        let supply = &self.servers[server].supply;
        if fails {
            supply.set_failing();
        } else {
            let until = match self.lease.is_zero() {
                true => Instant::FAR_FUTURE,
                false => self.now + self.lease,
            };
            let missing = supply.missing().map_or(0, |_| block);
            supply.add(&Grant {
                start: self.reserved,
                end: self.reserved + missing,
                until,
            });
            self.reserved += missing;
            if !self.lease.is_zero() {
                self.held_until = until;
            }
        }
        self.plan(Duration::ZERO, Happening::Serve(server));
        let after = self.microseconds(20, 1_200);
        self.plan(after, Happening::Reserve(server));
    }

    fn on_request(&mut self, at: usize, from: Name, bytes: &[u8]) {
        let pause = self.pause(3_000);
        let (now, server) = (self.now, &mut self.servers[at]);
        if server.is_dead {
            return;
        }
        server.answerer.on_datagram(now, from, bytes);
        server.paused_until = server.paused_until.max(now + pause);
        let after = server.paused_until.saturating_since(now);
        self.plan(after, Happening::Serve(at));
    }

    fn serve(&mut self, at: usize) {
        let (now, server) = (self.now, &mut self.servers[at]);
        if server.is_dead || server.paused_until > now {
            return;
        }
        let mut sent = Vec::new();
        let answer = |to, bytes: &[u8]| sent.push((to, bytes.to_vec()));
        server.answerer.turn(now, answer);
        for (to, bytes) in sent {
            self.send(Happening::Answer(to, bytes));
        }
    }

    fn turn(&mut self, index: usize) {
        let (now, pause) = (self.now, self.pause(8_000));
        let last_server = self.servers.len() - 1;
        let knows_it = self.prng.chance(Ratio::percent(80));
        let client = &mut self.clients[index];
        client.paused_until = client.paused_until.max(now + pause);
        if client.paused_until > now {
            let after = client.paused_until.saturating_since(now);
            self.plan(after, Happening::Turn(index));
            return;
        }
        let came = !client.inbox.is_empty();
        for bytes in client.inbox.drain(..) {
            if let AnswerEffect::Number(first, invoked) = client.asker.on_datagram(now, &bytes) {
                self.takings.push(Taking {
                    client: index as u64,
                    server: 0,
                    invoked,
                    returned: now,
                    first,
                    count: 1,
                });
            }
        }
        let mut requests = Vec::new();
        if client.asker.is_over() || !came && client.asker.needs_fresh_way(now) {
            if knows_it {
                client.server = last_server;
            }
            requests.extend(client.asker.move_to_fresh_way(now));
        }
        if client.turns_left > 0 {
            client.turns_left -= 1;
            while client.asker.under_way() < client.window {
                let request = client.asker.ask(now);
                requests.push(request.expect("the way is not over"));
            }
        }
        let (server, name) = (client.server, (index, client.asker.way()));
        let goes_on = client.turns_left > 0 || client.asker.under_way() > 0;
        for request in requests {
            self.send(Happening::Request(server, name, request));
        }
        if goes_on {
            let after = self.microseconds(5, 120);
            self.plan(after, Happening::Turn(index));
        }
    }

    fn report(self) -> Speculation {
        let ended = match self.is_busy() {
            false => Verdict::Pass,
            true => Verdict::violation("requests of four bytes stay without a number".to_owned()),
        };
        let counters = self.servers.iter().map(|server| server.answerer.counters());
        Speculation {
            verdict: check(&self.takings, Growth::RealTime).and(ended),
            answered: self.takings.len() as u64,
            ways: self.clients.iter().map(|client| client.asker.way()).sum(),
            corrected: counters.clone().map(|counters| counters.corrected).sum(),
            without: counters.map(|counters| counters.without).sum(),
            hash: hash_of(&self.takings),
        }
    }
}
