//! `trine index bench`: the index of the eRPC paper (section 7.2). Random keys of 8 bytes, and a few scans among GETs.
//!
//! Each round runs the same parts: GETs alone in a closed loop, the mix in a closed loop, and the mix in an open loop
//! at shares of the rate of GETs alone. In one process every part runs twice, with scans in a worker and in dispatch,
//! at the same rates. Medians over the rounds are reported.

mod driver;
mod report;
mod setup;

use std::sync::Arc;

use trine_index::ConcurrentMap;
use trine_transport::backend::MonotonicClock;
use trine_transport::time::{Clock, Duration};

use self::driver::{Asks, IndexLoad, Measured, RequestMix, pair_of};
use self::report::{RoundPart, Rounds};
use self::setup::{run_on, server};
use crate::bench::{Driver, InProcess, Remote, Setup};
use crate::config::INDEX_IN_FLIGHT_MAX;
use crate::index::args::IndexBenchArguments;
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::{interrupt, peers};

pub(super) fn run<N: Network>(
    network: &N,
    arguments: &IndexBenchArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let rounds = match arguments.in_process {
        true => in_process(arguments)?,
        false => remote(network, arguments)?,
    };
    rounds.show(arguments, output);
    Ok(())
}

fn remote<N: Network>(network: &N, arguments: &IndexBenchArguments) -> Result<Rounds, Failure> {
    let address = peers::resolve_server(&arguments.client.connect)?;
    let mut remote = Remote::open(network, address, driver(arguments)?)?;
    if !arguments.filled {
        remote.run((IndexLoad::Fill, mix(arguments)))?;
    }
    measure(&mut [("server", &mut remote)], arguments)
}

fn in_process(arguments: &IndexBenchArguments) -> Result<Rounds, Failure> {
    let map = Arc::new(ConcurrentMap::new(arguments.keys));
    for number in 0..arguments.keys {
        let (key, value) = pair_of(number);
        map.insert(key, value)
            .map_err(|full| Failure::usage(full.to_string(), ""))?;
    }
    let start = |has_worker| {
        let server = |backend| server(backend, &map, has_worker, arguments);
        InProcess::start(driver(arguments)?, server)
    };
    let mut worker = start(true)?;
    let mut dispatch = start(false)?;
    // Only now, because a thread passes its processors on to those that it starts.
    arguments
        .processors()?
        .map_or(Ok(()), |(dispatch, _)| run_on(dispatch))?;
    measure(
        &mut [("worker", &mut worker), ("dispatch", &mut dispatch)],
        arguments,
    )
}

fn driver(arguments: &IndexBenchArguments) -> Result<Driver<Asks>, Failure> {
    let asks = Asks::new(random_seed()?);
    let timeout = arguments.client.timeout.into();
    Ok(Driver::new(asks, INDEX_IN_FLIGHT_MAX, timeout))
}

fn mix(arguments: &IndexBenchArguments) -> RequestMix {
    RequestMix {
        keys: arguments.keys,
        scans: arguments.scans(),
        scan_keys: arguments.scan_keys,
    }
}

/// Runs all parts in all set-ups, in turns.
fn measure(
    setups: &mut [(&'static str, &mut dyn Setup<Asks>)],
    arguments: &IndexBenchArguments,
) -> Result<Rounds, Failure> {
    let mut rounds = Rounds::default();
    let seconds = arguments.duration.as_secs_f64();
    let duration = Duration::from(arguments.duration);
    let window = arguments.pipeline as usize;
    let closed = || IndexLoad::Closed {
        window,
        until: MonotonicClock.now() + duration,
    };
    let gets_alone = RequestMix {
        scans: 0,
        ..mix(arguments)
    };
    for _ in 0..arguments.rounds {
        let mut least = f64::INFINITY;
        for (name, setup) in &mut *setups {
            let measured = setup.run((closed(), gets_alone))?;
            least = least.min(measured.in_time as f64 / seconds);
            rounds.add(name, RoundPart::Gets, seconds, &measured);
            let measured = setup.run((closed(), mix(arguments)))?;
            rounds.add(name, RoundPart::Mixed, seconds, &measured);
        }
        if least == 0.0 {
            return Err(no_answers());
        }
        for percent in &arguments.loads {
            let interval = 1e9 / (least * f64::from(*percent) / 100.0);
            for (name, setup) in &mut *setups {
                let until = MonotonicClock.now() + duration;
                let measured: Measured =
                    setup.run((IndexLoad::Open { interval, until }, mix(arguments)))?;
                rounds.add(name, RoundPart::Open(*percent), seconds, &measured);
            }
        }
    }
    Ok(rounds)
}

fn no_answers() -> Failure {
    Failure::usage(
        "no GET was answered during one part",
        "run it longer with --for",
    )
}
