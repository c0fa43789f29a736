//! Runs an application between ports: a thread for each core, with a queue of its own at every port.

use super::counters::{PacketCounters, sum};
use super::idle::Idle;
use super::open::{open, pin};
use crate::args::ForwardArguments;
use crate::no_table;
use serde_json::json;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::output::Output;
use trine_dpdk::raw::RawQueue;
use trine_packets::application::{Application, OnBatch, on_batch};
use trine_packets::config::OUT_PORTS_MAX;
use trine_packets::forwarding::{Sum, turn};
use trine_packets::ports::MemifRole;
use trine_packets::scenario::{ApplicationName, OnApplication, on_application};

/// Between two lines of statistics.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Runs an application until its time is over or until Ctrl-C.
pub(crate) fn forward(
    name: ApplicationName,
    arguments: &ForwardArguments,
    output: Output,
) -> Result<(), Failure> {
    let count = arguments.outputs.len();
    if count > OUT_PORTS_MAX {
        return Err(Failure::usage(
            format!("{count} --out are too many"),
            format!("there are at most {OUT_PORTS_MAX}"),
        ));
    }
    let settings = arguments.table.settings(name, count)?;
    interrupt::start()?;
    let work = Forwarding {
        name,
        arguments,
        output,
    };
    on_application(name, &settings, work).map_err(|error| no_table(&error))?
}

struct Forwarding<'a> {
    name: ApplicationName,
    arguments: &'a ForwardArguments,
    output: Output,
}

impl OnApplication for Forwarding<'_> {
    type Output = Result<(), Failure>;

    fn on<A: Application>(self, application: &A) -> Result<(), Failure> {
        let Self {
            name,
            arguments,
            output,
        } = self;
        let cores = &arguments.cores.0;
        let ports = [slice::from_ref(&arguments.input), &arguments.outputs].concat();
        let opened = open(&ports, MemifRole::Server, cores.len())?;
        let counters: Vec<PacketCounters> =
            cores.iter().map(|_| PacketCounters::default()).collect();
        let stop = AtomicBool::new(false);
        output.line(format_args!(
            "ready: {} from {} to {} ports, batches of {}, cores {cores:?}",
            name.text(),
            arguments.input,
            arguments.outputs.len(),
            arguments.batch
        ));
        thread::scope(|scope| {
            let threads: Vec<_> = per_core(opened)
                .into_iter()
                .zip(cores)
                .zip(&counters)
                .map(|((queues, core), counters)| {
                    let worker = Worker {
                        application,
                        queues,
                        core: *core,
                        counters,
                        stop: &stop,
                    };
                    scope.spawn(move || on_batch(arguments.batch, worker).expect("a parsed size"))
                })
                .collect();
            let is_over = || threads.iter().any(thread::ScopedJoinHandle::is_finished);
            report(arguments.time, &counters, output, is_over);
            stop.store(true, Ordering::Relaxed);
            // All threads have stopped polling before the first port closes.
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            let mut results = ended.into_iter().map(|end| end.expect("no panic"));
            // The end of the process closes the ports, see `open`.
            results.try_for_each(|result| result.map(std::mem::forget))
        })?;
        let all = sum(&counters);
        output.line(format_args!("ended: {}", describe(&all)));
        output.document(&document(name, &all));
        Ok(())
    }
}

/// The queues of each core: one of every port.
fn per_core(ports: Vec<Vec<RawQueue>>) -> Vec<Vec<RawQueue>> {
    let cores = ports.first().map_or(0, Vec::len);
    let mut queues: Vec<Vec<RawQueue>> = (0..cores).map(|_| Vec::new()).collect();
    for port in ports {
        for (queues, queue) in queues.iter_mut().zip(port) {
            queues.push(queue);
        }
    }
    queues
}

fn describe(sum: &Sum) -> String {
    let (received, tally) = (sum.received, &sum.tally);
    let (sent, refused) = (sum.sent, sum.refused);
    format!("{received} received, {tally}; {sent} sent, {refused} refused by full ports")
}

fn document(name: ApplicationName, sum: &Sum) -> serde_json::Value {
    json!({
        "application": name.text(),
        "received": sum.received,
        "forwarded": sum.tally.forwarded,
        "flooded": sum.tally.flooded,
        "dropped": sum.tally.dropped.iter().sum::<u64>(),
        "sent": sum.sent,
        "refused": sum.refused,
    })
}

/// Prints statistics each second until it is time to end.
fn report(
    time: Option<Duration>,
    counters: &[PacketCounters],
    output: Output,
    is_over: impl Fn() -> bool,
) {
    let start = Instant::now();
    let mut last = (start, sum(counters));
    loop {
        let left = time.map(|time| time.saturating_sub(start.elapsed()));
        interrupt::pause(left.unwrap_or(REPORT_EVERY).min(REPORT_EVERY));
        if interrupt::interrupted() || is_over() || left.is_some_and(|left| left.is_zero()) {
            return;
        }
        let now = (Instant::now(), sum(counters));
        let seconds = now.0.duration_since(last.0).as_secs_f64();
        let rate = |now: u64, last: u64| (now - last) as f64 / seconds / 1e6;
        output.line(format_args!(
            "{:.3} M/s received, {:.3} M/s sent; {}",
            rate(now.1.received, last.1.received),
            rate(now.1.sent, last.1.sent),
            describe(&now.1)
        ));
        last = now;
    }
}

struct Worker<'a, A> {
    application: &'a A,
    /// The one to receive on, then those to send on.
    queues: Vec<RawQueue>,
    core: u32,
    counters: &'a PacketCounters,
    stop: &'a AtomicBool,
}

impl<A: Application> OnBatch for Worker<'_, A> {
    /// The queues, so that no port closes before all threads have stopped.
    type Output = Result<Vec<RawQueue>, Failure>;

    fn on<const N: usize>(mut self) -> Self::Output {
        pin(self.core)?;
        let (input, outputs) = self.queues.split_first_mut().expect("a port to receive on");
        let mut idle = Idle::default();
        while !self.stop.load(Ordering::Relaxed) {
            if idle.is_after(input.receive() == 0) {
                continue;
            }
            let burst = turn::<N, A>(self.application, input, outputs);
            self.counters.add(&burst);
        }
        Ok(self.queues)
    }
}
