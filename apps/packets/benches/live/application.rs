//! The role of the application: it runs its ways by turns, and prints a row for each comparison.

use crate::ports::{OUTPUTS, open};
use crate::process::{wait_for_end, wait_for_sign};
use crate::turns::{Way, rate};
use std::future::Future;
use trine_dpdk::raw::RawQueue;
use trine_packets::application::Application;
use trine_packets::config::BATCH_DEFAULT;
use trine_packets::echo::by_number;
use trine_packets::forwarding::turn;
use trine_packets::ports::MemifRole;
use trine_packets::scenario::{ApplicationName, OnApplication, TableSettings, on_application};
use trine_packets::verdict::Verdict;
use trine_report::Pairs;

/// Alternating pairs behind every ratio.
const PAIRS: usize = 11;
/// Where the destination of an IPv4 packet is in its frame.
const DESTINATION: usize = 30;

pub(crate) fn run(name: ApplicationName, entries: usize, socket: &str) {
    let settings = TableSettings {
        entries,
        ports: OUTPUTS,
        seed: 1,
    };
    on_application(name, &settings, Run { name, socket }).expect("a table");
}

struct Run<'a> {
    name: ApplicationName,
    socket: &'a str,
}

impl OnApplication for Run<'_> {
    type Output = ();

    fn on<A: Application>(self, application: &A) {
        let (mut input, mut outputs) = open(MemifRole::Server, self.socket);
        println!("ready");
        wait_for_sign();
        let mut compare = |what: &str, against: &str, ours: Way<'_>, theirs: Way<'_>| {
            let ends = std::cell::RefCell::new((&mut input, &mut outputs));
            let run = |way: Way<'_>| {
                let (input, outputs) = &mut *ends.borrow_mut();
                rate(input, outputs, way)
            };
            let pairs = Pairs::run(PAIRS, || run(ours), || run(theirs));
            let Pairs {
                ours,
                theirs,
                ratio,
                range: (least, most),
            } = pairs;
            println!("row {what} {against} {ours} {theirs} {ratio} {least} {most}");
        };
        match self.name {
            ApplicationName::Echo => {
                let mut next = 0;
                let mut raw = |input: &mut RawQueue, outputs: &mut [RawQueue]| {
                    next = (next + 1) % outputs.len();
                    input.forward_all(&mut outputs[next]);
                };
                compare(
                    "vs_raw",
                    "raw-forwarding",
                    &mut batched(application),
                    &mut raw,
                );
            }
            _ => {
                let mut one = way::<1, A>(application);
                compare(
                    "batch_vs_one",
                    "one-at-a-time",
                    &mut batched(application),
                    &mut one,
                );
            }
        }
        if self.name == ApplicationName::Ipv4 {
            compare(
                "vs_echo",
                "echo",
                &mut batched(application),
                &mut batched(&EchoOfDestination),
            );
        }
        println!("ended");
        wait_for_end();
        // The end of the process closes the ports, see `open`.
        std::mem::forget((input, outputs));
    }
}

/// Echo for IPv4 packets: the number is the destination, so that they leave by as many ports as those of IPv4 do.
struct EchoOfDestination;

impl Application for EchoOfDestination {
    #[inline(always)]
    fn handle<'a, const N: usize>(
        &'a self,
        frame: &'a mut [u8],
    ) -> impl Future<Output = Verdict> + 'a {
        async move { by_number(frame, DESTINATION, OUTPUTS) }
    }
}

fn batched<A: Application>(application: &A) -> impl FnMut(&mut RawQueue, &mut [RawQueue]) {
    way::<BATCH_DEFAULT, A>(application)
}

fn way<const N: usize, A: Application>(
    application: &A,
) -> impl FnMut(&mut RawQueue, &mut [RawQueue]) {
    |input, outputs| {
        turn::<N, A>(application, input, outputs);
    }
}
