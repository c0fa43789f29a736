//! Sends packets to an application, and checks each that comes back.

use super::idle::Idle;
use super::open::{open, pin, wait_for_end, wait_for_links};
use crate::args::GenerateArguments;
use serde_json::json;
use std::slice;
use std::time::{Duration, Instant};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::latency::{Latencies, latency_table};
use trine_base::output::Output;
use trine_base::units::{plural, show_count, show_ns};
use trine_dpdk::raw::RawQueue;
use trine_packets::config::{BURST, LINK_SECONDS, OUT_PORTS_MAX};
use trine_packets::generate::{Arrival, Faults, Ledger, Sample, Samples};
use trine_packets::ports::{MemifRole, PortName};
use trine_packets::scenario::referee;

/// Between two lines of statistics.
const REPORT_NS: u64 = 1_000_000_000;
/// Between two packets that ask whether the application is there.
const ASK_NS: u64 = 1_000_000;
/// The number of such a packet: no packet that counts has it.
const ASKING: [u8; 8] = [0xff; 8];

/// Sends packets for a time or a number, then reports.
pub(crate) fn generate(arguments: &GenerateArguments, output: Output) -> Result<(), Failure> {
    let count = arguments.inputs.len();
    if count > OUT_PORTS_MAX {
        return Err(Failure::usage(
            format!("{count} --in are too many"),
            format!("there are at most {OUT_PORTS_MAX}"),
        ));
    }
    let settings = arguments.table.settings(arguments.name, count)?;
    interrupt::start()?;
    let (reference, traffic) = referee(arguments.name, &settings);
    let crafted = !arguments.plain;
    let seed = settings.seed.wrapping_add(2);
    let samples = Samples::draw(&*reference, &*traffic, settings.ports, crafted, seed);
    drop((reference, traffic));
    let ports = [slice::from_ref(&arguments.output), &arguments.inputs].concat();
    let queues = arguments.queues as usize;
    let mut opened = open(&ports, MemifRole::Client, queues)?;
    if let Some(core) = arguments.core {
        pin(core)?;
    }
    let every: Vec<&RawQueue> = opened.iter().map(|port| &port[0]).collect();
    wait_for_links(&ports, &every)?;
    let result = Generator::new(&samples, arguments, &mut opened).run(output);
    let told = result.and_then(|report| {
        report.print(output);
        report.judge(arguments.packets)
    });
    if ports.iter().any(|port| matches!(port, PortName::Memif(_))) {
        output.line("waits for the application to end; Ctrl-C does not wait");
        let every: Vec<&RawQueue> = opened.iter().map(|port| &port[0]).collect();
        wait_for_end(&every);
    }
    // The end of the process closes the ports, see `open`.
    std::mem::forget(opened);
    told
}

struct Generator<'a> {
    samples: &'a Samples,
    arguments: &'a GenerateArguments,
    start: Instant,
    outputs: &'a mut [RawQueue],
    /// By port, then by queue.
    inputs: &'a mut [Vec<RawQueue>],
    ledgers: Vec<Ledger>,
    report: QueueReport,
}

#[derive(Default)]
struct QueueReport {
    sent: u64,
    right: u64,
    seconds: f64,
    latencies: Latencies,
    faults: Faults,
    /// Ctrl-C has ended it before its time, or before it had sent all packets.
    interrupted: bool,
}

impl<'a> Generator<'a> {
    fn new(
        samples: &'a Samples,
        arguments: &'a GenerateArguments,
        ports: &'a mut [Vec<RawQueue>],
    ) -> Self {
        let (output, inputs) = ports.split_first_mut().expect("a port to send on");
        let window = arguments.window as usize;
        let ledger = |queue| Ledger::new(queue as u16, window, 0);
        Self {
            samples,
            arguments,
            start: Instant::now(),
            ledgers: (0..output.len()).map(ledger).collect(),
            outputs: output,
            inputs,
            report: QueueReport::default(),
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn run(mut self, output: Output) -> Result<QueueReport, Failure> {
        for queue in 0..self.outputs.len() {
            self.meet(queue)?;
        }
        self.start = Instant::now();
        let mut next_report_ns = REPORT_NS;
        let mut last = (0, 0);
        let mut span = Latencies::new();
        let mut idle = Idle::default();
        loop {
            let now_ns = self.now_ns();
            let is_enough = self.is_enough(now_ns);
            // The answers to what is under way still count, and the time may be over when they have come.
            self.report.interrupted |= !is_enough && interrupt::interrupted();
            if !is_enough && !self.report.interrupted {
                self.send(now_ns);
            } else if self.ledgers.iter().all(Ledger::is_settled) {
                break;
            }
            idle.is_after(self.receive(&mut span) == 0);
            self.ledgers
                .iter_mut()
                .for_each(|ledger| ledger.on_time(now_ns));
            if now_ns >= next_report_ns {
                let sent: u64 = self.ledgers.iter().map(Ledger::sent).sum();
                line(output, sent - last.0, self.report.right - last.1, &span);
                last = (sent, self.report.right);
                self.report.latencies.add(&span);
                span = Latencies::new();
                next_report_ns = now_ns + REPORT_NS;
            }
        }
        self.report.latencies.add(&span);
        self.report.seconds = self.start.elapsed().as_secs_f64();
        for ledger in &self.ledgers {
            self.report.sent += ledger.sent();
            self.report.faults.add(&ledger.faults());
        }
        Ok(self.report)
    }

    /// Whether it has sent as many packets, or for as long, as it was asked to.
    fn is_enough(&self, now_ns: u64) -> bool {
        match self.arguments.packets {
            Some(packets) => self.ledgers.iter().map(Ledger::sent).sum::<u64>() >= packets,
            None => Duration::from_nanos(now_ns) >= self.arguments.time,
        }
    }

    /// Asks until a packet comes back: memif loses packets to a peer that has not polled yet.
    fn meet(&mut self, queue: usize) -> Result<(), Failure> {
        let samples = (0..).map(|number| self.samples.of(number));
        let known = |sample: &&Sample| sample.expected.ports != 0;
        let sample = samples.take(1 << 16).find(known).cloned().ok_or_else(|| {
            Failure::usage("no packet of this load is forwarded", "take another --seed")
        })?;
        let mut next_ns = 0;
        let mut idle = Idle::default();
        loop {
            interrupt::check()?;
            let now_ns = self.now_ns();
            if now_ns >= next_ns && self.outputs[queue].allocate(1) {
                let frame = self.outputs[queue].frame(0, sample.frame.len());
                frame.copy_from_slice(&sample.frame);
                let head = frame.len() - ASKING.len();
                frame[head..].copy_from_slice(&ASKING);
                self.outputs[queue].send_as_they_are(1);
                next_ns = now_ns + ASK_NS;
            }
            idle.is_after(true);
            // Every queue is polled, which gives the application room to send.
            for input in self.inputs.iter_mut().flatten() {
                let count = input.receive();
                if (0..count).any(|index| input.received(index).ends_with(&ASKING)) {
                    return Ok(());
                }
            }
            if now_ns > LINK_SECONDS * 1_000_000_000 {
                return Err(Failure::not_reachable(
                    format!("no packet came back within {LINK_SECONDS} s"),
                    "the application needs the same --entries and --seed, and as many --out as this has --in",
                ));
            }
        }
    }

    fn send(&mut self, now_ns: u64) {
        let sent: u64 = self.ledgers.iter().map(Ledger::sent).sum();
        let by_rate = self.arguments.rate.map_or(u64::MAX, |rate| {
            (u128::from(now_ns) * u128::from(rate) / 1_000_000_000) as u64
        });
        let most = self.arguments.packets.unwrap_or(u64::MAX).min(by_rate);
        let mut left = most.saturating_sub(sent);
        for (output, ledger) in self.outputs.iter_mut().zip(&mut self.ledgers) {
            let count = ledger.room().min(BURST).min(left as usize);
            if count == 0 || !output.allocate(count) {
                continue;
            }
            for index in 0..count {
                let frame = output.frame(index, ledger.next_length(self.samples));
                ledger.write_next(self.samples, frame, now_ns);
            }
            let taken = output.send_as_they_are(count);
            ledger.take_back((count - taken) as u64);
            left -= taken as u64;
        }
    }

    /// Checks what came back; how many packets that were.
    fn receive(&mut self, span: &mut Latencies) -> usize {
        let mut all = 0;
        for (port, queues) in self.inputs.iter_mut().enumerate() {
            for input in queues {
                let count = input.receive();
                if count == 0 {
                    continue;
                }
                all += count;
                let now = self.start.elapsed().as_nanos();
                let now_ns = u64::try_from(now).unwrap_or(u64::MAX);
                for index in 0..count {
                    let frame = input.received(index);
                    if frame.ends_with(&ASKING) {
                        continue;
                    }
                    let queue = Ledger::queue_of(frame).min(self.ledgers.len() - 1);
                    let ledger = &mut self.ledgers[queue];
                    match ledger.on_frame(self.samples, port as u8, frame, now_ns) {
                        Arrival::Right(ns) => {
                            self.report.right += 1;
                            span.record_ns(ns);
                        }
                        Arrival::Wrong => {}
                    }
                }
            }
        }
        all
    }
}

/// Statistics of a second.
fn line(output: Output, sent: u64, right: u64, latencies: &Latencies) {
    let at = |quantile| show_ns(latencies.at(quantile));
    output.line(format_args!(
        "{:.3} M/s sent, {:.3} M/s back; latency p50 {}, p99 {}, p99.9 {}",
        sent as f64 / 1e6,
        right as f64 / 1e6,
        at(0.5),
        at(0.99),
        at(0.999)
    ));
}

impl QueueReport {
    fn print(&self, output: Output) {
        let Self {
            sent,
            right,
            seconds,
            latencies,
            faults,
            interrupted,
        } = self;
        let Faults {
            lost,
            doubled,
            misrouted,
            altered,
            strange,
        } = *faults;
        let rate = *sent as f64 / seconds / 1e6;
        output.line(format_args!(
            "{sent} sent in {seconds:.2} s ({rate:.3} M/s), {right} came back as the reference says"
        ));
        output.line(format_args!(
            "{lost} lost, {doubled} doubled, {misrouted} misrouted, {altered} altered, {strange} strange"
        ));
        let percentiles = latencies.percentiles();
        output.line(latency_table([("round trip", percentiles.clone())]));
        output.document(&json!({
            "sent": sent, "right": right, "seconds": seconds,
            "lost": lost, "doubled": doubled, "misrouted": misrouted, "altered": altered, "strange": strange,
            "latency": percentiles, "interrupted": interrupted,
        }));
    }

    /// Fails for packets that did not come back as they must, and for some of those that were asked for and not sent.
    fn judge(&self, asked: Option<u64>) -> Result<(), Failure> {
        let faults = self.faults.sum();
        if faults > 0 {
            return Err(Failure::negative(
                format!("{faults} packets did not come back as they must"),
                "lost ones: lower --rate or --window; others: --entries, --seed and the order of ports must be the application's",
            ));
        }
        match asked {
            Some(packets) if self.interrupted => {
                let (sent, packets) = (show_count(self.sent), plural(packets, "packet"));
                Err(Failure::interrupted_after(
                    format_args!("{sent} of {packets} sent"),
                    "",
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before: `--packets N` ended with status 0 after a Ctrl-C, as if all of them had been sent.
    #[test]
    fn packets_that_were_never_sent_are_no_success() {
        let status = |report: &QueueReport, asked| {
            let judged = report.judge(asked);
            judged.map_or_else(|failure| failure.exit_status(), |()| 0)
        };
        let mut report = QueueReport {
            sent: 5,
            ..QueueReport::default()
        };
        assert_eq!(status(&report, Some(5)), 0);
        report.interrupted = true;
        assert_eq!(status(&report, Some(9)), 130);
        assert_eq!(status(&report, None), 0);
        report.faults.lost = 1;
        assert_eq!(status(&report, Some(9)), 1);
    }
}
