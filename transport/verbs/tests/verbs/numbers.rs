//! Numbers by datagrams of four bytes, and by FETCH_ADD: each comes once, and numbers grow.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use trine_sequencer::speculative::{
    AnswerEffect, Answerer, ClientEnd, ServerEnd, ServerPath, high_half,
};
use trine_sequencer::{Grant, Supply};
use trine_transport::backend::{BackendError, Direction, Faults, Faulty, MonotonicClock};
use trine_transport::time::{Clock, Duration, Instant};
use trine_verbs::{CounterServer, VerbsBackend, VerbsConfig, VerbsError, VerbsRoute};

use super::{BOUND, open};

const CLIENTS: usize = 3;
const WINDOWS: [usize; CLIENTS] = [1, 4, 8];
const NUMBERS: usize = 1_500;
/// Lives of the server. Each begins an epoch, and passes the wrap of the low half.
const LIVES: u64 = 3;
const BEFORE_WRAP: u64 = 200;
const PATIENCE: Duration = Duration::from_millis(20);

type Lossy = Faulty<VerbsBackend, MonotonicClock>;

/// A number, with the turns in which its request was sent and its answer came.
#[derive(Copy, Clone, Debug)]
struct Taking {
    asked: u64,
    answered: u64,
    number: u64,
}

/// An endpoint that is quickly made.
fn small() -> VerbsBackend {
    open(&VerbsConfig {
        receive_queue: 128,
        reserved_buffers: 0,
        ..VerbsConfig::default()
    })
}

fn lossy(seed: u64, faults: &str) -> Lossy {
    let backend = Faulty::new(small(), MonotonicClock, seed);
    let faults: Faults = faults.parse().expect("faults");
    backend.handle().set(Direction::Outbound, faults);
    backend
}

fn server(life: u64, faults: &str) -> ServerEnd<Lossy, MonotonicClock> {
    let supply = Arc::new(Supply::new(0));
    supply.add(&Grant {
        start: (life << 40) + (1 << 32) - BEFORE_WRAP,
        end: (life + 1) << 40,
        until: Instant::FAR_FUTURE,
    });
    let answerer = Answerer::new(supply, MonotonicClock);
    ServerEnd::new(
        lossy(life, faults),
        answerer,
        MonotonicClock,
        Box::new(|| ()),
    )
}

/// The numbers are checked as the simulator's checker does: none twice, and none smaller than one that had come before its
/// request was sent.
fn judge(mut takings: Vec<Taking>) {
    takings.sort_unstable_by_key(|taking| taking.number);
    let mut earliest = Taking {
        asked: 0,
        answered: u64::MAX,
        number: u64::MAX,
    };
    for taking in takings.iter().rev() {
        assert_ne!(taking.number, earliest.number, "a number came twice");
        assert!(
            earliest.answered >= taking.asked,
            "a number went back: {earliest:?}, later {taking:?}"
        );
        if taking.answered < earliest.answered {
            earliest = *taking;
        }
    }
}

/// Where the server is now, for clients that look for a way.
type Here = Rc<std::cell::Cell<VerbsRoute>>;

fn client(
    seed: u64,
    server: &Here,
    faults: &'static str,
) -> ClientEnd<Lossy, MonotonicClock, impl FnMut() -> Result<ServerPath<Lossy>, BackendError> + use<>>
{
    let server = Rc::clone(server);
    let mut ways = 0;
    let open = move || {
        ways += 1;
        Ok(ServerPath {
            backend: lossy(100 * seed + ways, faults),
            route: server.get(),
            keep: None,
        })
    };
    ClientEnd::new(open, MonotonicClock, 0, PATIENCE).expect("a way")
}

fn run(faults: &'static str) -> (u64, u64) {
    let mut serving = server(1, faults);
    let here: Here = Rc::new(std::cell::Cell::new(serving.backend.inner().route()));
    let mut clients: Vec<_> = (1..=CLIENTS as u64)
        .map(|seed| client(seed, &here, faults))
        .collect();
    // The turns in which the requests under way were sent, in their order.
    let mut asked: [std::collections::VecDeque<u64>; CLIENTS] = Default::default();
    let mut takings = Vec::new();
    let (mut turn, mut life, mut corrected) = (0_u64, 1, 0);
    let deadline = MonotonicClock.now() + BOUND;
    while takings.len() < NUMBERS {
        turn += 1;
        serving.turn().expect("a working device");
        if takings.len() as u64 > life * NUMBERS as u64 / LIVES && life < LIVES {
            // The server dies with what it has not answered, and begins the next epoch elsewhere.
            life += 1;
            corrected += serving.answerer.counters().corrected;
            serving = server(life, faults);
            here.set(serving.backend.inner().route());
        }
        for (client, (asked, window)) in clients.iter_mut().zip(asked.iter_mut().zip(WINDOWS)) {
            client
                .turn(|told| match told {
                    AnswerEffect::Number(number, _) => takings.push(Taking {
                        asked: asked.pop_front().expect("a request"),
                        answered: turn,
                        number,
                    }),
                    AnswerEffect::None(why) => panic!("{why:?}"),
                    AnswerEffect::Nothing => {}
                })
                .expect("a working device");
            let sent = client.ask(window - client.under_way()).expect("sent");
            asked.extend(std::iter::repeat_n(turn, sent));
        }
        assert!(
            MonotonicClock.now() < deadline,
            "{} of {NUMBERS} numbers came",
            takings.len()
        );
    }
    let highs: BTreeSet<u32> = takings
        .iter()
        .map(|taking| high_half(taking.number))
        .collect();
    assert_eq!(highs.len() as u64, 2 * LIVES, "each life passes the wrap");
    judge(takings);
    corrected += serving.answerer.counters().corrected;
    (clients.iter().map(ClientEnd::ways).sum(), corrected)
}

#[test]
fn numbers_by_four_bytes_survive_loss_and_the_death_of_the_server() {
    let (ways, corrected) = run("loss=1%,reorder=2%");
    println!("four bytes: {ways} ways of {CLIENTS} clients, {corrected} requests corrected");
    assert!(
        ways > 10 && corrected >= 2 * LIVES,
        "{ways} ways, {corrected} corrected"
    );
}

/// Four bytes travel in the header: of a number neither the request nor the answer has a payload.
#[test]
fn numbers_by_four_bytes_have_no_payload() {
    let mut serving = server(0, "");
    let here: Here = Rc::new(std::cell::Cell::new(serving.backend.inner().route()));
    let mut client = client(1, &here, "");
    let mut one = || {
        let deadline = MonotonicClock.now() + BOUND;
        client.ask(1).expect("sent");
        let mut told = AnswerEffect::Nothing;
        while told == AnswerEffect::Nothing {
            serving.turn().expect("a working device");
            client.turn(|news| told = news).expect("a working device");
            assert!(MonotonicClock.now() < deadline, "no number");
        }
    };
    (0..10).for_each(|_| one());
    let stats = |end: &Lossy| end.inner().verbs_stats();
    let (at_server, at_client) = (stats(&serving.backend), stats(client.backend()));
    // The first request asks whether the server understands.
    assert_eq!((at_client.sends, at_client.sends_header_only), (10, 9));
    assert_eq!((at_server.sends, at_server.sends_header_only), (10, 10));
    assert_eq!(at_server.send_lines, 10);
}

#[test]
fn a_counter_gives_each_number_once_until_it_is_used_up() {
    let config = VerbsConfig::default();
    let (first, end) = (7 << 40, (7 << 40) + 60);
    let mut counter = CounterServer::open(&config, first..end).expect("a device with atomics");
    let mut clients = [0, 1].map(|_| counter.connect(&config).expect("a connection"));
    let (mut numbers, mut refused) = ([Vec::new(), Vec::new()], 0);
    let deadline = MonotonicClock.now() + BOUND;
    while refused == 0 {
        for (client, numbers) in clients.iter_mut().zip(&mut numbers) {
            while client.ask(1) {}
            match client.poll() {
                Ok(number) => numbers.extend(number),
                Err(error) => {
                    assert_eq!(error, VerbsError::CounterUsedUp { end });
                    refused += 1;
                }
            }
        }
        assert!(MonotonicClock.now() < deadline, "{numbers:?}");
    }
    for of_client in &numbers {
        assert!(of_client.is_sorted(), "numbers grow: {of_client:?}");
    }
    let all: Vec<u64> = numbers.concat();
    let once: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(once.len(), all.len(), "{all:?}");
    assert!(once.iter().all(|number| (first..end).contains(number)));
    assert!(counter.value() > end, "what was added beyond it is seen");
}

#[test]
fn a_counter_under_another_key_is_refused() {
    let config = VerbsConfig::default();
    let mut counter = CounterServer::open(&config, 0..100).expect("a device with atomics");
    let mut client = counter.connect(&config).expect("a connection");
    client.spoil_key(0x55);
    assert!(client.ask(1));
    let deadline = MonotonicClock.now() + BOUND;
    let error = loop {
        match client.poll() {
            Ok(None) => assert!(MonotonicClock.now() < deadline, "no completion"),
            Ok(Some(number)) => panic!("{number}"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("the key is wrong"), "{error}");
    assert_eq!(counter.value(), 0);
}
