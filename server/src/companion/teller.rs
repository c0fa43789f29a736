//! The companion process itself: it waits for the end of the replica's process, tells it, and ends.

use std::cell::LazyCell;
use std::fs;
use std::io::{self, BufRead};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

use trine_protocol::message::{DEATH_NOTICE, RunSecret};
use trine_transport::wire::notice;

use super::line::Line;

/// A replica is told several times, for a datagram can be lost: at once, and so long after it.
const TIMES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(4),
];

/// The last words of the replica's process.
struct Will {
    secret: RunSecret,
    stagger: Duration,
    others: Vec<SocketAddr>,
}

/// Runs such a process. Its standard input is the pipe.
#[must_use]
pub fn run() -> ExitCode {
    // Started as /proc/self/exe, it would be called exe. No more than 15 bytes are taken.
    let _ = fs::write("/proc/self/comm", "trine-companion");
    // Who ends the replica often ends all processes of its service, or of its terminal. This one ends by itself.
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        let _ = flag::register(signal, Arc::default());
    }
    run_anywhere();
    match read(&mut io::stdin().lock()) {
        Some(will) => {
            tell(&will);
            ExitCode::SUCCESS
        }
        None => ExitCode::from(2),
    }
}

/// The replica may be bound to one processor, where its own end would come first.
fn run_anywhere() {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    let _ = sched_setaffinity(None, &all);
}

/// Reads until the replica's process has ended. Nothing if the lines make no sense: nothing is told then.
fn read(pipe: &mut impl BufRead) -> Option<Will> {
    let mut text = String::new();
    pipe.read_line(&mut text).ok()?;
    let Line::Begin { secret, stagger } = Line::read(&text)? else {
        return None;
    };
    let mut will = Will {
        secret,
        stagger,
        others: Vec::new(),
    };
    loop {
        text.clear();
        let length = pipe.read_line(&mut text).ok()?;
        match Line::read(&text) {
            Some(Line::To(others)) => will.others = others,
            Some(Line::Gone) => return Some(will),
            Some(Line::Begin { .. }) => return None,
            // It is gone: at the end of a line, or within one.
            None if length == 0 || !text.ends_with('\n') => return Some(will),
            None => return None,
        }
    }
}

/// Who is told when, counted from the end.
fn plan(will: &Will) -> Vec<(Duration, SocketAddr)> {
    let mut plan: Vec<_> = (0..)
        .zip(&will.others)
        .flat_map(|(rank, &other)| TIMES.map(|time| (will.stagger * rank + time, other)))
        .collect();
    plan.sort_by_key(|&(at, _)| at);
    plan
}

fn tell(will: &Will) {
    let ended = Instant::now();
    let bytes = notice(DEATH_NOTICE, &will.secret.0);
    // Not open before: it would hold a port that others may want.
    let open = |local: IpAddr| UdpSocket::bind((local, 0));
    let v4 = LazyCell::new(|| open(Ipv4Addr::UNSPECIFIED.into()));
    let v6 = LazyCell::new(|| open(Ipv6Addr::UNSPECIFIED.into()));
    for (at, other) in plan(will) {
        thread::sleep(at.saturating_sub(ended.elapsed()));
        let socket = if other.is_ipv4() { &*v4 } else { &*v6 };
        if let Ok(socket) = socket {
            // Whom it does not reach waits for an election timeout, as without a companion.
            let _ = socket.send_to(&bytes, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn will_of(text: &str) -> Option<Will> {
        read(&mut text.as_bytes())
    }

    #[test]
    fn the_last_list_counts_and_a_line_that_was_cut_does_not() {
        let begin = "begin 000000000000000000000000000000ff 24000\n";
        let two = "to 127.0.0.1:1 127.0.0.1:2\n";
        let one = "to 127.0.0.1:3\n";
        let ports = |text: String| -> Vec<u16> {
            let will = will_of(&text).expect("it is told");
            assert_eq!(will.secret.0[15], 255);
            will.others.iter().map(SocketAddr::port).collect()
        };
        assert_eq!(ports(begin.to_owned()), [0_u16; 0]);
        assert_eq!(ports(format!("{begin}{two}")), [1, 2]);
        assert_eq!(ports(format!("{begin}{two}{one}")), [3]);
        assert_eq!(ports(format!("{begin}{one}gone\n{two}")), [3]);
        for cut in 0..one.len() {
            assert_eq!(ports(format!("{begin}{two}{}", &one[..cut])), [1, 2]);
        }
    }

    #[test]
    fn what_makes_no_sense_is_told_to_nobody() {
        for text in [
            "",
            "gone\n",
            "begin ff\n",
            "begin ff 1",
            "begin ff 1\nwhat\n",
        ] {
            assert!(will_of(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn each_is_told_several_times_and_the_next_one_later() {
        let will = will_of("begin ff 24000\nto 127.0.0.1:1 127.0.0.1:2\n").expect("it is told");
        let plan = plan(&will);
        let at = |port| -> Vec<u128> {
            let of_port = plan.iter().filter(|(_, other)| other.port() == port);
            of_port.map(|(at, _)| at.as_millis()).collect()
        };
        assert_eq!(at(1), [0, 1, 4]);
        assert_eq!(at(2), [24, 25, 28]);
    }

    #[test]
    fn a_replica_hears_the_secret() {
        let replica = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let other = replica.local_addr().expect("an address");
        let will = Will {
            secret: RunSecret([7; 16]),
            stagger: Duration::ZERO,
            others: vec![other],
        };
        tell(&will);
        let mut bytes = [0; 100];
        for _ in TIMES {
            let (length, _) = replica.recv_from(&mut bytes).expect("a datagram");
            assert_eq!(bytes[..length], notice(DEATH_NOTICE, &[7; 16]));
        }
    }
}
