//! The clients of a chaos run. Each follows its workload and records all that it sees.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use trine_chaos::history::{Action, Answer, History, OperationIndex};
use trine_chaos::translate::{answer_of, command_of};
use trine_chaos::workload::{Mix, Request, Workload, WorkloadConfig};
use trine_client::{ClientId, Error, Finished, Mode};
use trine_kvstore::Command;
use trine_transport::backend::{
    Backend, Direction, FaultCounts, FaultHandle, Faults, Faulty, MonotonicClock,
};
use trine_transport::time::Instant;

use super::{OPERATION_LIMIT, now};
use crate::ChaosArguments;
use trine_base::client_endpoint::ClientEndpoint;
use trine_base::failure::Failure;
use trine_base::load::{Work, closed_loop};
use trine_base::network::Network;

/// The most endpoints (and threads) that the clients are spread over.
const ENDPOINTS_MAX: u32 = 8;
/// Families of keys that the workload spreads its keys over.
const FAMILIES: u32 = 4;
/// The clients of the final reading.
const READERS: u64 = 4;

type FaultyEndpoint<N> = ClientEndpoint<Faulty<<N as Network>::Backend, MonotonicClock>>;
type ChaosFaults<N> = FaultHandle<<<N as Network>::Backend as Backend>::Route>;

/// All clients of a run.
pub(super) struct Crew<N: Network> {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<Log, Failure>>>,
    /// For the final reading.
    last: FaultyEndpoint<N>,
    last_faults: ChaosFaults<N>,
    workload: WorkloadConfig,
    clients: u32,
}

/// State that the threads and the nemesis share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// The latest call time of an acknowledged write, and when that acknowledgement was known. One failover at a time
    /// is measured.
    last_write_called_ns: AtomicU64,
    last_write_known_ns: AtomicU64,
}

/// The observations of one thread.
struct Log {
    history: History,
    fired: FaultCounts,
}

/// The observations of all threads.
pub(super) struct Seen {
    pub(super) history: History,
    pub(super) fired: FaultCounts,
    /// From this time on every key was read once more.
    pub(super) reread_from: Instant,
}

impl<N: Network> Crew<N> {
    pub(super) fn start(
        network: &N,
        arguments: &ChaosArguments,
        faults: Faults,
        addresses: &[SocketAddr],
    ) -> Result<Self, Failure> {
        let workload = WorkloadConfig {
            keys: u64::from(arguments.keys.div_ceil(FAMILIES)),
            mix: Mix::FULL,
            ..WorkloadConfig::default()
        };
        let shared = Arc::new(Shared::default());
        let endpoints = arguments.clients.min(ENDPOINTS_MAX);
        let mut threads = Vec::new();
        for number in 0..endpoints {
            let (endpoint, handle) = open_endpoint(
                network,
                arguments.seed,
                u64::from(number),
                faults,
                addresses,
            )?;
            let numbers: Vec<u64> = (0..arguments.clients)
                .filter(|client| client % endpoints == number)
                .map(u64::from)
                .collect();
            let recorder = Recorder::new(&workload, arguments.seed, &numbers, &shared);
            threads.push(std::thread::spawn(move || {
                work(endpoint, recorder, &handle)
            }));
        }
        let (last, last_faults) = open_endpoint(
            network,
            arguments.seed,
            u64::from(endpoints),
            faults,
            addresses,
        )?;
        let clients = arguments.clients;
        Ok(Self {
            shared,
            threads,
            last,
            last_faults,
            workload,
            clients,
        })
    }

    /// The time at which an acknowledgement was known of a write that was called after `since`.
    pub(super) fn write_called_after(&self, since: Instant) -> Option<Instant> {
        let called = self.shared.last_write_called_ns.load(Ordering::Acquire);
        let known = self.shared.last_write_known_ns.load(Ordering::Acquire);
        (called > since.as_nanos()).then(|| Instant::from_nanos(known))
    }

    /// Ends the work, reads every key once more, and collects the observations.
    pub(super) fn finish(mut self) -> Result<Seen, Failure> {
        self.shared.stop.store(true, Ordering::SeqCst);
        let mut histories = Vec::new();
        let mut fired = FaultCounts::default();
        for thread in self.threads.drain(..) {
            let log = thread
                .join()
                .map_err(|_| Failure::usage("a client thread panicked", ""))??;
            fired.add(&log.fired);
            histories.push(log.history);
        }
        let reread_from = now();
        let mut readers = FinalReading {
            keys: Workload::keys(&self.workload).into_iter(),
            first_client: u64::from(self.clients),
            open: Vec::new(),
            history: History::new(),
        };
        let clients: Vec<ClientId> = (0..READERS).map(|_| self.last.open()).collect();
        closed_loop(&mut self.last, &clients, |_| true, &mut readers)?;
        fired.add(&self.last_faults.total());
        histories.push(readers.history);
        Ok(Seen {
            history: History::merge(histories),
            fired,
            reread_from,
        })
    }
}

fn open_endpoint<N: Network>(
    network: &N,
    seed: u64,
    number: u64,
    faults: Faults,
    addresses: &[SocketAddr],
) -> Result<(FaultyEndpoint<N>, ChaosFaults<N>), Failure> {
    let seed = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(number);
    let opened = network
        .call(addresses)?
        .around(|backend| Faulty::new(backend, MonotonicClock, seed));
    let handle = opened.backend.handle();
    // The replicas inject faults into their own packets.
    handle.set(Direction::Outbound, faults);
    Ok((
        ClientEndpoint::over(opened, addresses, OPERATION_LIMIT)?,
        handle,
    ))
}

/// One thread's work.
fn work<B: Backend>(
    mut endpoint: ClientEndpoint<B>,
    mut recorder: Recorder,
    handle: &FaultHandle<B::Route>,
) -> Result<Log, Failure> {
    let clients: Vec<ClientId> = recorder.numbers.iter().map(|_| endpoint.open()).collect();
    let shared = Arc::clone(&recorder.shared);
    closed_loop(
        &mut endpoint,
        &clients,
        |_| !shared.stop.load(Ordering::SeqCst),
        &mut recorder,
    )?;
    Ok(Log {
        history: recorder.history,
        fired: handle.total(),
    })
}

/// Draws operations and records their outcomes.
struct Recorder {
    workloads: Vec<Workload>,
    numbers: Vec<u64>,
    open: Vec<Option<(OperationIndex, Request)>>,
    history: History,
    shared: Arc<Shared>,
}

impl Recorder {
    fn new(config: &WorkloadConfig, seed: u64, numbers: &[u64], shared: &Arc<Shared>) -> Self {
        let workload = |number: &u64| Workload::new(config.clone(), seed, *number);
        Self {
            workloads: numbers.iter().map(workload).collect(),
            numbers: numbers.to_vec(),
            open: vec![None; numbers.len()],
            history: History::new(),
            shared: Arc::clone(shared),
        }
    }
}

impl Work for Recorder {
    fn next(&mut self, slot: usize, submit: &mut dyn FnMut(Mode, &Command<'_>)) {
        let request = self.workloads[slot].next_request();
        let (number, called) = (self.numbers[slot], now().as_nanos());
        let index = self
            .history
            .call(number, called, &request.key, request.action.clone());
        let mode = match request.action.is_read() {
            true => Mode::Read,
            false => Mode::Write,
        };
        submit(mode, &command_of(&request));
        self.open[slot] = Some((index, request));
    }

    fn ended(&mut self, slot: usize, _due: Instant, finished: Finished) {
        let (index, request) = self.open[slot].take().expect("an operation was under way");
        let Some(answer) = record_end(&mut self.history, index, &finished) else {
            return;
        };
        self.workloads[slot].observe(&request, &answer);
        if !request.action.is_read() && answer != Answer::Refused {
            let called = finished.started.as_nanos();
            if self
                .shared
                .last_write_called_ns
                .fetch_max(called, Ordering::AcqRel)
                < called
            {
                self.shared
                    .last_write_known_ns
                    .store(now().as_nanos(), Ordering::Release);
            }
        }
    }
}

/// Reads every key once.
struct FinalReading {
    keys: std::vec::IntoIter<Vec<u8>>,
    first_client: u64,
    open: Vec<(usize, OperationIndex)>,
    history: History,
}

impl Work for FinalReading {
    fn next(&mut self, slot: usize, submit: &mut dyn FnMut(Mode, &Command<'_>)) {
        let Some(key) = self.keys.next() else { return };
        let client = self.first_client + slot as u64;
        let index = self
            .history
            .call(client, now().as_nanos(), &key, Action::Get);
        submit(Mode::Read, &Command::Get { key: &key });
        self.open.push((slot, index));
    }

    fn ended(&mut self, slot: usize, _due: Instant, finished: Finished) {
        let place = self.open.iter().position(|(open, _)| *open == slot);
        let (_, index) = self
            .open
            .swap_remove(place.expect("an operation was under way"));
        record_end(&mut self.history, index, &finished);
    }
}

/// Records the end of an operation, and its answer, if there was one. An operation with an unknown outcome stays open.
fn record_end(history: &mut History, index: OperationIndex, finished: &Finished) -> Option<Answer> {
    let ended = now().as_nanos();
    match &finished.result {
        Ok(reply) => {
            let answer = answer_of(&reply.response().ok()?)?;
            history.complete(
                index,
                ended,
                answer.clone(),
                Some(reply.position().as_u64()),
            );
            Some(answer)
        }
        Err(Error::OutcomeUnknown { .. }) => None,
        Err(error) => {
            debug_assert!(error.is_definitely_not_applied());
            history.fail(index, ended);
            None
        }
    }
}
