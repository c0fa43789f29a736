//! `trine sequencer next` and `stats`: each asks one thread of a server.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use trine_sequencer::Why;
use trine_sequencer::wire::{
    ANSWER_BYTES_MAX, Answer, Keeping, NEXT, STATS, STATS_BYTES_MAX, Stats, next_request,
};

use super::args::{SequencerClientArguments, SequencerNextArguments};
use super::service::{NoNumbers, SEQUENCER, open, unreadable};
use super::speculative;
use crate::config::{SEQUENCER_AGAIN, SEQUENCER_PATIENCE_FIRST, SEQUENCER_PATIENCE_LEAST};
use crate::rights::DENIED_BYTES_MAX;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::{Output, Table};
use trine_base::peers;
use trine_base::units::{show_count, show_duration};

pub(super) fn next<N: Network>(
    network: &N,
    arguments: &SequencerNextArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let count = arguments.count;
    let first = match arguments.speculative {
        true => {
            let request = |address, patience| speculative::next(network, address, patience);
            first_of(&arguments.client, request)?
        }
        false => {
            let bytes = next_request(count);
            let request = |address, patience| ask(network, address, patience, &bytes);
            first_of(&arguments.client, request)?
        }
    };
    // The server reserved all of them below 2^64.
    let end = first + u64::from(count);
    output.document(&json!({ "first": first, "count": count }));
    let mut lines = String::new();
    for number in first..end {
        let separator = if number == first { "" } else { "\n" };
        let _ = write!(lines, "{separator}{number}");
    }
    output.line(lines);
    Ok(())
}

/// Asks the servers by turns until one of them gives numbers. A dead one costs a moment in the first turn; where answers take
/// long, later turns wait for them.
fn first_of(
    arguments: &SequencerClientArguments,
    request: impl Fn(SocketAddr, Duration) -> Result<Result<u64, NoNumbers>, Failure>,
) -> Result<u64, Failure> {
    let addresses = addresses(arguments)?;
    let limit = arguments.timeout;
    let deadline = Instant::now() + limit;
    // A server that says why it gives no numbers tells more than a silent one.
    let (mut without, mut silent) = (None, None);
    let share = (limit / addresses.len() as u32).max(SEQUENCER_PATIENCE_LEAST);
    let mut patience = match addresses.len() {
        1 => limit,
        _ => SEQUENCER_PATIENCE_FIRST,
    };
    loop {
        for &address in &addresses {
            let left = deadline.saturating_duration_since(Instant::now());
            match request(address, left.min(patience)) {
                Ok(Ok(first)) => return Ok(first),
                Ok(Err(none)) => without = Some(none),
                // Another server of the list may do it.
                Err(failure) if failure.is_without_answer() => silent = Some(failure),
                Err(failure) => return Err(failure),
            }
            interrupt::check()?;
        }
        if deadline.saturating_duration_since(Instant::now()) <= SEQUENCER_AGAIN {
            return Err(match (without, silent) {
                (Some(none), _) => no_numbers(&none, limit),
                (None, Some(failure)) => failure,
                (None, None) => unreachable!("each server has said something or nothing"),
            });
        }
        interrupt::pause(SEQUENCER_AGAIN);
        patience = (patience * 4).min(share);
    }
}

fn ask<N: Network>(
    network: &N,
    address: SocketAddr,
    patience: Duration,
    request: &[u8],
) -> Result<Result<u64, NoNumbers>, Failure> {
    let mut line = open(network, address, patience)?;
    // Numbers without an answer are skipped: nothing is left in doubt.
    let answer = line.ask(NEXT, request, ANSWER_BYTES_MAX.max(DENIED_BYTES_MAX), false)?;
    match Answer::decode(&answer) {
        Some(Answer::First(first)) => Ok(Ok(first)),
        Some(Answer::None(why)) => Ok(Err(NoNumbers(address, why))),
        Some(Answer::Malformed(most)) => Err(Failure::usage(
            format!("{address} gives 1 to {most} numbers at a time"),
            "take another --count",
        )),
        None => Err(unreadable(address)),
    }
}

fn no_numbers(&NoNumbers(address, why): &NoNumbers, waited: Duration) -> Failure {
    let waited = show_duration(waited);
    let message =
        |reason: &str| format!("{address} gives out no numbers: {reason} (tried for {waited})");
    match why {
        Why::Elsewhere => Failure::not_reachable(
            message("another server does, or did until a moment ago"),
            "name all servers of this sequence: --connect host:port,host:port",
        ),
        Why::NotReserved => Failure::not_reachable(
            message("it cannot reserve any"),
            "its output says why; `trine status` shows the group that it asks",
        ),
    }
}

/// The servers of a list.
pub(super) fn addresses(arguments: &SequencerClientArguments) -> Result<Vec<SocketAddr>, Failure> {
    let items = arguments
        .connect
        .split(',')
        .filter(|item| !item.trim().is_empty());
    let addresses: Vec<SocketAddr> = items.map(peers::resolve_server).collect::<Result<_, _>>()?;
    if addresses.is_empty() {
        return Err(Failure::usage(
            "--connect names no server",
            SEQUENCER.start_one,
        ));
    }
    Ok(addresses)
}

pub(super) fn stats<N: Network>(
    network: &N,
    arguments: &SequencerClientArguments,
    output: Output,
) -> Result<(), Failure> {
    let of_each = addresses(arguments)?.into_iter();
    let all: Vec<OfServer> = of_each
        .map(|address| (address, stats_of(network, address, arguments.timeout)))
        .collect();
    let document = |(address, stats): &OfServer| match stats {
        Ok(stats) => json!({ "address": address, "stats": stats }),
        Err(failure) => json!({ "address": address, "error": failure }),
    };
    output.document(&json!({ "servers": all.iter().map(document).collect::<Vec<_>>() }));
    output.line(table(&all));
    let mut failures = all.into_iter().filter_map(|(_, stats)| stats.err());
    let first = failures.next();
    // The first one follows as the failure of the command.
    failures.for_each(|failure| output.line(failure.in_one_line()));
    first.map_or(Ok(()), Err)
}

/// A server, and what it has done, or why it did not say so.
type OfServer = (SocketAddr, Result<Stats, Failure>);

fn stats_of<N: Network>(
    network: &N,
    address: SocketAddr,
    patience: Duration,
) -> Result<Stats, Failure> {
    let mut line = open(network, address, patience)?;
    let answer = line.ask(STATS, &[], STATS_BYTES_MAX, false)?;
    serde_json::from_slice(&answer).map_err(|_| unreadable(address))
}

/// Columns of [`table`].
const COLUMNS: usize = 12;

fn table(all: &[OfServer]) -> Table {
    let mut table = Table::new::<COLUMNS>([
        "server",
        "kept",
        "serves",
        "next",
        "reserved",
        "requests",
        "numbers",
        "turns",
        "largest",
        "without",
        "refused",
        "by four bytes",
    ]);
    for (address, stats) in all {
        let Ok(stats) = stats else {
            let mut cells = ["-"; COLUMNS].map(str::to_owned);
            cells[0] = address.to_string();
            cells[1] = "unknown".to_owned();
            table.row(cells);
            continue;
        };
        let kept = match stats.keeping {
            Keeping::File => "file",
            Keeping::Strict => "group, strict",
            Keeping::Loose => "group",
        };
        table.row([
            address.to_string(),
            kept.to_owned(),
            if stats.serving { "yes" } else { "no" }.to_owned(),
            stats.next.to_string(),
            show_count(stats.reserved),
            show_count(stats.answered),
            show_count(stats.numbers),
            show_count(stats.turns),
            show_count(stats.largest_turn),
            show_count(stats.without),
            show_count(stats.refused),
            stats
                .speculative
                .map_or("-".to_owned(), |counters| show_count(counters.answered)),
        ]);
    }
    table
}
