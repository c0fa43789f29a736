//! What clients of simulated sequencers do, and what they saw.

use crate::checker::numbers::Taking;
use crate::sim::Host;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use trine_sequencer::wire::{ANSWER_BYTES_MAX, Answer, NEXT, next_request};
use trine_transport::app::{App, Completion, Cx, Reply, Request};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::session::{self, ConnectParams, SessionId};
use trine_transport::time::{Duration, Instant};

/// Clients on each machine.
const CLIENTS: usize = 4;
/// Pause before connecting again.
const RECONNECT: Duration = Duration::from_millis(5);
/// A client that got no number asks again after this time.
const AGAIN: Duration = Duration::from_millis(3);

/// What clients saw.
#[derive(Default)]
pub(super) struct NumberLedger {
    pub(super) takings: Vec<Taking>,
    pub(super) without: u64,
}

impl NumberLedger {
    pub(super) fn has_wrapped(&self) -> bool {
        let high = |taking: &Taking| taking.first >> 32;
        let highs: BTreeSet<u64> = self.takings.iter().map(high).collect();
        highs.contains(&0) && highs.contains(&1)
    }
}

/// A hash over what clients got, in order.
pub(super) fn hash_of(takings: &[Taking]) -> u64 {
    let words = takings.iter().flat_map(|taking| {
        [
            taking.client,
            taking.first,
            u64::from(taking.count),
            taking.returned.as_nanos(),
        ]
    });
    words.fold(0, |hash: u64, word| {
        (hash ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(23)
    })
}

/// A client asks one server at a time.
#[derive(Copy, Clone)]
struct NumberClient {
    number: u64,
    server: u16,
    /// The request under way: its tag, when it was sent, how many numbers it asks for.
    asked: Option<(u64, Instant, u32)>,
    again: Instant,
}

/// The clients of a machine.
pub(super) struct NumberClients {
    links: Vec<Link>,
    clients: Vec<NumberClient>,
    prng: Prng,
    ledger: Rc<RefCell<NumberLedger>>,
    tags: u64,
    /// Simulated time.
    pub(super) simulated: Instant,
}

/// A machine's session with a server.
#[derive(Copy, Clone, Default)]
struct Link {
    session: Option<SessionId>,
    connected: bool,
    again: Option<Instant>,
}

impl NumberClients {
    pub(super) fn new(
        host: Host,
        servers: u16,
        mut prng: Prng,
        ledger: &Rc<RefCell<NumberLedger>>,
    ) -> Self {
        let client = |number: usize| NumberClient {
            number: u64::from(host.0) << 8 | number as u64,
            server: prng.below(u64::from(servers)) as u16,
            asked: None,
            again: Instant::ZERO,
        };
        Self {
            links: vec![Link::default(); usize::from(servers)],
            clients: (0..CLIENTS).map(client).collect(),
            prng: prng.fork(),
            ledger: Rc::clone(ledger),
            tags: 0,
            simulated: Instant::ZERO,
        }
    }

    fn connect(&mut self, cx: &mut Cx<'_, Host>) {
        let now = cx.now();
        for (server, link) in self.links.iter_mut().enumerate() {
            if link.session.is_none() && link.again.is_none_or(|again| again <= now) {
                link.again = Some(now + RECONNECT);
                link.session = cx
                    .connect(Host(server as u16), ConnectParams::default())
                    .ok();
            }
        }
    }

    fn ask(&mut self, cx: &mut Cx<'_, Host>, index: usize) {
        let client = self.clients[index];
        let link = self.links[usize::from(client.server)];
        let Some(session) = link.session.filter(|_| link.connected) else {
            self.turn_to_another(cx.now(), index);
            return;
        };
        let count = match self.prng.below(10) {
            0 => self.prng.in_range(1..=400) as u32,
            _ => self.prng.in_range(1..=3) as u32,
        };
        let bytes = next_request(count);
        let (Some(mut request), Some(response)) =
            (cx.alloc(bytes.len()), cx.alloc(ANSWER_BYTES_MAX))
        else {
            return;
        };
        request.copy_from_slice(&bytes);
        let patience = Duration::from_millis(match self.prng.chance(Ratio::percent(20)) {
            true => self.prng.in_range(300..=2_000),
            false => self.prng.in_range(5..=300),
        });
        let deadline = Some(cx.now() + patience);
        self.tags += 1;
        match cx.enqueue_request(session, NEXT, request, response, self.tags, deadline) {
            Ok(_) => self.clients[index].asked = Some((self.tags, self.simulated, count)),
            Err(_) => self.turn_to_another(cx.now(), index),
        }
    }

    fn turn_to_another(&mut self, now: Instant, index: usize) {
        let client = &mut self.clients[index];
        client.server = (client.server + 1) % self.links.len() as u16;
        client.again = now + AGAIN;
    }

    fn answered(&mut self, now: Instant, index: usize, answer: Option<Answer>) {
        let client = self.clients[index];
        let (_, invoked, count) = client.asked.expect("a request under way");
        self.clients[index].asked = None;
        match answer {
            Some(Answer::First(first)) => {
                self.ledger.borrow_mut().takings.push(Taking {
                    client: client.number,
                    server: client.server,
                    invoked,
                    returned: self.simulated,
                    first,
                    count,
                });
                let pause = Duration::from_micros(self.prng.in_range(0..=4_000));
                self.clients[index].again = now + pause;
                if self.prng.chance(Ratio::percent(30)) {
                    self.turn_to_another(now, index);
                }
            }
            _ => {
                self.ledger.borrow_mut().without += 1;
                self.turn_to_another(now, index);
            }
        }
    }
}

impl App<Host> for NumberClients {
    fn on_request(&mut self, _: &mut Cx<'_, Host>, _: Request<'_>) -> Reply {
        Reply::Later
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, Host>, tag: u64, completion: Completion) {
        let is_asked = |client: &NumberClient| client.asked.is_some_and(|(asked, ..)| asked == tag);
        let index = self
            .clients
            .iter()
            .position(is_asked)
            .expect("a request of a client");
        let answer = completion
            .result
            .ok()
            .map(|()| Answer::decode(&completion.response).expect("an answer of a sequencer"));
        self.answered(cx.now(), index, answer);
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Host>, event: session::Event<Host>) {
        let (ours, connected) = match event {
            session::Event::Connected { session, .. } => (session, true),
            session::Event::ConnectFailed { session, .. }
            | session::Event::Down { session, .. } => (session, false),
            session::Event::Accepted { .. } => return,
        };
        if let Some(link) = self
            .links
            .iter_mut()
            .find(|link| link.session == Some(ours))
        {
            link.connected = connected;
            if !connected {
                link.session = None;
                link.again = Some(cx.now() + RECONNECT);
            }
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, Host>) {
        self.connect(cx);
        for index in 0..self.clients.len() {
            let client = self.clients[index];
            if client.asked.is_none() && client.again <= cx.now() {
                self.ask(cx, index);
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let idle = self.clients.iter().filter(|client| client.asked.is_none());
        let apart = self.links.iter().filter(|link| link.session.is_none());
        let again = idle.map(|client| client.again);
        again.chain(apart.filter_map(|link| link.again)).min()
    }
}
