//! `trine up`: a local group in the foreground, until Ctrl-C. A replica that dies is started again
//! and re-joins.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use trine_chaos::live::{Exit, Group, LineSink, Stream, addresses_from, leader_of};

use crate::args::{UpArguments, replica_count};
use crate::config::{
    BASE_PORT, RESTART_PAUSE, RESTART_PAUSE_MAX, RESTART_PAUSE_RESET, SUPERVISE_EVERY,
};
use crate::failure::Failure;
use crate::network::Network;
use crate::output::Output;
use crate::units::show_ns;
use crate::{group, interrupt};

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &UpArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let count = replica_count(&arguments.replicas);
    let addresses = addresses_from(arguments.base_port, count).ok_or_else(|| {
        let message = format!("{count} ports from {} run past 65535", arguments.base_port);
        Failure::usage(message, "choose a smaller --base-port")
    })?;
    let started = Instant::now();
    output.line(format_args!("starting {count} replicas ..."));
    let serve_args = arguments.limits.as_serve_args();
    let sink = sink(output, count);
    let group = match group::start(network, addresses.clone(), serve_args, Some(sink)) {
        Err(_) if interrupt::interrupted() => return Ok(()),
        other => other?,
    };
    welcome(network, &addresses, started.elapsed(), output)?;
    supervise(group, output)
}

/// Prints what the replicas say, each line with its place in front. In JSON form it goes to
/// standard error: standard output holds one document. The first words of each replica are left
/// out, because the welcome says the same of all of them.
fn sink(output: Output, count: usize) -> LineSink {
    let spoke: Vec<AtomicBool> = (0..count).map(|_| AtomicBool::new(false)).collect();
    Arc::new(move |place, stream, line: &str| {
        let first = stream == Stream::Out && !spoke[place - 1].swap(true, Ordering::Relaxed);
        match output.json {
            _ if first => {}
            true => eprintln!("[{place}] {line}"),
            false => output.line(format_args!("[{place}] {line}")),
        }
    })
}

fn welcome<N: Network>(
    network: &N,
    addresses: &[SocketAddr],
    took: Duration,
    output: Output,
) -> Result<(), Failure> {
    let reports = group::look(network, addresses)?;
    let leader = leader_of(&reports).map(|leader| leader.place);
    let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let took = show_ns(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    output.document(&json!({ "peers": list, "leader": leader }));
    let leader = leader.map_or(String::new(), |place| format!("; replica {place} leads"));
    output.line(format_args!(
        "ready after {took}: {}{leader}",
        list.join(" ")
    ));
    output.line("");
    output.line("In another terminal:");
    if addresses[0].port() != BASE_PORT || addresses.len() != 3 {
        output.line(format_args!("  export TRINE_PEERS={}", list.join(",")));
    }
    output.line("  trine put greeting hello");
    output.line("  trine get greeting");
    output.line("  trine status");
    output.line("");
    output.line("Ctrl-C ends the group, and with it the data: it is in memory only.");
    Ok(())
}

/// When a replica that died is due to be started again.
struct Restart {
    place: usize,
    due: Instant,
}

/// Looks after the replicas until the user ends it.
fn supervise(mut group: Group, output: Output) -> Result<(), Failure> {
    let count = group.addresses().len();
    let mut started = vec![Instant::now(); count];
    let mut pauses = vec![RESTART_PAUSE; count];
    let mut restarts: Vec<Restart> = Vec::new();
    while !interrupt::interrupted() {
        interrupt::pause(SUPERVISE_EVERY);
        for exit in group.take_exits().map_err(group::live_failure)? {
            let index = exit.place - 1;
            if started[index].elapsed() > RESTART_PAUSE_RESET {
                pauses[index] = RESTART_PAUSE;
            }
            tell_exit(&exit, pauses[index], output);
            restarts.push(Restart {
                place: exit.place,
                due: Instant::now() + pauses[index],
            });
            pauses[index] = (pauses[index] * 2).min(RESTART_PAUSE_MAX);
        }
        if restarts.len() * 2 > count {
            tell_majority_lost(output);
        }
        let (due, later): (Vec<_>, Vec<_>) = restarts
            .into_iter()
            .partition(|restart| restart.due <= Instant::now());
        restarts = later;
        for restart in due {
            started[restart.place - 1] = Instant::now();
            group.restart(restart.place).map_err(group::live_failure)?;
        }
    }
    output.line("stopping ...");
    group.stop().map_err(group::live_failure)
}

fn tell_exit(exit: &Exit, pause: Duration, output: Output) {
    let pause = show_ns(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX));
    let line = format!(
        "replica {} ended ({}); starting it again in {pause}, empty, to re-join the group",
        exit.place, exit.status
    );
    match output.json {
        true => eprintln!("{line}"),
        false => output.line(line),
    }
}

fn tell_majority_lost(output: Output) {
    let line = "most replicas died at once: what the group stored is gone with them. \
                End it with Ctrl-C and start a new one.";
    match output.json {
        true => eprintln!("{line}"),
        false => output.line(line),
    }
}
