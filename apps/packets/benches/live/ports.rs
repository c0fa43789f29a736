//! The memif pairs between application and generator: one to the application, two from it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use trine_dpdk::config::PortChoice;
use trine_dpdk::raw::RawQueue;
use trine_dpdk::{DpdkConfig, Eal};
use trine_packets::ports::{MemifRole, PortName, eal_arguments};

/// Output ports of the application.
pub(crate) const OUTPUTS: u8 = 2;

/// The port to the application, then those from it.
pub(crate) fn open(role: MemifRole, socket: &str) -> (RawQueue, Vec<RawQueue>) {
    let ports: Vec<PortName> = (0..=OUTPUTS)
        .map(|number| format!("{socket}-{number}").parse().expect("a port"))
        .collect();
    let eal = Eal::start(&eal_arguments(&ports, role, 1)).unwrap_or_else(|error| panic!("{error}"));
    // The end of the process frees everything. EAL's clean-up can crash where both ends close at a time.
    std::mem::forget(Arc::clone(&eal));
    let mut queues: Vec<RawQueue> = (0..ports.len())
        .map(|number| {
            let config = DpdkConfig {
                device: PortChoice::Name(ports[number].device(number)),
                ..DpdkConfig::new(Ipv4Addr::UNSPECIFIED)
            };
            let opened = RawQueue::open_for_forwarding(&eal, &config, 1);
            let mut queues = opened.unwrap_or_else(|error| panic!("{error}"));
            queues.pop().expect("one queue")
        })
        .collect();
    let outputs = queues.split_off(1);
    (queues.pop().expect("the first port"), outputs)
}
