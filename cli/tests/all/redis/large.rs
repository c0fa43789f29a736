//! Large values, many at once: they take their time, and none of them fails.

use std::sync::Barrier;

use super::RedisGroup;
use super::wire::Wire;

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
