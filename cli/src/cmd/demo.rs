//! `trine demo` starts a group of real processes and kills its leader. It then proves that no acknowledged write is
//! lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trine_client::{Finished, Mode};
use trine_client::{Report, voters_in_step};
use trine_kvstore::{Command, Response};
use trine_local::Group;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::time::{Clock as _, Instant as Moment};

use clap::Args;
use trine_base::arguments::replica_count;
use trine_base::client_endpoint::ClientEndpoint;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::latency::{Latencies, Percentiles, latency_table};
use trine_base::load::{Clients, LoadEnd, Pace, Work, drive};
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::progress::Progress;
use trine_base::restoring::Restoring;
use trine_base::units::{plural, show_ns};
use trine_local::config::RECOVERY_LIMIT;
use trine_local::start as group;

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Number of replicas.
    #[arg(long, default_value = "3", value_name = "N", value_parser = ["3", "5", "7"])]
    pub(crate) replicas: String,
    /// Number of keys to write, and to read afterwards.
    #[arg(long, default_value_t = 2_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) keys: u32,
}

/// Clients that write and read at the same time.
const CLIENTS: usize = 8;
/// How long one operation may take; longer than any failover.
const OPERATION_LIMIT: Duration = Duration::from_secs(20);
/// How long the group works after a new leader was seen to work.
const WORK_AFTER: Duration = Duration::from_millis(500);

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &DemoArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let count = replica_count(&arguments.replicas);
    let mut demo = Demo::start(network.clone(), count, output)?;
    demo.write_and_read(arguments.keys)?;
    let failover = demo.kill_leader()?;
    demo.check_everything()?;
    let rejoined = demo.bring_back(failover.node_id)?;
    demo.check_everything()?;
    demo.finish(failover, rejoined)
}

/// The state of the demonstration.
struct Demo<N: Network> {
    network: N,
    group: Group,
    endpoint: ClientEndpoint<N::Backend>,
    /// Every acknowledged write.
    written: BTreeMap<Vec<u8>, Vec<u8>>,
    puts: Latencies,
    gets: Latencies,
    output: Output,
}

/// The cost of the leader's death.
struct Failover {
    node_id: usize,
    new_leader: usize,
    /// From the kill to the first acknowledgement of a write that began after it.
    first_write: Duration,
    /// Writes of the clients that were acknowledged meanwhile and after.
    writes: usize,
}

impl<N: Network> Demo<N> {
    fn start(network: N, count: usize, output: Output) -> Result<Self, Failure> {
        let addresses = network.group_addresses(count)?;
        let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        output.line(format_args!(
            "Starting {count} replicas, a process each: {}",
            list.join(" ")
        ));
        let begun = Instant::now();
        let group = group::start(
            &network,
            addresses.clone(),
            vec!["--fault-injection".into()],
            None,
        )?;
        let node_id = current_leader(&network, &group)?;
        output.line(format_args!(
            "  {count} voters after {}; replica {node_id} leads",
            show(begun.elapsed())
        ));
        let endpoint =
            ClientEndpoint::over(network.call(&addresses)?, &addresses, OPERATION_LIMIT)?;
        let written = BTreeMap::new();
        Ok(Self {
            network,
            group,
            endpoint,
            written,
            puts: Latencies::new(),
            gets: Latencies::new(),
            output,
        })
    }

    fn write_and_read(&mut self, keys: u32) -> Result<(), Failure> {
        self.output.line(format_args!(
            "\nWriting {} and reading them back, {CLIENTS} clients at a time",
            plural(keys.into(), "key")
        ));
        let begun = Instant::now();
        let progress = Progress::new("writing keys", keys.into());
        let written = self.put(&mut (0..keys).map(|n| key_of("before", n)), progress)?;
        let put_time = begun.elapsed();
        self.check_everything()?;
        self.output.line(format_args!(
            "  {written} writes acknowledged in {}, every one of them by a majority",
            show(put_time)
        ));
        Ok(())
    }

    /// Kills the leader while the clients write, and lets them continue to write.
    fn kill_leader(&mut self) -> Result<Failover, Failure> {
        let node_id = current_leader(&self.network, &self.group)?;
        let pid = self
            .group
            .process(node_id)
            .map_or(0, |process| process.pid());
        self.output.line(format_args!(
            "\nKilling the leader (replica {node_id}, kill -9 {pid}) under load"
        ));
        self.group.kill(node_id).map_err(group::live_failure)?;
        let killed = Instant::now();
        let before = self.written.len();
        let seen = std::cell::Cell::new(None::<Instant>);
        let mut keys = (0..).map(|n| key_of("after", n));
        let mut recorder = Recorder::new(&mut keys);
        recorder.on_first = Some(&seen);
        let go_on = || match seen.get() {
            None => killed.elapsed() < RECOVERY_LIMIT,
            Some(first) => first.elapsed() < WORK_AFTER,
        };
        recorder.go_on = &go_on;
        let ended = run_clients(&mut self.endpoint, &mut recorder)?;
        let (written, puts) = recorder.into_parts()?;
        self.puts.add(&puts);
        self.written.extend(written);
        self.unless_interrupted(ended)?;
        let first = seen
            .get()
            .ok_or_else(|| Failure::negative("no write succeeded after the leader's death", ""))?;
        let reports = group::survey(&self.network, self.group.addresses())?;
        let new_leader = group::leader_node_id(&self.group, &reports).unwrap_or(0);
        let first_write = first - killed;
        let writes = self.written.len() - before;
        self.output.line(format_args!(
            "  first new write acknowledged after {}; replica {new_leader} leads now",
            show(first_write)
        ));
        Ok(Failover {
            node_id,
            new_leader,
            first_write,
            writes,
        })
    }

    /// Writes every key of `keys`; returns how many were acknowledged.
    fn put(
        &mut self,
        keys: &mut dyn Iterator<Item = Vec<u8>>,
        progress: Progress,
    ) -> Result<usize, Failure> {
        let mut recorder = Recorder::new(keys);
        recorder.progress = Some(progress);
        let ended = run_clients(&mut self.endpoint, &mut recorder)?;
        let (written, puts) = recorder.into_parts()?;
        let count = written.len();
        self.puts.add(&puts);
        self.written.extend(written);
        self.unless_interrupted(ended)?;
        Ok(count)
    }

    /// Reports how much was done when a Ctrl-C ended it.
    fn unless_interrupted(&self, ended: LoadEnd) -> Result<(), Failure> {
        if !ended.interrupted {
            return Ok(());
        }
        let measured = [("put", &self.puts), ("get", &self.gets)];
        let rows = measured.map(|(name, latencies)| (name, latencies.percentiles()));
        self.output.line(latency_table(rows));
        let writes = plural(self.written.len() as u64, "write");
        let done = format_args!("{writes} were acknowledged by then");
        Err(Failure::interrupted_after(done, ""))
    }

    /// Reads every acknowledged key and compares.
    fn check_everything(&mut self) -> Result<(), Failure> {
        let mut reader = ReadCheck::new(self.written.iter().collect());
        let ended = run_clients(&mut self.endpoint, &mut reader)?;
        let ReadCheck {
            gets,
            right,
            wrong,
            progress,
            ..
        } = reader;
        // The bar has to go before the following lines.
        drop(progress);
        self.gets.add(&gets);
        if let Some(wrong) = wrong {
            return Err(Failure::negative(
                wrong,
                "this is a defect in trine: please report it",
            ));
        }
        self.unless_interrupted(ended)?;
        if right != self.written.len() {
            let message = format!("only {right} of {} keys could be read", self.written.len());
            return Err(Failure::negative(message, ""));
        }
        self.output.line(format_args!(
            "  {right} of {right} acknowledged keys read, each has its value"
        ));
        Ok(())
    }

    /// Restarts the dead replica and waits until it votes.
    fn bring_back(&mut self, node_id: usize) -> Result<Duration, Failure> {
        self.output.line(format_args!(
            "\nRestarting replica {node_id}; its memory is gone, so it joins under a new identity"
        ));
        let begun = Instant::now();
        self.group.restart(node_id).map_err(group::live_failure)?;
        let count = self.group.addresses().len();
        let restoring = RefCell::new(Restoring::default());
        let what = format!("a leader with {count} voters in step");
        group::wait_for(
            &self.network,
            &mut self.group,
            &what,
            RECOVERY_LIMIT,
            |reports| {
                let mut known = reports.iter().filter_map(Report::status);
                let receiving = known.find_map(|status| status.receiving);
                restoring.borrow_mut().update(receiving);
                voters_in_step(reports) == Some(count)
            },
        )?;
        drop(restoring);
        let took = begun.elapsed();
        self.output
            .line(format_args!("  {count} voters again after {}", show(took)));
        Ok(took)
    }

    fn finish(self, failover: Failover, rejoined: Duration) -> Result<(), Failure> {
        let (puts, gets) = (self.puts.percentiles(), self.gets.percentiles());
        let keys = self.written.len() as u64;
        self.output.line("");
        self.output.line(latency_table([
            ("put", puts.clone()),
            ("get", gets.clone()),
        ]));
        self.output.line(format_args!(
            "\nNothing was lost: {} acknowledged, all there. Failover: {}.",
            plural(keys, "write"),
            show(failover.first_write)
        ));
        self.output
            .document(&demo_document(keys, &failover, rejoined, &puts, &gets));
        self.group.stop().map_err(group::live_failure)
    }
}

fn demo_document(
    keys: u64,
    failover: &Failover,
    rejoined: Duration,
    puts: &Percentiles,
    gets: &Percentiles,
) -> Value {
    json!({
        "acknowledged_writes": keys,
        "lost": 0,
        "failover": {
            "killed": failover.node_id,
            "new_leader": failover.new_leader,
            "first_write_ns": nanos(failover.first_write),
            "writes_after": failover.writes,
        },
        "rejoined_ns": nanos(rejoined),
        "put": puts,
        "get": gets,
    })
}

fn current_leader<N: Network>(network: &N, group: &Group) -> Result<usize, Failure> {
    let reports = group::survey(network, group.addresses())?;
    group::leader_node_id(group, &reports)
        .ok_or_else(|| Failure::not_reachable("no replica leads", ""))
}

/// Runs `work` with [`CLIENTS`] clients; Ctrl-C ends it.
fn run_clients<'a, B: Backend, W>(
    endpoint: &'a mut ClientEndpoint<B>,
    work: &mut W,
) -> Result<LoadEnd, Failure>
where
    W: Work<Clients<'a, B>>,
{
    let mut clients = Clients::open(endpoint, CLIENTS);
    let (pace, span) = (Pace::Closed { pipeline: 1 }, (MonotonicClock.now(), None));
    let ended = drive(&mut clients, CLIENTS, pace, span, work)?;
    clients.close();
    Ok(ended)
}

fn key_of(phase: &str, number: u32) -> Vec<u8> {
    format!("{phase}-{number:07}").into_bytes()
}

fn show(duration: Duration) -> String {
    show_ns(nanos(duration))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A key with its value.
type KeyValue = (Vec<u8>, Vec<u8>);

/// Writes keys and remembers the acknowledged ones.
struct Recorder<'a> {
    keys: &'a mut dyn Iterator<Item = Vec<u8>>,
    written: Vec<KeyValue>,
    puts: Latencies,
    /// Whether more is written.
    go_on: &'a dyn Fn() -> bool,
    /// Set to the time of the first acknowledgement.
    on_first: Option<&'a std::cell::Cell<Option<Instant>>>,
    failed: Option<Failure>,
    /// `Some` where the total is known.
    progress: Option<Progress>,
}

impl<'a> Recorder<'a> {
    fn new(keys: &'a mut dyn Iterator<Item = Vec<u8>>) -> Self {
        Self {
            keys,
            written: Vec::new(),
            puts: Latencies::new(),
            go_on: &|| true,
            on_first: None,
            failed: None,
            progress: None,
        }
    }

    fn into_parts(self) -> Result<(Vec<KeyValue>, Latencies), Failure> {
        match self.failed {
            Some(failure) => Err(failure),
            None => Ok((self.written, self.puts)),
        }
    }
}

impl<B: Backend> Work<Clients<'_, B>> for Recorder<'_> {
    type Operation = KeyValue;

    fn next(&mut self, _: usize) -> Option<KeyValue> {
        if self.failed.is_some() || !(self.go_on)() {
            return None;
        }
        let key = self.keys.next()?;
        let value = [b"value of ", key.as_slice()].concat();
        Some((key, value))
    }

    fn send(
        &mut self,
        clients: &mut Clients<'_, B>,
        client: usize,
        tag: u64,
        (key, value): &KeyValue,
    ) -> Result<(), Failure> {
        let put = Command::Put { key, value };
        clients.submit(client, tag, Mode::Write, &put)
    }

    fn over(
        &mut self,
        pair: KeyValue,
        due: Moment,
        ended: Moment,
        finished: Finished,
    ) -> Option<KeyValue> {
        match finished.result.as_ref().map(|answer| answer.response()) {
            Ok(Ok(Response::Written { .. })) => {
                self.puts.record_ns(ended.saturating_since(due).as_nanos());
                self.written.push(pair);
                if let Some(first) = self.on_first
                    && first.get().is_none()
                {
                    first.set(Some(Instant::now()));
                }
            }
            other => {
                let message = format!("a write was not acknowledged: {other:?}");
                self.failed = Some(Failure::negative(message, ""));
            }
        }
        None
    }

    fn on_poll(&mut self, _now: Moment) {
        let done = self.written.len() as u64;
        if let Some(progress) = &mut self.progress {
            progress.set(done, || plural(done, "key"));
        }
    }
}

/// Reads keys and compares.
struct ReadCheck<'a> {
    left: Vec<(&'a Vec<u8>, &'a Vec<u8>)>,
    gets: Latencies,
    right: usize,
    wrong: Option<String>,
    progress: Progress,
}

impl<'a> ReadCheck<'a> {
    fn new(left: Vec<(&'a Vec<u8>, &'a Vec<u8>)>) -> Self {
        Self {
            progress: Progress::new("reading keys", left.len() as u64),
            left,
            gets: Latencies::new(),
            right: 0,
            wrong: None,
        }
    }
}

impl<'k, B: Backend> Work<Clients<'_, B>> for ReadCheck<'k> {
    type Operation = (&'k Vec<u8>, &'k Vec<u8>);

    fn next(&mut self, _: usize) -> Option<Self::Operation> {
        self.left.pop()
    }

    fn send(
        &mut self,
        clients: &mut Clients<'_, B>,
        client: usize,
        tag: u64,
        (key, _): &Self::Operation,
    ) -> Result<(), Failure> {
        clients.submit(client, tag, Mode::Read, &Command::Get { key })
    }

    fn over(
        &mut self,
        (key, expected): Self::Operation,
        due: Moment,
        ended: Moment,
        finished: Finished,
    ) -> Option<Self::Operation> {
        match finished.result.as_ref().map(|answer| answer.response()) {
            Ok(Ok(Response::Value { value, .. })) if value == expected.as_slice() => {
                self.gets.record_ns(ended.saturating_since(due).as_nanos());
                self.right += 1;
            }
            other => {
                let key = String::from_utf8_lossy(key);
                self.wrong = Some(format!(
                    "LOST: the acknowledged write of {key} reads as {other:?}"
                ));
            }
        }
        None
    }

    fn on_poll(&mut self, _now: Moment) {
        let done = self.right as u64;
        self.progress.set(done, || plural(done, "key"));
    }
}
