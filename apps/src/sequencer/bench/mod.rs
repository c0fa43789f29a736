//! `trine sequencer bench`: requests in a closed loop. Each answer is checked against those that came before its request.

mod driver;
mod four_bytes;
mod setup;

use serde_json::json;
use trine_sequencer::config::SPECULATIVE_WINDOW_MAX;
use trine_transport::backend::MonotonicClock;
use trine_transport::time::{Clock, Duration};

use self::driver::{LoadLimit, Measured, Numbers};
use self::setup::server;
use super::args::SequencerBenchArguments;
use super::client::addresses;
use crate::bench::{Driver, InProcess, Remote, Setup, median};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::units::{plural, show_count, show_ns};

pub(super) fn run<N: Network>(
    network: &N,
    arguments: &SequencerBenchArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    if arguments.speculative && arguments.pipeline as usize > SPECULATIVE_WINDOW_MAX {
        return Err(Failure::usage(
            format!("with --speculative at most {SPECULATIVE_WINDOW_MAX} requests are in flight"),
            "take a smaller --pipeline",
        ));
    }
    if arguments.in_process {
        return in_process(arguments, output);
    }
    let address = addresses(&arguments.client)?[0];
    if arguments.speculative {
        let mut remote = four_bytes::remote(network, address, arguments)?;
        return measure(&mut remote, arguments, output);
    }
    let mut remote = Remote::open(network, address, driver(arguments))?;
    measure(&mut remote, arguments, output)
}

fn in_process(arguments: &SequencerBenchArguments, output: Output) -> Result<(), Failure> {
    if arguments.speculative {
        let mut both = four_bytes::in_process(arguments)?;
        return measure(&mut both, arguments, output);
    }
    let server = |backend| server(backend, arguments.lease_check);
    let mut both = InProcess::start(driver(arguments), server)?;
    measure(&mut both, arguments, output)
}

fn driver(arguments: &SequencerBenchArguments) -> Driver<Numbers> {
    let numbers = Numbers::new(arguments.count);
    let timeout = arguments.client.timeout.into();
    Driver::new(numbers, arguments.pipeline as usize, timeout)
}

fn measure(
    setup: &mut impl Setup<Numbers>,
    arguments: &SequencerBenchArguments,
    output: Output,
) -> Result<(), Failure> {
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let begun = MonotonicClock.now();
        let load = match arguments.requests {
            Some(requests) => LoadLimit::Requests(requests),
            None => LoadLimit::Until(begun + Duration::from(arguments.duration)),
        };
        let measured = setup.run(load)?;
        let took = MonotonicClock.now().saturating_since(begun);
        rounds.push((measured, took.as_nanos() as f64 / 1e9));
    }
    show(&rounds, arguments, output);
    Ok(())
}

fn show(rounds: &[(Measured, f64)], arguments: &SequencerBenchArguments, output: Output) {
    let rate = median(
        rounds
            .iter()
            .map(|(measured, seconds)| measured.latencies.count() as f64 / seconds),
    );
    let at = |quantile: f64| {
        median(
            rounds
                .iter()
                .map(|(measured, _)| measured.latencies.at(quantile) as f64),
        )
        .round() as u64
    };
    let (p50, p99) = (at(0.5), at(0.99));
    let answered: u64 = rounds
        .iter()
        .map(|(measured, _)| measured.latencies.count())
        .sum();
    let numbers_per_s = rate * f64::from(arguments.count);
    output.document(&json!({
        "in_process": arguments.in_process,
        "lease_check": arguments.lease_check,
        "speculative": arguments.speculative,
        "pipeline": arguments.pipeline,
        "count": arguments.count,
        "rounds": arguments.rounds,
        "answered": answered,
        "requests_per_s": rate.round() as u64,
        "numbers_per_s": numbers_per_s.round() as u64,
        "p50_ns": p50,
        "p99_ns": p99,
    }));
    output.line(format_args!(
        "{} requests/s, {} numbers/s, p50 {}, p99 {}; medians of {}, {} in flight",
        show_count(rate.round() as u64),
        show_count(numbers_per_s.round() as u64),
        show_ns(p50),
        show_ns(p99),
        plural(arguments.rounds.into(), "round"),
        arguments.pipeline,
    ));
    output.line(format_args!(
        "{} answers, none smaller than one that came before its request",
        show_count(answered)
    ));
}
