//! `trine latency` measures how long packets and operations take at the moment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use trine_client::Mode;
use trine_kvstore::{Command, SetExpiry, SetOptions};

use super::status::node_id_at;
use trine_base::answers::response_of;

use crate::config::{PROBE_EVERY, PROBE_EXPIRY, PROBE_POLL_INTERVAL};
use clap::Args;
use trine_base::arguments::ClientArguments;
use trine_base::client::{self, CommandClient};
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::latency::{Latencies, latency_table};
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::peers;
use trine_base::progress::Progress;
use trine_base::survey::{SURVEY_TIMEOUT, ask_everybody};
use trine_base::units::parse_positive_duration;
use trine_base::units::{plural, show_count, show_ns};
use trine_base::waiting::while_waiting;

#[derive(Debug, Args)]
pub(crate) struct LatencyArguments {
    /// How long to measure; Ctrl-C ends it early.
    #[arg(long = "for", default_value = "3s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// The widest bar, in characters.
const BAR: u64 = 40;

/// The measurements so far.
struct Measured {
    puts: Times,
    gets: Times,
    links: BTreeMap<(u32, String), Latencies>,
}

/// The times of one kind, and their classes for the drawing.
struct Times {
    latencies: Latencies,
    /// Counts by [`class`].
    classes: BTreeMap<u64, u64>,
}

impl Times {
    fn new() -> Self {
        Self {
            latencies: Latencies::new(),
            classes: BTreeMap::new(),
        }
    }

    fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.record_ns(ns);
        *self.classes.entry(class(ns)).or_default() += 1;
    }
}

/// The least of 1, 2, 5, 10, 20, 50 ... microseconds that is above `ns`.
fn class(ns: u64) -> u64 {
    let steps = [2, 5, 10].into_iter();
    let mut decade = 1_000_u64;
    if ns < decade {
        return decade;
    }
    loop {
        let longer = |step: &u64| ns < decade.saturating_mul(*step);
        match steps.clone().find(longer) {
            Some(step) => return decade * step,
            None if decade > u64::MAX / 10 => return u64::MAX,
            None => decade *= 10,
        }
    }
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &LatencyArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let mut measured = Measured {
        puts: Times::new(),
        gets: Times::new(),
        links: BTreeMap::new(),
    };
    measure(network, arguments, &mut measured, output)?;
    output.document(&document(&measured));
    tell(&measured, output);
    interrupt::check()
}

/// Writes and reads its own key alternately, and polls the links now and then. Ctrl-C ends it early.
fn measure<N: Network>(
    network: &N,
    arguments: &LatencyArguments,
    measured: &mut Measured,
    output: Output,
) -> Result<(), Failure> {
    let addresses = peers::resolve(&arguments.client.group.peers)?;
    let mut session = client::open(network, &arguments.client, |_| {})?;
    let key = format!("trine:latency:{}", random_seed()?);
    let key = key.as_bytes();
    // The key expires if this process dies.
    let expiry = SetExpiry::After(PROBE_EXPIRY.as_nanos() as u64);
    let options = SetOptions {
        expiry,
        ..SetOptions::default()
    };
    let value = &[b'x'; 100];
    let put = Command::Set {
        key,
        value,
        options,
    };
    // The first operation opens the session.
    let opened = while_waiting(network, &addresses, output, || {
        session.execute(Mode::Write, &put)
    });
    if opened.is_err() && interrupt::interrupted() {
        // The key that may have been written expires.
        return Err(Failure::interrupted_after("nothing was measured", ""));
    }
    response_of(&opened?)?;
    let start = Instant::now();
    let until = start + arguments.duration;
    let total = u64::try_from(arguments.duration.as_millis()).unwrap_or(u64::MAX);
    let mut progress = Progress::at_terminal("measuring", Some(total), output);
    let mut next_poll = Instant::now();
    while Instant::now() < until && !interrupt::interrupted() {
        match put_and_get(&mut session, &put, key, measured) {
            // What was measured by then is told.
            Err(_) if interrupt::interrupted() => break,
            done => done?,
        }
        progress.set(start.elapsed().as_millis() as u64, || {
            format!(
                "{} put and read",
                plural(measured.puts.latencies.count(), "time")
            )
        });
        let now = Instant::now();
        if next_poll <= now {
            next_poll = now + PROBE_POLL_INTERVAL;
            let limit = arguments.client.group.timeout.min(SURVEY_TIMEOUT).into();
            sample_links(network, &addresses, limit, measured)?;
        }
        interrupt::pause(PROBE_EVERY);
    }
    drop(progress);
    match session.execute(Mode::WriteAndClose, &Command::Delete { key }) {
        // It expires.
        Err(_) if interrupt::interrupted() => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// Writes the key and reads it, and takes the time of both.
fn put_and_get(
    session: &mut CommandClient,
    put: &Command<'_>,
    key: &[u8],
    measured: &mut Measured,
) -> Result<(), Failure> {
    let begun = Instant::now();
    response_of(&session.execute(Mode::Write, put)?)?;
    measured.puts.record(begun.elapsed());
    let begun = Instant::now();
    response_of(&session.execute(Mode::Read, &Command::Get { key })?)?;
    measured.gets.record(begun.elapsed());
    Ok(())
}

fn sample_links<N: Network>(
    network: &N,
    addresses: &[std::net::SocketAddr],
    limit: trine_transport::time::Duration,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let reports = ask_everybody(network, addresses, limit)?;
    for report in &reports {
        let Ok(node) = &report.answer else { continue };
        for link in node.links.iter().filter(|link| link.class == "raft") {
            let Some(rtt_ns) = link.rtt_ns else { continue };
            let to = node_id_at(link.address, &reports);
            let to = to.map_or_else(|| link.address.to_string(), |node_id| node_id.to_string());
            let name = (node.replica.node_id, to);
            let times = measured.links.entry(name).or_default();
            times.record_ns(rtt_ns);
        }
    }
    Ok(())
}

fn document(measured: &Measured) -> serde_json::Value {
    let link = |((node_id, to), times): (&(u32, String), &Latencies)| json!({ "from": node_id, "to": to, "rtt": times.percentiles() });
    json!({
        "put": measured.puts.latencies.percentiles(),
        "get": measured.gets.latencies.percentiles(),
        "links": measured.links.iter().map(link).collect::<Vec<_>>(),
    })
}

fn tell(measured: &Measured, output: Output) {
    let links = measured
        .links
        .iter()
        .map(|((node_id, to), times)| (format!("{node_id} to {to}"), times.percentiles()));
    let links: Vec<_> = links.collect();
    output.line("round trips between replicas (smoothed, as congestion control sees them)");
    output.line(latency_table(
        links
            .iter()
            .map(|(name, times)| (name.as_str(), times.clone())),
    ));
    output.line("");
    output.line("operations of this client, one after the other, 100 bytes");
    let operations = [("put", &measured.puts), ("get", &measured.gets)];
    output.line(latency_table(
        operations.map(|(name, times)| (name, times.latencies.percentiles())),
    ));
    for (name, times) in operations {
        output.line("");
        output.line(bars(name, &times.classes));
    }
}

/// A line for each non-empty class. Its bar is as long as its share of the largest class.
fn bars(name: &str, classes: &BTreeMap<u64, u64>) -> String {
    let most = classes.values().copied().max().unwrap_or(1);
    let row = |(&below, &count): (&u64, &u64)| {
        let bar = "#".repeat((count * BAR).div_ceil(most) as usize);
        format!(
            "  {name} < {:>8} {:>8}  {bar}",
            show_ns(below),
            show_count(count)
        )
    };
    let rows: Vec<String> = classes.iter().map(row).collect();
    rows.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_drawn_by_1_2_5() {
        assert_eq!(class(0), 1_000);
        assert_eq!(class(1_000), 2_000);
        assert_eq!(class(4_999), 5_000);
        assert_eq!(class(5_000), 10_000);
        assert_eq!(class(10_000), 20_000);
        assert_eq!(class(u64::MAX), u64::MAX);
        let drawn = bars("put", &BTreeMap::from([(20_000, 80), (50_000, 1)]));
        let stars = |line: &str| line.matches('#').count();
        let lengths: Vec<usize> = drawn.lines().map(stars).collect();
        assert_eq!(lengths, [40, 1], "{drawn}");
    }
}
