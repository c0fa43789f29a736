//! The companion process itself: it waits for the end of the replica's process, tells it, and ends.

use std::cell::LazyCell;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{ioctl_fionbio, retry_on_intr};
use rustix::stdio::dup2_stdout;
use rustix::thread::{CpuSet, sched_setaffinity};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag;

use trine_protocol::message::{DEATH_NOTICE, RunSecret};
use trine_transport::wire::notice;

use super::life_lock::has_ended;
use super::line::CompanionMessage;

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

/// Runs such a process. Its standard input is the pipe, its standard output the memory of the mutex.
#[must_use]
pub fn run() -> ExitCode {
    // Started as /proc/self/exe, it would be called exe. No more than 15 bytes are taken.
    let _ = fs::write("/proc/self/comm", "trine-companion");
    // Who ends the replica, or asks it to read its files again, often signals all processes of its service, or of its
    // terminal. This one ends by itself, and has no files.
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2] {
        let _ = flag::register(signal, Arc::default());
    }
    run_anywhere();
    let will = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .and_then(|pipe| hear(&File::from(pipe), await_end().as_ref()));
    match will {
        Ok(Some(will)) => {
            tell(&will);
            ExitCode::SUCCESS
        }
        Ok(None) | Err(_) => ExitCode::from(2),
    }
}

/// Lets a thread wait for the end of the replica's thread, and raise an event then. The memory of their mutex lies at
/// standard output. Without an event the end of the pipe tells.
fn await_end() -> Option<OwnedFd> {
    let memory = File::from(io::stdout().as_fd().try_clone_to_owned().ok()?);
    // A line printed there would destroy the mutex.
    let null = File::options().write(true).open("/dev/null").ok()?;
    dup2_stdout(null).ok()?;
    let event = eventfd(0, EventfdFlags::CLOEXEC).ok()?;
    let raised = File::from(event.try_clone().ok()?);
    let wait = move || {
        // If it has let go, or this fails, the pipe says how it went on.
        if let Ok(true) = has_ended(&memory) {
            let _ = (&raised).write_all(&1_u64.to_ne_bytes());
        }
    };
    thread::Builder::new().spawn(wait).ok()?;
    Some(event)
}

/// Reads the pipe until its end, or until `ended` is raised and the pipe is empty. Returns the words to tell then, or
/// nothing if the lines make no sense.
fn hear(mut pipe: &File, ended: Option<&OwnedFd>) -> io::Result<Option<Will>> {
    let mut hearing = Hearing::default();
    let mut bytes = [0; 4096];
    let mut has_ended = false;
    while !hearing.is_over {
        if !has_ended && let Some(ended) = ended {
            let mut fds = [
                PollFd::new(&pipe, PollFlags::IN),
                PollFd::new(ended, PollFlags::IN),
            ];
            retry_on_intr(|| poll(&mut fds, None))?;
            has_ended = !fds[1].revents().is_empty();
            if has_ended {
                // The replica wrote its last lines before its end, so they lie in the pipe.
                ioctl_fionbio(pipe, true)?;
            }
        }
        match pipe.read(&mut bytes) {
            Ok(0) => hearing.is_over = true,
            Ok(length) => hearing.take(&bytes[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if has_ended && error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(hearing.will)
}

/// The replica may be bound to one processor, where its own end would come first.
fn run_anywhere() {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    let _ = sched_setaffinity(None, &all);
}

/// The lines so far.
#[derive(Default)]
struct Hearing {
    /// The beginning of a line. It counts for nothing until its end.
    rest: Vec<u8>,
    will: Option<Will>,
    is_over: bool,
}

impl Hearing {
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while !self.is_over
            && let Some(end) = self.rest.iter().position(|&byte| byte == b'\n')
        {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = str::from_utf8(&line).ok().and_then(CompanionMessage::read);
            self.take_line(line);
        }
    }

    /// One line; none if it makes no sense. Then nothing is told.
    fn take_line(&mut self, line: Option<CompanionMessage>) {
        match (line, &mut self.will) {
            (Some(CompanionMessage::Begin { secret, stagger }), None) => {
                let others = Vec::new();
                self.will = Some(Will {
                    secret,
                    stagger,
                    others,
                });
            }
            (Some(CompanionMessage::To(others)), Some(will)) => will.others = others,
            (Some(CompanionMessage::Gone), Some(_)) => self.is_over = true,
            _ => {
                self.is_over = true;
                self.will = None;
            }
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

    /// The words that are told if a process writes this and ends.
    fn will_of(text: &str) -> Option<Will> {
        let (pipe, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(text.as_bytes()).expect("room in the pipe");
        drop(writer);
        hear(&File::from(OwnedFd::from(pipe)), None).expect("it can be read")
    }

    /// A wake-up by the mutex must not overtake what was written before.
    #[test]
    fn what_was_written_before_the_end_counts_though_the_pipe_stays_open() {
        let (pipe, mut writer) = io::pipe().expect("a pipe");
        let pipe = File::from(OwnedFd::from(pipe));
        let raised = eventfd(1, EventfdFlags::CLOEXEC).expect("an event");
        let text = "begin ff 24000\nto 127.0.0.1:1 127.0.0.1:2\nto 127.0";
        writer.write_all(text.as_bytes()).expect("room in the pipe");
        let will = hear(&pipe, Some(&raised)).expect("it can be read");
        assert_eq!(will.expect("it is told").others.len(), 2);
        let nothing = hear(&pipe, Some(&raised)).expect("it can be read");
        assert!(nothing.is_none(), "nobody said whom to tell");
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
