//! Networks that carry less, or more, than an Ethernet: every kind of request works at every size of packet.
//!
//! One value of 1,300 bytes stopped a group for good on links of 1,450 bytes, and on any Ethernet with IPv6: packets had
//! 1,472 bytes and the flag "do not fragment", and a packet that was too large counted as a lost one, which is sent again.
//!
//! Each trial has its own hosts. The gate runs a part of the table; the whole is
//! `cargo test -p trine --test all packet_sizes -- --ignored`, as root, and takes some minutes.

mod trial;

use std::time::Instant;

use trine_testnet::Hosts;

use self::trial::{GAP_MAX, Group, Options};
use super::common::{leave_out, trine};

/// Where the narrow link is.
#[derive(Copy, Clone, Debug)]
enum At {
    /// All links of hosts.
    Hosts,
    /// Between two routers, which say by ICMP what was too large, or do not.
    Routers { tell: bool },
    /// Replica 3's link alone. Those of the others have 9,000 bytes, and a bridge says nothing.
    OneHost,
}

#[derive(Copy, Clone, Debug)]
struct Trial {
    at: At,
    mtu: u32,
    options: Options,
}

const fn plain(at: At, mtu: u32) -> Trial {
    Trial {
        at,
        mtu,
        options: Options {
            is_v6: false,
            is_sealed: false,
            mtu: [None; 4],
        },
    }
}

impl Trial {
    const fn v6(mut self) -> Self {
        self.options.is_v6 = true;
        self
    }

    const fn sealed(mut self) -> Self {
        self.options.is_sealed = true;
        self
    }

    /// `--mtu` of the replicas and of the client.
    const fn saying(mut self, mtu: [Option<u16>; 4]) -> Self {
        self.options.mtu = mtu;
        self
    }

    /// Whether no datagram has to be cut up, be it one packet or several.
    fn carries_everything(&self) -> bool {
        self.mtu >= 1_280 && self.options.mtu == [None; 4]
    }

    /// Whether replica 1's own interface carries less than its `--mtu`.
    fn is_told_too_much(&self) -> bool {
        let headers = if self.options.is_v6 { 48 } else { 28 };
        let own = match self.at {
            At::Hosts => self.mtu,
            At::Routers { .. } => 1_500,
            At::OneHost => 9_000,
        };
        self.options.mtu[0].is_some_and(|bytes| u32::from(bytes) + headers > own)
    }

    fn hosts(&self) -> Result<Hosts, String> {
        match self.at {
            At::Hosts => Hosts::bridged(&[self.mtu; 4]),
            At::Routers { tell } => Hosts::routed(self.mtu, tell),
            At::OneHost => Hosts::bridged(&[9_000, 9_000, self.mtu, 9_000]),
        }
    }
}

const SILENT: At = At::Routers { tell: false };
const TELLING: At = At::Routers { tell: true };
const JUMBO: [Option<u16>; 4] = [Some(8_952); 4];

/// The trials of the gate.
const PART: &[Trial] = &[
    plain(At::Hosts, 1_450),
    plain(At::Hosts, 1_500).v6().sealed(),
    plain(At::Hosts, 1_000).sealed(),
    plain(SILENT, 1_280).v6(),
    // A promise that the path to one of three does not keep.
    plain(At::OneHost, 1_450).saying(JUMBO),
];

/// The others.
const REST: &[Trial] = &[
    plain(At::Hosts, 576),
    plain(At::Hosts, 1_280),
    plain(At::Hosts, 1_280).v6(),
    plain(At::Hosts, 1_400).v6(),
    plain(At::Hosts, 1_450).v6().sealed(),
    plain(At::Hosts, 1_500),
    plain(At::Hosts, 9_000),
    plain(At::Hosts, 9_000).saying(JUMBO),
    plain(At::Hosts, 9_000).v6().sealed().saying(JUMBO),
    plain(At::Hosts, 1_500).v6().saying([Some(1_472); 4]),
    plain(At::Hosts, 1_450).saying([Some(512), None, Some(1_422), Some(9_000)]),
    plain(At::Hosts, 1_500).saying([Some(9_000); 4]),
    plain(TELLING, 576),
    plain(SILENT, 1_000),
    plain(TELLING, 1_400),
    plain(SILENT, 1_400).sealed(),
    plain(TELLING, 1_400).v6(),
    plain(SILENT, 1_450).v6().sealed(),
    plain(TELLING, 1_400).saying([Some(1_472); 4]),
    plain(SILENT, 1_400).v6().saying([Some(1_452); 4]),
    plain(SILENT, 1_400).v6().sealed().saying([Some(1_452); 4]),
    plain(At::OneHost, 1_450).v6().saying(JUMBO),
    plain(At::OneHost, 1_450).saying([Some(8_952), Some(8_952), None, Some(8_952)]),
];

fn run(trials: &[Trial]) {
    for trial in trials {
        let begun = Instant::now();
        let hosts = match trial.hosts() {
            Ok(hosts) => hosts,
            Err(why) => {
                leave_out(&why, "TRINE_NEED_SANDBOX");
                continue;
            }
        };
        eprintln!("{trial:?}");
        let group = Group::start(&hosts, trial.options);
        group.warned_of_its_interface(trial.is_told_too_much());
        group.takes_values_of_every_size();
        group.answers_everything_else();
        group.takes_small_values_of_many_clients();
        group.takes_a_member_in_again();
        if trial.carries_everything() {
            let fragments = hosts.fragments().expect("counters");
            assert_eq!(fragments, 0, "a datagram was longer than its path carries");
        }
        eprintln!("    {:?}", begun.elapsed());
    }
}

#[test]
fn a_part_of_the_networks() {
    run(PART);
}

#[test]
#[ignore = "takes minutes: the whole table of sizes, addresses, routers and options"]
fn all_networks() {
    run(PART);
    run(REST);
}

/// A size that no packet can have, and a size where another option says it.
#[test]
fn sizes_out_of_range_are_refused_with_the_range() {
    for bytes in ["0", "100", "511", "9001", "65536", "-1", "large"] {
        let asked = format!("--mtu={bytes}");
        trine(&["status", &asked], "127.0.0.1:9", b"").expect_error(2, &["--mtu", "512 to 9000"]);
    }
    let elsewhere = ["status", "--mtu", "1000", "--transport", "dpdk"];
    trine(&elsewhere, "127.0.0.1:9", b"").expect_error(2, &["--mtu", "mtu=BYTES"]);
}

/// Replicas keep small packets of their own accord, so that a link that shrinks under load stops nobody.
#[test]
fn a_link_that_shrinks_and_grows_under_load_stops_nobody() {
    let hosts = match Hosts::bridged(&[1_500; 4]) {
        Ok(hosts) => hosts,
        Err(why) => return leave_out(&why, "TRINE_NEED_SANDBOX"),
    };
    let group = Group::start(&hosts, plain(At::Hosts, 1_500).options);
    let load = group.load();
    for mtu in [1_450, 1_280, 1_400, 1_500] {
        load.wait_for_answers(60);
        for host in 0..4 {
            hosts.set_mtu(host, mtu).expect("another size");
        }
    }
    load.wait_for_answers(60);
    let gap = load.longest_gap();
    assert!(gap < GAP_MAX, "nobody was answered for {gap:?}");
}
