//! The feature "header checksums": who agrees to it has only the header of long packets summed.

use super::net::{Done, Net};
use super::script::{PEER, Script};
use crate::Config;
use crate::time::Duration;
use crate::wire::{Features, Header, PacketType, RequestNumber, Seed};

/// A server that was told so, or by default, and a client that offers so or not.
fn server(data_checksums: bool, offered: Features) -> Script {
    let config = Config {
        data_checksums,
        ..Config::default()
    };
    Script::server_offered(&config, offered)
}

/// Sends a request of so many bytes with the bit `damaged` turned, counted from the packet's first.
fn send_damaged(s: &mut Script, sequence: u64, bytes: usize, damaged: usize, seed: Seed) {
    let body = vec![3; bytes];
    let header = Header {
        message_bytes: bytes as u32,
        request: RequestNumber::new(0, sequence),
        ..s.header(PacketType::Request)
    };
    let mut packet = [&header.write(seed, None, &body)[..], &body].concat();
    packet[damaged / 8] ^= 1 << (damaged % 8);
    s.node.receive(s.now, PEER, &packet);
}

/// Bits of the request type, which leave the packet well formed, and of the data.
const IN_KIND: usize = 8 * 6;
const IN_DATA: usize = 8 * 40;

#[test]
fn both_agree_and_the_data_of_long_packets_is_not_summed() {
    let mut s = server(false, Features::HEADER_CHECKSUMS);
    let agreed = s.seed.agreed(Features::HEADER_CHECKSUMS);
    send_damaged(&mut s, 1, 1_000, IN_DATA, agreed);
    assert_eq!(
        (s.executed(), s.node.endpoint.stats().drops.checksum),
        (1, 0)
    );
    send_damaged(&mut s, 2, 1_000, IN_KIND, agreed);
    assert_eq!(
        (s.executed(), s.node.endpoint.stats().drops.checksum),
        (1, 1)
    );
    send_damaged(&mut s, 2, 256, IN_DATA, agreed);
    assert_eq!(
        (s.executed(), s.node.endpoint.stats().drops.checksum),
        (1, 2)
    );
}

#[test]
fn one_side_alone_changes_nothing() {
    let sides = [(true, Features::HEADER_CHECKSUMS), (false, Features::NONE)];
    for (data_checksums, offered) in sides {
        let mut s = server(data_checksums, offered);
        let seed = s.seed;
        send_damaged(&mut s, 1, 1_000, IN_DATA, seed);
        assert_eq!(
            (s.executed(), s.node.endpoint.stats().drops.checksum),
            (0, 1)
        );
        s.request(1, 0, 1_000);
        assert_eq!(s.executed(), 1);
    }
}

/// Large messages both ways between two endpoints that agree.
#[test]
fn messages_of_many_packets_pass() {
    let config = Config {
        data_checksums: false,
        ..Config::default()
    };
    let mut net = Net::new(2, 2, &config);
    let session = net.connected(0, 1);
    net.request(0, session, 9, 300_000);
    let is_done = |net: &Net| net.nodes[0].app.completions.len() == 1;
    assert!(net.run_until(Duration::from_secs(1), is_done));
    assert_eq!(net.nodes[0].app.completions[0], Done::with(9, 300_000));
}
