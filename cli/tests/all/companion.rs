//! The process beside a replica's, which tells the others of its end: signals that are meant for the replica do not end it.

use std::io::Write;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Stdio;

use trine_protocol::message::DEATH_NOTICE;
use trine_transport::wire::notice;

use crate::common::{LIMIT, command, signal, wait_for};

/// Names and numbers of the signals that whole services and terminals get.
const SIGNALS: [(&str, u32); 6] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
];

/// The signals that a process handles, as a set of bits.
fn handled_by(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// SIGUSR1 makes a replica read its log level again, and systemd sends it to all processes of a unit. Four of them left the
/// replica without a companion for the rest of its life.
#[test]
fn a_companion_outlives_the_signals_that_its_replica_gets() {
    let replica = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    replica.set_read_timeout(Some(LIMIT)).expect("a limit");
    let address = replica.local_addr().expect("an address");
    let mut companion = command(&["tell-death"], "")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let pid = companion.id();
    let all = SIGNALS
        .iter()
        .fold(0, |set, (_, number)| set | (1_u64 << (number - 1)));
    wait_for("its handlers of signals", || {
        (handled_by(pid)? & all == all).then_some(())
    });
    for (name, _) in SIGNALS {
        signal(pid, name);
    }
    let mut pipe = companion.stdin.take().expect("a pipe");
    write!(pipe, "begin {:032x} 24000\nto {address}\n", 7).expect("it reads");
    drop(pipe);
    let mut bytes = [0; 100];
    let (length, _) = replica.recv_from(&mut bytes).expect("a notice");
    assert_eq!(bytes[..length], notice(DEATH_NOTICE, &7_u128.to_be_bytes()));
    assert!(companion.wait().expect("it ends").success());
}

/// Its page told operators to signal all processes of the unit.
#[test]
fn the_page_of_the_unit_signals_the_replica_alone() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd/trine@.service.8");
    let page = std::fs::read_to_string(page).expect("the page");
    let kills: Vec<&str> = page
        .lines()
        .filter(|line| line.contains("systemctl kill"))
        .collect();
    assert!(!kills.is_empty());
    for line in kills {
        assert!(line.contains(r"\-\-kill\-whom=main"), "{line}");
    }
}
