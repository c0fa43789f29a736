//! The clients of a chaos run. Each follows its workload and records all that it sees.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use trine_chaos::fault::Fault;
use trine_chaos::history::{Action, Answer, History, OperationIndex};
use trine_chaos::translate::{answer_of, command_of};
use trine_chaos::workload::{Mix, Request, Workload, WorkloadConfig};
use trine_client::{Error, Finished, Mode};
use trine_kvstore::Command;
use trine_transport::backend::{
    Backend, Direction, FaultCounts, FaultHandle, Faults, Faulty, MonotonicClock,
};
use trine_transport::prng::Ratio;
use trine_transport::time::Instant;

use super::{OPERATION_LIMIT, now, values};
use crate::ChaosArguments;
use trine_base::client_endpoint::ClientEndpoint;
use trine_base::failure::Failure;
use trine_base::load::{Clients, Pace, Work, drive};
use trine_base::network::Network;

/// The most endpoints (and threads) that the clients are spread over.
const ENDPOINTS_MAX: u32 = 8;
/// Families of keys that the workload spreads its keys over.
const FAMILIES: u32 = 4;
/// The share of large values, where links carry less for a while: small values fit into any packet.
const LARGE_SHARE: Ratio = Ratio::percent(5);
/// The clients of the final reading.
const READERS: usize = 4;
/// Each client sends its next operation when it has an answer.
const PACE: Pace = Pace::Closed { pipeline: 1 };

type FaultyEndpoint<N> = ClientEndpoint<Faulty<<N as Network>::Backend, MonotonicClock>>;
type ChaosFaults<N> = FaultHandle<<<N as Network>::Backend as Backend>::Route>;

/// All clients of a run.
pub(super) struct Crew<N: Network> {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<ThreadLog, Failure>>>,
    network: N,
    seed: u64,
    faults: Faults,
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
struct ThreadLog {
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
        let workload = workload(arguments);
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
        let clients = arguments.clients;
        Ok(Self {
            shared,
            threads,
            network: network.clone(),
            seed: arguments.seed,
            faults,
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

    /// Ends the work, reads every key once more from the replicas at `addresses`, and collects the observations. `more` are
    /// keys that others have written.
    pub(super) fn finish(
        mut self,
        addresses: &[SocketAddr],
        more: Vec<Vec<u8>>,
    ) -> Result<Seen, Failure> {
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
        // Replicas may have other addresses than at the start.
        let number = u64::from(self.clients.min(ENDPOINTS_MAX));
        let (mut last, last_faults) =
            open_endpoint(&self.network, self.seed, number, self.faults, addresses)?;
        let reread_from = now();
        let keys = Workload::keys(&self.workload).into_iter().chain(more);
        let mut readers = FinalReading {
            keys: keys.collect::<Vec<_>>().into_iter(),
            first_client: u64::from(self.clients),
            history: History::new(),
        };
        let mut clients = Clients::open(&mut last, READERS);
        drive(&mut clients, READERS, PACE, (now(), None), &mut readers)?;
        fired.add(&last_faults.total());
        histories.push(readers.history);
        Ok(Seen {
            history: History::merge(histories),
            fired,
            reread_from,
        })
    }
}

/// What the clients of a run ask for.
pub(super) fn workload(arguments: &ChaosArguments) -> WorkloadConfig {
    WorkloadConfig {
        keys: u64::from(arguments.keys.div_ceil(FAMILIES)),
        mix: Mix::FULL,
        large: match arguments.faults.contains(&Fault::Mtu) {
            true => LARGE_SHARE,
            false => Ratio::ZERO,
        },
        ..WorkloadConfig::default()
    }
}

/// The number of the first client that is none of a run's own: its readers at the end are clients as well.
pub(super) fn first_foreign_client(arguments: &ChaosArguments) -> u64 {
    u64::from(arguments.clients) + READERS as u64
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
) -> Result<ThreadLog, Failure> {
    let count = recorder.numbers.len();
    let mut clients = Clients::open(&mut endpoint, count);
    drive(&mut clients, count, PACE, (now(), None), &mut recorder)?;
    Ok(ThreadLog {
        history: recorder.history,
        fired: handle.total(),
    })
}

/// Draws operations and records their outcomes.
struct Recorder {
    workloads: Vec<Workload>,
    numbers: Vec<u64>,
    history: History,
    shared: Arc<Shared>,
}

impl Recorder {
    fn new(config: &WorkloadConfig, seed: u64, numbers: &[u64], shared: &Arc<Shared>) -> Self {
        let workload = |number: &u64| Workload::new(config.clone(), seed, *number);
        Self {
            workloads: numbers.iter().map(workload).collect(),
            numbers: numbers.to_vec(),
            history: History::new(),
            shared: Arc::clone(shared),
        }
    }
}

impl<B: Backend> Work<Clients<'_, B>> for Recorder {
    /// The client, and what it has called.
    type Operation = (usize, OperationIndex, Request);

    fn next(&mut self, client: usize) -> Option<Self::Operation> {
        if self.shared.stop.load(Ordering::SeqCst) {
            return None;
        }
        let request = self.workloads[client].next_request();
        let (number, called) = (self.numbers[client], now().as_nanos());
        let action = values::action(&request.action);
        let index = self.history.call(number, called, &request.key, action);
        Some((client, index, request))
    }

    fn send(
        &mut self,
        clients: &mut Clients<'_, B>,
        client: usize,
        tag: u64,
        (_, _, request): &Self::Operation,
    ) -> Result<(), Failure> {
        let mode = match request.action.is_read() {
            true => Mode::Read,
            false => Mode::Write,
        };
        clients.submit(client, tag, mode, &command_of(request))
    }

    fn over(
        &mut self,
        (client, index, request): Self::Operation,
        _due: Instant,
        _ended: Instant,
        finished: Finished,
    ) -> Option<Self::Operation> {
        self.record(client, index, &request, &finished);
        None
    }
}

impl Recorder {
    fn record(
        &mut self,
        client: usize,
        index: OperationIndex,
        request: &Request,
        finished: &Finished,
    ) {
        let Some(answer) = record_end(&mut self.history, index, finished) else {
            return;
        };
        self.workloads[client].observe(request, &answer);
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
    history: History,
}

impl<B: Backend> Work<Clients<'_, B>> for FinalReading {
    type Operation = (OperationIndex, Vec<u8>);

    fn next(&mut self, client: usize) -> Option<Self::Operation> {
        let key = self.keys.next()?;
        let client = self.first_client + client as u64;
        let called = now().as_nanos();
        let index = self.history.call(client, called, &key, Action::Get);
        Some((index, key))
    }

    fn send(
        &mut self,
        clients: &mut Clients<'_, B>,
        client: usize,
        tag: u64,
        (_, key): &Self::Operation,
    ) -> Result<(), Failure> {
        clients.submit(client, tag, Mode::Read, &Command::Get { key })
    }

    fn over(
        &mut self,
        (index, _): Self::Operation,
        _due: Instant,
        _ended: Instant,
        finished: Finished,
    ) -> Option<Self::Operation> {
        record_end(&mut self.history, index, &finished);
        None
    }
}

/// Records the end of an operation, and its answer, if there was one. An operation with an unknown outcome stays open.
fn record_end(history: &mut History, index: OperationIndex, finished: &Finished) -> Option<Answer> {
    let ended = now().as_nanos();
    match &finished.result {
        Ok(reply) => {
            let answer = values::answer(answer_of(&reply.response().ok()?)?);
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
