//! Load for an etcd server over gRPC: a closed loop of clients in one thread, each with one request at a time.
//! `cli/bench/compare.py` sets it beside `trine bench`, whose keys and loop it has.

mod grpc;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;
use serde_json::json;
use tokio::task::JoinSet;

use self::grpc::{Connection, Error, PutRequest, RangeRequest, RangeResponse};

/// etcd's documentation measures with 1,000 clients on 100 connections.
const CLIENTS_PER_CONNECTION: usize = 10;

/// Measures an etcd server, and prints a JSON document.
#[derive(Parser)]
struct Arguments {
    /// HOST:PORT of the server.
    server: String,
    /// Clients that work at the same time, one request each.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    clients: u64,
    /// The percentage of reads; every key is written first if there are any.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
    reads: u32,
    /// The number of keys.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// The size of each value in bytes.
    #[arg(long, default_value_t = 100)]
    value_size: usize,
    /// Seconds to measure.
    #[arg(long = "for", default_value = "10", value_parser = seconds)]
    duration: Duration,
    /// Seconds of load before that.
    #[arg(long, default_value = "1", value_parser = seconds)]
    warmup: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime
        .map_err(Error::from)
        .and_then(|runtime| runtime.block_on(measure(arguments)))
    {
        Ok(document) => {
            println!("{document}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("trine-etcd-load: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: Arguments) -> Result<serde_json::Value, Error> {
    let arguments = Arc::new(arguments);
    let mut clients = Vec::new();
    for index in 0..arguments.clients as usize {
        if index % CLIENTS_PER_CONNECTION == 0 {
            clients.push(Connection::open(&arguments.server).await?);
        } else {
            clients.push(clients[index - 1].clone());
        }
    }
    if arguments.reads > 0 {
        let all = clients.iter().cloned().enumerate();
        in_parallel(all.map(|(index, client)| fill(client, arguments.clone(), index as u64)))
            .await?;
    }
    let begin = Instant::now() + arguments.warmup;
    let all = clients.into_iter().enumerate();
    let loads = all.map(|(index, client)| load(client, arguments.clone(), index as u64, begin));
    let mut latencies = Histogram::<u64>::new(3)?;
    let mut missing = 0;
    for (of_client, missing_there) in in_parallel(loads).await? {
        latencies.add(of_client)?;
        missing += missing_there;
    }
    let at = |quantile| latencies.value_at_quantile(quantile);
    Ok(json!({
        "operations_per_second": latencies.len() as f64 / arguments.duration.as_secs_f64(),
        "operations": latencies.len(),
        "missing": missing,
        "p50_ns": at(0.5),
        "p99_ns": at(0.99),
        "max_ns": latencies.max(),
    }))
}

/// The results of all clients. The first failure ends them.
async fn in_parallel<T: Send + 'static>(
    clients: impl Iterator<Item = impl Future<Output = Result<T, Error>> + Send + 'static>,
) -> Result<Vec<T>, Error> {
    let mut running: JoinSet<Result<T, Error>> = clients.collect();
    let mut results = Vec::new();
    while let Some(ended) = running.join_next().await {
        results.push(ended??);
    }
    Ok(results)
}

/// Writes the keys that fall to this client.
async fn fill(client: Connection, arguments: Arc<Arguments>, first: u64) -> Result<(), Error> {
    for number in (first..arguments.keys).step_by(arguments.clients as usize) {
        client.put(&put_of(number, &arguments)).await?;
    }
    Ok(())
}

/// One client's loop: the latencies in nanoseconds of the operations that ended in the measured time, and how many reads found
/// no key.
async fn load(
    client: Connection,
    arguments: Arc<Arguments>,
    seed: u64,
    begin: Instant,
) -> Result<(Histogram<u64>, u64), Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut latencies, mut missing) = (Histogram::new(3)?, 0);
    let end = begin + arguments.duration;
    loop {
        let number = random.u64(..arguments.keys);
        let sent = Instant::now();
        let found = if random.u32(..100) < arguments.reads {
            let request = RangeRequest {
                key: key_of(number),
            };
            let response: RangeResponse = client.range(&request).await?;
            response.count > 0
        } else {
            client.put(&put_of(number, &arguments)).await?;
            true
        };
        let ended = Instant::now();
        if ended >= end {
            return Ok((latencies, missing));
        }
        if ended >= begin {
            latencies.record((ended - sent).as_nanos() as u64)?;
            missing += u64::from(!found);
        }
    }
}

fn put_of(number: u64, arguments: &Arguments) -> PutRequest {
    PutRequest {
        key: key_of(number),
        value: vec![b'v'; arguments.value_size],
    }
}

/// As `trine bench` names its keys.
fn key_of(number: u64) -> Vec<u8> {
    format!("bench-{number:010}").into_bytes()
}
