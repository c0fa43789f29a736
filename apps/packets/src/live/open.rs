//! Opens and closes the ports of a command.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trine_base::failure::Failure;
use trine_base::{interrupt, placement};
use trine_dpdk::config::PortChoice;
use trine_dpdk::raw::RawQueue;
use trine_dpdk::{DpdkConfig, DpdkError, Eal};
use trine_packets::config::LINK_SECONDS;
use trine_packets::ports::{MemifRole, PortName, eal_arguments};

/// How often a link that is not up yet, or not down yet, is asked for.
const POLL: Duration = Duration::from_millis(10);

/// Opens the ports, each with this many queues.
pub(super) fn open(
    ports: &[PortName],
    role: MemifRole,
    queues: usize,
) -> Result<Vec<Vec<RawQueue>>, Failure> {
    let mut names = HashSet::new();
    if let Some(twice) = ports.iter().find(|port| !names.insert(port.to_string())) {
        return Err(Failure::usage(
            format!("{twice} is named twice"),
            "every --in and --out is a port of its own",
        ));
    }
    let eal = Eal::start(&eal_arguments(ports, role, queues)).map_err(failure)?;
    // EAL's clean-up can crash on a memif device that was never opened, and the driver where both ends close at a time. The
    // end of the process frees everything: memory is its own, and sockets have no files.
    std::mem::forget(Arc::clone(&eal));
    let open = |(number, port): (usize, &PortName)| {
        let config = DpdkConfig {
            device: PortChoice::Name(port.device(number)),
            ..DpdkConfig::new(Ipv4Addr::UNSPECIFIED)
        };
        let count = u16::try_from(queues).expect("at most CORES_MAX");
        let opened = RawQueue::open_for_forwarding(&eal, &config, count);
        opened.map_err(|error| failure(error).while_doing(&port.to_string()))
    };
    ports.iter().enumerate().map(open).collect()
}

fn failure(error: DpdkError) -> Failure {
    Failure::usage(
        error.to_string(),
        "transport/DPDK.md says what DPDK needs; an AF_PACKET port needs CAP_NET_RAW",
    )
}

/// Waits until every port has a link.
pub(super) fn wait_for_links(ports: &[PortName], queues: &[&RawQueue]) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs(LINK_SECONDS);
    loop {
        interrupt::check()?;
        let Some(down) = queues.iter().position(|queue| !queue.link_is_up()) else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            return Err(Failure::not_reachable(
                format!("{} has no link after {LINK_SECONDS} s", ports[down]),
                "start the application first, with the other end of each port",
            ));
        }
        interrupt::pause(POLL);
    }
}

/// Waits until the application at the other end of memif ports has ended, or for a further Ctrl-C. Nothing polls the ports
/// any more. The driver unmaps the rings of a port that closes under whoever polls the other end.
pub(super) fn wait_for_end(queues: &[&RawQueue]) {
    let _was_interrupted = interrupt::take();
    while !interrupt::interrupted() && queues.iter().any(|queue| queue.link_is_up()) {
        interrupt::pause(POLL);
    }
}

/// Runs the calling thread on one processor.
pub(super) fn pin(core: u32) -> Result<(), Failure> {
    placement::apply(&placement::PlacementArguments {
        cpu: Some(core),
        ..Default::default()
    })
}
