//! Large values, many at once: they take their time, and none of them fails.

use std::sync::Barrier;

use super::wire::Wire;
use super::{RedisGroup, counter};
use crate::common::wait_for;

const VALUE_BYTES: usize = 1 << 20;

/// Connects `clients` clients, lets all of them send `commands` reads at once, and expects each reply.
fn read_at_once(group: &RedisGroup, clients: usize, commands: usize) {
    let start = Barrier::new(clients);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let start = &start;
            let mut wire = group.connect(1 + client % 3);
            scope.spawn(move || {
                start.wait();
                wire.send_bytes(&b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(commands));
                for command in 0..commands {
                    let reply = wire.reply();
                    let shown = &reply[..reply.len().min(100)];
                    // The quotes are the test's.
                    assert_eq!(reply.len(), VALUE_BYTES + 2, "{client}, {command}: {shown}");
                }
            });
        }
    });
}

fn group_with_a_large_value() -> (RedisGroup, Wire) {
    let group = RedisGroup::start(&[]);
    let mut wire = group.connect(1);
    wire.send(&["SET", "big", &"v".repeat(VALUE_BYTES)]);
    assert_eq!(wire.reply(), "+OK");
    (group, wire)
}

/// Fifty of fifty reads failed after five seconds, with "no message buffer was left" or without an answer in time.
#[test]
fn fifty_large_reads_at_once_are_all_answered() {
    let (group, _wire) = group_with_a_large_value();
    read_at_once(&group, 50, 1);
}

/// In pipelines, 8 to 22 in a hundred of them failed from four clients on.
#[test]
fn pipelines_of_large_reads_are_all_answered() {
    let (group, _wire) = group_with_a_large_value();
    read_at_once(&group, 4, 16);
    read_at_once(&group, 12, 8);
}

/// A hundred clients that did not read took 1.9 GiB at a replica with 1 GiB for its data, and leaders were deposed. Now
/// the connections that hold most are closed, and the others are served.
#[test]
fn clients_that_do_not_read_are_closed_before_they_hold_too_much() {
    const LIMIT_BYTES: u64 = 16 << 20;
    let group = RedisGroup::start(&["--resp-memory", "16MiB"]);
    let mut bystander = group.connect(1);
    bystander.send(&["SET", "big", &"v".repeat(VALUE_BYTES)]);
    assert_eq!(bystander.reply(), "+OK");
    let mut idle: Vec<Wire> = (0..30).map(|_| group.connect(1)).collect();
    for wire in &mut idle {
        wire.send_bytes(&b"*3\r\n$4\r\nMGET\r\n$3\r\nbig\r\n$3\r\nbig\r\n".repeat(20));
    }
    wait_for("the end of some of them", || {
        (counter(&mut bystander, "evicted_clients") > 0).then_some(())
    });
    wait_for("the connections to hold no more than they may", || {
        (counter(&mut bystander, "mem_clients_normal") <= LIMIT_BYTES).then_some(())
    });
    assert_eq!(bystander.ask("SET k v"), "+OK");
    assert_eq!(bystander.ask("STRLEN big"), format!(":{VALUE_BYTES}"));
}
